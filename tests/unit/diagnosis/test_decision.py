"""The verdict of an ensemble: causes by their cost, and what became of the time that is missing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tailback.diagnosis.decision import (
    FAULT,
    IDENTIFIED,
    NOT_FOUND,
    Alternative,
    Decision,
    Ensemble,
    decide,
    fault_share,
)
from tailback.diagnosis.explanation import Cost

S = 10**12


def cost(cause: str, share: float, spread: float = 0.0) -> Cost:
    ps, wide = round(share * S), round(spread * S)
    return Cost(
        cause=cause, ps=ps, low_ps=ps - wide, high_ps=ps + wide, share=share, subject="",
        evidence="", rests_on=("trace", "model"),
    )  # fmt: skip


def ensemble(*alternatives: Alternative, lossy: bool = False) -> Ensemble:
    return Ensemble.of(alternatives or (Alternative(S),), S, S, lossy=lossy)


def decided(
    *costs: Cost,
    expected: float = 1.0,
    others: tuple[Alternative, ...] = (),
    lossy: bool = False,
    identified: Mapping[str, float] | None = None,
) -> Decision:
    every = ensemble(Alternative(round(expected * S)), *others, lossy=lossy)
    return decide(costs, every, identified)


def test_a_cause_that_costs_much_more_than_others_holds_in_every_draw() -> None:
    found = decided(cost("slow-link", 0.5), cost("noise", 0.02))
    assert (found.cause, found.confidence) == ("slow-link", IDENTIFIED)
    assert sum(found.chances.values()) == pytest.approx(1.0)


def test_two_causes_that_cost_the_same_give_no_confident_verdict() -> None:
    found = decided(cost("slow-link", 0.3), cost("noise", 0.3))
    assert found.chances["slow-link"] == pytest.approx(0.5, abs=0.04)
    assert found.chances["noise"] == pytest.approx(0.5, abs=0.04)
    assert found.confidence < 0.6


@pytest.mark.parametrize("cause", ["slow-link", "pattern", "placement", "late-partner"])
def test_a_cause_at_its_threshold_holds_in_half_of_the_draws(cause: str) -> None:
    found = decided(cost(cause, fault_share(cause)))
    assert found.chances[cause] == pytest.approx(0.5, abs=0.04)
    assert decided(cost(cause, fault_share(cause) + 0.1)).cause == cause
    assert decided(cost(cause, FAULT / 2)).cause == "healthy"


def test_wide_intervals_lower_the_confidence() -> None:
    sharp, wide = (
        decided(cost("slow-link", 0.2, spread), cost("noise", 0.1)) for spread in (0.0, 0.15)
    )
    assert wide.confidence < sharp.confidence - 0.05


def test_what_programs_usually_pay_is_no_rival() -> None:
    assert decided(cost("slow-link", 0.14), cost("pattern", 0.16)).cause == "slow-link"


def test_time_without_any_cause_stays_unexplained() -> None:
    chances = [decided(expected=expected).chances for expected in (1.0, 0.95, 0.9, 0.8, 0.5)]
    unknown = [one["unexplained"] for one in chances]
    assert unknown == sorted(unknown) and unknown[0] == 0.0 and unknown[-1] > 0.99
    assert decided(expected=0.8).cause == "undetermined" == decided(expected=0.2).cause
    assert decided(expected=0.95).cause == "healthy"
    # A model that expects too much lacks nothing.
    assert decided(expected=1.3).chances["unexplained"] == 0.0
    # Networks that drop packets take longer than the model without any fault.
    assert decided(expected=0.8, lossy=True).cause == "healthy"


def test_a_known_cause_that_costs_more_is_the_main_one() -> None:
    assert decided(cost("noise", 0.5), expected=0.7).cause == "noise"
    assert decided(cost("noise", 0.1), expected=0.7).cause == "undetermined"


def test_what_an_alternative_explains_is_not_unexplained() -> None:
    """Traffic of others may have cost all that is missing: that fits, and nothing else does."""
    more = Alternative(S, (("other-traffic", round(0.25 * S)),))
    alone = decided(cost("other-traffic", 0.1), expected=0.75)
    found = decided(cost("other-traffic", 0.1), expected=0.75, others=(more,))
    assert alone.cause == "undetermined" and found.cause == "other-traffic"
    assert found.chances["unexplained"] < 0.1


def test_alternatives_that_fit_as_well_share_the_verdict() -> None:
    job = Alternative(S, (("other-traffic", round(0.2 * S)),))
    found = decided(others=(job,))
    assert found.chances["healthy"] == pytest.approx(0.5, abs=0.04)
    assert found.chances["other-traffic"] == pytest.approx(0.5, abs=0.04)


def test_the_error_of_the_model_is_one_of_all_costs_and_a_fault_that_was_not_found_is_not() -> None:
    assert ensemble(Alternative(round(0.95 * S))).mean_scale > 1.03
    assert ensemble(Alternative(round(0.4 * S))).mean_scale == pytest.approx(1.0, abs=0.001)
    assert ensemble(Alternative(round(1.25 * S))).mean_scale == pytest.approx(0.8, abs=0.001)


def test_faults_that_no_search_finds_bound_how_sure_a_healthy_run_is() -> None:
    assert decided().confidence == pytest.approx(1.0 - NOT_FOUND)
    near = [cost(name, fault_share(name)) for name in ("noise", "imbalance", "routing")]
    found = decided(*near)
    assert found.cause != "healthy" and found.chances["healthy"] < 0.5


def test_what_rests_on_an_assumption_is_no_surer_than_that() -> None:
    sure, assumed = (
        decided(cost("placement", 0.5), identified=known) for known in (None, {"placement": 0.6})
    )
    assert assumed.confidence == pytest.approx(0.6 * sure.confidence / IDENTIFIED, abs=0.002)


def test_equal_evidence_gives_equal_confidence() -> None:
    assert decided(cost("noise", 0.1)) == decided(cost("noise", 0.1))
