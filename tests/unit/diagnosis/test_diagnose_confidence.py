"""The confidence of a verdict on an expected run: how probable its cause is as costs vary."""

from __future__ import annotations

import pytest

from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.confidence import (
    MODELLED,
    Attainable,
    TimeUse,
    Unexplained,
    alternatives,
    attainable,
    chances,
    contention_scale,
    costs_in,
    count_agreement,
    main_cause,
)
from tailback.diagnosis.model import Cause, CauseShare
from tailback.diagnosis.waterfall import VariedTimes
from tests.factories.diagnosis_runs import other_run

COMMUNICATING = TimeUse(communication=1.0, wire=0.0)


def varied(pattern: int, placement: int, run_ps: int = 100) -> VariedTimes:
    """A variation without other costs; what contention does not need is adapters' time."""
    base = 100 - pattern - placement
    steps = {
        "injection": base,
        "pattern": base + pattern,
        "placement": 100,
        "routing": 100,
        "slow links": 100,
        "other traffic": 100,
    }
    return VariedTimes(steps, run_ps)


NOTHING = Unexplained()


def costs(*pairs: tuple[float, float]) -> list[dict[Cause, float]]:
    """Costs of pattern and placement, one pair for each variation."""
    return [{"pattern": pattern, "placement": placement} for pattern, placement in pairs]


def test_agreement_counts_variations_of_the_same_cause() -> None:
    variations = [varied(10, 40)] * 7 + [varied(40, 10)] * 2 + [varied(1, 2)]
    agreement = count_agreement(("placement",), costs_in(variations, {}), NOTHING, COMMUNICATING)
    assert (agreement.holds, agreement.of, agreement.otherwise) == (7, 10, "pattern")


def test_a_wide_margin_is_surer() -> None:
    """Placement costs most in all seven variations of either."""
    spread = [0.0, 0.05, -0.05, 0.04, -0.04, 0.03, -0.03]
    wide = costs(*((0.1 - x, 0.4 + x) for x in spread))
    narrow = costs(*((0.24 - x / 2, 0.30 + x / 2) for x in spread))
    sure, unsure = (
        chances(costs_of_causes, NOTHING, COMMUNICATING)["placement"]
        for costs_of_causes in (wide, narrow)
    )
    assert sure > 0.99 * MODELLED
    assert 0.6 < unsure < 0.9


def test_correlated_costs_are_surer_than_independent_ones() -> None:
    spread = [0.0, 0.06, -0.06, 0.05, -0.05]
    together = costs(*((0.20 + x, 0.30 + x) for x in spread))
    against = costs(*((0.20 + x, 0.30 - x) for x in spread))
    sure, unsure = (
        chances(costs_of_causes, NOTHING, COMMUNICATING)["placement"]
        for costs_of_causes in (together, against)
    )
    assert sure > unsure + 0.1


def test_one_variation_does_not_show_how_costs_vary() -> None:
    alone = chances(costs((0.1, 0.4)), NOTHING, COMMUNICATING)["placement"]
    assert alone < chances(costs((0.1, 0.4), (0.1, 0.4)), NOTHING, COMMUNICATING)["placement"]


def test_the_right_cause_may_be_no_hypothesis() -> None:
    probabilities = chances(costs((0.0, 0.5), (0.0, 0.5)), NOTHING, COMMUNICATING)
    assert probabilities == {"placement": pytest.approx(MODELLED)}


def test_unexplained_time_counts_in_every_variation() -> None:
    hidden = Unexplained(0.2, slow=0.9)
    two = costs_in([varied(10, 15), varied(10, 25)], {})
    agreement = count_agreement(("slow-link",), two, hidden, COMMUNICATING)
    assert (agreement.holds, agreement.otherwise) == (1, "placement")


def test_slow_cables_or_other_traffic_cost_unexplained_time() -> None:
    probabilities = chances(
        costs((0.0, 0.1), (0.0, 0.1)), Unexplained(0.5, slow=0.8), COMMUNICATING
    )
    assert probabilities["slow-link"] == pytest.approx(0.8 * MODELLED, abs=0.02)
    assert probabilities["other-traffic"] == pytest.approx(0.2 * MODELLED, abs=0.02)


def test_little_unexplained_time_may_be_simulation_error() -> None:
    """The simulated time is known to 5 %: 6 % are mostly an error, 20 % are none."""
    little, much = (
        chances(costs((0.0, 0.0), (0.0, 0.0)), Unexplained(share), COMMUNICATING)
        for share in (0.06, 0.2)
    )
    assert little["not-network"] > 0.7 > 0.05 > much.get("not-network", 0.0)


def test_contention_is_scaled_down_to_the_run() -> None:
    """Adapters need 50 of 52 units, so contention costs at most 2, less than is worth fixing."""
    fits = costs_in([varied(10, 40, run_ps=52)], {})
    agreement = count_agreement(("not-network",), fits, NOTHING, COMMUNICATING)
    assert agreement.holds == 1


def test_a_better_placement_may_relieve_the_adapters() -> None:
    """The run takes no longer than its adapters need, and half of that with another placement."""
    assert contention_scale({"injection": 50, "other traffic": 80}, 50) == 0.0
    relieved = {"injection": 50, "network": 20, "other traffic": 80}
    assert contention_scale(relieved, 50) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("cost", "communication", "wire", "cause"),
    [
        ({"pattern": 0.04, "placement": 0.051}, 1.0, 0.9, "placement"),
        ({"pattern": 0.0, "placement": 0.049}, 1.0, 0.5, "injection"),
        ({"pattern": 0.0, "placement": 0.049}, 1.0, 0.49, "not-network"),
        # A fifth of the time spent communicating, and 2 % of the whole.
        ({"pattern": 0.0, "placement": 0.021}, 0.1, 0.0, "placement"),
        ({"pattern": 0.0, "placement": 0.021}, 0.11, 0.0, "not-network"),
        ({"pattern": 0.0, "placement": 0.019}, 0.05, 0.0, "not-network"),
    ],
)
def test_the_most_expensive_cause_must_be_worth_fixing(
    cost: dict[Cause, float], communication: float, wire: float, cause: Cause
) -> None:
    assert main_cause(cost, TimeUse(communication, wire)) == cause


def test_samples_are_less_sure_the_more_stays_open() -> None:
    clear, thin = diagnose_cause(other_run()), diagnose_cause(other_run(seed=2, log=False))
    assert clear.basis == thin.basis == "samples"
    assert 0 < clear.confidence < 1 and clear.agreement is None


def share(cause: Cause, charged: float, removed: float | None, low: float = 0.01) -> CauseShare:
    """A cause that costs ``charged`` after those before it, and saves ``removed`` alone."""
    return CauseShare(
        cause=cause,
        charged=charged,
        low=charged,
        high=charged,
        removed=removed,
        removed_low=None if removed is None else low,
        removed_high=removed,
    )


def test_removals_that_save_alike_are_alternatives() -> None:
    """Our ranks lose nothing alone: moving them, or stopping the other job, saves the same."""
    both = [share("other-traffic", 0.56, 0.56), share("placement", 0.0, 0.53)]
    assert alternatives("other-traffic", both) == ("placement",)
    assert alternatives("placement", both) == ("other-traffic",)


@pytest.mark.parametrize(
    "shares",
    [
        # What both cost adds up.
        [share("other-traffic", 0.3, 0.3), share("placement", 0.2, 0.2)],
        # Less than half of the smaller gain is saved by either.
        [share("other-traffic", 0.3, 0.3), share("placement", 0.2, 0.3)],
        # One of the repetitions loses.
        [share("other-traffic", 0.5, 0.5), share("placement", 0.0, 0.5, low=-0.01)],
        # What another program would save is unknown.
        [share("other-traffic", 0.5, 0.5), share("pattern", 0.0, None)],
    ],
)
def test_added_or_uncertain_gains_are_no_alternatives(shares: list[CauseShare]) -> None:
    assert alternatives("other-traffic", shares) == ()


def test_a_gain_comes_before_a_fixed_cost() -> None:
    """Static routes cost 31 %, of which nothing can be gained; another placement gains 4.7 %."""
    shares = [share("routing", 0.31, 0.0), share("placement", 0.0, 0.047)]
    use = TimeUse(communication=1.0, wire=0.0, contention=0.31)
    parts = attainable(shares, use)
    assert parts["routing"].of(0.4) == 0.0
    gained = {each.cause: parts[each.cause].of(each.charged) for each in shares}
    assert main_cause(gained, use) == "placement"
    # If contention were no larger than that gain, it would not be worth a change.
    assert attainable(shares, TimeUse(communication=1.0, wire=0.0)) == {}


def test_gains_below_the_cost_scale_with_it() -> None:
    use = TimeUse(communication=1.0, wire=0.0)
    shares = [share("routing", 0.4, 0.2), share("placement", 0.1, 0.3)]
    parts = attainable(shares, use)
    assert parts["routing"] == Attainable(part=0.5)
    assert parts["routing"].of(0.6) == pytest.approx(0.3)
    assert parts["placement"].of(0.1) == pytest.approx(0.1 + 0.9 * 0.2)
