"""Data rate of an InfiniBand link from its width and speed in a discovery: ``4x`` and ``EDR``.

The rate is the data rate after line coding. Source: InfiniBand Trade Association,
*InfiniBand Architecture Specification*, volume 2 (link signalling and encoding), and its roadmap.

========  ===================  ======================================  ==================
speed     signalled per lane   code                                    data per lane
========  ===================  ======================================  ==================
SDR       2.5 Gb/s             8b/10b                                  2 Gb/s
DDR       5 Gb/s               8b/10b                                  4 Gb/s
QDR       10 Gb/s              8b/10b                                  8 Gb/s
FDR10     10.3125 Gb/s         64b/66b                                 10 Gb/s
FDR       14.0625 Gb/s         64b/66b                                 13.636... Gb/s
EDR       25.78125 Gb/s        64b/66b                                 25 Gb/s
HDR       53.125 Gb/s          256b/257b, RS(544,514)                  50 Gb/s
NDR       106.25 Gb/s          256b/257b, RS(544,514)                  100 Gb/s
XDR       212.5 Gb/s           256b/257b, RS(544,514)                  200 Gb/s
========  ===================  ======================================  ==================

FDR10 is not in the specification: it is Mellanox's QDR with the line coding of FDR.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import isclose
from typing import NamedTuple

_8B10B = Fraction(8, 10)
_64B66B = Fraction(64, 66)
_FEC = Fraction(256, 257) * Fraction(514, 544)

LANE_SIGNAL_GBPS: dict[str, tuple[Fraction, Fraction]] = {
    "SDR": (Fraction("2.5"), _8B10B),
    "DDR": (Fraction(5), _8B10B),
    "QDR": (Fraction(10), _8B10B),
    "FDR10": (Fraction("10.3125"), _64B66B),
    "FDR": (Fraction("14.0625"), _64B66B),
    "EDR": (Fraction("25.78125"), _64B66B),
    "HDR": (Fraction("53.125"), _FEC),
    "NDR": (Fraction("106.25"), _FEC),
    "XDR": (Fraction("212.5"), _FEC),
}
"""Signalling rate of one lane in gigabits per second, and the share of it that is data."""

WIDTHS: dict[str, int] = {"1x": 1, "2x": 2, "4x": 4, "8x": 8, "12x": 12}
"""Lanes of each width a link can have."""


class LinkSpeed(NamedTuple):
    """Active width and speed of an InfiniBand link.

    Attributes:
        lanes: Its lanes, 4 of ``4x``.
        speed: Its speed, a key of :data:`LANE_SIGNAL_GBPS`.
    """

    lanes: int
    speed: str

    @property
    def gbps(self) -> float:
        """Its data rate in gigabits per second, after line coding."""
        signalled, data_share = LANE_SIGNAL_GBPS[self.speed]
        return float(self.lanes * signalled * data_share)

    def __str__(self) -> str:
        """As ``ibnetdiscover`` prints it: ``4xEDR``."""
        return f"{self.lanes}x{self.speed}"


@cache
def link_speed(width: str, speed: str) -> LinkSpeed | None:
    """Return the width and speed of a link, or None when either word is not known (``"???"``).

    Args:
        width: ``"1x"``, ``"2x"``, ``"4x"``, ``"8x"`` or ``"12x"``, in either case.
        speed: ``"SDR"`` … ``"XDR"``, in either case.
    """
    lanes = WIDTHS.get(width.lower())
    if lanes is None or speed.upper() not in LANE_SIGNAL_GBPS:
        return None
    return LinkSpeed(lanes, speed.upper())


@cache
def speed_name(gbps: float, lanes: int) -> str | None:
    """Speed of a link by its data rate and width, ``"EDR"``; None if no speed has this rate."""
    for name in LANE_SIGNAL_GBPS:
        if lanes and isclose(LinkSpeed(lanes, name).gbps, gbps, rel_tol=1e-3):
            return name
    return None


def data_rate_gbps(width: str, speed: str) -> float | None:
    """Return the data rate of a link in gigabits per second, after line coding.

    Args:
        width: As for :func:`link_speed`.
        speed: As for :func:`link_speed`.

    Returns:
        The rate, ``54.5454…`` for 4x FDR, or None when either word is not known (``"???"``).
    """
    stated = link_speed(width, speed)
    return None if stated is None else stated.gbps
