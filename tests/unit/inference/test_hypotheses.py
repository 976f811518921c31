"""Hypotheses of what the model lacks: compared by evidence, charged for what they assume."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tailback.diagnosis.cable_search import Outcome
from tailback.fabric.degraded import SlowLink
from tailback.inference.derived_hypotheses import (
    at_other_rates,
    came_otherwise,
    of_unknown_timing,
    over_arrangements,
    unsimulated_faults,
    with_interruptions,
)
from tailback.inference.error_model import OBSERVATIONS, ErrorModel, nearest_of
from tailback.inference.hypotheses import (
    HIDDEN_SHARE,
    NAMED,
    NOT_FOUND_SHARE,
    UNUSUAL,
    Hypothesis,
    Posterior,
    Prior,
    SlowerMachine,
    log_cost,
    log_probability,
    typical_of_faults,
)
from tailback.inference.unknown_job import DRAWS, Draw

MEASURED = 1_000_000
MACHINE = ("round-robin", "adaptive")
NONE = {"calls": 0.2, "sends": 0.2, "stalls": 0.4}
RIGHT = {"calls": 0.002, "sends": 0.005, "stalls": 0.01}
PRIOR = Prior(50, np.arange(100, dtype=np.uint32) ^ 1)


def outcome(ratio: float, misfits: Mapping[str, float | None]) -> Outcome:
    return Outcome(round(ratio * MEASURED), misfits)


def alone(ratio: float = 0.7, misfits: Mapping[str, float | None] = NONE) -> Hypothesis:
    return Hypothesis(MACHINE, outcome(ratio, misfits))


def slow(
    *links: int,
    ratio: float = 1.0,
    gbps: float = 40.0,
    both: bool = True,
    misfits: Mapping[str, float | None] = RIGHT,
) -> Hypothesis:
    cables = tuple(SlowLink(link, gbps, both) for link in links)
    return Hypothesis(MACHINE, outcome(ratio, misfits), cables)


def compared(*hypotheses: Hypothesis, lossy: bool = False) -> Posterior:
    model = ErrorModel.of(MEASURED, [[hypotheses[0].outcome]], lossy=lossy)
    return Posterior(hypotheses, model, PRIOR)


def test_a_cause_that_predicts_all_evidence_is_sure() -> None:
    posterior = compared(alone(), slow(4), slow(8, misfits={**NONE, "calls": 0.1}))
    assert posterior.best.slow[0].link == 4
    assert posterior.of_cause("slow-link") > 0.99 and posterior.unexplained < 0.01
    assert len({weighed.hypothesis.slow for weighed in posterior.credible()}) == 1


def test_untried_faults_leave_simulated_evidence_alone() -> None:
    poor = {"calls": 0.1, "sends": 0.1, "stalls": 0.1}
    plain, cable = alone(), slow(4, misfits=poor)
    model = ErrorModel.of(MEASURED, [[plain.outcome]], lossy=False)
    others = unsimulated_faults([plain], model, PRIOR)
    assert all(hypothesis.unsimulated for hypothesis in others)
    posterior = Posterior([plain, cable, *others], model, PRIOR)
    assert posterior.of_cause("slow-link") < 0.5 < posterior.hidden_among_simulated
    assert Posterior([plain, *others], model, PRIOR).hidden_among_simulated == 0.0


def test_indistinguishable_causes_give_no_confident_verdict() -> None:
    jobs = [
        Hypothesis(MACHINE, outcome(1.0, RIGHT), job=Draw(0.3, 24, seed, place=True))
        for seed in range(DRAWS)
    ]
    model = ErrorModel.of(MEASURED, [[alone().outcome]], lossy=False)
    both = Posterior([alone(), slow(4), *jobs], model, replace(PRIOR, cables=3))
    assert both.of_cause("slow-link") == pytest.approx(0.5, abs=0.01)
    assert both.of_cause("other-traffic") == pytest.approx(0.5, abs=0.01)
    # If only one of the random jobs agrees, it counts as one of them.
    rare = Posterior([alone(), slow(4), jobs[0]], model, replace(PRIOR, cables=3))
    odds = rare.of_cause("slow-link") / rare.of_cause("other-traffic")
    assert odds == pytest.approx(DRAWS, rel=0.01)
    cables = compared(alone(), slow(4), slow(8))
    each = [weighed.probability for weighed in cables.weighed[:2]]
    assert each == pytest.approx([0.5, 0.5], abs=0.01)
    assert len(cables.credible()) == 2 and cables.of_cause("slow-link") > 0.95


def test_evidence_without_any_cause_stays_unexplained() -> None:
    posterior = compared(alone(), slow(4, ratio=0.72, misfits=NONE))
    assert posterior.unexplained > 0.95 and not posterior.best.cause
    # Nothing is missing, so nothing is left to explain.
    assert compared(alone(1.0)).unexplained == 0.0
    # What is no fault is no reason to look for one.
    assert compared(alone(0.96)).unexplained == 0.0
    assert 0.0 < compared(alone(0.92)).unexplained < 0.3


def test_the_nearest_of_many_is_not_certain() -> None:
    rng = np.random.default_rng(3)
    places, dimensions = 100, round(OBSERVATIONS)
    drawn = rng.standard_normal((400, places + 1, dimensions))
    apart = ((drawn[:, 1:] - drawn[:, :1]) ** 2).sum(axis=2)
    nearest = float(apart.min(axis=1).mean() / apart.mean())
    assert nearest_of(places) == pytest.approx(nearest, rel=0.5)
    assert nearest_of(1) == 1.0 > nearest_of(10) > nearest_of(100) > 0.2


def test_free_parameters_and_rare_assumptions_are_charged() -> None:
    posterior = compared(alone(1.0, RIGHT), slow(4))
    assert posterior.of_cause("slow-link") < 0.01
    model = ErrorModel.of(MEASURED, [[alone().outcome]], lossy=False)

    def of(hypothesis: Hypothesis) -> float:
        return log_probability(hypothesis, model, PRIOR)

    # Two cables or one direction must explain more than one cable, which only its rate sets.
    assert of(slow(4, 8)) < of(slow(4)) - 5 and of(slow(4, both=False)) < of(slow(4)) - 2
    assert of(slow(4)) == of(slow(4, gbps=70.0))
    anywhere, somewhere = (
        Hypothesis(MACHINE, outcome(1.0, RIGHT), job=Draw(0.3, 24, 0, place=place))
        for place in (False, True)
    )
    assert of(somewhere) == pytest.approx(of(anywhere) - np.log(PRIOR.cables))
    fewer = Prior(5, PRIOR.reverse)
    assert log_probability(slow(4), model, fewer) == pytest.approx(of(slow(4)) + np.log(10))


def test_unseen_jobs_are_faults_that_no_search_finds() -> None:
    model, missing = ErrorModel(100, dict.fromkeys(RIGHT, 0.01)), outcome(0.8, RIGHT)
    unexplained = Hypothesis(MACHINE, missing, unexplained=True)
    unseen = Prior(50, PRIOR.reverse, jobs_unseen=True)
    more = unseen.log(unexplained, model) - PRIOR.log(unexplained, model)
    assert more == pytest.approx(np.log(2.0))
    healthy = Hypothesis(MACHINE, missing)
    assert unseen.log(healthy, model) == PRIOR.log(healthy, model)


def test_a_rate_is_a_parameter_not_a_hypothesis() -> None:
    near = [slow(4, gbps=rate, ratio=rate / 40.0) for rate in (39.0, 40.0, 41.0)]
    posterior = compared(alone(), *near)
    assert posterior.best.slow[0].gbps == 40.0
    # The reverse link is the same cable, one of its directions is not.
    assert len(compared(alone(), slow(4), slow(5)).weighed) == 3
    assert len(compared(alone(), slow(4), slow(4, both=False)).weighed) == 4


@pytest.mark.parametrize("kinds", [("calls",), ("sends",), ("stalls",), ("calls", "stalls")])
def test_more_kinds_of_evidence_sharpen(kinds: tuple[str, ...]) -> None:
    def of(chosen: tuple[str, ...]) -> Posterior:
        pick = [{kind: misfits[kind] for kind in chosen} for misfits in (NONE, RIGHT)]
        rival = {kind: 0.5 * (NONE[kind] + RIGHT[kind]) for kind in chosen}
        return compared(alone(0.9, pick[0]), slow(4, misfits=pick[1]), slow(8, misfits=rival))

    few, all_ = of(kinds), of(("calls", "sends", "stalls"))
    assert few.best.slow == all_.best.slow == slow(4).slow
    assert few.of_cause("slow-link") < all_.of_cause("slow-link")
    assert all_.weighed[0].probability > few.weighed[0].probability


def test_time_alone_names_no_cable() -> None:
    posterior = compared(alone(0.8, {}), slow(4, misfits={}), slow(8, misfits={}))
    assert posterior.unexplained > posterior.of_cause("slow-link")


def test_a_kind_that_cannot_be_compared_explains_nothing() -> None:
    posterior = compared(alone(), slow(4, misfits={**RIGHT, "stalls": None}))
    assert posterior.of_cause("slow-link") < compared(alone(), slow(4)).of_cause("slow-link")
    # One that says nothing without hidden causes is left out for all.
    blind = {**NONE, "stalls": None}
    assert compared(alone(0.7, blind), slow(4)).model.kinds == ("calls", "sends")


def test_unusual_hypotheses_must_agree_better() -> None:
    usual, rare = (
        slow(4),
        replace(slow(4), machine=("round-robin", "random"), log_prior=np.log(0.1)),
    )
    posterior = compared(alone(), usual, rare)
    assert posterior.best.machine == usual.machine
    better = replace(rare, outcome=outcome(1.0, {kind: 0.1 * m for kind, m in RIGHT.items()}))
    rough = replace(usual, outcome=outcome(1.0, {kind: 5.0 * m for kind, m in RIGHT.items()}))
    assert compared(alone(), rough, better).best.machine == rare.machine


def test_dropping_networks_exceed_the_faultless_model() -> None:
    lossy, lossless = (compared(alone(0.75, {}), lossy=flag) for flag in (True, False))
    assert lossy.unexplained < 0.3 < 0.9 < lossless.unexplained


def test_cost_distributions_depend_on_finding() -> None:
    model = ErrorModel(MEASURED)
    costs = np.arange(0.0, 20.0, 0.001)
    for mean in (HIDDEN_SHARE, NOT_FOUND_SHARE):
        density = np.exp([log_cost(share, mean, model) for share in costs])
        # Of the measured time within its error; in all, as much as that is wide.
        assert density.sum() * 0.001 == pytest.approx(
            np.sqrt(2 * np.pi) * model.time_error, rel=0.02
        )

    def sure(share: float) -> float:
        """Probability of a cable that explains much, and of which the evidence says little."""
        weak = {kind: 0.5 * misfit for kind, misfit in NONE.items()}
        cable = replace(slow(4, misfits=weak), alone_ps=round((1 - share) * MEASURED))
        return compared(alone(1 - share), cable).of_cause("slow-link")

    # What costs more is rarely missed by a search.
    assert sure(0.2) < sure(0.4) < sure(0.6)


def test_a_model_far_slower_describes_nothing() -> None:
    for ratio in (1.2, 2.0, 13.0):
        assert compared(alone(ratio, RIGHT)).unexplained > 0.8
    assert compared(alone(1.05, RIGHT)).unexplained == 0.0
    # Counters that show a slow link give its rate only roughly.
    assert compared(slow(4, ratio=3.0)).unexplained == 0.0


@pytest.mark.parametrize("ratio", [1.3, 2.0, 10.0])
def test_no_unknown_fault_excuses_a_cause_too_dear(ratio: float) -> None:
    """A job or a cable with which the run takes far longer is not saved by the unexplained."""
    better = {"calls": 0.15, "sends": 0.15, "stalls": 0.35}
    job = Hypothesis(MACHINE, outcome(ratio, better), job=Draw(load=0.5, bursts=4, seed=1))
    cable = slow(4, ratio=ratio, misfits=better)
    posterior = compared(alone(1.0), replace(job, alone_ps=MEASURED), cable)
    assert not posterior.best.cause
    dear = [weighed for weighed in posterior.weighed if weighed.hypothesis.cause]
    assert dear and sum(weighed.probability for weighed in dear) < 0.01
    assert not any(weighed.hypothesis.unexplained for weighed in dear)


def test_unknown_and_known_faults_change_evidence_alike() -> None:
    def with_change(change: float) -> Posterior:
        # Of the cable that is slow, the prediction is worse than usual.
        misfits = {"calls": 0.02, "sends": 0.03, "stalls": 0.05}
        cable = slow(4, misfits=misfits)
        cable = replace(
            cable,
            alone_ps=round(0.5 * MEASURED),
            outcome=replace(cable.outcome, change=dict.fromkeys(misfits, change)),
        )
        usual = {"calls": 0.004, "sends": 0.1, "stalls": 0.1}
        return compared(alone(0.5, usual), cable)

    # Misfit of a fault of half of the time, over the square of that share.
    model = ErrorModel.of(MEASURED, [[alone().outcome]], lossy=False)
    cable = replace(slow(4), alone_ps=round(0.5 * MEASURED))
    cable = replace(cable, outcome=replace(cable.outcome, change={"calls": 0.2}))
    assert typical_of_faults([alone(), cable], model, lambda fault: fault.change) == {
        "calls": pytest.approx(0.8)
    }
    assert typical_of_faults([alone()], model, lambda fault: fault.change) == {}
    # A small change agrees with the evidence better than the cable; a usual one does not.
    assert with_change(0.0).unexplained > 0.3
    assert with_change(0.2).of_cause("slow-link") > 0.85
    # All times may have grown by the same factor, which is unusual. Unknown settings change what a
    # fault does, found or not.
    model = ErrorModel.of(MEASURED, [[alone(0.7, RIGHT).outcome]], lossy=False)
    tried = [alone(0.7, RIGHT), replace(cable, outcome=replace(cable.outcome, elapsed_ps=650_000))]
    assert Posterior(tried, model, PRIOR).unexplained > 0.9

    def error(settings: float) -> float:
        outcome = replace(cable.outcome, sensitivity={"calls": settings})
        posterior = Posterior([tried[0], replace(cable, outcome=outcome)], model, PRIOR)
        return next(
            weighed.hypothesis.outcome.sensitivity["calls"]
            for weighed in posterior.weighed
            if weighed.hypothesis.unexplained and not weighed.hypothesis.slow
        )

    # Of a fault of half of the time; 30 % are missing.
    assert error(0.05) == pytest.approx(0.05 / 0.5**2 * 0.3**2) and error(0.0) == 0.0


def test_counted_traffic_costs_at_most_twice_its_simulation() -> None:
    model = ErrorModel(MEASURED)
    arrangements = [replace(alone(ratio), bursts=bursts) for bursts, ratio in ((4, 0.9), (16, 0.8))]
    between = came_otherwise(arrangements, 700_000, model)
    assert {hypothesis.outcome.elapsed_ps for hypothesis in between} == {MEASURED}
    assert [hypothesis.bursts for hypothesis in between] == [4, 16]
    wide = np.log(1.1 / 0.7) / (np.sqrt(2 * np.pi) * model.time_error)
    assert between[0].log_prior == pytest.approx(-np.log(wide))
    # It cannot explain more than that, and costs nothing where the run is shorter without it.
    assert (
        came_otherwise(arrangements, 850_000, model)
        == []
        == came_otherwise(arrangements, MEASURED, model)
    )
    # A range as narrow as the error of the time is no assumption.
    close = came_otherwise([alone(0.99)], 970_000, model)
    assert [hypothesis.log_prior for hypothesis in close] == [0.0]


def test_noise_in_calls_explains_missing_time() -> None:
    model = ErrorModel.of(MEASURED, [[alone().outcome]], lossy=False)
    (noisy,) = with_interruptions([alone(0.7)], {MACHINE: 400_000}, model)
    assert noisy.outcome.elapsed_ps == MEASURED and noisy.noise_ps == 300_000
    assert noisy.simulated_ps == 700_000 and noisy.hidden_share(model) == 0.0
    wide = np.log(1.1 / 0.7) / (np.sqrt(2 * np.pi) * model.time_error)
    assert noisy.log_prior == pytest.approx(-np.log(wide))
    # No more than interruptions can take, and nothing where no time is missing.
    (part,) = with_interruptions([alone(0.7)], {MACHINE: 100_000}, model)
    assert part.outcome.elapsed_ps == 800_000
    assert with_interruptions([alone(1.1)], {MACHINE: 400_000}, model) == []
    assert with_interruptions([alone(0.7)], {}, model) == []


def test_noise_in_calls_rivals_a_poor_cable() -> None:
    poor = slow(4, misfits={"calls": 0.25, "sends": 0.25, "stalls": 0.4})
    suspects = replace(PRIOR, faulty=(4,))
    model = ErrorModel.of(MEASURED, [[alone().outcome]], lossy=False)
    assert Posterior([alone(), poor], model, suspects).of_cause("slow-link") > 0.8
    noisy = with_interruptions([alone(), poor], {MACHINE: 400_000}, model)
    posterior = Posterior([alone(), poor, *noisy], model, suspects)
    assert posterior.of_cause("slow-link") < 0.5
    mean, most = posterior.noise_in_calls_ps
    assert 150_000 < mean < most == 300_000
    # A run is simulated without noise in its calls.
    assert posterior.best.noise_ps == 0 and not posterior.best.slow


def test_an_unclear_place_leaves_the_time_unexplained() -> None:
    places = [replace(slow(2 * cable), alone_ps=700_000) for cable in range(2 * NAMED)]
    few, many = compared(alone(), *places[:NAMED]), compared(alone(), *places)
    assert few.of_cause("slow-link") > 0.99 and few.unexplained < 0.01
    assert many.unexplained == pytest.approx(0.5, abs=0.02)


def test_the_best_bad_explanation_is_not_certain() -> None:
    model = ErrorModel.of(MEASURED, [[alone().outcome]], lossy=False)
    other = unsimulated_faults([alone()], model, PRIOR)

    def sure(*cables: Hypothesis) -> Posterior:
        return Posterior([alone(), *cables, *other], model, PRIOR)

    bad = slow(4, misfits={"calls": 0.05, "sends": 0.05, "stalls": 0.1})
    assert compared(alone(), bad).of_cause("slow-link") > 0.95
    assert sure(bad).unexplained > 0.9
    # One that agrees as usual is as sure as before, and so is a run that lacks nothing.
    assert sure(slow(4)).of_cause("slow-link") > 0.95
    assert unsimulated_faults([alone(1.0)], model, PRIOR) == []
    # Where packets are dropped, nobody knows how well healthy runs agree.
    assert unsimulated_faults([alone()], replace(model, lossy=True), PRIOR) == []


def test_unknown_settings_disprove_no_hypothesis() -> None:
    model = ErrorModel.of(MEASURED, [[alone().outcome]], lossy=False)
    chaotic = {"calls": 0.03, "sends": 0.05, "stalls": 0.0}
    misfits = {"calls": 0.03, "sends": 0.05, "stalls": 0.01}

    def weigh(sensitivity: Mapping[str, float]) -> Posterior:
        cable = slow(4, misfits=misfits)
        cable = replace(cable, outcome=replace(cable.outcome, sensitivity=sensitivity))
        other = unsimulated_faults([alone()], model, PRIOR, sensitivity, [alone(), cable])
        return Posterior([alone(), cable, *other], model, PRIOR)

    assert weigh({}).unexplained > 0.8
    assert weigh(chaotic).of_cause("slow-link") > 0.7
    # Of two hypotheses that agree equally well, the one that is precise is more probable.
    sharp, vague = outcome(1.0, RIGHT), replace(outcome(1.0, RIGHT), sensitivity=chaotic)
    assert model.log_shape(sharp) > model.log_shape(vague) + 2
    assert model.agrees(sharp) and model.agrees(vague)
    assert not model.agrees(replace(vague, misfits=misfits))


def test_traffic_arrangements_disprove_no_cable() -> None:
    def charged(hypothesis: Hypothesis, n_arrangements: int) -> Hypothesis:
        return replace(hypothesis, log_prior=-math.log(n_arrangements))

    fair = {"calls": 0.01, "sends": 0.01, "stalls": 0.02}
    without = [replace(alone(), bursts=bursts) for bursts in (None, 4, 8, 16, 32, 64)]
    many = [charged(hypothesis, 6) for hypothesis in without]
    cable = replace(slow(4, misfits=fair), bursts=None)
    model = ErrorModel.of(MEASURED, [[hypothesis.outcome for hypothesis in many]], lossy=False)

    def probability(arrangements: list[Hypothesis], tried: list[Hypothesis]) -> float:
        hypotheses = over_arrangements([*arrangements, *tried], arrangements, model, PRIOR)
        open_ones = unsimulated_faults(arrangements, model, PRIOR, simulated=hypotheses)
        return Posterior([*hypotheses, *open_ones], model, PRIOR).of_cause("slow-link")

    one_way = probability(without[:1], [cable])
    assert 0.1 < one_way < 0.9
    assert probability(many, [charged(cable, 6)]) == pytest.approx(one_way, rel=1e-6)
    # Tried with each of them, it counts with each.
    each = [charged(replace(cable, bursts=hypothesis.bursts), 6) for hypothesis in without]
    assert probability(many, each) == pytest.approx(one_way, rel=1e-6)


def test_an_arrangement_without_cable_is_not_preferred() -> None:
    arrangements = [
        replace(alone(misfits=RIGHT), log_prior=-math.log(2)),
        replace(alone(), bursts=4, log_prior=-math.log(2)),
    ]
    model = ErrorModel.of(
        MEASURED, [[hypothesis.outcome for hypothesis in arrangements]], lossy=False
    )
    cable = replace(slow(4), log_prior=-math.log(2))
    *_, now = over_arrangements([*arrangements, cable], arrangements, model, PRIOR)
    assert now.log_prior == pytest.approx(-math.log(2), abs=0.01)  # The other hardly agrees.


def test_a_slow_cable_off_our_paths_is_unusual() -> None:
    model = ErrorModel.of(MEASURED, [[alone().outcome]], lossy=False)
    elsewhere = Prior(PRIOR.cables, PRIOR.reverse, frozenset({4}))
    assert elsewhere.log(slow(4), model) == pytest.approx(
        PRIOR.log(slow(4), model) + math.log(UNUSUAL)
    )
    assert elsewhere.log(slow(8), model) == PRIOR.log(slow(8), model)


def test_fitted_rates_are_not_supplemented() -> None:
    """A cable that agrees best at a rate that leaves time open does not explain that time."""
    model = ErrorModel.of(MEASURED, [[alone().outcome]], lossy=False)
    screened = [slow(4, ratio=0.8, gbps=rate) for rate in (40.0, 50.0)]
    assert {
        hypothesis.outcome.elapsed_ps for hypothesis in at_other_rates(screened, model, PRIOR)
    } == {MEASURED}
    fitted = [*screened, slow(4, ratio=0.75, gbps=60.0)]
    assert at_other_rates(fitted, model, PRIOR) == []


@pytest.mark.parametrize(
    ("served", "sound", "one_way", "both"),
    [
        ((20.0, 5.0), (False, False), 20.0, 20.0),
        ((5.0, 20.0), (False, False), 5.0, 20.0),
        ((20.0, 5.0), (True, False), math.inf, 40.0),
        ((20.0, 5.0), (True, True), math.inf, math.inf),
        ((0.0, 0.0), (False, False), 0.0, 0.0),
    ],
)
def test_counters_bound_the_rate_of_a_cable(
    served: tuple[float, float], sound: tuple[bool, bool], one_way: float, both: float
) -> None:
    reverse = np.array([1, 0], np.uint32)
    prior = Prior(1, reverse, served_gbps=np.array(served), sound=np.array(sound))
    assert prior.least_rate(0, both=False) == one_way
    assert prior.least_rate(0, both=True) == prior.least_rate(1, both=True) == both
    assert Prior(1, reverse).least_rate(0, both=True) == 0.0


def test_errors_show_the_place_of_unknown_timings() -> None:
    """A cable with errors fits better than none, but not as usual: its bursts are unknown."""
    poor = {"calls": 0.1, "sends": 0.1, "stalls": 0.1}
    plain, cable = alone(), replace(slow(4, misfits=poor), alone_ps=round(0.7 * MEASURED))
    model = ErrorModel.of(MEASURED, [[plain.outcome]], lossy=False)
    suspecting = replace(PRIOR, faulty=(4,))

    def named(prior: Prior, lateness: Mapping[int, float], trial: Hypothesis = cable) -> float:
        others = unsimulated_faults([plain], model, prior)
        timing = of_unknown_timing([trial], [plain], model, prior, lateness)
        return Posterior([plain, trial, *others, *timing], model, prior).of_cause("slow-link")

    assert named(PRIOR, {}) < 0.01 and named(suspecting, {}) > 0.9
    # Sends that are late elsewhere speak against it.
    assert named(suspecting, {4: -3.0}) < named(suspecting, {})
    worse = replace(cable, outcome=outcome(1.0, {**NONE, "stalls": 0.8}))
    late = replace(cable, outcome=outcome(1.3, poor))
    for trial in (worse, late):
        assert of_unknown_timing([trial], [plain], model, suspecting, {}) == []
    assert of_unknown_timing([cable], [plain], replace(model, lossy=True), suspecting, {}) == []


def test_slow_links_of_any_place_are_one_cause() -> None:
    """A ring ends together whichever link is slow, or if all are: the cause is certain, not where.

    Where packets are dropped, all calls may take longer for another reason.
    """
    everywhere = replace(alone(1.0, RIGHT), slower=SlowerMachine(rates=0.5))
    tried = [alone(), *(slow(link) for link in range(0, 40, 2)), everywhere]
    open_ = compared(*tried)
    assert open_.of_cause("slow-link") < 0.5
    posterior = open_.counting_any_place()
    assert posterior.of_cause("slow-link") > 0.99 and posterior.unexplained < 0.01
    assert posterior.best.slow and posterior.all_links_slow(everywhere)
    lossy = compared(*tried, lossy=True)
    assert lossy.counting_any_place().unexplained == lossy.unexplained


def test_slower_machine_alone_is_no_slow_link() -> None:
    everywhere = replace(alone(1.0, RIGHT), slower=SlowerMachine(rates=0.5))
    posterior = compared(alone(), everywhere).counting_any_place()
    assert posterior.of_cause("slow-link") == 0.0
