"""The main cause without re-simulation: the one that makes samples and message log most likely.

Congestion trees show where packets queued, not the cost: a burst into a node congests many packets
but is short; a slow cable congests few but delays all others. The message log shows which messages
were late, and whether one of their nodes was busy at the time
(:mod:`tailback.diagnosis.message_delays`). Each piece of evidence is a share, from 0 to 1, that a
cause predicts to be 1, predicts to be 0, or says nothing about. The likelihood of a share *x* is
:func:`likelihood` of *x*, of 1 − *x*, or of ½; causes are equally likely beforehand, and the
likelihoods of all pieces are multiplied (docs/explanation/verdict.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from tailback.diagnosis.confidence import (
    MIN_WORTH,
    UNINFORMATIVE,
    WORTH_FIXING,
    cause_without_contention,
    likelihood,
)
from tailback.diagnosis.model import Cause
from tailback.diagnosis.run_analysis import ROOT_KIND_OF_CAUSE, RunAnalysis
from tailback.diagnosis.waterfall_steps import NON_MINIMAL_RULES
from tailback.scenario.model import Scenario


@dataclass(frozen=True)
class SampledVerdict:
    """The verdict of samples and message log.

    Attributes:
        cause: The most probable cause; undetermined if it is hardly more probable than by chance.
        probability: Probability of each cause.
    """

    cause: Cause
    probability: Mapping[Cause, float]

    @property
    def confidence(self) -> float:
        """Probability of the cause; 0 if undetermined."""
        return self.probability.get(self.cause, 0.0)


def sampled_verdict(evidence: RunAnalysis) -> SampledVerdict:
    """The main cause by samples and message log.

    Args:
        evidence: Analysis of the run.
    """
    if not evidence.crosses:
        return SampledVerdict("not-network", {"not-network": 1.0 - UNINFORMATIVE})
    if not evidence.received:
        # The log alone misses what delays all messages alike.
        return SampledVerdict("undetermined", {})
    probability = _probabilities(evidence)
    best = max(probability, key=lambda cause: probability[cause])
    if best == "other-traffic" and evidence.captured:
        # Without a message log a slow link has the same samples: our traffic does not fill it.
        half = (probability[best] + probability["slow-link"]) / 2.0
        shared: dict[Cause, float] = {**probability, best: half, "slow-link": half}
        return SampledVerdict("undetermined", shared)
    if probability[best] < 2.0 / len(probability):
        return SampledVerdict("undetermined", probability)
    return SampledVerdict(best, probability)


def _probabilities(evidence: RunAnalysis) -> dict[Cause, float]:
    """Probability of each cause, and of none being worth fixing."""
    none = _without_contention(evidence)
    likely = {cause: _likelihood_of(cause, evidence) for cause in ROOT_KIND_OF_CAUSE}
    total = sum(likely.values())
    contention = {cause: (1.0 - none) * value / total for cause, value in likely.items()}
    return {**contention, cause_without_contention(evidence.wire_share): none}


def _without_contention(evidence: RunAnalysis) -> float:
    """Probability that no contention is worth fixing, from the time it may have cost."""
    lost, most = _lost(evidence), _most(evidence)
    # Undecided samples may hide contention, but not more than the time that is left for it.
    little = 1.0 if most < WORTH_FIXING else NormalDist(lost, MIN_WORTH).cdf(WORTH_FIXING)
    beforehand = 1.0 / (len(ROOT_KIND_OF_CAUSE) + 1)
    settled = 1.0 - evidence.unsure_share
    return (1.0 - UNINFORMATIVE) * settled * little + UNINFORMATIVE * beforehand


def _most(evidence: RunAnalysis) -> float:
    """The largest share of the run that contention may cost.

    That is the time that the busiest adapter does not need, and that spent communicating.
    """
    return min(1.0 - evidence.wire_share, evidence.communication_fraction)


def _lost(evidence: RunAnalysis) -> float:
    """Time lost to contention as a share of the run, by message log or congestion trees."""
    trees = max(evidence.burden(cause)[0] for cause in ROOT_KIND_OF_CAUSE)
    logged = 0.0 if evidence.losses is None else evidence.losses.total
    return min(max(trees, logged), _most(evidence))


def _likelihood_of(cause: Cause, evidence: RunAnalysis) -> float:
    """Likelihood of routing, trees, utilization and message log if the cause is the main one."""
    fixed = _fixed_routes(evidence.run.scenario)
    result = likelihood(fixed if cause == "routing" else 0.5)
    burden = {kind: evidence.burden(kind)[0] for kind in ROOT_KIND_OF_CAUSE}
    total, cause_burden = sum(burden.values()), burden[cause]
    late = evidence.losses
    logged = late is not None and late.total >= MIN_WORTH
    if cause == "slow-link" and logged:
        # Our traffic hardly uses either link; the log tells them apart.
        cause_burden += burden["other-traffic"]
    settled = 1.0 - evidence.unsure_share
    if total > 0:
        # Trees say nothing about time that is lost without them.
        hot = max(evidence.burden(kind)[1] for kind in ROOT_KIND_OF_CAUSE)
        weight = settled * min(hot / max(_lost(evidence), 1e-9), 1.0)
        result *= likelihood(weight * cause_burden / total + (1.0 - weight) * 0.5)
    # Other causes fill no link with our traffic.
    filled = evidence.filled.get(cause, 1.0 - max(evidence.filled.values()))
    result *= likelihood(settled * filled + (1.0 - settled) * 0.5)
    if late is None or not logged:
        return result
    # A pattern delays messages at nodes. Other causes may do so too, by back-pressure.
    result *= likelihood(late.endpoint_share if cause == "pattern" else 0.5)
    for share in (evidence.one_cable * (1.0 - late.endpoint_share), evidence.only_cable):
        result *= likelihood(share if cause == "slow-link" else 1.0 - share)
    return result


def _fixed_routes(scenario: Scenario) -> float:
    """How far routes are fixed, 0–1: only then several flows share a link for long.

    0 if switches choose among shortest paths by load, 1 if every pair of nodes has one path.
    """
    fixed = scenario.engine.routing in ("deterministic", "ecmp")
    if scenario.fabric.forwarding is not None or fixed:
        return 1.0
    detours = scenario.fabric.routes in NON_MINIMAL_RULES
    return 0.5 if detours or scenario.engine.routing != "adaptive" else 0.0
