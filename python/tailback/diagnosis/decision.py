"""The verdict on a measured run, and how sure it is: from an ensemble of runs that it may be.

Two or more *alternatives* say what became of the time that the expected run lacks: the model is off
and all costs are off with it, or a cause that no search found took it, or a cause that was found
cost more than in its simulation. Each has a prior, and the measured time tells how likely it is.
Each member of the ensemble takes one alternative by its probability, and costs that differ from the
simulated ones by their error. The verdict is the main cause of most members, its confidence is
their share. What is a fault, how far the model may be off and how much may stay unexplained are not
decided apart from that.
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
"""Share of the measured time from which a cause is a fault: repetitions of a run differ by less,
and nobody would change anything for less."""

ORDINARY: Mapping[str, float] = {"pattern": 0.09, "placement": 0.04, "late-partner": 0.09}
"""Share of the time that causes cost in programs without a fault. Every exchange with several
partners at once costs some (healthy halo exchanges of the real-packet lab 0.02 to 0.04, of
simulated machines up to 0.08), programs with dependencies wait some, and runs with the same
placement differ by hashed paths as others do by their placement."""

COST_ERROR, RELATIVE_COST_ERROR = 0.012, 0.2
"""Standard error of the cost of a cause, as shares of the measured time and of the cost: in 50
blind cases, absent causes have a root mean square cost of 0.011 (405 costs), and half of the 92
costs of present causes are within 0.03, at a mean of 0.25."""

TIME_ERROR = 0.05
"""Standard error of the expected time on a lossless network, as a share of it: what nobody knows of
a machine (±50 % in the blind cases) changes the time of runs without a hidden cause by so much."""

LOSSY_TIME_ERROR, LOSSY_TIME_RATIO = 0.12, 1.2
"""The same where queues drop packets, and measured over expected time there: TCP takes 1.2 to 1.4
times as long as a model with back-pressure in healthy runs of the real-packet lab."""

NOT_FOUND = 0.1
"""Prior probability of a fault that no search found: of 103 runs of blind cases that were called
healthy 9 had one, (9 + 1)/(103 + 2)."""

NOT_FOUND_SHARE = 0.1
"""Mean share of the time that such a fault costs, of an exponential distribution: those of the
blind cases cost 0.1 to 0.24. What costs more is found."""

IDENTIFIED, UNKNOWN_JOB, AMBIGUOUS = 0.97, 0.85, 0.6
"""Probability that a cause was identified correctly: in general, for an unknown job, and where the
place is not known (one of several links, ranks on hosts that are assumed). Of 341 causes named in
blind cases 337 were there, and 31 of 32 unknown jobs; both are lower, as real machines differ from
the model in more than the simulated ones, and real jobs send in other ways than assumed."""

UNEXPLAINED, HEALTHY = "unexplained", "healthy"


@dataclass(frozen=True)
class Alternative:
    """What may have become of the measured time.

    Attributes:
        expected_ps: Expected time, with all that it says.
        extra: Cost of a cause in it beyond that in the expected run, by cause.
        not_found: The time that it lacks is a fault that no search found; else it is the error of
            the model, for all causes alike.
    """

    expected_ps: int
    extra: tuple[tuple[str, int], ...] = ()
    not_found: bool = False


@dataclass(frozen=True)
class Ensemble:
    """Alternatives, with their probability.

    Attributes:
        elapsed_ps: Measured time.
        alternatives: The alternatives, the expected run as it is first.
        probability: Of each, shape (A,).
        scale: Measured over expected time of all causes alike in each, shape (A,).
        missing: Share of the measured time that each leaves to a fault not found, shape (A,).
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
            alternatives: The alternatives, the expected run as it is first. Those that lack time
                are also weighed with a fault that was not found.
            elapsed_ps: Measured time.
            inside_ps: The part of it that the expected run stands for.
            lossy: Queues drop packets.
        """
        error = LOSSY_TIME_ERROR if lossy else TIME_ERROR
        usual = LOSSY_TIME_RATIO if lossy else 1.0
        both = [Alternative(one.expected_ps, one.extra, True) for one in alternatives]
        every = [*alternatives, *both]
        weight, scale, missing = (np.zeros(len(every)) for _ in range(3))
        for at, one in enumerate(every):
            ratio = inside_ps / max(one.expected_ps, 1)
            lacks = max(1.0 - usual / ratio, 0.0)
            if not one.not_found:
                weight[at] = math.exp(-0.5 * (math.log(ratio / usual) / error) ** 2)
                scale[at] = ratio
            else:
                weight[at] = NOT_FOUND * math.exp(-lacks / NOT_FOUND_SHARE)
                scale[at] = min(ratio, usual)
                missing[at] = lacks * inside_ps / elapsed_ps
        return cls(elapsed_ps, every, weight / weight.sum(), scale, missing)

    @property
    def mean_scale(self) -> float:
        """The mean scale over all alternatives."""
        return float((self.probability * self.scale).sum())


@dataclass(frozen=True)
class Decision:
    """A verdict.

    Attributes:
        cause: A cause, ``healthy`` or ``undetermined``.
        confidence: Probability that it is right; 0 where undetermined.
        chances: Probability of each cause to be the main one, of ``healthy`` and of
            ``unexplained``.
    """

    cause: str
    confidence: float
    chances: Mapping[str, float]


def fault_share(cause: str) -> float:
    """Share of the time from which a cause is a fault."""
    return FAULT + ORDINARY.get(cause, 0.0)


def decide(
    costs: Sequence[Cost], ensemble: Ensemble, identified: Mapping[str, float] | None = None
) -> Decision:
    """The verdict of the ensemble.

    Args:
        costs: What each cause costs in the expected run, at the mean scale.
        ensemble: The alternatives.
        identified: Probability that a cause was identified correctly, :data:`IDENTIFIED` for those
            that it does not have.
    """
    rng = np.random.default_rng(SEED)
    member = rng.choice(len(ensemble.probability), DRAWS, p=ensemble.probability)
    extra = {name: 0 for one in ensemble.alternatives for name, _ in one.extra}
    stated = {cost.cause: cost for cost in costs}
    names = list(dict.fromkeys([*stated, *extra]))
    excess = np.empty((DRAWS, len(names) + 1))
    for column, name in enumerate(names):
        share = 0.0 if name not in stated else stated[name].share
        of_each = share / ensemble.mean_scale + np.array(
            [dict(one.extra).get(name, 0) / ensemble.elapsed_ps for one in ensemble.alternatives]
        )
        mean = (of_each * ensemble.scale)[member]
        spread = 0.0 if name not in stated else _spread(stated[name])
        error = np.sqrt(COST_ERROR**2 + (RELATIVE_COST_ERROR * mean) ** 2 + spread**2)
        excess[:, column] = mean + error * rng.standard_normal(DRAWS) - ORDINARY.get(name, 0.0)
    excess[:, -1] = ensemble.missing[member]
    first = np.where(excess.max(axis=1) >= FAULT, excess.argmax(axis=1), excess.shape[1])
    share_of = np.bincount(first, minlength=excess.shape[1] + 1) / DRAWS
    chances = dict(zip([*names, UNEXPLAINED, HEALTHY], share_of.tolist(), strict=True))
    return _verdict(chances, identified or {})


def _verdict(chances: Mapping[str, float], identified: Mapping[str, float]) -> Decision:
    """The most probable main cause, or healthy where a fault is less likely than none.

    Faults that no search found are also in runs that lack no time: a healthy run is no surer.
    """
    cause = max(chances, key=lambda name: chances[name])
    if cause == UNEXPLAINED or (cause == HEALTHY and chances[HEALTHY] < 0.5):
        return Decision("undetermined", 0.0, chances)
    if cause == HEALTHY:
        return Decision(cause, round(min(chances[cause], 1.0 - NOT_FOUND), 3), chances)
    return Decision(cause, round(chances[cause] * identified.get(cause, IDENTIFIED), 3), chances)


def _spread(cost: Cost) -> float:
    """Standard error of a cost by its range over repetitions."""
    total = cost.ps / max(cost.share, 1e-12)
    return (cost.high_ps - cost.low_ps) / (2 * 1.96 * total)
