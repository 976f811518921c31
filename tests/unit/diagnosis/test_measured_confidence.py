"""Stated confidence: the share of an ensemble in which the verdict holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailback.diagnosis.explanation import Cost
from tailback.diagnosis.measured_confidence import MISSED, Judged, confidence

S = 10**12


def cost(cause: str, share: float, spread: float = 0.0) -> Cost:
    ps = round(share * S)
    wide = round(spread * S)
    return Cost(
        cause=cause, ps=ps, low_ps=ps - wide, high_ps=ps + wide, share=share, subject="",
        evidence="", rests_on=("trace", "model"),
    )  # fmt: skip


def judged(cause: str, *costs: Cost, unknown: float = 0.0, lossy: bool = False) -> float:
    fault = {"slow-link": 0.06, "noise": 0.06, "pattern": 0.15}
    return confidence(Judged(cause, costs, fault, {"pattern": 0.05}, unknown, lossy, 1.0))


def test_a_cause_that_costs_much_more_than_others_holds_in_every_draw() -> None:
    assert judged("slow-link", cost("slow-link", 0.5), cost("noise", 0.02)) > 0.99


def test_of_two_equal_causes_each_holds_in_half_of_the_draws() -> None:
    two = (cost("slow-link", 0.3), cost("noise", 0.3))
    assert judged("slow-link", *two) == pytest.approx(0.5, abs=0.04)
    assert judged("noise", *two) == pytest.approx(0.5, abs=0.04)


def test_a_cause_at_its_threshold_holds_in_half_of_the_draws() -> None:
    at = cost("slow-link", 0.06)
    assert judged("slow-link", at) == pytest.approx(0.5, abs=0.04)
    assert judged("healthy", at) == pytest.approx(0.5, abs=0.08)


def test_wide_intervals_lower_the_confidence() -> None:
    sharp, wide = (
        judged("slow-link", cost("slow-link", 0.2, spread), cost("noise", 0.1))
        for spread in (0.0, 0.15)
    )
    assert wide < sharp - 0.05


def test_what_nothing_explains_counts_as_far_as_a_search_may_have_missed_it() -> None:
    sure, open_ = (judged("healthy", unknown=unknown) for unknown in (0.0, 0.3))
    assert sure > 0.9 and open_ == pytest.approx(1.0 - MISSED, abs=0.04)
    # Where queues drop packets the model is off by more.
    assert judged("healthy", unknown=0.08, lossy=True) != judged("healthy", unknown=0.08)


def test_what_programs_usually_pay_is_no_rival() -> None:
    slow, pattern = cost("slow-link", 0.14), cost("pattern", 0.16)
    assert judged("slow-link", slow, pattern) > 0.7


def test_no_verdict_has_no_confidence_and_equal_evidence_equal_confidence() -> None:
    assert judged("undetermined", cost("noise", 0.2)) == 0.0
    again = Judged("noise", (cost("noise", 0.1),), {"noise": 0.06}, {}, 0.1, False, 0.9)
    assert confidence(again) == confidence(replace(again)) < 0.9
