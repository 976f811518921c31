"""Confidence of a verdict on a measured run: the share of an ensemble that has the same cause.

Each member of the ensemble is a run consistent with the evidence. The cost of each cause varies by
the error of the model and by its simulated interval; the ratio of measured to expected time varies
by the unknown properties of the machine. The verdict is computed anew for each member. Simulation
cannot vary the chance that the evidence was interpreted correctly: which link is slow, whose
traffic it was, and whether a search that found nothing has missed something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tailback.diagnosis.explanation import Cost

DRAWS, SEED = 2000, 20

COST_ERROR, RELATIVE_COST_ERROR = 0.012, 0.2
"""Standard error of the cost of a cause, as shares of the measured time and of the cost: in 50
blind cases, absent causes have a root mean square cost of 0.011 (405 costs), and half of the 92
costs of present causes are within 0.03, at a mean of 0.25."""

SCALE_ERROR, LOSSY_SCALE_ERROR = 0.05, 0.12
"""Standard error of measured over expected time, on lossless networks and where queues drop."""

MISSED = 0.33
"""Chance that unexplained time is a fault although a search found none: of 103 runs of blind cases
that were called healthy 9 had a fault, and in 0.29 of their draws the unexplained time is enough
for one: (9 + 1)/(103 + 2)/0.29."""

IDENTIFIED, UNKNOWN_JOB, AMBIGUOUS = 0.97, 0.85, 0.6
"""Chance that the cause was identified correctly: in general, for an unknown job, and for one of
several links that explain the evidence equally well. Of 341 causes named in blind cases 337 were
there, and 31 of 32 unknown jobs; both chances are lower, as real machines differ from the model in
more than the simulated ones, and real jobs send in other ways than assumed."""


@dataclass(frozen=True)
class Judged:
    """Basis of a verdict.

    Attributes:
        cause: The verdict.
        costs: Cost of each cause.
        fault: Share of the time from which a cause is a fault, by cause.
        usual: Share of the time that each cause costs programs without a fault, by cause.
        unknown: Share of the measured time that is unexplained, or by which the expected time
            exceeds it.
        lossy: Queues drop packets.
        identified: Chance that the cause was identified correctly; without meaning for a healthy
            run.
    """

    cause: str
    costs: Sequence[Cost]
    fault: Mapping[str, float]
    usual: Mapping[str, float]
    unknown: float
    lossy: bool
    identified: float


def confidence(judged: Judged) -> float:
    """Chance that the verdict is right, 0–1; 0 for none."""
    if judged.cause == "undetermined":
        return 0.0
    rng = np.random.default_rng(SEED)
    costs = judged.costs
    excess = np.full((DRAWS, len(costs) + 1), -np.inf)
    for column, cost in enumerate(costs):
        total = cost.ps / max(cost.share, 1e-12)
        spread = (cost.high_ps - cost.low_ps) / (2 * 1.96 * total)
        error = np.sqrt(COST_ERROR**2 + (RELATIVE_COST_ERROR * cost.share) ** 2 + spread**2)
        share = cost.share + error * rng.standard_normal(DRAWS)
        is_fault = share >= judged.fault.get(cost.cause, 0.0)
        excess[is_fault, column] = share[is_fault] - judged.usual.get(cost.cause, 0.0)
    error = LOSSY_SCALE_ERROR if judged.lossy else SCALE_ERROR
    hidden = judged.unknown + error * rng.standard_normal(DRAWS)
    # A hidden cause is a fault only if the search has missed it.
    missed = (rng.random(DRAWS) < MISSED) & (hidden >= min(judged.fault.values(), default=0.06))
    excess[missed, -1] = hidden[missed]
    largest = excess.argmax(axis=1)
    none = np.isinf(excess.max(axis=1))
    if judged.cause == "healthy":
        return round(min(float(none.mean()), IDENTIFIED), 3)
    mine = next(k for k, cost in enumerate(costs) if cost.cause == judged.cause)
    return round(float((~none & (largest == mine)).mean()) * judged.identified, 3)
