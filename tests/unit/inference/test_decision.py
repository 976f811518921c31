"""The verdict of an ensemble: causes by their cost, hypotheses by their probability."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from tailback.diagnosis.explanation import Cost
from tailback.inference.decision import (
    MODELLED,
    Alternative,
    Decision,
    Ensemble,
    decide,
    fault_share,
    with_model_error,
)
from tailback.inference.error_model import ErrorModel
from tailback.inference.hypotheses import FAULT, UNUSUAL
from tailback.inference.interruptions import Interruptions
from tailback.inference.measured_costs import with_cost_together, with_noise_in_calls

S = 10**12


def cost(cause: str, share: float, spread: float = 0.0) -> Cost:
    ps = round(share * S)
    wide = round(spread * S)
    return Cost(
        cause=cause,
        ps=ps,
        low_ps=ps - wide,
        high_ps=ps + wide,
        share=share,
        subject="",
        evidence="",
        rests_on=("trace", "model"),
    )


def decided(
    *costs: Cost,
    alternatives: tuple[Alternative, ...] = (),
    likely: Mapping[str, float] | None = None,
) -> Decision:
    ensemble = Ensemble.of(alternatives or (Alternative(0.0, S),), ErrorModel(S), S)
    return decide(costs, ensemble, likely)


def test_a_dominant_cause_holds_in_every_draw() -> None:
    decision = decided(cost("slow-link", 0.5), cost("noise", 0.02))
    assert decision.cause == "slow-link" and decision.confidence == MODELLED
    assert sum(decision.chances.values()) == pytest.approx(1.0)


def test_equal_causes_hold_in_half_the_draws() -> None:
    decision = decided(cost("slow-link", 0.3), cost("noise", 0.3))
    assert decision.chances["slow-link"] == pytest.approx(0.5, abs=0.04)
    assert decision.chances["noise"] == pytest.approx(0.5, abs=0.04)
    assert decision.confidence < 0.6


def test_a_placement_competes_with_all_it_saves() -> None:
    # A placement is only at fault from 10 % on, but then it is compared by its whole cost.
    decision = decided(cost("placement", 0.2), cost("noise", 0.2))
    assert decision.chances["placement"] == pytest.approx(decision.chances["noise"], abs=0.06)
    # What an order of computation costs in any case remains.
    ordinary = decided(cost("late-partner", 0.29), cost("noise", 0.2))
    assert ordinary.chances["late-partner"] == pytest.approx(ordinary.chances["noise"], abs=0.06)


def test_faults_come_before_costs_of_every_network() -> None:
    small = cost("noise", 0.15)
    assert decided(cost("capacity", 0.5), small).cause == "noise"
    assert decided(cost("capacity", 0.5), cost("noise", 0.02)).cause == "capacity"
    ensemble = Ensemble.of((Alternative(0.0, S),), ErrorModel(S), S)
    placed = decide((cost("placement", 0.4), small), ensemble, no_faults=frozenset({"placement"}))
    assert placed.cause == "noise"


def test_full_networks_and_health_are_no_rivals() -> None:
    """A capacity at the threshold of a fault leaves open which it is, not that nothing is wrong."""
    decision = decided(cost("capacity", fault_share("capacity"), 0.02))
    chances = decision.chances
    assert min(chances["capacity"], chances["healthy"]) > 0.3
    assert decision.cause in ("capacity", "healthy")
    assert 0.9 <= decision.confidence <= MODELLED
    assert decided(cost("noise", fault_share("noise"), 0.02)).cause == "undetermined"


def test_hidden_cause_is_as_probable_as_its_alternatives() -> None:
    slow = Alternative(0.0, S, hidden_ps={"slow-link": S // 4})
    ensemble = Ensemble.of((slow, Alternative(0.0, S)), ErrorModel(S), S)
    assert ensemble.hides("slow-link") == pytest.approx(0.5)
    assert ensemble.hides("placement") == 1.0


@pytest.mark.parametrize("cause", ["slow-link", "pattern", "placement", "late-partner"])
def test_a_cause_at_threshold_holds_in_half(cause: str) -> None:
    decision = decided(cost(cause, fault_share(cause)))
    assert decision.chances[cause] == pytest.approx(0.5, abs=0.06)
    assert decided(cost(cause, fault_share(cause) + 0.1)).cause == cause
    assert decided(cost(cause, FAULT / 2)).cause == "healthy"


def test_interruptions_are_noise_by_their_probability() -> None:
    def with_interruptions(probability: float) -> Decision:
        hidden = Interruptions(np.array([0.2]), np.array([probability]))
        ensemble = Ensemble.of((Alternative(0.0, S),), ErrorModel(S), S)
        return decide([cost("noise", 0.02)], ensemble, interruptions=hidden)

    assert with_interruptions(0.0).confidence == 1.0 - UNUSUAL
    unlikely, likely = with_interruptions(0.15), with_interruptions(0.9)
    assert unlikely.cause == "healthy" and unlikely.confidence == pytest.approx(0.85, abs=0.04)
    assert likely.cause == "noise" and likely.confidence == pytest.approx(0.9, abs=0.04)
    assert with_interruptions(0.5).cause == "undetermined"


def test_noise_in_calls_adds_to_computation() -> None:
    noisy = Alternative(0.0, S, noise_ps=round(0.2 * S))
    assert decided(cost("noise", 0.03)).cause == "healthy"
    assert decided(cost("noise", 0.03), alternatives=(noisy,)).cause == "noise"
    (added,) = with_noise_in_calls([cost("noise", 0.03)], S // 5, S // 4, S)
    assert "inside calls" in added.evidence
    assert (added.ps, added.low_ps, added.high_ps) == (23 * S // 100, 3 * S // 100, 28 * S // 100)
    assert with_noise_in_calls([cost("pattern", 0.1)], S // 5, S // 4, S) == [cost("pattern", 0.1)]


def test_retransmissions_hide_small_imbalance() -> None:
    ensemble = Ensemble.of((Alternative(0.0, S),), ErrorModel(S), S)
    small, large = [cost("imbalance", 0.12)], [cost("imbalance", 0.4)]
    assert decide(small, ensemble).cause == "imbalance"
    lossy = Ensemble.of((Alternative(0.0, S),), ErrorModel(S, lossy=True), S)
    assert decide(small, lossy).cause == "undetermined"
    assert decide(large, lossy).cause == "imbalance"


def test_intervals_include_the_error_of_the_model() -> None:
    exact = [cost("slow-link", 0.4), cost("imbalance", 0.2)]
    link, computed = with_model_error(exact, S, ErrorModel(S))
    assert (link.ps - link.low_ps) / S == pytest.approx(0.159, abs=0.001)
    assert link.high_ps - link.ps == link.ps - link.low_ps
    assert (computed.high_ps - computed.low_ps) / S == pytest.approx(2 * 0.0457, abs=0.001)
    _, hidden = with_model_error(exact, S, ErrorModel(S, lossy=True))
    # The time of a run on a lossy network has an error of 12 %.
    assert hidden.low_ps == 0
    assert hidden.high_ps / S == pytest.approx(1.0 - 0.8 * math.exp(-1.96 * 0.12))
    # No interval is narrower than the simulations, or wider than the run.
    (wide,) = with_model_error([cost("slow-link", 0.9, 0.5)], S, ErrorModel(S))
    assert wide.low_ps == round(0.4 * S) and wide.high_ps == round(1.4 * S)


def test_wide_intervals_lower_the_confidence() -> None:
    sharp, wide = (
        decided(cost("slow-link", 0.2, spread), cost("noise", 0.1)) for spread in (0.0, 0.15)
    )
    assert wide.chances["slow-link"] < sharp.chances["slow-link"] - 0.05


def test_what_programs_usually_pay_is_no_rival() -> None:
    assert decided(cost("slow-link", 0.14), cost("pattern", 0.16)).cause == "slow-link"


def test_an_unknown_cause_leaves_the_verdict_open() -> None:
    def split(unknown: float, *costs: Cost) -> Decision:
        short = round(0.7 * S)
        return decided(
            *costs,
            alternatives=(
                Alternative(math.log(1.0 - unknown), S),
                Alternative(math.log(unknown), short, unexplained=True),
            ),
        )

    assert split(0.8).cause == "undetermined" and split(0.8).confidence == 0.0
    assert split(0.12).cause == "healthy"
    assert split(0.12).confidence == pytest.approx(0.88, abs=0.03)
    # A known cause that costs more is the main one, whatever else there is.
    assert split(0.8, cost("noise", 0.6)).cause == "noise"


def test_a_run_with_a_likelier_fault_is_unhealthy() -> None:
    near = [cost(name, fault_share(name)) for name in ("noise", "imbalance", "routing")]
    decision = decided(*near)
    assert decision.cause != "healthy" and decision.chances["healthy"] < 0.5


def test_health_is_no_surer_than_searches() -> None:
    decision = decided(cost("noise", 0.001))
    assert decision.cause == "healthy" and decision.confidence == 1.0 - UNUSUAL
    assert decision.chances["unexplained"] == pytest.approx(UNUSUAL)


def test_hypotheses_share_the_verdict_by_their_probability() -> None:
    """A slow cable or another job: both fit, the cable twice as well, or nine times."""
    job = Alternative(0.0, S, {"other-traffic": round(0.3 * S)})

    def weighed(times: float) -> Decision:
        cable = Alternative(math.log(times), S, {"slow-link": round(0.3 * S)})
        return decided(cost("slow-link", 0.3), alternatives=(cable, job))

    assert weighed(2.0).cause == "undetermined" and weighed(2.0).confidence == 0.0
    assert weighed(2.0).chances["slow-link"] == pytest.approx(2 / 3, abs=0.03)
    assert weighed(2.0).chances["other-traffic"] == pytest.approx(1 / 3, abs=0.03)
    assert weighed(9.0).cause == "slow-link"
    assert weighed(9.0).confidence == pytest.approx(0.9, abs=0.03)


def test_hypotheses_weigh_smaller_costs_by_probability() -> None:
    """Of two ways in which traffic of others came, one costs next to nothing."""
    dear = Alternative(0.0, S, {"other-traffic": round(0.2 * S)})
    cheap = Alternative(0.0, S, {"other-traffic": round(0.01 * S)})
    decision = decided(cost("other-traffic", 0.2), alternatives=(dear, cheap))
    assert decision.chances["other-traffic"] == pytest.approx(0.5, abs=0.04)
    assert decision.chances["healthy"] == pytest.approx(0.5, abs=0.04)


def test_the_measured_time_weighs_hypotheses() -> None:
    model = ErrorModel(S)
    near, far = Alternative(0.0, round(0.98 * S)), Alternative(0.0, round(0.8 * S))
    ensemble = Ensemble.of((near, far), model, S)
    assert ensemble.probability[0] > 0.99
    assert ensemble.mean_scale == pytest.approx(1 / 0.98, rel=0.01)
    # Time of an unknown cause is not that of the others.
    unknown = Ensemble.of((Alternative(0.0, round(0.5 * S), unexplained=True),), model, S)
    assert unknown.mean_scale == 1.0 and unknown.missing[0] == pytest.approx(0.5)


def test_the_measured_time_leaves_nothing_unexplained() -> None:
    ensemble = Ensemble.of((Alternative(0.0, S, unexplained=True),), ErrorModel(S), S)
    assert ensemble.probability.tolist() == [1.0] and ensemble.missing.tolist() == [0.0]
    assert ensemble.mean_scale == 1.0


def test_a_verdict_is_no_surer_than_its_assumption() -> None:
    sure, assumed, doubted = (
        decided(cost("placement", 0.5), likely=likely)
        for likely in (None, {"placement": 0.9}, {"placement": 0.6})
    )
    assert assumed.confidence == pytest.approx(0.9 * sure.confidence, abs=0.002)
    assert doubted.cause == "undetermined"
    assert doubted.chances["placement"] == pytest.approx(0.6 * sure.confidence, abs=0.002)


def test_equal_evidence_gives_equal_confidence() -> None:
    assert decided(cost("noise", 0.1)) == decided(cost("noise", 0.1))


def test_waits_may_conceal_an_unfound_fault() -> None:
    """Whatever repairs one of the two then waits for the other: neither is the main cause."""
    imbalance = cost("imbalance", 0.34)
    seen, concealed = (
        decided(
            imbalance,
            alternatives=(
                Alternative(-9.0, S),
                Alternative(0.0, round(0.95 * S), unexplained=True, concealed=chance),
            ),
        )
        for chance in (0.0, 1.0)
    )
    assert (seen.cause, seen.confidence) == ("imbalance", MODELLED)
    assert concealed.cause == "undetermined"
    assert concealed.chances["imbalance"] == pytest.approx(0.43, abs=0.05)


def test_concealed_time_does_not_weaken_network_causes() -> None:
    alternatives = (Alternative(0.0, round(0.99 * S), unexplained=True, concealed=1.0),)
    decision = decided(cost("pattern", 0.5), alternatives=alternatives)
    assert (decision.cause, decision.confidence) == ("pattern", MODELLED)


def test_two_faults_say_what_they_cost_together() -> None:
    asked = []

    def without(causes: frozenset[str]) -> int:
        asked.append(causes)
        return round(0.55 * S)

    both = [cost("slow-link", 0.4), cost("imbalance", 0.28), cost("noise", 0.02)]
    first, *other_costs = with_cost_together(both, S, without, 1.0, 0)
    assert asked == [frozenset({"slow-link", "imbalance"})]
    assert "without this and imbalance, the run saves 45 %" in first.evidence
    assert other_costs == both[1:]


def test_one_fault_needs_no_cost_together() -> None:
    for costs in ([cost("noise", 0.3), cost("imbalance", 0.02)], [], [cost("routing", 0.3)]):
        assert with_cost_together(costs, S, lambda _: pytest.fail("simulated"), 1.0, 0) == costs
