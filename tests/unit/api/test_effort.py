"""Effort of a diagnosis by the size of a simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailback.api.effort import (
    MANY_EVENTS,
    draws,
    engine_variations,
    note_on_effort,
    other_settings,
    proves_all,
    repetitions,
    worth_screening,
)
from tailback.budget import Budget, limited_to, simulation
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tests.factories.diagnosis_runs import placement_run


@pytest.mark.parametrize(
    ("events", "asked", "expected", "noted"),
    [
        (MANY_EVENTS, None, 3, False),
        (MANY_EVENTS + 1, None, 1, True),
        (MANY_EVENTS + 1, 3, 3, True),
        (100, 1, 1, False),
    ],
)
def test_large_simulations_are_made_once_unless_asked(
    events: int, asked: int | None, expected: int, noted: bool
) -> None:
    run = placement_run(log=False)
    run = replace(run, summary={**run.summary, "events": events})
    assert repetitions(asked, run) == expected
    notes = note_on_effort(asked, run)
    assert len(notes) == noted
    assert all(("once" in note) == (asked is None) for note in notes)


@pytest.mark.parametrize(
    ("events", "messages", "worth"),
    [
        (MANY_EVENTS, MANY_EVENTS, True),
        (50_000_000, 1_000_000, False),
        (51_000_000, 1_000_000, True),
    ],
)
def test_short_messages_of_large_runs_skip_the_estimate(
    events: int, messages: int, worth: bool
) -> None:
    run = placement_run(log=False)
    run = replace(run, summary={**run.summary, "events": events, "messages": messages})
    assert worth_screening(run) == worth


def test_large_simulations_are_varied_less() -> None:
    run = placement_run(log=False)
    small, large = (
        engine_variations(replace(run, summary={**run.summary, "events": events}), 3)
        for events in (MANY_EVENTS, MANY_EVENTS + 1)
    )
    assert set(large) < set(small)
    assert {variation.buffers for variation in large} == {0.5, 1.5}
    assert len({variation.other_injection for variation in large}) == 2


@pytest.mark.parametrize(("seconds", "count"), [(98, 4), (97, 2), (70, 2), (69, 0)])
def test_settings_that_fit_are_varied(seconds: int, count: int) -> None:
    """Of 14 steps, simulated in 3 repetitions and with each of them, in a second each."""
    run = placement_run(log=False)
    run = replace(run, summary={**run.summary, "events": 1000})
    times = [0.0]
    limit = Budget(seconds + 1.0, lambda: times[-1])
    with limited_to(limit):
        with simulation():
            times.append(1.0)
        assert len(engine_variations(run, 3)) == count
    assert ("engine settings" in limit.left_out) == (count < 4)


def test_all_placements_are_proved_beside_others() -> None:
    run = placement_run(log=False)
    beside = run.scenario.model_copy(update={"job": [*run.scenario.job, *run.scenario.job]})
    short, long = ({**run.summary, "events": events} for events in (1000, MANY_EVENTS))
    assert proves_all(replace(run, scenario=beside, summary=short))
    assert not proves_all(replace(run, scenario=beside, summary=long))
    assert not proves_all(replace(run, summary=short))


@pytest.mark.parametrize(
    ("seeds", "events", "expected"),
    [(3, 1000, 20), (1, 1000, 6), (3, 400_000, 10), (3, MANY_EVENTS, 3), (30, 1000, 30)],
)
def test_draws_depend_on_seeds_and_events(seeds: int, events: int, expected: int) -> None:
    run = placement_run(log=False)
    assert draws(seeds, replace(run, summary={**run.summary, "events": events})) == expected


@pytest.mark.parametrize(
    ("pattern", "concerned"),
    [
        ({"kind": "ring", "ranks": 4, "size": "1 KiB"}, {"when copied"}),
        ({"kind": "ring", "ranks": 4, "size": "1 MiB"}, set()),
        ({"kind": "stencil2d", "dims": [2, 2], "size": "1 MiB"}, {"only in calls"}),
    ],
)
def test_settings_of_no_message_are_left_out(pattern: dict[str, Any], concerned: set[str]) -> None:
    """Ranks of a stencil compute between their exchanges."""
    tree = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 2}
    scenario = parse({"fabric": {"fat_tree": tree}, "job": [{"pattern": pattern}]})
    run = replace(placement_run(log=False), scenario=scenario)
    named = " ".join(other_settings(run, prepare(scenario).observed.program))
    assert {word for word in ("when copied", "only in calls") if word in named} == concerned
