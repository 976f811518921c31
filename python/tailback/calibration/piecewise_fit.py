"""Lines with change points through times by message size: their coefficients and errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tailback.arrays import Floats
from tailback.calibration.model import DRAWS

Rng = np.random.Generator


@dataclass(frozen=True)
class PiecewiseModel:
    """Where lines change.

    Attributes:
        breaks: Rows, in order of size, at which a new line begins.
        shared: Whether all lines have the same slope and differ only by jumps.
    """

    breaks: tuple[int, ...] = ()
    shared: bool = False

    @property
    def coefficients(self) -> int:
        """Intercepts and slopes."""
        segments = len(self.breaks) + 1
        return segments + (1 if self.shared else segments)


@dataclass(frozen=True)
class LineRate:
    """The rate of a link, which a message's payload and headers share.

    Large messages take the time of their payload at this rate, and in addition that of the headers
    of their packets, which is fitted.

    Attributes:
        byte_ps: Time of a byte.
        packet: Payload of a full packet in bytes.
    """

    byte_ps: float
    packet: int

    def packet_bytes(self, size: Floats) -> Floats:
        """Packets of each message, as payload of full packets."""
        return np.asarray(np.maximum(np.ceil(size / self.packet), 1) * self.packet)


@dataclass(frozen=True)
class PiecewiseFit:
    """Lines through times.

    Attributes:
        size: Sizes in order, shape (P,).
        model: Positions of the change points.
        coefficients: Intercepts, then slopes, shape (C,).
        covariance: Covariance of the coefficients, shape (C, C).
        shifts: Draws of further, known errors of the coefficients, shape (4000, C); None without.
        freedom: Degrees of freedom.
        spread: Relative standard deviation of a time about its line.
        smallest: Regressors of the smallest message at each place, shape (places, C); NaN where all
            times of a place are beyond the known change point.
        known_ps: Time of the smallest message, and of a byte, that is known beforehand.
        plausible: First and last plausible row of each change point (95 %).
        averaged: This fit and alternative ones, each with its probability; empty if there are none.
    """

    size: Floats
    model: PiecewiseModel
    coefficients: Floats
    covariance: Floats
    freedom: float
    spread: float
    smallest: Floats
    known_ps: tuple[float, float] = (0.0, 0.0)
    shifts: Floats | None = None
    plausible: tuple[tuple[int, int], ...] = ()
    averaged: tuple[tuple[float, PiecewiseFit], ...] = ()

    @property
    def segments(self) -> int:
        """Number of lines."""
        return len(self.model.breaks) + 1

    def draws(self, rng: Rng, first: int = 0, last: int = DRAWS) -> Floats:
        """Draws of the coefficients by Student's t, from one number to another, shape (n, C)."""
        count = last - first
        scale = np.sqrt(np.diag(self.covariance))
        scale[scale == 0] = 1
        # Intercepts and slopes differ by many orders of magnitude.
        root = _root(self.covariance / np.outer(scale, scale))
        normal = rng.standard_normal((count, len(scale)))
        tail = np.sqrt(self.freedom / rng.chisquare(self.freedom, (count, 1)))
        out = self.coefficients + (normal @ root.T) * scale * tail
        return np.asarray(out if self.shifts is None else out + self.shifts[first:last], np.float64)

    def least_time(self, rng: Rng, place: int = 0) -> tuple[float, Floats]:
        """Time of the smallest message by the first line: value and draws, over all models.

        Size 0 may be far outside the range of a short first line. Places that are drawn with equal
        generators have errors in common, those of the slopes.
        """
        return self._average(
            rng, lambda lines, draws: draws @ lines.smallest[place] + lines.known_ps[0]
        )

    def byte_time(self, rng: Rng) -> tuple[float, Floats]:
        """Time per byte of large messages by the last line: value and draws, over all models."""
        return self._average(rng, lambda fit, draws: draws[:, -1] + fit.known_ps[1])

    def _average(
        self, rng: Rng, what: Callable[[PiecewiseFit, Floats], Floats]
    ) -> tuple[float, Floats]:
        some = self.averaged or ((1.0, self),)
        share = np.cumsum([0.0, *(weight for weight, _ in some)])
        ends = np.rint(share / share[-1] * DRAWS).astype(int).tolist()
        parts = [
            what(fit, fit.draws(rng, first, last))
            for (_, fit), (first, last) in zip(some, pairwise(ends), strict=True)
        ]
        draws = rng.permutation(np.concatenate(parts))
        # Outlying draws of an unlikely model must not change the value.
        return float(np.median(draws)), draws

    def intercept(self, draws: Floats, segment: int) -> Floats:
        """Time of an empty message by one of the lines, for each draw."""
        return np.asarray(draws[:, segment], np.float64)

    def slope(self, draws: Floats, segment: int) -> Floats:
        """Time per byte by one of the lines, for each draw."""
        at = (0 if self.model.shared else segment) - (1 if self.model.shared else self.segments)
        return np.asarray(draws[:, at], np.float64)

    def jump(self, draws: Floats, number: int) -> Floats:
        """Jump of the time at a change point, midway between the sizes around it."""
        row = self.model.breaks[number]
        at = 0.5 * (self.size[row - 1] + self.size[row])
        after = self.intercept(draws, number + 1) + at * self.slope(draws, number + 1)
        before = self.intercept(draws, number) + at * self.slope(draws, number)
        return np.asarray(after - before, np.float64)


def _root(matrix: Floats) -> Floats:
    """A square root of a covariance that may be singular."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0)), np.float64)
