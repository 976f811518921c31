"""Hypotheses that no simulation has, derived from simulated ones.

A search tries causes at some rates, with some arrangements of counted traffic, and at some places.
What it did not try must not count against a cause, nor make the tried ones certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tailback.diagnosis.cable_search import Outcome
from tailback.inference.error_model import ErrorModel
from tailback.inference.hypotheses import (
    HIDDEN_SHARE,
    NOT_FOUND_SHARE,
    UNUSUAL,
    Hypothesis,
    MachineName,
    Prior,
    log_cost,
    log_probability,
    log_spread,
)
from tailback.log_probability import log_sum

SCREENED_RATES = 2
"""Rates at which a cable is tried before it is known whether it is worth fitting."""

WITHIN_ERROR = -0.5
"""Logarithm of the likelihood of a time that is off by one standard error."""


def over_arrangements(
    hypotheses: Sequence[Hypothesis], alone: Sequence[Hypothesis], model: ErrorModel, prior: Prior
) -> list[Hypothesis]:
    """Let hidden causes that were simulated with one arrangement of counted traffic stand for all.

    A hidden cause is tried with the arrangement that is most probable without it. With another it
    is taken to agree with the evidence as much better or worse as the run without it does; else
    the number of arrangements would count against it.

    Args:
        hypotheses: The hypotheses of one machine model.
        alone: Those of them without hidden causes, one for each arrangement.
        model: The error model.
        prior: Identifies the places of cables.
    """
    if len(alone) < 2:
        return list(hypotheses)
    shapes = {hypothesis.bursts: model.log_shape(hypothesis.outcome) for hypothesis in alone}
    total = float(log_sum(list(shapes.values())))

    def cause(hypothesis: Hypothesis) -> Hashable:
        job = hypothesis.job
        return hypothesis.places(prior.reverse), job and (job.seed, job.place)

    tried: dict[Hashable, set[int | None]] = {}
    for hypothesis in hypotheses:
        tried.setdefault(cause(hypothesis), set()).add(hypothesis.bursts)
    return [
        replace(hypothesis, log_prior=hypothesis.log_prior + total - shapes[hypothesis.bursts])
        if len(tried[cause(hypothesis)]) == 1 and hypothesis.bursts in shapes
        else hypothesis
        for hypothesis in hypotheses
    ]


def at_other_rates(
    tried: Sequence[Hypothesis], model: ErrorModel, prior: Prior
) -> list[Hypothesis]:
    """Slow cables at rates that were not simulated, so that the run takes as long as measured.

    Most cables are tried at one rate or two only, which must not count against them. With more,
    their rates were fitted: what no rate explains counts against the cable. So does a rate below
    those that its counters show.

    Args:
        tried: Simulated hypotheses with slow cables.
        model: The error model.
        prior: Identifies the places of cables.
    """
    timed = {
        hypothesis.places(prior.reverse)
        for hypothesis in tried
        if model.log_time(hypothesis.outcome.elapsed_ps) >= WITHIN_ERROR
    }

    def may_be_slower(hypothesis: Hypothesis) -> bool:
        return all(
            slow.gbps > prior.least_rate(slow.link, both=slow.both) for slow in hypothesis.slow
        )

    rates: dict[Hashable, set[float]] = {}
    for hypothesis in tried:
        key = hypothesis.machine, hypothesis.places(prior.reverse)
        rates.setdefault(key, set()).update(slow.gbps for slow in hypothesis.slow)
    return [
        replace(
            hypothesis,
            outcome=replace(hypothesis.outcome, elapsed_ps=model.measured_ps),
            otherwise=True,
        )
        for hypothesis in tried
        if hypothesis.places(prior.reverse) not in timed
        and (hypothesis.outcome.elapsed_ps >= model.measured_ps or may_be_slower(hypothesis))
        and len(rates[hypothesis.machine, hypothesis.places(prior.reverse)])
        <= SCREENED_RATES * len(hypothesis.slow)
    ]


def came_otherwise(
    arrangements: Sequence[Hypothesis], without_ps: int, model: ErrorModel
) -> list[Hypothesis]:
    """Hypotheses in which counted traffic of other jobs costs what the measured time implies.

    Counters show neither its timing within a window nor where it went, so its cost is uniformly
    distributed between nothing and twice the largest simulated one: that of the traffic matrix
    nearest to gravity is 0.6 times the true one in blind cases.

    Args:
        arrangements: The same hypothesis with several arrangements of counted traffic.
        without_ps: Time of the run without that traffic, ps.
        model: The error model.
    """
    most = max((hypothesis.outcome.elapsed_ps for hypothesis in arrangements), default=0)
    measured, longest = model.measured_ps, 2 * most - without_ps
    if not without_ps < measured <= longest:
        return []
    spread = float(log_spread(np.log(longest / without_ps), model))
    return [
        replace(
            hypothesis,
            outcome=replace(hypothesis.outcome, elapsed_ps=measured),
            otherwise=True,
            log_prior=hypothesis.log_prior + spread,
        )
        for hypothesis in arrangements
    ]


def with_interruptions(
    simulated: Sequence[Hypothesis], most_ps: Mapping[MachineName, int], model: ErrorModel
) -> list[Hypothesis]:
    """Hypotheses in which interruptions inside calls cost what the measured time implies.

    A rank that is interrupted inside a call does not go on with its messages, which looks like
    communication. Whether that delays anybody depends on who waits for it: the cost is uniformly
    distributed up to the largest one.

    Args:
        simulated: Simulated hypotheses.
        most_ps: The largest cost with each machine model, ps.
        model: The error model.
    """
    target_ps = round(model.simulated_ps(model.measured_ps))
    out = []
    for hypothesis in simulated:
        elapsed, most = hypothesis.outcome.elapsed_ps, most_ps.get(hypothesis.machine, 0)
        added = min(target_ps - elapsed, most)
        if added <= 0 or hypothesis.slower is not None:
            continue
        spread = float(log_spread(np.log1p(most / max(elapsed, 1)), model))
        out.append(
            replace(
                hypothesis,
                outcome=replace(hypothesis.outcome, elapsed_ps=elapsed + added),
                noise_ps=added,
                log_prior=hypothesis.log_prior + spread,
            )
        )
    return out


def unsimulated_faults(
    alone: Sequence[Hypothesis],
    model: ErrorModel,
    prior: Prior,
    sensitivity: Mapping[str, float] | None = None,
    simulated: Sequence[Hypothesis] = (),
) -> list[Hypothesis]:
    """Faults that no hypothesis contains, but that would agree with the evidence as usual.

    Without them, the best of many bad explanations would be certain. They are charged for a place,
    and for being unusual among faults.

    Args:
        alone: Runs without hidden causes.
        model: The error model.
        prior: Number of places.
        sensitivity: The largest of all hypotheses: nobody knows with which adapters such a fault
            would agree, so none of them makes it more precise.
        simulated: Hypotheses that were simulated, with a cause or without.
    """
    if model.lossy:
        return []  # Retransmissions make healthy runs agree worse than that.
    charge = math.log(UNUSUAL) - math.log(max(prior.cables, 1))
    faults = [
        (each, _with_fault(each, model.usual, charge, sensitivity))
        for each in alone
        if model.missing_share(each.outcome.elapsed_ps) > 0
    ]
    best = max(simulated, key=lambda each: log_probability(each, model, prior), default=None)
    return [
        replace(fault, log_prior=fault.log_prior - _counted_twice(fault, best or each, model))
        for each, fault in faults
    ]


OF_MESSAGE_TIMES = ("calls", "sends", "spread", "steps")
"""Kinds of evidence that are all times of the same messages."""


def _counted_twice(fault: Hypothesis, simulated: Hypothesis, model: ErrorModel) -> float:
    """Part of the likelihood of a fault over that of a simulation that counts only once.

    A machine that differs from the model makes all kinds of message times disagree at once, so
    that only the kind that speaks most for an unknown fault does.
    """
    ratios = model.log_ratios(fault.outcome, simulated.outcome)
    gains = [max(ratios.get(kind, 0.0), 0.0) for kind in OF_MESSAGE_TIMES]
    return sum(gains) - max(gains)


def untried_faults(
    alone: Sequence[Hypothesis],
    model: ErrorModel,
    prior: Prior,
    places: float,
    sensitivity: Mapping[str, float] | None = None,
) -> list[Hypothesis]:
    """Hidden causes that a search cut short did not try, and that may agree with the evidence.

    They have the prior of those that were tried, and agree as usual. Otherwise a search would be
    the more certain the less it tried.

    Args:
        alone: Runs without hidden causes.
        model: The error model.
        prior: Number of places.
        places: Number of untried places at which a cause would agree; 0: the search was completed.
        sensitivity: The largest of all hypotheses, as in :func:`unsimulated_faults`.
    """
    if places <= 0.0:
        return []
    # Retransmissions make runs of a lossy network agree worse than usual, with a fault or without.
    agreeing = None if model.lossy else model.usual
    out = []
    for hypothesis in alone:
        off = model.missing_share(hypothesis.outcome.elapsed_ps)
        if off <= 0:
            continue
        # Its cost is that of a hidden cause, not of one that no search finds.
        cost = log_cost(off, HIDDEN_SHARE, model) - log_cost(off, NOT_FOUND_SHARE, model)
        charge = math.log(places) - math.log(max(prior.cables, 1)) + cost
        out.append(_with_fault(hypothesis, agreeing, charge, sensitivity))
    return out


def _with_fault(
    hypothesis: Hypothesis,
    agreeing: Callable[[Outcome], dict[str, float]] | None,
    charge: float,
    sensitivity: Mapping[str, float] | None,
) -> Hypothesis:
    """A run with a fault that was not simulated, and that explains the time that is missing.

    Args:
        hypothesis: The run without it.
        agreeing: Misfits of an outcome that agrees as usual; None: those of the run without it.
        charge: Logarithm of the prior of the fault.
        sensitivity: Sensitivity of an outcome that agrees as usual; None: none.
    """
    outcome = hypothesis.outcome
    if agreeing is not None:
        outcome = replace(outcome, sensitivity=sensitivity or {})
        outcome = replace(outcome, misfits=agreeing(outcome))
    return replace(
        hypothesis,
        outcome=outcome,
        unexplained=True,
        unsimulated=True,
        log_prior=hypothesis.log_prior + charge,
    )


def of_unknown_timing(
    tried: Sequence[Hypothesis],
    alone: Sequence[Hypothesis],
    model: ErrorModel,
    prior: Prior,
    lateness: Mapping[int, float],
    sensitivity: Mapping[str, float] | None = None,
) -> list[Hypothesis]:
    """Cables with errors that delay messages at other times than any that was simulated.

    Errors come and go in bursts that no counter shows. Such a timing is unusual, and would agree
    with the evidence as usual. Without it, the fault of such a cable would count as one of an
    unknown place. A cable whose simulations all agree worse than the run without it has no such
    fault.

    Args:
        tried: Simulated hypotheses with slow cables.
        alone: Runs without hidden causes.
        model: The error model.
        prior: Which cables have errors.
        lateness: For each of these, the logarithm of the likelihood of the late sends if it is slow
            over that if another cable is.
        sensitivity: The largest of all hypotheses, as in :func:`unsimulated_faults`.
    """
    if model.lossy:
        return []
    shape_without: dict[Hashable, float] = {}
    for hypothesis in alone:
        key = hypothesis.machine, hypothesis.bursts
        shape_without[key] = model.log_shape(hypothesis.outcome)
    target_ps = round(model.simulated_ps(model.measured_ps))
    nearest: dict[Hashable, Hypothesis] = {}
    for hypothesis in tried:
        link = hypothesis.slow[-1].link
        key = hypothesis.machine, hypothesis.bursts
        better = model.log_shape(hypothesis.outcome) > shape_without.get(key, 0.0)
        timed = model.log_time(hypothesis.outcome.elapsed_ps) >= WITHIN_ERROR
        if not (len(hypothesis.slow) == 1 and prior.is_suspect(link) and better and timed):
            continue
        place = hypothesis.machine, hypothesis.places(prior.reverse)
        off = abs(hypothesis.outcome.elapsed_ps - target_ps)
        if place not in nearest or off < abs(nearest[place].outcome.elapsed_ps - target_ps):
            nearest[place] = hypothesis
    out = []
    for hypothesis in nearest.values():
        if model.missing_share(hypothesis.alone_ps or 0) <= 0:
            continue
        (slow,) = hypothesis.slow
        cable = min(slow.link, int(prior.reverse[slow.link]))
        like = replace(hypothesis.outcome, elapsed_ps=target_ps, sensitivity=sensitivity or {})
        out.append(
            replace(
                hypothesis,
                outcome=replace(like, misfits=model.usual(like)),
                otherwise=True,
                unsimulated=True,
                log_prior=hypothesis.log_prior + math.log(UNUSUAL) + lateness.get(cable, 0.0),
            )
        )
    return out
