"""Scenarios with priority flow control, DCQCN and ECMP: what they say, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback import Run, TailbackError
from tailback.scenario.model import load, parse
from tailback.simulation import FluidOptions, prepare, simulate, simulate_fluid

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "congestion" / "victim.toml"
TREE = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 4}
PFC = {"flow_control": {"kind": "pfc"}}
DCQCN = {"injection": "per-destination", "congestion_control": {"scheme": "dcqcn"}}


def scenario(**engine: Any) -> dict[str, Any]:
    """Fifteen hosts send to one."""
    pattern = {"kind": "reduce-naive", "ranks": 16, "arrays": 2, "size": "500 kB"}
    return {
        "fabric": {"fat_tree": TREE},
        "job": [{"pattern": pattern}],
        "engine": {"packet": "1 kB", "routing": "ecmp", "eager": "1 GiB", **engine},
    }


def run(**engine: Any) -> Run:
    return simulate(parse(scenario(**engine)), threads=1)


def test_pauses_are_counted_as_port_stall() -> None:
    result = run(**PFC)
    assert result.summary["pauses"] > 100
    stalled = int(result.tables["truth"]["stall_ps"].sum())
    # Ports are stalled while they have packets; a pause is one also of a port without any.
    assert 0 < stalled <= result.summary["paused_ps"]
    credits = run().summary
    assert "pauses" not in credits
    assert "congestion_notifications" not in credits


def test_rates_of_dcqcn_follow_marks() -> None:
    # So high that marks come before pauses.
    shared = {"flow_control": {"kind": "pfc", "xoff": "100 kB"}, "buffer": "200 kB"}
    plain, rated = run(**shared, injection="per-destination"), run(**shared, **DCQCN)
    assert rated.summary["paused_ps"] < plain.summary["paused_ps"] / 2
    assert rated.summary["marked_packets"] >= rated.summary["congestion_notifications"] > 0
    never = run(**shared, **DCQCN, dcqcn={"kmin": "1 GB", "kmax": "2 GB"})
    assert (never.summary["marked_packets"], never.summary["congestion_notifications"]) == (0, 0)
    assert never.summary["end_ps"] == plain.summary["end_ps"]


def test_a_flow_keeps_to_one_path_under_ecmp() -> None:
    """Two hosts exchange packets: up one port each, which another seed changes."""
    pattern = {"kind": "timed", "ranks": 16, "messages": [[0, 0, 15, 100_000]] * 3}
    ports = set()
    for seed in range(1, 9):
        data = {**scenario(), "seed": seed, "job": [{"pattern": pattern}]}
        result = simulate(parse(data), threads=1)
        used = result.tables["truth"].group_by("link").agg(pl.col("packets").sum())
        used = used.join(result.tables["links"], on="link").filter(pl.col("tier") == 1)
        # Up and down one cable each: all packets on both.
        assert used["packets"].to_list() == [300, 300]
        ports.add(tuple(sorted(used["link"].to_list())))
    assert len(ports) > 1


@pytest.mark.parametrize(
    ("engine", "problem", "remedy"),
    [
        ({"flow_control": {"xoff": "9 kB"}}, "no effect with kind = credits", 'kind = "pfc"'),
        ({"flow_control": {"kind": "pfc", "xoff": "9 kB", "xon": "10 kB"}}, "above xoff", "xon"),
        ({**PFC, "buffer": "25 kB"}, "headroom", "buffer at least"),
        ({**PFC, "coarse": "16 KiB"}, "coarse does not go with", "leave"),
        ({"dcqcn": {"kmin": "6 kB"}}, "without congestion control of scheme dcqcn", "dcqcn"),
        ({**DCQCN, "dcqcn": {"kmin": "1 MB"}}, "not below kmax", "raise kmax"),
        ({"congestion_control": {"scheme": "dcqcn"}}, "no queue per destination", "per-dest"),
    ],
)
def test_what_does_not_fit_is_refused(engine: dict[str, Any], problem: str, remedy: str) -> None:
    with pytest.raises(TailbackError) as caught:
        run(**engine)
    text = str(caught.value)
    assert problem in text
    assert remedy in text


def test_unused_options_are_noted() -> None:
    control = {"scheme": "dcqcn", "marking_rate": 3}
    notes = run(injection="per-destination", congestion_control=control).notes
    assert any("marking_rate" in note and "dcqcn" in note for note in notes)


def test_the_fluid_model_says_what_it_ignores() -> None:
    result = simulate_fluid(prepare(parse(scenario(**PFC))), FluidOptions())
    assert any("flow_control" in note for note in result.notes)
    assert result.summary["model"] == "fluid"


def test_the_example_shows_a_victim() -> None:
    """The times that the example states: 6.8 ms with DCQCN; 24 ms with pauses alone."""
    with_dcqcn = load(EXAMPLE)
    engine = with_dcqcn.engine.model_copy(update={"congestion_control": None})
    alone = with_dcqcn.model_copy(update={"engine": engine})
    elapsed = [
        simulate(case, threads=1).summary["elapsed_ps"] / 1e9 for case in (with_dcqcn, alone)
    ]
    assert elapsed == pytest.approx([6.8, 24.0], rel=0.01)
