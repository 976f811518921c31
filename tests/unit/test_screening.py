"""Screening by a quick model, and remedies other than placements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tailback.cli.candidates import SENSIBLE, make_candidates
from tailback.errors import ScenarioError
from tailback.evaluate import Change, Evaluate
from tailback.remedy.adaptive_routing import try_adaptive_routing
from tailback.remedy.rate_control import propose_rate_control
from tailback.remedy.screening import NOT_SIMULATED, screen
from tailback.run import Run
from tailback.scenario import load, parse
from tailback.simulate import (
    FluidOptions,
    make_evaluate,
    make_fluid_evaluate,
    prepare,
    simulate,
)

ROOT = Path(__file__).resolve().parents[2]
NODES = np.zeros(1, np.uint32)


def some_run(routing: str = "deterministic", elapsed_ps: int = 0) -> Run:
    """A run of which only the scenario and the time matter."""
    scenario = parse({
        "fabric": {"preset": "full"}, "engine": {"routing": routing},
        "job": [{"pattern": {"kind": "ring", "ranks": 2, "size": "1 KiB"}}],
    })  # fmt: skip
    return Run(scenario, {}, {"elapsed_ps": elapsed_ps})


def by_name(times: Mapping[str, int]) -> Evaluate:
    """An evaluator that knows the time under each placement."""

    def evaluate(change: Change) -> Run:
        time = times[change.placement_name]
        if time < 0:
            raise ScenarioError("cannot be estimated")
        return some_run(elapsed_ps=time)

    return evaluate


def test_who_is_clearly_slower_is_left_out_and_told_why() -> None:
    times = {"a": 100, "b": 110, "c": 120, "d": 124, "e": 126, "f": 300, "g": -1}
    found = screen(dict.fromkeys(times, NODES), by_name(times), always=frozenset({"f"}))
    assert list(found.kept) == ["a", "b", "c", "d", "f", "g"]
    assert [c.name for c in found.left_out] == ["e"]
    assert found.left_out[0].error.startswith(NOT_SIMULATED)
    assert "26%" in found.left_out[0].error
    assert "g" not in found.estimate_ps


def test_the_three_quickest_are_always_proved() -> None:
    times = {"a": 1, "b": 50, "c": 60, "d": 70}
    found = screen(dict.fromkeys(times, NODES), by_name(times))
    assert list(found.kept) == ["a", "b", "c"]
    few = dict.fromkeys(("a", "d", "c"), NODES)
    assert list(screen(few, by_name(times)).kept) == ["a", "d", "c"]


def test_on_the_demo_the_best_by_packets_survives() -> None:
    """The fluid model leaves out the slow ones, and never the winner."""
    prepared = prepare(load(ROOT / "examples" / "demo" / "demo.toml"))
    run = simulate(prepared)
    made, _ = make_candidates(prepared, SENSIBLE, run, lambda *_: None)
    packets = make_evaluate(prepared)
    proved = {n: packets(Change(placement=node)).elapsed_ps for n, node in made.items()}
    found = screen(made, make_fluid_evaluate(prepared, FluidOptions(windows=0)))
    assert min(proved, key=lambda name: proved[name]) in found.kept
    assert found.left_out
    for name, estimate in found.estimate_ps.items():
        assert estimate == pytest.approx(proved[name], rel=0.1)


def test_adaptive_routing_is_proposed_where_it_is_proved() -> None:
    def evaluate(change: Change) -> Run:
        return some_run(
            elapsed_ps=(60 if change.routing == "adaptive" else 100) + change.seed_offset
        )

    found = try_adaptive_routing(some_run(), evaluate)
    assert found is not None
    assert (found.before_ps, found.after_ps, found.proved, found.model) == (101, 61, True, "packet")
    assert found.gain == pytest.approx(40 / 101)
    assert try_adaptive_routing(some_run("adaptive"), evaluate) is None
    # Within the spread of repetitions: no.
    noisy = [100, 108, 116, 95, 103, 111]
    assert try_adaptive_routing(some_run(), lambda _: some_run(elapsed_ps=noisy.pop(0))) is None


def test_rate_control_is_an_estimate_where_packets_take_longer() -> None:
    run = some_run(elapsed_ps=1000)
    slow, quick = (lambda _: some_run(elapsed_ps=980)), (lambda _: some_run(elapsed_ps=700))
    found = propose_rate_control(run, {"assignment": slow, "max-min": quick})
    assert found is not None
    assert not found.proved
    assert found.model == "fluid"
    assert "max-min" in found.action
    assert "not proved" in found.action
    assert found.gain == pytest.approx(0.3)
    assert propose_rate_control(run, {"assignment": slow}) is None
    assert propose_rate_control(run, {}) is None


def test_rate_control_is_proposed_for_congestion_that_spreads() -> None:
    """A ring beside random traffic whose full buffers block it: half of each leaf is theirs."""

    def half(first: int) -> str:
        return ",".join(f"{8 * leaf + first}-{8 * leaf + first + 3}" for leaf in range(8))

    prepared = prepare(
        parse({
            "fabric": {"fat_tree": {"hosts_per_leaf": 8, "leaves": 8, "aggregation": 4}},
            "job": [
                {"hosts": half(0), "placement": "round-robin", "pattern": {
                    "kind": "ring", "ranks": 32, "messages": 3, "size": "128 KiB",
                    "post": "sequence"}},
                {"hosts": half(4), "observed": False, "name": "other", "pattern": {
                    "kind": "uniform", "ranks": 32, "messages": 12, "size": "128 KiB",
                    "post": "sequence"}},
            ],
            "engine": {"eager": "1 MiB", "packet": "2 KiB", "buffer": "16 KiB"},
        })
    )  # fmt: skip
    paced = {
        "max-min": make_fluid_evaluate(prepared, FluidOptions(first_buffer=False, windows=0)),
        "assignment": make_fluid_evaluate(prepared, FluidOptions(rates="assignment", windows=0)),
    }
    run = simulate(prepared)
    found = propose_rate_control(run, paced)
    assert found is not None
    assert 0.3 < found.gain < 0.8
    assert "max-min" in found.action
