"""Interruptions that every computation contains: how probable, and what they cost.

Noise shows where some repetitions of a computation are undisturbed. A long computation always
contains interruptions, so none of its repetitions is undisturbed, and the time that they take
looks like work of the program. Only the variation between repetitions remains: interruptions at
random times with exponential lengths of mean *θ* that take the share *x* of a computation of length
*M* add the variance 2 *θ x M* and the third cumulant 6 *θ*² *x M* (compound Poisson process). The
program may vary by itself as much, so this gives a probability, not a finding: a prior over *θ* and
*x* is weighed by the variance and the third cumulant measured, against the hypothesis that all
variation is the program's own. A few programs vary without bounds, as where one step in a thousand
writes a checkpoint: their variation says little of interruptions.

The fastest tenth of the repetitions bounds the share: the mean exceeds it by at least what
interruptions put between the two. Where more than a tenth of the repetitions has none, that is all
the time that they take.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.diagnosis.confidence import UNINFORMATIVE
from tailback.inference.hypotheses import FAULT, HIDDEN_SHARE, UNUSUAL
from tailback.log_probability import log_sum, probabilities
from tailback.traffic.computation import repetitions
from tailback.traffic.program import Op, Program

LENGTHS_PS = np.logspace(6, 10, 33)
"""Mean lengths of interruptions, equally probable: from 1 µs (a timer tick) to 10 ms (a time slice
of the scheduler)."""

MAX_PER_S = 10_000.0
"""Maximum number of interruptions a second: ten times the fastest usual timer tick (1 kHz)."""

SHARES = np.linspace(0.01, 0.6, 60)
"""Shares of the computing time that interruptions take."""

OWN_VARIATION = 0.01
"""Mean of the standard deviation between repetitions that a program has by itself, as a share of
the computation; exponentially distributed. Fixed work on a dedicated host repeats to within a
percent or so."""

OWN_SKEWNESS = 1.0
"""Standard deviation of the skewness of a program's own variation: 0 if it is symmetric, 2 if it is
exponential."""

FASTEST = 0.1
"""Share of the repetitions that count as the fastest."""

MIN_ALIKE = 4
"""Minimum number of repetitions, and of ranks with the same part of the program, for a third
cumulant."""


@dataclass(frozen=True)
class Interruptions:
    """Posterior of interruptions.

    Attributes:
        share: Share of the time of the run that they take, shape (K,).
        probability: Probability of each share, shape (K,); the rest is that of none.
        fault_prior: Prior probability of interruptions that are a fault; 0 without evidence.
    """

    share: Floats
    probability: Floats
    fault_prior: float = 0.0

    @classmethod
    def none(cls) -> Interruptions:
        """No evidence on interruptions."""
        return cls(np.zeros(0), np.zeros(0))

    @classmethod
    def of(cls, program: Program, elapsed_ps: int) -> Interruptions:
        """Weigh interruptions by the computations of a program.

        None on accelerators, whose kernels nothing interrupts for microseconds.

        Args:
            program: The recorded program.
            elapsed_ps: Time of the run, ps.
        """
        computed = float(program.amount[program.kind == Op.COMPUTE].sum())
        computing = computed / max(program.n_ranks * elapsed_ps, 1)
        interruptible = computing > 0 and program.recompile is None
        moments = _Moments.of(program) if interruptible else None
        if moments is None:
            return cls.none()
        cost = computing * SHARES
        prior = np.log(UNUSUAL) - cost / HIDDEN_SHARE
        prior += np.log(computing * (SHARES[1] - SHARES[0]) / HIDDEN_SHARE / len(LENGTHS_PS))
        length = LENGTHS_PS[:, None]
        prior = np.where(SHARES[None, :] * 1e12 / length > MAX_PER_S, -np.inf, prior)
        logs = prior + moments.log_likelihood(length, SHARES[None, :])
        none = moments.log_likelihood(np.zeros(1), np.zeros(1))
        without = np.log1p(-UNUSUAL) + none
        faulty = float(np.exp(prior[:, cost >= FAULT]).sum())
        return cls(cost, probabilities([*log_sum(logs, axis=0), *without])[:-1], faulty)

    @property
    def fault_probability(self) -> float:
        """Probability of interruptions that are a fault."""
        return float(self.probability[self.share >= FAULT].sum())

    @property
    def may_be_fault(self) -> bool:
        """Whether the measured variation makes interruptions that are a fault no less probable.

        They are no finding, as programs vary by themselves, but cannot be excluded either.
        """
        return self.fault_probability >= self.fault_prior > 0.0

    def draw(self, rng: np.random.Generator, draws: int) -> Floats:
        """Draw shares of the time; 0 where there are no interruptions."""
        share = np.append(self.share, 0.0)
        probability = np.append(self.probability, max(1.0 - self.probability.sum(), 0.0))
        return np.asarray(rng.choice(share, draws, p=probability / probability.sum()), np.float64)

    def likely_share(self) -> float:
        """Mean share of the time that they take if they are more likely than not to be a fault."""
        fault, chance = self.share >= FAULT, self.fault_probability
        if chance < 0.5:
            return 0.0
        return float((self.share * self.probability)[fault].sum()) / chance


@dataclass(frozen=True)
class _Moments:
    """Variation of computations between repetitions, per computation.

    Attributes:
        mean_ps: Mean length.
        variance: Variance, ps².
        variance_error: Its standard error, as a share of it.
        skewness: Third cumulant over the variance to the power of 3/2.
        skewness_error: Its standard error.
        excess_ps: Mean excess over the fastest tenth of the repetitions.
        excess_error_ps: Its standard error.
        n: Number of computations.
    """

    mean_ps: float
    variance: float
    variance_error: float
    skewness: float
    skewness_error: float
    excess_ps: float
    excess_error_ps: float
    n: int

    @classmethod
    def of(cls, program: Program) -> _Moments | None:
        """Measure them; None with too few repetitions.

        What all ranks share in a repetition is work of the program, and is left out.
        """
        alike = repetitions(program)
        amount, group, turn = alike.amount_ps, alike.group, alike.turn
        rank = program.op_rank[alike.where].astype(np.int64)
        count, ranks = np.bincount(group), np.bincount(turn)
        usable = (count[group] >= MIN_ALIKE) & (ranks[turn] >= MIN_ALIKE) & (amount > 0)
        if not usable.any():
            return None
        amount = amount[usable]
        group, turn, rank = (x[usable] for x in (group, turn, rank))
        usual = _mean(amount, group)[group]
        relative = amount / np.maximum(usual, 1.0) - 1.0
        residual = (relative - _mean(relative, turn)[turn]) * usual
        # Centring removes these shares of the second and third cumulant.
        c, r = 1.0 / np.bincount(group)[group], 1.0 / np.bincount(turn)[turn]
        c, r = np.minimum(c, 1.0 / MIN_ALIKE), np.minimum(r, 1.0 / MIN_ALIKE)
        squares = residual**2 / ((1 - c) * (1 - r))
        cubes = residual**3 / ((1 - c) * (1 - 2 * c) * (1 - r) * (1 - 2 * r))
        excess = residual - _fastest(residual, group)[group]
        n = np.bincount(rank)
        sums = np.stack([np.bincount(rank, x)[n > 0] for x in (squares, cubes, excess)])
        if sums[0].sum() <= 0:
            return None
        return cls._of_sums(sums.astype(np.float64), n[n > 0].astype(np.float64), amount.mean())

    @classmethod
    def _of_sums(cls, sums: Floats, n: Floats, mean_ps: float) -> _Moments:
        """From sums by rank, with errors by the jackknife over ranks.

        Args:
            sums: Squares, cubes and excess of the computations of each rank, shape (3, R).
            n: Their number, shape (R,).
            mean_ps: Mean length of all.
        """
        second, third, above = sums
        total, n_ranks = float(n.sum()), len(n)
        variance, cumulant, excess = (sums.sum(axis=1) / total).tolist()
        skewness = cumulant / variance**1.5
        left = np.maximum(total - n, 1.0)
        variances = np.maximum((second.sum() - second) / left, variance * 1e-6)
        skewnesses = (third.sum() - third) / left / variances**1.5

        def jackknife(values: Floats) -> float:
            spread = float(((values - values.mean()) ** 2).sum())
            return float(np.sqrt(spread * (n_ranks - 1) / max(n_ranks, 1)))

        return cls(
            float(mean_ps),
            variance,
            max(jackknife(variances) / variance, float(np.sqrt(2.0 / total))),
            skewness,
            max(jackknife(skewnesses), float(np.sqrt(6.0 / total))),
            excess,
            max(jackknife((above.sum() - above) / left), float(np.sqrt(variance / total))),
            round(total),
        )

    def log_likelihood(self, length_ps: Floats, share: Floats) -> Floats:
        """Log likelihood of interruptions of this mean length and share, up to a constant.

        The program's own variance is what they leave of the measured one.
        """
        number = share * self.mean_ps / np.maximum(length_ps, 1.0)
        above = np.maximum(length_ps * _above_fastest(number) - self.excess_ps, 0.0)
        taken = 2.0 * length_ps * share * self.mean_ps / self.variance
        own_share = np.clip(1.0 - taken, 0.0, 1.0)
        excess = np.maximum(taken - 1.0, 0.0) / self.variance_error
        deviation = np.sqrt(own_share * self.variance) / self.mean_ps / OWN_VARIATION
        expected = 6.0 * length_ps**2 * share * self.mean_ps / self.variance**1.5

        def with_own(log_density: Floats, own_skewness: float) -> Floats:
            error = np.hypot(self.skewness_error, own_skewness * own_share**1.5)
            off = (self.skewness - expected) / error
            return np.asarray(log_density - 0.5 * off**2 - np.log(error))

        usual = with_own(np.log1p(-UNINFORMATIVE) - deviation, OWN_SKEWNESS)
        # A density with infinite mean (Lomax), and the largest skewness that n values can have.
        boundless = with_own(np.log(UNINFORMATIVE) - 2.0 * np.log1p(deviation), np.sqrt(self.n))
        # These are densities of the own standard deviation: that of the variance has a factor.
        factor = -0.5 * np.log(np.maximum(own_share, self.variance_error))
        too_much = 0.5 * (excess**2 + (above / self.excess_error_ps) ** 2)
        return np.asarray(np.logaddexp(usual, boundless) + factor - too_much)


def _mean(values: Floats, group: NDArray[np.int64]) -> Floats:
    count = np.maximum(np.bincount(group), 1)
    return np.asarray(np.bincount(group, values) / count, np.float64)


def _fastest(values: Floats, group: NDArray[np.int64]) -> Floats:
    """Fastest tenth of each group, shape (G,)."""
    order = np.lexsort((values, group))
    count = np.bincount(group)
    first = np.cumsum(count) - count
    at = np.minimum(first + ((count - 1) * FASTEST).astype(np.int64), len(order) - 1)
    return np.asarray(values[order][at], np.float64)


def _above_fastest(number: Floats) -> Floats:
    """Mean time that interruptions take beyond that of the fastest tenth, in their mean lengths.

    Of a compound Poisson process with exponential jumps, by the expansion of Cornish and Fisher
    (1938) to the third cumulant. Where more than a tenth has no interruption, it is the mean.

    Args:
        number: Mean number of interruptions in a computation.
    """
    deviations = NormalDist().inv_cdf(FASTEST)
    skewness = 6.0 / 2.0**1.5 / np.sqrt(np.maximum(number, 1e-9))
    below = -deviations - skewness * (deviations**2 - 1.0) / 6.0
    return np.asarray(np.clip(np.sqrt(2.0 * number) * below, 0.0, number), np.float64)
