"""How likely the stated cause is right: what it rests on, by how much, and what that was worth.

The margin of a verdict is put through a logistic curve, one for each thing a verdict can rest on,
fitted on the generated scenarios of the set to build on and checked on the other one
(docs/diagnosis-accuracy.md; ``python bench/diagnosis.py --split build --fit`` prints the curves).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailback.diagnose.evidence import Evidence
from tailback.diagnose.hidden import Slow
from tailback.diagnose.model import Basis, Cause, Finding

AT_REST: tuple[Cause, ...] = ("not-network", "injection")

HIDDEN: tuple[Cause, ...] = ("other-traffic", "slow-link")
"""Causes that a user's scenario need not know of."""

CURVES: dict[Basis, tuple[float, float]] = {
    "re-simulation": (1.89, 5.62),
    "re-simulation, at rest": (2.82, 3.68),
    "hypothesis": (1.92, 0.67),
    "samples": (1.11, 0.05),
    "samples, at rest": (3.34, 0.94),
}
"""Intercept and slope of the log-odds over the margin."""


MOST = 0.99
"""No verdict is stated to be surer: a hundred scenarios without a miss, made by the simulator that
judges them, do not tell 99 % from more."""


@dataclass(frozen=True)
class Doubt:
    """What a verdict rests on, and by how much it was reached, 0–1."""

    basis: Basis
    margin: float

    @property
    def confidence(self) -> float:
        """Chance that the cause is right, 0–1."""
        intercept, slope = CURVES[self.basis]
        return min(float(1.0 / (1.0 + np.exp(-(intercept + slope * self.margin)))), MOST)


def doubt(
    cause: Cause,
    findings: list[Finding],
    cost: dict[Cause, float],
    hidden: float,
    slow: Slow | None,
    evidence: Evidence,
    *,
    worth: float,
) -> Doubt:
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
    if cost and cause in AT_REST:
        return Doubt("re-simulation, at rest", _within(1.0 - ordered[0] / worth))
    if cost and cause in HIDDEN and hidden > 0.5 * cost[cause]:
        if slow is None:
            return Doubt("hypothesis", 0.0)
        room = 1.0 - slow.needs if slow.explains else slow.needs
        return Doubt("hypothesis", _within(abs(slow.fit - slow.needs) / room))
    if cost:
        return Doubt("re-simulation", _within((ordered[0] - ordered[1]) / max(ordered[0], 1e-9)))
    if cause in AT_REST:
        return Doubt("samples, at rest", _within(1.0 - evidence.unsure_share))
    shares = sorted((f.share for f in findings if f.cause == cause), reverse=True)
    rest = [f.share for f in findings if f.cause != cause]
    gap = max(shares, default=0.0) - max(rest, default=0.0)
    return Doubt("samples", _within(gap - evidence.unsure_share))


def _within(value: float) -> float:
    return min(max(float(value), 0.0), 1.0)
