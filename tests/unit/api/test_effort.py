"""Effort of a diagnosis by the size of a simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailback.api.effort import (
    MANY_EVENTS,
    note_on_repetitions,
    repetitions,
    worth_screening,
)
from tests.factories.diagnosis_runs import placement_run


@pytest.mark.parametrize(
    ("events", "asked", "expected", "noted"),
    [
        (MANY_EVENTS, None, 3, False), (MANY_EVENTS + 1, None, 1, True),
        (MANY_EVENTS + 1, 3, 3, False), (100, 1, 1, False),
    ],
)  # fmt: skip
def test_large_simulations_are_made_once_unless_asked(
    events: int, asked: int | None, expected: int, noted: bool
) -> None:
    run = placement_run(log=False)
    run = replace(run, summary={**run.summary, "events": events})
    assert repetitions(asked, run) == expected
    assert len(note_on_repetitions(asked, run)) == noted


@pytest.mark.parametrize(
    ("events", "messages", "worth"),
    [
        (MANY_EVENTS, MANY_EVENTS, True),
        (50_000_000, 1_000_000, False),
        (51_000_000, 1_000_000, True),
    ],
)
def test_short_messages_of_a_large_run_are_not_estimated_first(
    events: int, messages: int, worth: bool
) -> None:
    run = placement_run(log=False)
    run = replace(run, summary={**run.summary, "events": events, "messages": messages})
    assert worth_screening(run) == worth
