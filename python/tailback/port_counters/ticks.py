"""Length of a PortXmitWait tick by device family.

The specification leaves the tick to the device. One is published: roughly 22 ns for the ports of
FDR switches (Alali et al., 2017, equation 3). The others are derived from the time in which a
32-bit counter saturates at a port that is always stalled; they are accurate to a few per cent.
``--tick`` overrides them; to measure a tick, keep a port stalled for a known time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick and its source.

    Attributes:
        tick_ns: Its length in nanoseconds.
        source: ``published``, ``derived`` (from the time to saturation) or ``assumed``.
        family: The devices to which it applies.
    """

    tick_ns: float
    source: str
    family: str


_FDR = Tick(22.0, "published", "SwitchX, ConnectX-3, Connect-IB (FDR)")
_EDR = Tick(45.0e9 / 2**32, "derived", "Switch-IB, ConnectX-4 and -5 (EDR)")
_HDR = Tick(1.4e9 / 2**32, "derived", "Quantum, ConnectX-6 (HDR)")
_NDR = Tick(0.7e9 / 2**32, "derived", "Quantum-2, ConnectX-7 (NDR)")

DEVICES: Final[dict[int, Tick]] = {
    0xC738: _FDR, 0x1003: _FDR, 0x1007: _FDR, 0x1011: _FDR,
    0xCB20: _EDR, 0xCF08: _EDR, 0x1013: _EDR, 0x1015: _EDR, 0x1017: _EDR, 0x1019: _EDR,
    0xD2F0: _HDR, 0x101B: _HDR, 0x101D: _HDR,
    0xD2F2: _NDR, 0x1021: _NDR,
}  # fmt: skip
"""Tick by NodeInfo's device id."""

SHORTEST_TICK_NS: Final = min(tick.tick_ns for tick in DEVICES.values())
"""The shortest known tick: limits a count of ticks where a port's own tick is unknown."""

_BY_RATE: Final = ((60.0, _FDR), (110.0, _EDR), (210.0, _HDR), (float("inf"), _NDR))


def tick_by_rate(gbps: pl.Expr) -> pl.Expr:
    """The tick of a device of unknown kind, from the data rate of its port, nanoseconds."""
    out = pl.lit(None, pl.Float64)
    for most, tick in reversed(_BY_RATE):
        out = pl.when(gbps <= most).then(pl.lit(tick.tick_ns)).otherwise(out)
    return out


def tick_of(device_id: int, gbps: float) -> Tick:
    """Return the tick of a device; one that is not in the table gets that of its speed, assumed.

    Args:
        device_id: NodeInfo's device id, 0 where not known.
        gbps: Data rate of the port, gigabits per second.
    """
    known = DEVICES.get(device_id)
    if known is not None:
        return known
    like = next(tick for most, tick in _BY_RATE if gbps <= most)
    return Tick(like.tick_ns, "assumed", f"unknown device, assumed to be {like.family}")
