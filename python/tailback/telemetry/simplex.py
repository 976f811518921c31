"""Smooth convex functions over products of simplices: exact projection, accelerated gradient, gap.

A group of variables is not negative and sums to a known total: the packets of a class over its
candidate links. What is minimised over such sets here is convex, so the Frank-Wolfe gap (Jaggi,
ICML 2013) is an upper bound of the distance to the optimum and serves as stopping criterion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats


@dataclass(frozen=True)
class Groups:
    """Variables in groups: group g has ``start[g]:start[g + 1]`` and sums to ``total[g]``.

    Attributes:
        start: Shape (G + 1,).
        total: Shape (G,), not negative.
    """

    start: NDArray[np.int64]
    total: Floats

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Variables of each group, (G,)."""
        return np.asarray(np.diff(self.start), np.int64)

    def uniform(self) -> Floats:
        """Every group's total spread evenly."""
        sizes = self.sizes
        share = np.divide(self.total, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
        return np.repeat(share, sizes)

    def project(self, values: Floats) -> Floats:
        """The nearest point of the set (Held, Wolfe and Crowder, Math. Programming 6, 1974)."""
        out, sizes = np.zeros_like(values), self.sizes
        for size in np.unique(sizes[sizes > 0]):
            groups = np.flatnonzero(sizes == size)
            at = self.start[groups][:, None] + np.arange(size)
            out[at] = nearest(values[at], self.total[groups])
        return out

    def gap(self, point: Floats, gradient: Floats) -> float:
        """Upper bound of f(point) − min f for a convex f with this gradient."""
        full = self.sizes > 0
        least = np.minimum.reduceat(gradient, self.start[:-1][full]) if full.any() else np.zeros(0)
        return dot(gradient, point) - dot(least, self.total[full])


def dot(a: Floats, b: Floats) -> float:
    """Inner product on the calling thread: thousands of short ones are slower on several."""
    return float(np.einsum("i,i->", a, b))


def nearest(values: Floats, totals: Floats) -> Floats:
    """Project each row of ``values`` (G, K) onto the simplex of its total (G,)."""
    descending = -np.sort(-values, axis=1)
    shifts = (np.cumsum(descending, axis=1) - totals[:, None]) / np.arange(1, values.shape[1] + 1)
    # The entries that exceed the shift computed from them stay positive.
    kept = np.maximum(np.count_nonzero(descending > shifts, axis=1), 1)
    shift = np.take_along_axis(shifts, kept[:, None] - 1, axis=1)
    return np.asarray(np.maximum(values - shift, 0.0), np.float64)


@dataclass(frozen=True)
class Minimum:
    """Where :func:`minimise` stopped.

    Attributes:
        point: The variables.
        value: Objective there.
        gap: Upper bound of its distance from the minimum.
        steps: Gradient steps taken.
    """

    point: Floats
    value: float
    gap: float
    steps: int


Objective = Callable[[Floats], tuple[float, Floats]]
"""Value and gradient; the value is infinite outside the domain."""


def minimise(
    objective: Objective,
    groups: Groups,
    scale: Floats,
    tolerance: float,
    most_steps: int,
    start: Floats | None = None,
) -> Minimum:
    """Accelerated projected gradient (Beck and Teboulle, SIAM J. Imaging Sci. 2, 2009).

    With backtracking, and a restart whenever momentum points uphill (O'Donoghue and Candès, 2015).

    Args:
        objective: Convex function.
        groups: The set.
        scale: Step length of each variable to begin with; equal within a group.
        tolerance: Stop at this gap.
        most_steps: Stop after this many steps; the gap shows whether that was too early.
        start: Where to begin; the uniform point otherwise.
    """
    point = groups.uniform() if start is None else groups.project(start)
    value, gradient = objective(point)
    best = Minimum(point, value, groups.gap(point, gradient), 0)
    lead, momentum, length = point, 1.0, 1.0
    for step in range(1, most_steps + 1):
        if best.gap <= tolerance:
            break
        lead_value, lead_gradient = objective(lead)
        if not np.isfinite(lead_value):
            lead, momentum = point, 1.0
            lead_value, lead_gradient = value, gradient
        while True:
            trial = groups.project(lead - length * scale * lead_gradient)
            move = trial - lead
            trial_value, slope = objective(trial)
            square = float((move * move / scale).sum()) / (2.0 * length)
            bound = lead_value + dot(lead_gradient, move) + square
            # Rounding: near the optimum the two sides agree to the last digits.
            if trial_value <= bound + 1e-12 * abs(bound) or length < 1e-12:
                break
            length *= 0.5
        turn = (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum)) / 2.0
        uphill = dot((lead - trial) / scale, trial - point) > 0.0
        factor, momentum = (0.0, 1.0) if uphill else ((momentum - 1.0) / turn, turn)
        lead = trial + factor * (trial - point)
        point, value, gradient = trial, trial_value, slope
        length *= 1.05
        gap = groups.gap(point, gradient)
        if gap < best.gap:
            best = Minimum(point, value, gap, step)
    return best
