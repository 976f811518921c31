"""The verdict on a measured run and its confidence, from an ensemble of possible runs.

Two or more *alternatives* account for the gap between measured and expected time: the model is
biased and all costs scale with it, an undetected cause took the time, or a detected cause cost more
than in its simulation. Each has a prior, and the measured time sets its likelihood. Each member of
the ensemble draws one alternative by its probability, and perturbs the simulated costs by their
errors. The verdict is the most frequent main cause, and its confidence is that cause's share of the
members. The fault threshold, the model error and the acceptable unexplained time enter through the
ensemble only; there are no separate cut-offs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis.explanation import Cost

Floats = NDArray[np.float64]

DRAWS, SEED = 4000, 20

FAULT = 0.06
"""Smallest share of the measured time at which a cause counts as a fault: run-to-run variation is
smaller, and a smaller cost would not justify a change."""

ORDINARY: Mapping[str, float] = {"pattern": 0.09, "placement": 0.04, "late-partner": 0.09}
"""Share of the time that each cause costs in fault-free programs. Exchanging with several partners
at once always costs something (healthy halo exchanges: 0.02 to 0.04 in the real-packet lab, up to
0.08 on simulated machines), programs with dependencies always wait a little, and path hashing makes
runs with the same placement differ as much as runs with different placements."""

COST_ERROR, RELATIVE_COST_ERROR = 0.012, 0.2
"""Standard error of the cost of a cause, as shares of the measured time and of the cost: in 50
blind cases, absent causes have a root mean square cost of 0.011 (405 costs), and half of the 92
costs of present causes are off by at most 0.03, at a mean of 0.25."""

TIME_ERROR = 0.05
"""Standard error of the expected time on a lossless network, as a share of it: unknown machine
properties (±50 % in the blind cases) change the time of runs without a hidden cause this much."""

LOSSY_TIME_ERROR, LOSSY_TIME_RATIO = 0.12, 1.2
"""The same for a lossy network, and its typical ratio of measured to expected time: in healthy runs
of the real-packet lab, TCP takes 1.2 to 1.4 times as long as a model with back-pressure."""

NOT_FOUND = 0.1
"""Prior probability of an undetected fault: of 103 blind runs diagnosed as healthy, 9 had one,
(9 + 1)/(103 + 2)."""

NOT_FOUND_SHARE = 0.1
"""Mean of the exponential distribution of the share of time that an undetected fault costs: those
of the blind cases cost 0.1 to 0.24; more expensive ones are detected."""

IDENTIFIED, UNKNOWN_JOB, AMBIGUOUS = 0.97, 0.85, 0.6
"""Probability that a cause was identified correctly: in general, for an unknown job, and where the
location is ambiguous (one of several links, or ranks on assumed hosts). Of 341 causes reported in
blind cases 337 were present, and 31 of 32 unknown jobs. The constants are lower because real
machines deviate from the model more than simulated ones, and real jobs have other traffic patterns
than assumed."""

UNEXPLAINED, HEALTHY = "unexplained", "healthy"


@dataclass(frozen=True)
class Alternative:
    """One possible account of the measured time.

    Attributes:
        expected_ps: Expected time under this alternative.
        extra: Additional cost over the expected run, by cause.
        not_found: The remaining time is due to an undetected fault; otherwise it is model error,
            which scales all causes alike.
    """

    expected_ps: int
    extra: tuple[tuple[str, int], ...] = ()
    not_found: bool = False


@dataclass(frozen=True)
class Ensemble:
    """Alternatives, with their probability.

    Attributes:
        elapsed_ps: Measured time.
        alternatives: The alternatives; the unmodified expected run comes first.
        probability: Probability of each alternative, shape (A,).
        scale: Factor from expected to measured time for all causes, by alternative, shape (A,).
        missing: Share of the measured time due to an undetected fault, by alternative, shape (A,).
    """

    elapsed_ps: int
    alternatives: Sequence[Alternative]
    probability: Floats
    scale: Floats
    missing: Floats

    @classmethod
    def of(
        cls, alternatives: Sequence[Alternative], elapsed_ps: int, inside_ps: int, *, lossy: bool
    ) -> Ensemble:
        """Weigh alternatives by the measured time.

        Args:
            alternatives: The alternatives; the unmodified expected run comes first. Each is also
                weighed in a second version, with an undetected fault.
            elapsed_ps: Measured time.
            inside_ps: The part of it that the expected run models.
            lossy: Whether queues drop packets.
        """
        error = LOSSY_TIME_ERROR if lossy else TIME_ERROR
        usual = LOSSY_TIME_RATIO if lossy else 1.0
        with_fault = [Alternative(alt.expected_ps, alt.extra, True) for alt in alternatives]
        combined = [*alternatives, *with_fault]
        weight, scale, missing = (np.zeros(len(combined)) for _ in range(3))
        for index, alternative in enumerate(combined):
            ratio = inside_ps / max(alternative.expected_ps, 1)
            gap = max(1.0 - usual / ratio, 0.0)
            if not alternative.not_found:
                weight[index] = math.exp(-0.5 * (math.log(ratio / usual) / error) ** 2)
                scale[index] = ratio
            else:
                weight[index] = NOT_FOUND * math.exp(-gap / NOT_FOUND_SHARE)
                scale[index] = min(ratio, usual)
                missing[index] = gap * inside_ps / elapsed_ps
        return cls(elapsed_ps, combined, weight / weight.sum(), scale, missing)

    @property
    def mean_scale(self) -> float:
        """The mean scale over all alternatives."""
        return float((self.probability * self.scale).sum())


@dataclass(frozen=True)
class Decision:
    """A verdict.

    Attributes:
        cause: A cause, ``healthy`` or ``undetermined``.
        confidence: Probability that the verdict is correct; 0 if undetermined.
        chances: Probability that each cause is the main one, and of ``healthy`` and
            ``unexplained``.
    """

    cause: str
    confidence: float
    chances: Mapping[str, float]


def fault_share(cause: str) -> float:
    """Smallest share of the time at which a cause counts as a fault."""
    return FAULT + ORDINARY.get(cause, 0.0)


def decide(
    costs: Sequence[Cost], ensemble: Ensemble, identified: Mapping[str, float] | None = None
) -> Decision:
    """Draw the ensemble and return its verdict.

    Args:
        costs: Cost of each cause in the expected run, at the mean scale.
        ensemble: The alternatives.
        identified: Probability that a cause was identified correctly, by cause; defaults to
            :data:`IDENTIFIED`.
    """
    rng = np.random.default_rng(SEED)
    member = rng.choice(len(ensemble.probability), DRAWS, p=ensemble.probability)
    extra = {name: 0 for alt in ensemble.alternatives for name, _ in alt.extra}
    known = {cost.cause: cost for cost in costs}
    names = list(dict.fromkeys([*known, *extra]))
    excess = np.empty((DRAWS, len(names) + 1))
    for column, name in enumerate(names):
        share = 0.0 if name not in known else known[name].share
        unscaled = share / ensemble.mean_scale + np.array(
            [dict(alt.extra).get(name, 0) / ensemble.elapsed_ps for alt in ensemble.alternatives]
        )
        mean = (unscaled * ensemble.scale)[member]
        spread = 0.0 if name not in known else _spread(known[name])
        error = np.sqrt(COST_ERROR**2 + (RELATIVE_COST_ERROR * mean) ** 2 + spread**2)
        excess[:, column] = mean + error * rng.standard_normal(DRAWS) - ORDINARY.get(name, 0.0)
    excess[:, -1] = ensemble.missing[member]
    main = np.where(excess.max(axis=1) >= FAULT, excess.argmax(axis=1), excess.shape[1])
    frequency = np.bincount(main, minlength=excess.shape[1] + 1) / DRAWS
    chances = dict(zip([*names, UNEXPLAINED, HEALTHY], frequency.tolist(), strict=True))
    return _verdict(chances, identified or {})


def _verdict(chances: Mapping[str, float], identified: Mapping[str, float]) -> Decision:
    """The most probable main cause, or healthy if a fault is less likely than no fault.

    Undetected faults also occur in runs with no unexplained time, which caps the confidence of a
    healthy verdict.
    """
    cause = max(chances, key=lambda name: chances[name])
    if cause == UNEXPLAINED or (cause == HEALTHY and chances[HEALTHY] < 0.5):
        return Decision("undetermined", 0.0, chances)
    if cause == HEALTHY:
        return Decision(cause, round(min(chances[cause], 1.0 - NOT_FOUND), 3), chances)
    return Decision(cause, round(chances[cause] * identified.get(cause, IDENTIFIED), 3), chances)


def _spread(cost: Cost) -> float:
    """Standard error of a cost, from its range over repetitions."""
    total = cost.ps / max(cost.share, 1e-12)
    return (cost.high_ps - cost.low_ps) / (2 * 1.96 * total)
