"""Whom advice addresses."""

from __future__ import annotations

import pytest

from tailback.diagnosis.model import Candidate, Kind
from tailback.remedy.advice import Gains, apply_change


def candidate(*kinds: Kind) -> Candidate:
    return Candidate(
        name="change",
        kind="combined",
        part_kinds=kinds,
        action="Exchange each message in phases.",
        elapsed_ps=80,
        low_ps=80,
        high_ps=80,
        repetitions=1,
        gain=0.2,
        gain_low=0.2,
        gain_high=0.2,
    )


@pytest.mark.parametrize(
    ("kinds", "who"),
    [(("routing", "repair"), "For the network"), (("pattern", "repair"), "With the network")],
)
def test_operators_change_no_program(kinds: tuple[Kind, ...], who: str) -> None:
    change, before = candidate(*kinds), candidate()
    first, *_ = apply_change(change, Gains(before, lambda *_: "20 % less"), by_operators=True)
    assert first.startswith(who)
