"""Times without noise, from the shortest times of several pairs of ranks.

Noise only adds to the time of a message. Whatever its distribution, if its density at 0 is above 0,
the shortest of *m* times exceeds the end point by an exponential with mean *s/m*, where *1/s* is
that density (extreme value theory; Robson and Whitlock 1964 use the same assumption). The mean of
the shortest times of both directions of a pair then exceeds it by the mean of two exponentials.

A message may in addition have met the traffic of others (Tukey's contamination). What it meets is a
Poisson number, proportional to the bytes that others sent meanwhile between any hosts, as recorded:
a message that was alone met none. Each adds to its time an unknown multiple of *s*, which may be as
small as *s* itself: without such multiples, messages that met a little would raise *s*, and with it
the distance of all end points below the shortest times.

These three numbers are common to all messages: gaps between the fastest messages of each direction
show them, and gaps between pairs of the same distance and size. For every distance and size the end
point then has a posterior distribution, with a uniform prior for it and one proportional to *1/s*
for the scale. Without others' traffic these are a location and a scale, whose intervals hold the
truth as often as they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tailback.arrays import Floats, Ints
from tailback.calibration.model import DRAWS
from tailback.log_probability import log_sum, probabilities

_SEED: Final = 20_252
_MIN_GAPS: Final = 5
"""With fewer gaps between times, their scale is unknown."""

_MAX_PAIRS: Final = 32
"""Pairs of a distance and size that count: those with most messages."""

_MAX_SHOWN: Final = 64
"""Distances and sizes that determine the noise: those with most pairs."""

_SCALES: Final = np.geomspace(1 / 30, 30, 32)
"""Possible scales, relative to a typical gap."""

_LATER: Final = np.array([1.0, 4.0, 16.0, 64.0])
"""How much later a message is for each that it meets, as a multiple of the scale."""

_EXPOSURES: Final = np.geomspace(1e-3, 100, 11)
"""Bytes of others between those that a message meets, relative to the most it may have met."""

_DEPTHS: Final = np.geomspace(1e-5, 1000, 72)
"""Depths of the end point below the shortest time, in units of the scale."""


@dataclass(frozen=True)
class PairTimes:
    """Shortest times of several pairs of ranks, of one size over one distance.

    Attributes:
        time_ps: Mean of the shortest times of both directions, shape (K,).
        messages: Messages in each direction, shape (K, 2).
        others: Bytes that others sent meanwhile, mean of these messages, shape (K, 2).
    """

    time_ps: Floats
    messages: Floats
    others: Floats

    def most_messages(self) -> PairTimes:
        """The pairs with most messages; the choice does not depend on their times."""
        some = np.argsort(-self.messages.sum(axis=1), kind="stable")[:_MAX_PAIRS]
        return PairTimes(self.time_ps[some], self.messages[some], self.others[some])


@dataclass(frozen=True)
class Gaps:
    """Gaps between successive times of one direction and size.

    Attributes:
        gap_ps: The gaps, times the number of messages that took longer, shape (G,): exponential
            with mean *s*, whatever the clocks.
        others: Bytes that others sent meanwhile, shape (G,).
    """

    gap_ps: Floats
    others: Floats


def end_points(times: Sequence[PairTimes], gaps: Gaps, resolution_ps: float) -> EndPoints | None:
    """End points below the shortest times.

    Args:
        times: For each size and distance.
        gaps: Gaps between messages of one direction and size.
        resolution_ps: One tick of the clock.

    Returns:
        The end points; None if there are too few times to estimate the noise.
    """
    some = [pair.most_messages() for pair in times]
    shown = sorted(
        (pair for pair in some if len(pair.time_ps) > 1), key=lambda pair: -len(pair.time_ps)
    )
    if len(gaps.gap_ps) + sum(len(pair.time_ps) - 1 for pair in shown) < _MIN_GAPS:
        return None
    noise = _Noise.fitted(shown[:_MAX_SHOWN], gaps, resolution_ps)
    rng = np.random.default_rng(_SEED)
    # All times have the same noise, so one draw of it serves them all.
    which = rng.choice(noise.weight.size, DRAWS, p=noise.weight.reshape(-1))
    drawn = np.array([noise.draw(pair, which, rng) for pair in some])
    low, middle, high = np.quantile(drawn, [0.159, 0.5, 0.841], axis=1)
    return EndPoints(middle, (high - low) / 2, drawn - middle[:, None])


@dataclass(frozen=True)
class EndPoints:
    """Times without noise, of several sizes and distances.

    Attributes:
        time_ps: The medians, shape (P,).
        error_ps: Half of the central 68 % of each, shape (P,).
        deviation_ps: Draws of all of them, less the medians, shape (P, 4000).
    """

    time_ps: Floats
    error_ps: Floats
    deviation_ps: Floats


@dataclass(frozen=True)
class _Noise:
    """Possible distributions of the noise.

    Attributes:
        scale_ps: Values of the scale, shape (S,).
        exposure: Values of the mean bytes of others between those that a message meets, shape (E,).
        weight: Probability of each scale, lateness and exposure, shape (S, L, E).
    """

    scale_ps: Floats
    exposure: Floats
    weight: Floats

    @classmethod
    def fitted(cls, shown: Sequence[PairTimes], gaps: Gaps, resolution_ps: float) -> _Noise:
        """The distributions that times show."""
        typical = [*gaps.gap_ps.tolist()]
        typical += [
            (pair.time_ps - pair.time_ps.min()).sum() / (len(pair.time_ps) - 1) for pair in shown
        ]
        most = max([1.0, *(float(pair.others.max()) for pair in shown), *gaps.others.tolist()])
        # With the prior 1/s, values that are equally spaced in log s have equal prior weight.
        scale = max(float(np.median(typical)), resolution_ps) * _SCALES
        out = cls(scale, most * _EXPOSURES, np.ones((len(scale), len(_LATER), len(_EXPOSURES))))
        log = out._of_gaps(gaps)
        for pair in shown:
            # Densities of all times, per unit of time, and an integral over depths in units of s.
            log += log_sum(out._depths(pair), axis=-1)
            log -= ((len(pair.time_ps) - 1) * np.log(scale))[:, None, None]
        return cls(scale, out.exposure, probabilities(log))

    def draw(self, times: PairTimes, which: Ints, rng: np.random.Generator) -> Floats:
        """Draws of an end point.

        Args:
            times: The shortest times.
            which: Number of the noise of each draw, of all combinations of scale, lateness and
                exposure, shape (N,).
            rng: Generator of the depths.
        """
        # Few of the possible scales are likely enough to be drawn.
        each = self.weight[0].size
        rows, row = np.unique(which // each, return_inverse=True)
        few = _Noise(self.scale_ps[rows], self.exposure, self.weight[rows])
        log = few._depths(times).reshape(len(rows) * each, -1)
        sums = np.exp(log - log.max(axis=1, keepdims=True)).cumsum(axis=1)
        mine = row * each + which % each
        level = rng.random(len(which)) * sums[mine, -1]
        depth = _DEPTHS[np.minimum((sums[mine] < level[:, None]).sum(axis=1), len(_DEPTHS) - 1)]
        return np.asarray(times.time_ps.min() - few.scale_ps[row] * depth)

    def _of_gaps(self, gaps: Gaps) -> Floats:
        """Log likelihood of gaps, shape (S, L, E)."""
        u = (gaps.gap_ps / self.scale_ps[:, None])[:, None, None, :]
        meets = gaps.others / self.exposure[:, None]
        met = -np.expm1(-meets)
        later = 1 + _LATER[:, None, None] * _meetings(meets)
        log = _mixture(-u, -u / later - np.log(later), met)
        return np.asarray(
            log.sum(axis=-1) - len(gaps.gap_ps) * np.log(self.scale_ps)[:, None, None]
        )

    def _depths(self, times: PairTimes) -> Floats:
        """Log weight of each depth below the shortest time, shape (S, L, E, depths)."""
        fastest = times.time_ps.min()
        beyond = (times.time_ps - fastest) / self.scale_ps[:, None]
        u = (beyond[:, None, :] + _DEPTHS[:, None])[:, None]
        slow, fast = 2 * times.messages.min(axis=1), 2 * times.messages.max(axis=1)
        plain = _log_density(u, slow, fast)
        # A pair's shortest time is late if all messages of one direction met others.
        meets = times.others / self.exposure[:, None, None]
        all_met = (-np.expm1(-meets)) ** times.messages
        pair = 1 - (1 - all_met[..., 0]) * (1 - all_met[..., 1])
        # The noise is then approximated by one exponential, the added delay of one direction by
        # another.
        noise = 1 / slow + 1 / fast
        added = _LATER[:, None, None] * _meetings(meets.max(axis=-1)) / 2
        rates = np.broadcast_arrays(1 / noise, 1 / added)
        slow, fast = np.minimum(*rates)[:, :, None], np.maximum(*rates)[:, :, None]
        log = _mixture(plain[:, :, None], _log_density(u[:, :, None], slow, fast), pair[:, None, :])
        # Depths are equally spaced in their logarithm.
        return np.asarray(log.sum(axis=-1) + np.log(_DEPTHS))


def _mixture(plain: Floats, late: Floats, met: Floats) -> Floats:
    """Log density of a mixture; ``met`` is the probability of the second."""
    met = np.clip(met, 1e-12, 1 - 1e-12)
    return np.logaddexp(plain + np.log1p(-met), late + np.log(met))


def _meetings(mean: Floats) -> Floats:
    """Mean number of meetings of the messages that meet any, by the mean of all (Poisson)."""
    mean = np.maximum(mean, 1e-9)
    return np.asarray(mean / -np.expm1(-mean))


def _log_density(u: Floats, slow: Floats, fast: Floats) -> Floats:
    """Log density of the sum of two exponentials with these rates."""
    z = np.maximum((fast - slow) * u, 1e-9)
    return np.asarray(np.log(slow * fast * u * -np.expm1(-z) / z) - slow * u)
