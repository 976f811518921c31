"""Wording of the evidence."""

from __future__ import annotations

from tailback.inference.explain_wording import slow_anywhere
from tailback.inference.hypotheses import SlowerMachine


def test_slowdowns_that_read_alike_are_one() -> None:
    slowdowns = SlowerMachine(rates=0.2351), SlowerMachine(rates=0.2354), SlowerMachine(delays=7.0)
    said = slow_anywhere(0, slowdowns)
    assert said.count("all links") == 1 and said.count("all delays") == 1
