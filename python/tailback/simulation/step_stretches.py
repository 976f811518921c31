"""Divides the steps of a job into stretches of steps that should take equally long."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.steps import StepProgram

IRREGULAR = 8.0
"""Deviation from the median, in standard deviations (estimated by the median absolute deviation),
above which a computation is an outlier: a normal variable deviates that far once in 10^15 times."""

NOTICEABLE = 0.02
"""Minimum deviation of an outlier, as a fraction of the median computation."""

DRIFT = 0.01
"""Maximum relative change of the mean computation within a stretch."""

BLOCK = 8
"""Steps per moving average that is used to detect drift."""


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
    that does not repeat.
    """
    kinds = steps.kinds
    compute = steps.compute_ps
    peak, mean = compute.max(axis=1), compute.mean(axis=1)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(kinds)) + 1, [len(kinds)]])
    out = []
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        cuts = {0, end - begin}
        if end - begin > 1:
            own = steps.order[begin:end]
            cuts |= _cuts(peak[own], mean[own])
        ordered = sorted(cuts)
        out += [Stretch(begin + a, begin + b) for a, b in itertools.pairwise(ordered)]
    return out


def _cuts(peak: NDArray[np.int64], mean: NDArray[np.float64]) -> set[int]:
    """Where to split steps of one kind: around outliers and where the mean has drifted."""
    if (peak == peak[0]).all() and (mean == mean[0]).all():
        return set()
    irregular = np.flatnonzero(_irregular(peak.astype(np.float64)) | _irregular(mean)).tolist()
    cuts = {at for step in irregular for at in (step, step + 1)}
    edges = sorted(cuts | {0, len(mean)})
    for begin, end in itertools.pairwise(edges):
        cuts |= {begin + at for at in _drifts(mean[begin:end])}
    return cuts


def _irregular(values: NDArray[np.float64]) -> NDArray[np.bool_]:
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
