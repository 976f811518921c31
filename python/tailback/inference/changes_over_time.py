"""Calls that take longer in one part of a run than in the rest, though the program is the same.

A setting of the machine that differs from the model, such as a rate or the order in which adapters
send, changes every repetition of a call alike. If calls take longer in one part of the run only, a
fault began or ended there: another job, a cable that lost speed, a host that was throttled. The run
is cut into slices of equal time. In each, the time in calls is compared with that of the expected
run, scaled for every call site so that only differences between its repetitions remain. A
contiguous part with another ratio than the rest is weighed against a constant ratio by the Bayesian
information criterion (Schwarz 1978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tailback.arrays import Floats
from tailback.evidence.call_profile import CallProfile
from tailback.inference.hypotheses import FAULT, LIKELY, NOT_FOUND_SHARE, UNUSUAL
from tailback.log_probability import probability_of_odds
from tailback.run.run import Run
from tailback.traffic.program import Program

SLICES = 16
"""Slices of a run: enough to find a part of it, and few enough that each has many calls."""

MIN_SLICES = 6
"""Minimum number of slices with calls: three in the part and three in the rest."""

MIN_PART = 2
"""Minimum number of slices in the part and in the rest; one slice may be an outlier."""

ROUNDING = 1e-12
"""Variance of ratios of times below which they do not differ: that of errors of 10⁻⁶, the rounding
of times of a second to microseconds."""

MIN_REPETITIONS = 4
"""Minimum number of repetitions of a call site: with fewer, their mean is not that of the rest."""


@dataclass(frozen=True)
class ChangeOverTime:
    """A part of the run in which calls take longer.

    Attributes:
        share: Share of the measured time that is lost in this part, mean over the ranks.
        error: Standard error of the share.
        probability: Probability that there is such a part.
        factor: Time in calls in this part over that in the rest, for the same calls.
        start_ps: Start of the part, ps from the start of the run; None if it is that of the run.
        end_ps: Its end; None if it is that of the run.
    """

    share: float
    error: float
    probability: float
    factor: float
    start_ps: float | None
    end_ps: float | None

    @property
    def is_fault(self) -> bool:
        """Whether it is more likely than not, and costs as much as a fault."""
        return self.probability >= LIKELY and self.share >= FAULT

    def beside(self, ordinary: Sequence[ChangeOverTime | None]) -> ChangeOverTime:
        """The same with the probability that it is no more than unknown settings bring about.

        Where the order of messages depends on small delays, ranks drift apart and together again,
        and simulations with other settings of the engine differ in parts of the run, too.

        Args:
            ordinary: The change over time in such simulations, compared with the expected run.
        """
        shares = [0.0 if change is None else change.share for change in ordinary]
        usual = math.sqrt(sum(share**2 for share in shares) / max(len(shares), 1))
        error = math.hypot(self.error, usual)
        # A fault that no search finds costs exponentially distributed time, other settings as
        # much as those simulated.
        log_odds = math.log(UNUSUAL / (1.0 - UNUSUAL)) - self.share / NOT_FOUND_SHARE
        log_odds += 0.5 * (self.share / error) ** 2
        log_odds += math.log(error / NOT_FOUND_SHARE * math.sqrt(math.pi / 2.0))
        probability = probability_of_odds(log_odds)
        return replace(self, error=error, probability=self.probability * probability)

    def draw(self, rng: np.random.Generator, draws: int) -> Floats:
        """Draw shares of the time; 0 where there is no such part."""
        there = rng.random(draws) < self.probability
        return np.where(there, self.share + self.error * rng.standard_normal(draws), 0.0)

    @classmethod
    def of(
        cls, profile: CallProfile, run: Run, program: Program, elapsed_ps: int
    ) -> ChangeOverTime | None:
        """Find the part; None with too few repetitions to tell.

        Args:
            profile: The measured times in calls.
            run: The expected run, with recorded computations.
            program: Its program.
            elapsed_ps: Measured time, ps.
        """
        matched = profile.matched(run, program)
        if matched is None:
            return None
        site, measured, simulated = matched
        sites, n_ranks = len(profile.rank), max(int(profile.complete.sum()), 1)
        count, seen, expected = (
            np.bincount(site, weights, sites) for weights in (None, measured, simulated)
        )
        usable = ((count >= MIN_REPETITIONS) & (seen > 0) & (expected > 0))[site]
        usual = simulated * (seen / np.maximum(expected, 1e-9))[site]
        start = _starts(profile, program)
        at = np.minimum(start * SLICES / max(elapsed_ps, 1), SLICES - 1).astype(np.int64)
        took, scaled = (
            np.bincount(at[usable], times[usable], SLICES).astype(np.float64)
            for times in (measured, usual)
        )
        slices = np.flatnonzero(scaled > 0)
        if len(slices) < MIN_SLICES:
            return None
        part = _slowest_part(took[slices] / scaled[slices], scaled[slices])
        if part is None:
            return None
        first, end = part.first, part.end
        length = elapsed_ps / SLICES
        rank_time = n_ranks * max(elapsed_ps, 1)
        weight = float(scaled[slices][first:end].sum()) / rank_time
        return cls(
            part.more * weight,
            part.error * weight,
            part.probability,
            part.factor,
            float(slices[first] * length) if first > 0 else None,
            float((slices[end - 1] + 1) * length) if end < len(slices) else None,
        )


@dataclass(frozen=True)
class _SlowerPart:
    """Slices ``first`` to ``end`` with a higher ratio than the rest, by ``more`` ± ``error``."""

    first: int
    end: int
    more: float
    error: float
    factor: float
    probability: float


def _slowest_part(ratio: Floats, weight: Floats) -> _SlowerPart | None:
    """The contiguous part with a higher ratio than the rest that fits best.

    Args:
        ratio: Measured over expected time of each slice, shape (n,).
        weight: Expected time of each slice, shape (n,).
    """
    n = len(ratio)
    weight = weight / weight.sum()
    mean = float((weight * ratio).sum())
    constant = float((weight * (ratio - mean) ** 2).sum())
    best: tuple[float, int, int] | None = None
    parts = 0
    for first in range(n):
        for end in range(first + MIN_PART, n + 1):
            if n - (end - first) < MIN_PART:
                continue
            parts += 1
            inside = np.zeros(n, np.bool_)
            inside[first:end] = True
            within, others = (_mean(ratio[part], weight[part]) for part in (inside, ~inside))
            if within <= others:
                continue
            left = float((weight * (ratio - np.where(inside, within, others)) ** 2).sum())
            if best is None or left < best[0]:
                best = left, first, end
    if best is None:
        return None
    left, first, end = best
    inside = np.zeros(n, np.bool_)
    inside[first:end] = True
    within, others = (_mean(ratio[part], weight[part]) for part in (inside, ~inside))
    # Two more parameters than a constant: the ratio of the part, and which part it is.
    left = max(left, ROUNDING)
    gain = 0.5 * n * math.log(max(constant, ROUNDING) / left)
    log_odds = gain - 0.5 * math.log(n) - math.log(parts) + math.log(UNUSUAL)
    variance = left * n / max(n - 2, 1)
    error = math.sqrt(variance * (1.0 / (end - first) + 1.0 / (n - (end - first))))
    return _SlowerPart(
        first,
        end,
        within - others,
        error,
        within / max(others, 1e-9),
        probability_of_odds(log_odds),
    )


def _mean(ratio: Floats, weight: Floats) -> float:
    return float((ratio * weight).sum() / weight.sum())


def _starts(profile: CallProfile, program: Program) -> Floats:
    """Start of each matched stretch from the start of the run, by the clock of its rank, ps."""
    compute = program.separate_computations
    counts = profile.stretches[profile.complete]
    took = profile.duration_ps[np.repeat(profile.complete, profile.stretches)]
    step = took.copy()
    not_last = np.ones(len(took), np.bool_)
    not_last[np.cumsum(counts) - 1] = False
    of_complete = profile.complete[program.op_rank[compute]]
    step[not_last] += program.amount[compute][of_complete].astype(np.float64)
    start = np.cumsum(step) - step
    start -= np.repeat(start[np.cumsum(counts) - counts], counts)
    has_site = profile.site_of[np.repeat(profile.complete, profile.stretches)] >= 0
    return np.asarray(start[has_site], np.float64)
