"""Run folders whose files do not fit together: each told by its file, none a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.run.run import Run
from tests.factories.cli import refused, simulated
from tests.factories.unchecked_runs import without_manifest


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in good order, with the samples of its packets."""
    return simulated(tmp_path_factory.mktemp("whole"), "packets = 1000")


@pytest.fixture
def run(complete_run: Path, tmp_path: Path) -> Path:
    """A copy of it without SHA-256, to be damaged."""
    return without_manifest(Path(shutil.copytree(complete_run, tmp_path / "run")))


def assert_refused(capsys: pytest.CaptureFixture[str], run: Path, *expected: str) -> None:
    for command in (["report", run], ["compare", run, run], ["export", "counts", run]):
        refused(capsys, command, *expected, "run the scenario again")


@pytest.mark.parametrize("name", ["nodes", "switches", "links", "labels", "windows", "ranks"])
@pytest.mark.parametrize("rows", [0, 2])
def test_a_table_that_is_cut(
    name: str, rows: int, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / f"{name}.parquet"
    frame = pl.read_parquet(file)
    if frame.height > rows:
        frame.head(rows).write_parquet(file)
        assert_refused(capsys, run, "damaged table", ".parquet")


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("links", "dst"),
        ("links", "src_name"),
        ("labels", "phase"),
        ("windows", "end_ps"),
        ("packets", "header"),
        ("packets", "label"),
        ("truth", "link"),
        ("samples", "hop_weight"),
        ("messages", "src_rank"),
    ],
)
def test_nulls_where_nothing_is_unknown(
    name: str, column: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / f"{name}.parquet"
    frame = pl.read_parquet(file)
    frame.with_columns(
        pl.when(pl.int_range(pl.len()) > 0).then(pl.col(column)).alias(column)
    ).write_parquet(file)
    assert_refused(capsys, run, f"{name}.parquet {column}", "contains nulls")


@pytest.mark.parametrize(("name", "column"), [("samples", "window"), ("truth", "window")])
def test_a_table_of_another_run(
    name: str, column: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / f"{name}.parquet"
    frame = pl.read_parquet(file)
    frame.with_columns(pl.lit(10**6, pl.UInt32).alias(column)).write_parquet(file)
    assert_refused(capsys, run, f"{name}.parquet {column}", "contains 1000000")


def test_numbers_out_of_order(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "links.parquet"
    pl.read_parquet(file).reverse().write_parquet(file)
    assert_refused(capsys, run, "links.parquet link", "is not 0, 1, 2")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("elapsed_ps", float("inf")),
        ("elapsed_ps", "soon"),
        ("average_path_length", None),
        ("average_path_length", "long"),
        ("model", "fluid"),
        ("one_in", []),
        ("assumptions", ["no object"]),
    ],
)
def test_a_summary_that_no_run_has(
    key: str, value: Any, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads((run / "run.json").read_text())
    data["summary"][key] = value
    (run / "run.json").write_text(json.dumps(data))
    assert_refused(capsys, run, "run.json", "rates" if key == "model" else key)


def test_notes_that_are_no_text(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**data, "notes": [3]}))
    assert_refused(capsys, run, "run.json", "notes")


def test_run_keeps_kinds_of_notes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads((run / "run.json").read_text())
    data["summary"]["assumptions"] = {"skipped": ["of 9 steps"], "within hosts": ["40 Gb/s"]}
    (run / "run.json").write_text(json.dumps(data))
    read = Run.read(run)
    assert read.skip_notes == ["of 9 steps"] and read.assumptions == ["of 9 steps", "40 Gb/s"]
    data["summary"]["assumptions"]["skipped"] = "of 9 steps"
    (run / "run.json").write_text(json.dumps(data))
    assert_refused(capsys, run, "run.json", "skipped")


def test_another_scenario_than_the_runs_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "scenario.json"
    file.write_text(file.read_text().replace('"seed": 1', '"seed": 99'))
    assert_refused(capsys, run, "scenario.json", "is not the scenario of this run")
