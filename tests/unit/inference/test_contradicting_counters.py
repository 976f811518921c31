"""A rank file of another run, and a cable that the fabric lacks, named by counted bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailback as tb
from tailback.evidence.counter_alignment import JoinError

RUN = Path(__file__).parents[3] / "examples/lab/slow-cable"


def refused(**inputs: Path) -> JoinError:
    files = {"fabric": RUN / "links.csv", "rankfile": RUN / "rank_host.csv", **inputs}
    counters = RUN / "counters.csv.gz"
    with pytest.raises(JoinError) as caught:
        tb.diagnose(RUN / "trace", counters=counters, **files)  # type: ignore[arg-type]
    assert caught.value.file == counters
    return caught.value


def test_rank_file_of_another_run_is_named(tmp_path: Path) -> None:
    head, *rows = (RUN / "rank_host.csv").read_text().splitlines()
    cells = [row.split(",") for row in rows]
    # Ranks that shared a host are on different ones.
    hosts = [cell[1:] for cell in cells[::2] + cells[1::2]]
    moved = [",".join([cell[0], *host]) for cell, host in zip(cells, hosts, strict=True)]
    (tmp_path / "ranks.csv").write_text("\n".join([head, *moved]) + "\n")
    error = refused(rankfile=tmp_path / "ranks.csv")
    assert "but its ports counted" in error.message
    assert "rankfile" in str(error.remedy)


def test_cable_that_fabric_lacks_is_named(tmp_path: Path) -> None:
    rows = (RUN / "links.csv").read_text().splitlines()
    kept = [row for row in rows if not {"l0", "s1"} <= set(row.split(","))]
    assert len(rows) - len(kept) == 2
    (tmp_path / "links.csv").write_text("\n".join(kept) + "\n")
    error = refused(fabric=tmp_path / "links.csv")
    assert "l0[s1] is not in the fabric" in error.message
