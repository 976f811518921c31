"""The parts of a forecast agree, whatever the causes cost and the changes save.

A run is given by costs of its causes, drawn at random. Times of changes follow from these costs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailback.diagnosis.confidence import BEYOND_OWN_COST, SURE
from tailback.diagnosis.model import MIN_GAIN, Diagnosis
from tailback.evaluate import Change, Evaluate
from tailback.remedy import diagnose
from tailback.remedy.advice import CAUSE_OF_KIND, usable_kinds
from tailback.remedy.proof import improvements, mean_gain
from tailback.run.run import Run
from tailback.units import percent
from tests.factories.diagnosis_runs import (
    TOTAL,
    endpoint_run,
    other_run,
    placement_run,
    routing_run,
)

PLACES = {name: np.roll(np.arange(32, dtype=np.uint32), n) for n, name in enumerate("abc", 1)}
RUNS = (endpoint_run, other_run, placement_run, routing_run)

cost = st.sampled_from((0.0, 0.01, 0.04, 0.1, 0.3, 1.0))
"""Time that a cause costs, over the time without any."""

costs = st.fixed_dictionaries(
    {
        "pattern": cost,
        "capacity": cost,
        "placement": cost,
        "routing": cost,
        "others": cost,
        "static": cost,
        "rates": cost,
        "places": st.lists(cost, min_size=3, max_size=3),
        "spread": st.sampled_from((0.0, 0.002, 0.02)),
    }
)


def evaluation(run: Run, drawn: dict[str, Any], applied: Change | None = None) -> Evaluate:
    """Times of changes of a run of which ``applied`` was changed before."""
    placed = dict(zip(PLACES, drawn["places"], strict=True))

    def evaluate(change: Change) -> Run:
        applied_name = "" if applied is None else applied.placement_name
        place = change.placement_name or applied_name
        routing = change.routing or (None if applied is None else applied.routing)
        parts = [1.0]
        if change.network not in ("no-contention", "instant"):
            parts.append(drawn["pattern"])
        if change.network in ("as-is", "healthy"):
            parts.append(drawn["capacity"])
            parts.append(placed.get(place, drawn["placement"]))
            parts.append(
                {"adaptive": 0.0, "deterministic": drawn["static"]}.get(
                    routing or "", drawn["routing"]
                )
            )
            if change.background:
                parts.append(drawn["others"])
        time = sum(parts) - (min(drawn["rates"], sum(parts[1:])) if change.rates else 0.0)
        draw = np.random.default_rng([change.seed_offset, len(place), len(str(routing))])
        time *= 1.0 + drawn["spread"] * draw.random()
        elapsed = round(TOTAL * time)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": elapsed})

    return evaluate


def observed(run: Run, evaluate: Evaluate, placement: str = "") -> Run:
    """The run that the evaluation gives without a change."""
    jobs = run.tables["jobs"]
    if placement:
        name = pl.when("observed").then(pl.lit(placement)).otherwise("placement")
        jobs = jobs.with_columns(placement=name)
    tables = {**run.tables, "jobs": jobs}
    return dataclasses.replace(evaluate(Change()), tables=tables)


def judged(run: Run, evaluate: Evaluate) -> Diagnosis:
    return diagnose(run, evaluate, placements=PLACES, seeds=2)


@given(number=st.integers(0, len(RUNS) - 1), drawn=costs)
def test_views_of_a_forecast_agree(number: int, drawn: dict[str, Any]) -> None:
    base = RUNS[number]()
    evaluate = evaluation(base, drawn)
    diagnosis = judged(observed(base, evaluate), evaluate)
    assert sum(bar.delta_ps for bar in diagnosis.waterfall) == diagnosis.elapsed_ps
    assert sum(diagnosis.chances.values()) <= 1.0 + 1e-9
    gains = {s.cause: s.removed for s in diagnosis.shares if s.removed is not None}
    assert all(gain >= 0.0 for gain in gains.values())
    if diagnosis.cause == "undetermined":
        assert diagnosis.confidence == 0.0 and max(diagnosis.chances.values()) < SURE
        return
    assert diagnosis.confidence >= SURE
    named = (diagnosis.cause, *diagnosis.alternatives)
    assert diagnosis.confidence == pytest.approx(sum(diagnosis.chances[c] for c in named))
    for other in diagnosis.alternatives:
        # What is offered instead of removing the cause saves time, and the headline says how much.
        assert gains[other] > 0.0 and f"({percent(gains[other])})" in diagnosis.headline
    gain = gains.get(diagnosis.cause)
    if gain is not None and percent(gain) != percent(0.0):
        assert f"{percent(gain)} of the run time is saved" in diagnosis.headline
        # No other cause gains clearly more than the one that is named.
        assert gain >= BEYOND_OWN_COST * max(gains.values()) - 1e-9
    remedy = diagnosis.remedy
    if remedy is None or not remedy.name:
        return
    before, better = improvements(remedy.candidates, "block")
    assert before is not None
    recommended = next(c for c in remedy.candidates if c.name == remedy.name)
    usable = [c for c in better if c.kinds <= usable_kinds(diagnosis.cause)] or better
    most = max(mean_gain(candidate, before) for candidate in usable)
    assert mean_gain(recommended, before) > most - MIN_GAIN
    assert remedy.gain == mean_gain(recommended, before)
    if remedy.removes == diagnosis.cause:
        assert remedy.gain == gain and percent(remedy.gain) in diagnosis.headline
    for candidate in better:
        # A change never gains more than is said of the cause that it removes.
        if candidate.kind in CAUSE_OF_KIND:
            said = gains.get(CAUSE_OF_KIND[candidate.kind], 0.0) or 0.0
            assert mean_gain(candidate, before) <= said + 1e-9
        shown = diagnosis.time_with(candidate)[0]
        assert 1 - shown / remedy.before_ps == pytest.approx(mean_gain(candidate, before), abs=1e-6)


@given(number=st.integers(0, len(RUNS) - 1), drawn=costs)
def test_an_applied_placement_leaves_the_verdict(number: int, drawn: dict[str, Any]) -> None:
    """The cause is gone, or what another placement still gains is within repetitions."""
    base = RUNS[number]()
    evaluate = evaluation(base, drawn)
    diagnosis = judged(observed(base, evaluate), evaluate)
    if diagnosis.cause != "placement" or diagnosis.remedy is None:
        return
    name = diagnosis.remedy.placement
    if not name:
        return
    applied = Change(placement=PLACES[name], placement_name=name)
    after = evaluation(base, drawn, applied)
    again = judged(observed(base, after, name), after)
    assert again.cause != "placement"
    # The predicted time is the time of the run with it.
    predicted = next(c for c in diagnosis.remedy.candidates if c.name == name).elapsed_ps
    assert again.elapsed_ps == pytest.approx(predicted, rel=drawn["spread"] + 1e-6)


def test_equal_costs_follow_the_variations() -> None:
    free = ("placement", "routing", "others", "static", "rates", "spread")
    drawn: dict[str, Any] = dict.fromkeys(free, 0.0)
    drawn |= {"pattern": 0.1, "capacity": 0.1, "places": [0.0, 0.0, 0.0]}
    base = endpoint_run()
    evaluate = evaluation(base, drawn)
    diagnosis = judged(observed(base, evaluate), evaluate)
    likely = max(diagnosis.chances, key=lambda cause: diagnosis.chances[cause])
    assert diagnosis.chances[likely] >= SURE and diagnosis.cause == likely
