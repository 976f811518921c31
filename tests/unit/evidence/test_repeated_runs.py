"""Runs of one job: whether they take longer when they stall, and what that costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.cli import run
from tailback.evidence.repeated_runs import repeated_runs
from tailback.fabric.readers import read_fabric
from tailback.port_counters.schema import INTERVALS, conform
from tests.factories.cli_counters import FABRIC

SECOND = 10**9


def runs(name: str, seconds: Any, stall: Any, hosts: int = 8) -> pl.DataFrame:
    return pl.DataFrame(
        {"name": name, "hosts": hosts, "seconds": seconds, "stall_fraction": stall},
        schema={
            "name": pl.String,
            "hosts": pl.UInt32,
            "seconds": pl.Float64,
            "stall_fraction": pl.Float64,
        },
    )


def drawn(seed: int, slope: float, count: int = 20) -> pl.DataFrame:
    """Runs that take ``slope`` seconds more for each stall of 1, and vary by 20 s."""
    rng = np.random.default_rng(seed)
    stall = rng.uniform(0.0, 0.3, count)
    return runs(f"seed {seed}", 1000 + slope * stall + rng.normal(0, 20, count), stall)


def test_the_cost_of_stalls_is_found() -> None:
    covered = 0
    for seed in range(20):
        frame = drawn(seed, 800.0)
        (row,) = repeated_runs(frame).to_dicts()
        assert row["p"] <= 0.05 and row["correlation"] > 0.7
        truth = 800.0 * frame["stall_fraction"].sum() * 8 / 3600
        covered += row["lost_low"] <= truth <= row["lost_high"]
    assert covered >= 17


def test_unrelated_runs_have_no_cost() -> None:
    tables = [repeated_runs(drawn(seed, 0.0)) for seed in range(60)]
    assert sum(table["lost_node_hours"].null_count() for table in tables) >= 54


def test_many_jobs_make_chance_findings_rarer() -> None:
    alone = repeated_runs(drawn(3, 300.0))["p"][0]
    assert repeated_runs(pl.concat([drawn(3, 300.0), drawn(4, 0.0)]))["p"][0] == min(1, 2 * alone)


def test_few_runs_are_not_compared() -> None:
    four = runs("four", [1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4])
    assert repeated_runs(four).is_empty()
    sizes = pl.concat([four, runs("four", [9.0], [0.5], hosts=16)])
    assert repeated_runs(sizes).is_empty(), "more hosts are another job"
    five = pl.concat([four, runs("four", [5.0], [0.5])])
    assert repeated_runs(five)["p"][0] == pytest.approx(1 / 120)


def test_faster_runs_that_stall_lose_nothing() -> None:
    falling = runs("falling", np.arange(9.0, 0.0, -1.0), np.linspace(0.1, 0.9, 9))
    (row,) = repeated_runs(falling).to_dicts()
    assert (row["correlation"], row["lost_node_hours"]) == (pytest.approx(-1.0), None)


def test_command_compares_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight runs on one host, each of which stalls more than the one before and takes longer."""
    fabric = read_fabric(FABRIC)
    begun = 1_700_000_000
    readings = [60 + 5 * number for number in range(8)]
    stall = np.concatenate([np.full(count, 0.02 * n) for n, count in enumerate(readings)])
    frame = pl.DataFrame(
        {
            "time_ns": (begun + 10 * np.arange(1, len(stall) + 1)) * SECOND,
            "interval_ns": 10 * SECOND,
            "node_name": fabric.vertex_name(0),
            "port": 1,
            "data_bytes": 10**9,
            "stall_fraction": stall,
            "utilization": 0.1,
            "capacity_gbps": 100.0,
        }
    )
    archive, jobs = tmp_path / "archive.parquet", tmp_path / "jobs.csv"
    conform(INTERVALS, frame).write_parquet(archive)
    ends = (begun + 10 * np.cumsum(readings)).tolist()
    lines = [
        f"{number},app,{end - 10 * count},{end},{fabric.host_name[0]}\n"
        for number, (end, count) in enumerate(zip(ends, readings, strict=True), start=71)
    ]
    jobs.write_text("job,name,start,end,hosts\n" + "".join(lines))
    asked = ["counters", str(archive), "--fabric", str(FABRIC), "--jobs", str(jobs)]
    page = tmp_path / "page.html"
    assert run([*asked, "--html", str(page), "-v"]) == 0
    text = capsys.readouterr().out
    assert "DO RUNS TAKE LONGER WHEN THEY STALL?" in text
    assert "Do runs take longer when they stall?" in page.read_text()
    assert run([*asked, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["job_runs"]
    assert (row["name"], row["runs"], row["correlation"]) == ("app", 8, pytest.approx(1.0))
    lost_seconds = 10 * sum(5 * number for number in range(8))
    assert row["lost_node_hours"] == pytest.approx(lost_seconds / 3600, rel=0.05)
