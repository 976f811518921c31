"""Variance of a congested fraction f = M/N, in closed form for each way of carrying it.

M of the N packets through a link met it congested; l is their path length, g the congested hops of
a packet. Two reservoirs draw the hop and the congested hop independently (thesis section 3.3). One
reservoir with a congested bit (section 5.7, whose analysis the thesis leaves open) makes the two
estimates depend on each other, which helps the more, the more is congested: with whole links it is
the better one iff (l − 1)(1 − 2f) < g − 1. All are first order in 1/N.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def two_reservoirs(f: Floats | float, n: Floats | float, length: float, congested: float) -> Floats:
    """Whole links, two reservoirs: [f (g − 1) + f² (l − 1)] / N."""
    f = np.asarray(f, np.float64)
    return np.asarray((f * (congested - 1.0) + f * f * (length - 1.0)) / n, np.float64)


def one_reservoir(f: Floats | float, n: Floats | float, length: float) -> Floats:
    """Whole links, one reservoir: f (1 − f) (l − 1) / N."""
    f = np.asarray(f, np.float64)
    return np.asarray(f * (1.0 - f) * (length - 1.0) / n, np.float64)


def one_reservoir_one_bit(
    f: Floats | float,
    n: Floats | float,
    length: float,
    possible: Floats | float,
    congested_hops: Floats | float,
) -> Floats:
    """One-bit hashes, one reservoir (algorithms 8 and 9).

    [(1 − 2f) (l Σg − M) + f² (l²Q − N)] / N².

    Args:
        f: Congested fraction.
        n: Packets through the link, N.
        length: Path length l.
        possible: Packets that might have been, Q.
        congested_hops: Σg, congested hops of all packets that might have been.
    """
    f, n = np.asarray(f, np.float64), np.asarray(n, np.float64)
    first = (1.0 - 2.0 * f) * (length * np.asarray(congested_hops) - f * n)
    second = f * f * (length**2 * np.asarray(possible) - n)
    return np.asarray((first + second) / (n * n), np.float64)


def one_reservoir_is_better(f: float, length: float, congested: float) -> bool:
    """Whether one reservoir has the smaller variance, for whole links."""
    return (length - 1.0) * (1.0 - 2.0 * f) < congested - 1.0
