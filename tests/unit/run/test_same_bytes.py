"""The files of a run do not depend on where its tables came from."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import tailback as tb

SCENARIO = {
    "name": "tiny",
    "fabric": {"topology": {"kind": "k-ary-n-tree", "k": 2, "n": 2}},
    "job": [{"pattern": {"kind": "ring", "ranks": 4, "size": "4 KiB"}}],
}


@pytest.mark.slow
def test_chunks_in_memory_do_not_change_files(tmp_path: Path) -> None:
    run = tb.simulate(SCENARIO)
    # Polars writes chunks of large tables as groups of rows.
    rows = pl.concat([run.tables["truth"].head(4)] * 150_000, rechunk=True)
    files = []
    for name, cuts in (("whole", [0, len(rows)]), ("parts", [0, 100_000, 350_000, len(rows)])):
        parts = [rows[begin:end] for begin, end in pairwise(cuts)]
        table = pl.concat(parts, rechunk=False)
        assert table.n_chunks() == len(parts)
        replace(run, tables={**run.tables, "truth": table}).write(tmp_path / name)
        files.append((tmp_path / name / "truth.parquet").read_bytes())
    assert files[0] == files[1]
