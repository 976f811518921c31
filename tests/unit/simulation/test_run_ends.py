"""How runs end: broken off in the middle of things, or to the picosecond where a window begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate, simulate_fluid

TREE = {"hosts_per_leaf": 1, "leaves": 16, "aggregation": 2, "host_delay": "5 us"}


def scenario(job: dict[str, Any], **telemetry: Any) -> dict[str, Any]:
    return {"fabric": {"fat_tree": TREE}, "job": [job], "telemetry": telemetry}


def broken_off(text: dict[str, Any], packets: int) -> Run:
    """A run that is broken off once so many packets have been delivered."""

    def watch(_: int, delivered: int, *counts: int) -> None:
        if delivered >= packets:
            raise KeyboardInterrupt

    run = simulate(parse(text), watch, partial=True)
    assert not run.complete
    return run


ACROSS = {"pattern": {"kind": "ring", "ranks": 16, "messages": 1, "size": "64 MiB"}}
"""Each rank sends to another leaf: every packet visits three switches."""


@pytest.mark.parametrize("scheme", ["full", "coordinated"])
def test_a_run_broken_off_can_be_read(scheme: str, tmp_path: Path) -> None:
    # Cables of 5 us: many windows lie between the end and arrivals that are known already.
    telemetry = {"scheme": scheme, "windows": 4096, "packets": 1_000_000}
    run = broken_off(scenario(ACROSS, **telemetry), 20_000)
    read = Run.read(run.write(tmp_path / "run")).tables
    end = run.summary["end_ps"]
    assert read["windows"]["end_ps"][-1] == end
    assert read["truth"].height > 1000 and read["packets"].height > 1000
    assert read["packets"]["time_ps"].max() <= end


def test_a_run_broken_off_counts_what_has_arrived() -> None:
    run = broken_off(scenario(ACROSS), 20_000)
    assert run.tables["messages"]["arrival_ps"].null_count() > 0
    assert run.summary["average_path_length"] == 3
    assert (
        run.summary["observed_packets"]
        == run.summary["packets"]
        < run.tables["messages"]["packets"].sum()
    )
    # All ranks have done nothing but wait.
    assert RunAnalysis(run).communication_fraction > 0.9


def test_a_run_may_end_where_a_window_begins(tmp_path: Path) -> None:
    job = {"pattern": {"kind": "uniform", "ranks": 2, "messages": 1, "size": "1 B"}}
    length = simulate(parse(scenario(job))).elapsed_ps
    run = simulate(parse(scenario(job | {"start": f"{(1 << 30) - length} ps"})))
    assert run.summary["end_ps"] == 1 << 30 and (1 << 30) % run.summary["window_ps"] == 0
    read = Run.read(run.write(tmp_path / "run")).tables
    samples, last = read["samples"], read["windows"].height - 1
    assert samples["window"].max() == last
    assert samples["hop_samples"].sum() == 2
    assert not samples.select("window", "job", "label", "link").is_duplicated().any()


def test_both_models_count_packets_within_a_host() -> None:
    pattern = {"kind": "uniform", "ranks": 12, "messages": 5, "size": "10 KiB"}
    parsed = parse(scenario({"pattern": pattern, "ranks_per_host": 4, "hosts": "0-2"}))
    by_packets, fluid = simulate(parsed), simulate_fluid(prepare(parsed))
    assert (by_packets.tables["messages"]["switch_hops"] == 0).any()
    for key in ("packets", "observed_packets", "messages"):
        assert fluid.summary[key] == by_packets.summary[key] > 0
