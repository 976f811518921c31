"""Screening of placements by a quick model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tailback.api.candidates import DEFAULT_METHODS, make_candidates
from tailback.diagnosis.model import Status
from tailback.errors import ScenarioError
from tailback.evaluate import Change, Evaluate
from tailback.placement.variant import nodes_by_name
from tailback.remedy.screening import screen, screen_by_bound
from tailback.run.run import Run
from tailback.scenario.model import load, parse
from tailback.simulation import (
    FluidOptions,
    make_evaluate,
    make_fluid_evaluate,
    prepare,
    simulate,
)
from tests.factories.repository import ROOT

NODES = np.zeros(1, np.uint32)


def some_run(routing: str = "deterministic", elapsed_ps: int = 0) -> Run:
    """A run of which only the scenario and the time matter."""
    scenario = parse(
        {
            "fabric": {"preset": "full"},
            "engine": {"routing": routing},
            "job": [{"pattern": {"kind": "ring", "ranks": 2, "size": "1 KiB"}}],
        }
    )
    return Run(scenario, {}, {"elapsed_ps": elapsed_ps})


def by_name(times: Mapping[str, int]) -> Evaluate:
    """An evaluator that knows the time under each placement."""

    def evaluate(change: Change) -> Run:
        time = times[change.placement_name]
        if time < 0:
            raise ScenarioError("cannot be estimated")
        return some_run(elapsed_ps=time)

    return evaluate


def test_clearly_slower_candidates_leave_with_a_reason() -> None:
    times = {"a": 100, "b": 110, "c": 120, "d": 124, "e": 126, "f": 300, "g": -1}
    screening = screen(dict.fromkeys(times, NODES), by_name(times), always=frozenset({"f"}))
    assert list(screening.kept) == ["a", "b", "c", "d", "f", "g"]
    assert [c.name for c in screening.left_out] == ["e"]
    assert screening.left_out[0].status is Status.RULED_OUT
    assert "26 %" in screening.left_out[0].reason
    assert screening.left_out[0].estimate_ps == 126
    assert "g" not in screening.estimate_ps


def test_large_runs_compare_placements_without_contention() -> None:
    times = {"a": 100, "b": 130, "c": 131, "d": 124, "e": 200}
    asked = list[Change]()

    def evaluate(change: Change) -> Run:
        asked.append(change)
        return by_name(times)(change)

    screening = screen_by_bound(dict.fromkeys(times, NODES), evaluate, always=frozenset({"e"}))
    assert list(screening.kept) == ["a", "d", "e"]
    assert {(change.network, change.background) for change in asked} == {("no-contention", False)}
    assert [c.name for c in screening.left_out] == ["b", "c"]
    assert "even without contention" in screening.left_out[0].reason
    # Of two far apart both are kept: the bound says little.
    assert list(screen_by_bound({"a": NODES, "e": NODES}, by_name(times)).kept) == ["a", "e"]


def test_the_three_quickest_are_always_proved() -> None:
    times = {"a": 1, "b": 50, "c": 60, "d": 70}
    screening = screen(dict.fromkeys(times, NODES), by_name(times))
    assert list(screening.kept) == ["a", "b", "c"]
    few = dict.fromkeys(("a", "d", "c"), NODES)
    assert list(screen(few, by_name(times)).kept) == ["a", "d", "c"]


@pytest.mark.slow
def test_on_the_demo_the_best_by_packets_survives() -> None:
    """The fluid model leaves out the slow ones, and never the winner."""
    prepared = prepare(load(ROOT / "examples" / "demo" / "demo.toml"))
    run = simulate(prepared)
    placed, _ = make_candidates(prepared, DEFAULT_METHODS, run, lambda *_: None)
    made = nodes_by_name(placed)
    packets = make_evaluate(prepared)
    proved = {n: packets(Change(placement=node)).elapsed_ps for n, node in made.items()}
    screening = screen(made, make_fluid_evaluate(prepared, FluidOptions(windows=0)))
    assert min(proved, key=lambda name: proved[name]) in screening.kept
    assert screening.left_out
    for name, estimate in screening.estimate_ps.items():
        assert estimate == pytest.approx(proved[name], rel=0.1)


def test_short_budgets_prove_the_fastest_placements_only() -> None:
    times = {"now": 150, "a": 120, "b": 100, "c": 110, "d": 105}
    screening = screen(
        dict.fromkeys(times, NODES), by_name(times), always=frozenset({"now"}), margin=1.0
    )
    short = screening.with_fastest(2, always={"now"})
    assert set(short.kept) == {"now", "b", "d"}
    assert {(c.name, c.status) for c in short.left_out} == {
        ("a", Status.NO_TIME),
        ("c", Status.NO_TIME),
    }
    assert screening.with_fastest(4, always={"now"}).kept == screening.kept
