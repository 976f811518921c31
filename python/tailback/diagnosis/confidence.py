"""How likely the stated cause is right: what it rests on, by how much, and what that was worth.

The margin of a verdict is put through a logistic curve, one for each thing a verdict can rest on,
fitted on the generated scenarios of the set to build on and checked on the other one
(docs/measurements/diagnosis-accuracy.md; ``python bench/diagnosis.py --split build --fit``
prints the curves).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailback.diagnosis.model import Basis, Cause, Finding
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.slow_cables import SlowCableFit

NO_CONTENTION_CAUSES: tuple[Cause, ...] = ("not-network", "injection")

HIDDEN_CAUSES: tuple[Cause, ...] = ("other-traffic", "slow-link")
"""Causes that a user's scenario need not know of."""

CONFIDENCE_CURVES: dict[Basis, tuple[float, float]] = {
    "re-simulation": (1.89, 5.62),
    "re-simulation, at rest": (2.82, 3.68),
    "hypothesis": (1.92, 0.67),
    "samples": (1.11, 0.05),
    "samples, at rest": (3.34, 0.94),
}
"""Intercept and slope of the log-odds over the margin."""


MAX_CONFIDENCE = 0.99
"""No verdict is stated to be surer: a hundred scenarios without a miss, made by the simulator that
judges them, do not tell 99 % from more."""


@dataclass(frozen=True)
class VerdictBasis:
    """What a verdict rests on, and by how much it was reached, 0–1."""

    basis: Basis
    margin: float

    @property
    def confidence(self) -> float:
        """Chance that the cause is right, 0–1."""
        intercept, slope = CONFIDENCE_CURVES[self.basis]
        return min(float(1.0 / (1.0 + np.exp(-(intercept + slope * self.margin)))), MAX_CONFIDENCE)


def assess_confidence(
    cause: Cause,
    findings: list[Finding],
    cost: dict[Cause, float],
    hidden: float,
    slow: SlowCableFit | None,
    evidence: RunAnalysis,
    *,
    worth: float,
) -> VerdictBasis:
    """What the verdict rests on, and its margin.

    Args:
        cause: The verdict.
        findings: Rules that fired.
        cost: Share of the time that each cause costs; empty without re-simulation.
        hidden: Share that what is known does not explain.
        slow: The best slow cable that was tried.
        evidence: What the samples say.
        worth: Share of the time from which a cause is worth fixing.
    """
    ordered = sorted(cost.values(), reverse=True)
    if cost and cause in NO_CONTENTION_CAUSES:
        return VerdictBasis("re-simulation, at rest", _within(1.0 - ordered[0] / worth))
    if cost and cause in HIDDEN_CAUSES and hidden > 0.5 * cost[cause]:
        if slow is None:
            return VerdictBasis("hypothesis", 0.0)
        room = 1.0 - slow.needs if slow.explains else slow.needs
        return VerdictBasis("hypothesis", _within(abs(slow.fit - slow.needs) / room))
    if cost:
        return VerdictBasis(
            "re-simulation", _within((ordered[0] - ordered[1]) / max(ordered[0], 1e-9))
        )
    if cause in NO_CONTENTION_CAUSES:
        return VerdictBasis("samples, at rest", _within(1.0 - evidence.unsure_share))
    shares = sorted((f.share for f in findings if f.cause == cause), reverse=True)
    rest = [f.share for f in findings if f.cause != cause]
    gap = max(shares, default=0.0) - max(rest, default=0.0)
    return VerdictBasis("samples", _within(gap - evidence.unsure_share))


def _within(value: float) -> float:
    return min(max(float(value), 0.0), 1.0)
