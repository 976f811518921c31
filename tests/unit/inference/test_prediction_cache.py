"""What simulated hypotheses predicted is remembered by all that determines it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tailback.fabric.degraded import SlowLink
from tailback.inference.machine_models import (
    Conditions,
    MachineModel,
    PredictionCache,
    with_routing,
    with_small_buffers,
)
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tailback.simulation.prepare import PreparedScenario

TREE = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 2}


@pytest.fixture(scope="module")
def prepared() -> PreparedScenario:
    job = {"pattern": {"kind": "ring", "ranks": 4, "size": "32 KiB"}}
    return prepare(parse({"fabric": {"fat_tree": TREE}, "job": [job]}))


def with_engine(prepared: PreparedScenario, **settings: Any) -> PreparedScenario:
    engine = prepared.scenario.engine.model_copy(update=settings)
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": engine}))


def asked(predictions: PredictionCache, *times: tuple[Conditions, str, bool]) -> list[str]:
    """Answers to questions, each with what would be simulated, and whether adapters share."""

    def simulated(answer: str, shared: bool) -> Callable[[], tuple[str, bool]]:
        return lambda: (answer, shared)

    return [
        predictions.find_or(conditions, simulated(answer, shared))
        for conditions, answer, shared in times
    ]


def test_a_prediction_is_simulated_once(prepared: PreparedScenario) -> None:
    first = Conditions.of(prepared).with_change(SlowLink(3, 10.0))
    other = Conditions.of(prepared).with_change(SlowLink(3, 10.5))
    predictions = PredictionCache()
    answers = asked(
        predictions, (first, "first", True), (first, "again", True), (other, "other", True)
    )
    assert answers == ["first", "first", "other"]


@pytest.mark.parametrize(
    ("shared", "injection", "answer"),
    [
        (False, "round-robin", "fifo"),
        (True, "round-robin", "round-robin"),
        (False, "per-destination", "per-destination"),
    ],
)
def test_adapters_without_choice_predict_the_same(
    prepared: PreparedScenario, shared: bool, injection: str, answer: str
) -> None:
    first, other = (
        Conditions.of(with_engine(prepared, injection=name)) for name in ("fifo", injection)
    )
    predictions = PredictionCache()
    assert asked(predictions, (first, "fifo", shared), (other, injection, False)) == [
        "fifo",
        answer,
    ]
    # Each keeps its own answer.
    assert asked(predictions, (first, "again", True), (other, "again", True)) == ["fifo", answer]


def test_all_that_determines_a_simulation_is_a_condition(prepared: PreparedScenario) -> None:
    back = prepared.observed.node[::-1].copy()
    moved = replace(prepared, jobs=[replace(prepared.observed, node=back)])
    seed = replace(prepared, scenario=prepared.scenario.model_copy(update={"seed": 7}))
    rates = replace(prepared.fabric, link_gbps=prepared.fabric.link_gbps * np.float32(0.5))
    different = [
        prepared,
        moved,
        seed,
        replace(prepared, fabric=rates),
        with_small_buffers(prepared),
        with_routing(prepared, "random"),
        with_engine(prepared, send_delay=1),
        prepared.with_coarse_packets(16 << 10),
        prepared.with_program(prepare(prepared.scenario).observed.program),
        prepared.with_other_traffic("other", [(0, 0, 1, 4096)]),
    ]
    assert len({Conditions.of(scenario) for scenario in different}) == len(different)
    machine = MachineModel(with_engine(prepared, injection="round-robin"), 0.0, ())
    assert machine.conditions.key == Conditions.of(prepared).key
