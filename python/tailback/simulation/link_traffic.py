"""Traffic of links in skipped steps, extrapolated from simulated ones, and how well it is known.

The traffic of a link in a step is random where routing makes random choices. The mean over n steps
has the standard error of a mean. Some links are interchangeable in the fabric
(:mod:`tailback.simulation.repetition.skipping`). Routing does not prefer any of them, so each has
the same expected traffic. The traffic of such a group varies little or not at all between steps.
The mean of the group is therefore a better estimate for each of its links than their own bytes (a
control variate).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNEQUAL = 1e-4
"""Level of the tests whether links of a group carry different traffic, although the fabric does not
distinguish them."""

LEAST_SHARE = 1e-3
"""Smallest traffic of a link, as a fraction of the busiest one's, that needs to be known."""

LINK_PRECISION = 0.02
"""Maximum half-width of the 95 % interval of the bytes of all links at once, relative to them."""

LIKE_OTHER_SEEDS = 2.0
"""The interval may be wider where even whole runs of other seeds differ: standard error of the
extrapolated bytes of a link, in standard deviations of its bytes between whole runs."""


@dataclass(frozen=True, eq=False)
class LinkTraffic:
    """Traffic of skipped steps by link.

    Attributes:
        total: Its estimate without regard to groups, shape (L,).
        variance: Variance of ``total`` as an estimate, shape (L,).
        own_variance: Variance of the traffic of that many steps itself, shape (L,).
        group_variance: Variance of the sum of ``total`` over each group, shape (G,).
        steps: Number of independent parts that the variances are estimated from.
        group: Group of each link, -1 for none, shape (L,).
    """

    total: NDArray[np.float64]
    variance: NDArray[np.float64]
    own_variance: NDArray[np.float64]
    group_variance: NDArray[np.float64]
    steps: int
    group: NDArray[np.int64]

    @staticmethod
    def none(group: NDArray[np.int64]) -> LinkTraffic:
        """No traffic."""
        zero = np.zeros(len(group))
        groups = np.zeros(int(group.max(initial=-1)) + 1)
        return LinkTraffic(zero, zero, zero, groups, np.iinfo(np.int64).max, group)

    @staticmethod
    def of_marks(
        link: NDArray[np.int64],
        part: NDArray[np.int64],
        value: NDArray[np.float64],
        part_steps: NDArray[np.int64],
        factor: float,
        group: NDArray[np.int64],
    ) -> LinkTraffic:
        """Extrapolate from simulated steps.

        Args:
            link: Link of each row, shape (M,).
            part: Part of the simulated steps that each row belongs to, from 0, shape (M,).
            value: Traffic of the link in that part, shape (M,).
            part_steps: Number of steps of each part, shape (n,).
            factor: Number of skipped steps for each simulated one.
            group: Group of each link, -1 for none, shape (L,).
        """
        total, variance = _sum_by_index(link, part, value, part_steps, len(group))
        member = group[link] >= 0
        groups, n = int(group.max(initial=-1)) + 1, len(part_steps)
        key = group[link[member]] * n + part[member]
        of_group = np.asarray(np.bincount(key, value[member], groups * n), np.float64)
        at = np.arange(groups * n, dtype=np.int64)
        _, group_variance = _sum_by_index(
            at // max(n, 1), at % max(n, 1), of_group, part_steps, groups
        )
        return LinkTraffic(
            total * factor,
            variance * factor**2,
            variance * factor,
            group_variance * factor**2,
            n,
            group,
        )

    def __add__(self, other: LinkTraffic) -> LinkTraffic:
        """Traffic of both, which are independent."""
        return LinkTraffic(
            self.total + other.total,
            self.variance + other.variance,
            self.own_variance + other.own_variance,
            self.group_variance + other.group_variance,
            min(self.steps, other.steps),
            self.group,
        )

    def estimate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Best estimate of the traffic of each link and its variance, shape (L,) each.

        The links of a group have the mean of the group, unless they differ by more than chance
        does (F tests of each group and of all together). Their differences are then shrunk by the
        fraction due to chance (empirical Bayes, Morris, 1983).
        """
        member = self.group >= 0
        group, groups = self.group[member], len(self.group_variance)
        total, variance = self.total.copy(), self.variance.copy()
        if not groups or not self.variance.any():
            return total, variance
        size = np.bincount(group, minlength=groups)
        mean = np.bincount(group, total[member], groups) / size
        off = total[member] - mean[group]
        freedom = size - 1
        # The variance of differences from the mean, per link.
        noise = np.bincount(group, variance[member], groups) / size
        noise = np.maximum(noise - self.group_variance / size**2, 0) * size / freedom
        spread = np.bincount(group, off**2, groups) / freedom
        share = _share_beyond_chance(spread, noise, freedom, self.steps)
        total[member] = mean[group] + share[group] * off
        chance = self.group_variance / size**2 + share * noise * freedom / size
        variance[member] = np.where(share[group] == 1, variance[member], chance[group])
        return total, variance

    def precision(self) -> LinkPrecision:
        """How well the bytes of links are known, if these are bytes."""
        total, variance = self.estimate()
        used = total > LEAST_SHARE * total.max(initial=0)
        if not used.any() or not self.variance.any():
            return LinkPrecision(0.0, 1.0)
        from scipy.special import stdtrit  # takes a moment to load

        freedom = np.full(len(total), float(max(self.steps - 1, 1)))
        member = self.group >= 0
        freedom[member] *= np.bincount(self.group[member])[self.group[member]]
        # All links at once: Bonferroni.
        quantile = stdtrit(freedom[used], 1 - 0.025 / int(used.sum()))
        share, error, seed_variance = total[used], variance[used], self.own_variance[used]
        half = quantile * np.sqrt(error + seed_variance) / share
        allowed = np.maximum(
            (LINK_PRECISION * share / quantile) ** 2 - seed_variance,
            LIKE_OTHER_SEEDS**2 * seed_variance,
        )
        more = float((error / np.maximum(allowed, 1e-300)).max(initial=0))
        return LinkPrecision(float(half.max()), more)


@dataclass(frozen=True)
class LinkPrecision:
    """How well the bytes of links are known.

    Attributes:
        half: Half the width of the 95 % interval of all links at once, relative to their bytes; the
            widest.
        more: Factor by which the number of simulated steps has to grow; up to 1 it is sufficient.
    """

    half: float
    more: float

    @property
    def why_not(self) -> str:
        """Why the bytes are not known well enough; empty if they are."""
        return "" if self.more <= 1 else f"the bytes of links are known to {self.half:.1%} only"


def _sum_by_index(
    at: NDArray[np.int64],
    part: NDArray[np.int64],
    value: NDArray[np.float64],
    part_steps: NDArray[np.int64],
    length: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum over all parts by index, and its variance; parts without a row count as zero."""
    n, steps = len(part_steps), part_steps.astype(np.float64)
    sums = np.bincount(at, value, length)
    squares = np.bincount(at, value**2, length)
    products = np.bincount(at, value * steps[part], length)
    mean = sums / max(steps.sum(), 1.0)
    off = squares - 2 * mean * products + mean**2 * (steps**2).sum()
    # Rounding leaves something where all steps are equal.
    off[off < 1e-9 * squares] = 0
    return np.asarray(sums, np.float64), np.asarray(off * (n / max(n - 1, 1)), np.float64)


def _share_beyond_chance(
    spread: NDArray[np.float64], noise: NDArray[np.float64], freedom: NDArray[np.int64], steps: int
) -> NDArray[np.float64]:
    """Fraction of the differences between the links of each group that is not due to chance."""
    from scipy.special import fdtri  # takes a moment to load

    out = np.where(noise > 0, 0.0, 1.0)
    random = noise > 0
    if not random.any():
        return out
    ratio = spread / np.where(random, noise, 1)
    below = freedom * float(max(steps - 1, 1))
    uneven = random & (ratio > fdtri(freedom, below, 1 - UNEQUAL))
    out[uneven] = 1 - 1 / ratio[uneven]
    others = random & ~uneven
    if others.any():
        all_freedom = float(freedom[others].sum())
        pooled = float((freedom * ratio)[others].sum()) / all_freedom
        if pooled > fdtri(all_freedom, all_freedom * max(steps - 1, 1), 1 - UNEQUAL):
            out[others] = 1 - 1 / pooled
    return out
