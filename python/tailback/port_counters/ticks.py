"""Length of a PortXmitWait tick, by device and by the rate and width of the port.

A device counts a tick for every so many bytes that it could have sent and did not (NVIDIA,
*ibdiagnet user manual* 2.13, "Congestion Assessment on InfiniBand Links"), so a tick is as long as
these bytes take at the rate of the port:

* Quantum switches count 8 bytes of the port, whatever its width;
* SwitchX and Switch-IB switches count 32 bytes of each lane;
* Omni-Path adapters count flits of 8 bytes (Linux, ``hfi1``).

A device states its number in ``Tick`` of PortSamplesControl, less 1, but not whether it counts the
bytes of the port or of each lane. The manual does not cover InfiniBand adapters. Where the device
or its rule is unknown, the tick is an interval, and so is every stall computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import polars as pl

from tailback.fabric.rates import LANE_SIGNAL_GBPS, data_rate_gbps

OF_PORT, OF_LANE = 8, 32
"""Bytes in a tick: of the port (Quantum, Omni-Path), of each lane (SwitchX, Switch-IB)."""

_LANE_SWITCHES: Final = frozenset({0xC738, 0xCB20, 0xCF08})
"""Device ids of SwitchX (all generations), Switch-IB and Switch-IB 2."""
OMNI_PATH: Final = 0x24F0
"""Device id of Omni-Path adapters."""
_PORT_DEVICES: Final = frozenset({0xD2F0, 0xD2F2, 0xD2F4, OMNI_PATH, 0x24F1})
"""Device ids of Quantum, Quantum-2, Quantum-3, and of both kinds of Omni-Path adapters."""

_WIDTHS: Final = (1, 2, 4)
"""Lanes of the ports of these devices. Wider ports ended with DDR switches."""
_FASTEST_LANE_TICKS_GBPS: Final = 25.8
"""Fastest lane of a switch that counts ticks by lane: EDR. Only Quantum has HDR and later."""
_SAME_RATE: Final = 0.03
"""Relative difference of two statements of one rate: 56 Gb/s is printed for FDR's 54.5."""
_SLOWEST_LANE_GBPS, _FASTEST_PORT_GBPS = 2.0, 800.0
"""SDR's lane and 4x XDR: bounds where the rate of a port is unknown."""

SHORTEST_TICK_NS: Final = OF_PORT * 8 / _FASTEST_PORT_GBPS
"""The shortest possible tick: limits a count of ticks where a port's own tick is unknown."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The length of a tick and its source.

    Attributes:
        low_ns: Its length in nanoseconds, or the shortest that it may be.
        high_ns: The longest that it may be; equal to ``low_ns`` where the length is known.
        source: ``device`` (it states its tick), ``model`` (its device id), ``speed`` (only one kind
            of switch has it) or ``unknown`` (an interval).
    """

    low_ns: float
    high_ns: float
    source: str

    @property
    def exact(self) -> bool:
        """Whether the length is known."""
        return self.low_ns == self.high_ns


@cache
def tick_of(
    gbps: float,
    *,
    device_id: int = 0,
    lanes: int = 0,
    switch: bool = False,
    stated_bytes: int = 0,
) -> Tick:
    """The tick of a port.

    Args:
        gbps: Data rate of the port, gigabits per second; 0 where unknown.
        device_id: NodeInfo's device id, 0 where unknown.
        lanes: Active lanes of the port, 0 where unknown: those that its rate allows.
        switch: Whether it is known to be a port of an InfiniBand switch.
        stated_bytes: ``Tick`` + 1 of the device's PortSamplesControl, 0 where unknown.
    """
    if gbps <= 0:
        shortest = (stated_bytes or OF_PORT) * 8 / _FASTEST_PORT_GBPS
        return Tick(shortest, (stated_bytes or OF_LANE) * 8 / _SLOWEST_LANE_GBPS, "unknown")
    widths = (lanes,) if lanes else _widths_of(gbps)
    of_port = (stated_bytes or OF_PORT) * 8 / gbps
    of_lane = [(stated_bytes or OF_LANE) * 8 * width / gbps for width in widths]
    slow = [
        tick
        for tick, width in zip(of_lane, widths, strict=True)
        if gbps / width <= _FASTEST_LANE_TICKS_GBPS
    ]
    origin = "device" if stated_bytes else "model"
    if device_id in _PORT_DEVICES:
        return Tick(of_port, of_port, origin)
    if device_id in _LANE_SWITCHES:
        choice = slow or of_lane
        return Tick(min(choice), max(choice), origin if min(choice) == max(choice) else "unknown")
    if switch and not slow:
        return Tick(of_port, of_port, "device" if stated_bytes else "speed")
    low, high = of_port, max(slow if switch else of_lane)
    return Tick(low, high, "unknown" if high > low else origin)


def _widths_of(gbps: float) -> tuple[int, ...]:
    """The numbers of lanes with which a port can have a rate."""
    possible = {
        width
        for width in _WIDTHS
        for speed in LANE_SIGNAL_GBPS
        if abs((data_rate_gbps(f"{width}x", speed) or 0.0) / gbps - 1) <= _SAME_RATE
    }
    return tuple(sorted(possible)) or _WIDTHS


def filled_ticks(frame: pl.DataFrame, gbps: str) -> pl.DataFrame:
    """The ticks of ports of unknown devices from their rate.

    Args:
        frame: Any rows.
        gbps: Name of their column of rates, Gb/s.

    Returns:
        ``frame`` with ``_tick`` and ``_tick_high`` in nanoseconds, null where the rate is unknown.
    """
    rates = [rate for rate in frame[gbps].unique().drop_nulls() if rate > 0]
    ticks = {rate: tick_of(rate) for rate in rates}
    return frame.with_columns(
        pl.col(gbps)
        .replace_strict(
            {rate: getattr(tick, end) for rate, tick in ticks.items()} or {0.0: None},
            default=None,
            return_dtype=pl.Float64,
        )
        .alias(name)
        for name, end in (("_tick", "low_ns"), ("_tick_high", "high_ns"))
    )
