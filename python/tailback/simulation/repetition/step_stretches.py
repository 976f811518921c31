"""Divides the steps of a job into stretches of steps that should take equally long."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import Op
from tailback.traffic.steps import StepProgram

IRREGULAR = 8.0
"""Smallest deviation of an outlier from the median, in standard deviations (estimated by the median
absolute deviation). A normal variable deviates that far once in 10^15 times.
"""

NOTICEABLE = 0.02
"""Minimum deviation of an outlier, as a fraction of the median computation."""

DRIFT = 0.01
"""Maximum change of computations within a stretch, as a fraction of the longest of a rank."""

BLOCK = 8
"""Steps per moving average that is used to detect drift."""

LONG_BLOCK = 64
"""Steps per moving average that is used to detect drift of single ranks that hides in noise."""

CERTAIN = 6.0
"""Smallest significant difference between two means of a rank's computation, in standard deviations
of that difference. It is large because there are as many differences as ranks times steps.
"""

ROWS = 256
"""Number of steps whose moving averages are compared at once."""


@dataclass(frozen=True)
class Stretch:
    """Steps ``begin`` to ``end`` - 1 of a job.

    Attributes:
        begin: First step.
        end: First step after it.
    """

    begin: int
    end: int

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return self.end - self.begin


def find_stretches(steps: StepProgram) -> list[Stretch]:
    """Divide all steps of a job into stretches of one kind without jumps or drift of computations.

    A step in which a rank computes much longer than usual is a stretch of its own, as is a step
    that does not repeat. A stretch ends where the computations of any rank change, even if neither
    their mean nor the longest one does. The slow ranks, and their place between messages, determine
    who waits for whom.
    """
    kinds = steps.kinds
    compute = steps.compute_ps
    peak, mean = compute.max(axis=1), compute.mean(axis=1)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(kinds)) + 1, [len(kinds)]])
    out = []
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        cuts = {0, end - begin}
        if end - begin > 1:
            order = steps.order[begin:end]
            cuts |= _find_cuts(peak[order], mean[order])
            if (order != order[0]).any():
                cuts |= _find_rank_drifts(_computations(steps, begin, end), cuts)
        ordered = sorted(cuts)
        out += [Stretch(begin + a, begin + b) for a, b in itertools.pairwise(ordered)]
    return out


def _find_cuts(peak: NDArray[np.int64], mean: NDArray[np.float64]) -> set[int]:
    """Where to split steps of one kind: around outliers and where the mean has drifted."""
    if (peak == peak[0]).all() and (mean == mean[0]).all():
        return set()
    irregular = np.flatnonzero(
        _find_outliers(peak.astype(np.float64)) | _find_outliers(mean)
    ).tolist()
    cuts = {at for step in irregular for at in (step, step + 1)}
    edges = sorted(cuts | {0, len(mean)})
    for begin, end in itertools.pairwise(edges):
        cuts |= {begin + at for at in _drifts(mean[begin:end])}
    return cuts


@dataclass(frozen=True, eq=False)
class _PlacedComputations:
    """Computations of consecutive steps of one kind, by their place in the step.

    Attributes:
        amount: Duration of each in each step, shape (n, C). Places are ordered by rank.
        first: First place of each rank that computes.
    """

    amount: NDArray[np.float64]
    first: NDArray[np.int64]


def _computations(steps: StepProgram, begin: int, end: int) -> _PlacedComputations:
    """The computations of steps ``begin`` to ``end`` - 1, those between two operations as one."""
    program, n_held = steps.program, len(steps.kind)
    held, row = np.unique(steps.order[begin:end], return_inverse=True)
    compute = program.kind == Op.COMPUTE
    at = np.flatnonzero(compute)
    start = steps.bounds[:, :-1].ravel()
    cell = np.searchsorted(start, at, side="right") - 1
    row_of = np.full(n_held, -1)
    row_of[held] = np.arange(len(held))
    inside = row_of[cell % n_held] >= 0
    at, cell = at[inside], cell[inside]
    before = np.concatenate([[0], np.cumsum(~compute)])
    place = before[at] - before[start[cell]]
    rank = cell // n_held
    key, column = np.unique(rank * (int(place.max(initial=0)) + 1) + place, return_inverse=True)
    number = row_of[cell % n_held] * len(key) + column
    duration = program.amount[at].astype(np.float64)
    amount = np.asarray(np.bincount(number, duration, len(held) * len(key)), np.float64)
    amount = amount.reshape(len(held), len(key))
    of_place = np.zeros(len(key), np.int64)
    of_place[column] = rank
    return _PlacedComputations(amount[row], np.flatnonzero(np.diff(of_place, prepend=-1)))


def _find_rank_drifts(of: _PlacedComputations, cuts: set[int]) -> set[int]:
    """Where computations of ranks have drifted away from those at the start of their stretch.

    ``cuts``: where stretches end anyway.
    """
    out = set[int]()
    if not len(of.first):
        return out
    for block in (BLOCK, LONG_BLOCK):
        edges = sorted(cuts | out)
        for begin, end in itertools.pairwise(edges):
            amounts = of.amount[begin:end]
            if len(amounts) >= 2 * block and (amounts != amounts[0]).any():
                out |= {begin + at for at in _rank_drifts(amounts, of.first, block)}
    return out


def _rank_drifts(amount: NDArray[np.float64], first: NDArray[np.int64], block: int) -> list[int]:
    """Where moving averages of computations, shape (n, C), have changed."""
    chance = CERTAIN * np.diff(amount, axis=0).std(axis=0) / np.sqrt(2) * np.sqrt(2 / block)
    total = np.cumsum(amount, axis=0)
    moving = total[block - 1 :].copy()
    moving[1:] -= total[:-block]
    moving /= block
    cuts, begin, at = list[int](), 0, 0
    while at < len(moving):
        level = moving[begin]
        some = np.abs(moving[at : at + ROWS] - level) - chance
        np.maximum(some, 0, out=some)
        off = np.add.reduceat(some, first, axis=1).max(axis=1)
        left = np.flatnonzero(off > DRIFT * np.add.reduceat(level, first).max())
        if not len(left):
            at += ROWS
            continue
        begin = at = at + int(left[0])
        if begin + block >= len(amount):
            break
        cuts.append(begin)
    return cuts


def _find_outliers(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Outliers: values far from the median."""
    median = np.median(values)
    off = np.abs(values - median)
    # 1.4826: ratio of standard deviation to median absolute deviation of a normal distribution.
    limit = np.maximum(IRREGULAR * 1.4826 * np.median(off), NOTICEABLE * median)
    return np.asarray(off > limit)


def _drifts(mean: NDArray[np.float64]) -> list[int]:
    """Where the moving average has drifted away from that at the start of its stretch."""
    cuts, begin = list[int](), 0
    if len(mean) < 2 * BLOCK:
        return cuts
    noise = np.diff(mean).std() / np.sqrt(2)
    moving = np.convolve(mean, np.full(BLOCK, 1 / BLOCK), "valid")
    while True:
        level = moving[begin]
        # Four standard deviations of the difference between two means.
        allowed = max(DRIFT * level, 4 * noise * np.sqrt(2 / BLOCK))
        left = np.flatnonzero(np.abs(moving[begin:] - level) > allowed)
        if len(left) == 0 or begin + int(left[0]) + BLOCK >= len(mean):
            return cuts
        begin += int(left[0])
        cuts.append(begin)
        if begin >= len(moving):
            return cuts
