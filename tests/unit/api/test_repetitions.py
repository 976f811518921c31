"""How often simulations of a diagnosis are repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailback.api.repetitions import MANY_EVENTS, note_on_repetitions, repetitions
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
