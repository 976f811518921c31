"""The one rule for what happened between two readings of a counter.

Everybody who takes differences uses it: the collector, while it collects, and the readers of files.

**The counter rose or stayed**: the difference is taken at its word, if the port can have done so
much in 1.5 times the interval; otherwise the reading is *impossible*: flagged, without a number.
Where speed or tick are unknown, those of the fastest link bound the rise. (A counter set back and
past its old value since looks like one that was not reset; its difference is then too small.)

**It stands at its largest value**: it has *latched*. InfiniBand's counters stop at all ones
(InfiniBand Architecture, vol. 1, 16.1.3.5), so the difference is a lower bound, and nothing at all
is known where it stood there before.

**It fell**: somebody set it *back*, and what it shows now is a lower bound, unless the port cannot
have done so much in 1.5 times the interval: then it did not begin at 0 (the clock was set back
meanwhile, or another device has the name now) and nothing is known; or, on devices that do
not stop, it *wrapped*, and the way through its top is the number. Both look alike, so a wrap, which
claims an exact number, is believed only if all of this holds:

1. the largest value is known, less than 63 bits (more never comes round), and the counter did not
   stand at it;
2. it was in the last quarter of its range and is now in the first, but not at 0: that is where
   somebody sets it, and where a wrap ends once in as many times as the counter rose;
3. the way through the top is no longer than what the port can do in 1.5 times the interval, where
   its speed (data, packets) or tick (stall) is known;
4. no other counter of the same reading fell without being explained so: who sets one counter back
   often sets back others.

A fall of one counter says nothing against a number of another that rose: `perfquery -R` sets back
the data counters but not PortXmitWait, the rounds of Alali et al. PortXmitWait alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from tailback.fabric.rates import LANE_SIGNAL_GBPS, WIDTHS, data_rate_gbps
from tailback.port_counters.schema import SIMULATED, Flag
from tailback.port_counters.ticks import SHORTEST_TICK_NS

RATE_TOLERANCE: Final = 1.5
"""How many times the interval a rise may take: readings may be later than their times say."""

FASTEST_GBPS: Final = max(
    data_rate_gbps(width, speed) or 0.0 for width in WIDTHS for speed in LANE_SIGNAL_GBPS
)
"""Data rate of the fastest link there is: the bound where a port's own is unknown."""

SMALLEST_PACKET_BYTES: Final = 24
"""Octets of the shortest packet: what bounds packets by the speed of a port."""

_COMES_ROUND: Final = 2**63


@dataclass(frozen=True)
class Counter:
    """One cumulative counter, non-negative.

    Attributes:
        name: Its column.
        limit: Column of its largest value; None where it has none.
        low: The flag that says that its number is a lower bound.
        most: Largest increase that an interval allows; None or null where unknown.
        impossible: The flag that says that it rose by more.
        unit: What one count is worth: data in bytes are counted in words of four.
    """

    name: str
    limit: str | None
    low: Flag = Flag.AT_LEAST
    most: pl.Expr | None = None
    unit: int = 1
    impossible: Flag = Flag.IMPOSSIBLE


Before = Callable[[str], pl.Expr]
"""The value of a column in the reading before."""


def shifted(name: str) -> pl.Expr:
    """The reading before is the row before."""
    return pl.col(name).shift(1)


@dataclass(frozen=True)
class Increment:
    """Increase of one counter over an interval and the flags it earned."""

    value: pl.Expr
    flags: pl.Expr


def increments(counters: Sequence[Counter], before: Before = shifted) -> list[Increment]:
    """What happened to the counters of a reading since the one before.

    Args:
        counters: All counters of a reading, because one tells on another.
        before: Where the values of the reading before are.

    Returns:
        For each counter its increase, null where nothing is known, and its flags.
    """
    fell = [(pl.col(c.name) < before(c.name)).fill_null(False) for c in counters]
    round_the_top = [_could_wrap(c, before) for c in counters]
    set_back = pl.any_horizontal(
        down & ~could for down, could in zip(fell, round_the_top, strict=True)
    )
    return [
        _step(counter, before, down, could & ~set_back)
        for counter, down, could in zip(counters, fell, round_the_top, strict=True)
    ]


def _could_wrap(counter: Counter, before: Before) -> pl.Expr:
    """Whether a fall is explained by the way through the top."""
    if counter.limit is None:
        return pl.lit(False)
    old, now, top = before(counter.name), pl.col(counter.name), pl.col(counter.limit)
    way = (top - old).cast(pl.Float64) + now.cast(pl.Float64) + counter.unit
    possible = pl.lit(True) if counter.most is None else (way <= counter.most).fill_null(True)
    return (
        (now < old)
        & (old < top)
        & (top < _COMES_ROUND)
        & (old.cast(pl.Float64) > 0.75 * top.cast(pl.Float64))
        & (now > 0)
        & (now.cast(pl.Float64) < 0.25 * top.cast(pl.Float64))
        & possible
    ).fill_null(False)


def _step(counter: Counter, before: Before, fell: pl.Expr, wrapped: pl.Expr) -> Increment:
    old, now = before(counter.name), pl.col(counter.name)
    most = counter.most
    from_zero = pl.lit(True) if most is None else (now <= most).fill_null(True)
    if counter.limit is None:
        full = was_full = pl.lit(False)
        way = now
    else:
        top = pl.col(counter.limit)
        full, was_full = (now >= top).fill_null(False), (old >= top).fill_null(False)
        way = top - old + counter.unit + now
    rise = now - old
    beyond = pl.lit(False) if most is None else ((now >= old) & (rise > most)).fill_null(False)
    value = (
        pl.when((full & was_full) | beyond)
        .then(None)
        .when(wrapped)
        .then(way)
        .when(fell)
        .then(pl.when(from_zero).then(now))
        .otherwise(rise)
    )
    low = int(counter.low)
    flags = (
        pl.when(full)
        .then(int(Flag.LATCHED) | low)
        .when(wrapped)
        .then(int(Flag.WRAP))
        .when(fell)
        .then(int(Flag.RESET) | low)
        .otherwise(0)
        .fill_null(0)
        .cast(pl.UInt32)
    )
    too_much = pl.when(beyond).then(int(counter.impossible)).otherwise(0).cast(pl.UInt32)
    return Increment(value, flags | too_much)


def max_bytes(interval_ns: pl.Expr, gbps: pl.Expr) -> pl.Expr:
    """The most that a port of ``gbps`` can send in an interval, with the slack of its times."""
    return interval_ns.cast(pl.Float64) * RATE_TOLERANCE * gbps.fill_null(FASTEST_GBPS) / 8


def max_stall_ns(interval_ns: pl.Expr, lanes: pl.Expr) -> pl.Expr:
    """The longest stall in an interval, summed over ``lanes``, with the slack of its times."""
    return interval_ns.cast(pl.Float64) * RATE_TOLERANCE * lanes


def max_ticks(interval_ns: pl.Expr, tick_ns: pl.Expr) -> pl.Expr:
    """The most ticks of PortXmitWait in an interval, with the slack of its times."""
    return interval_ns.cast(pl.Float64) * RATE_TOLERANCE / tick_ns.fill_null(SHORTEST_TICK_NS)


def possible(intervals: pl.LazyFrame) -> pl.LazyFrame:
    """Intervals without the numbers that cannot be, flagged as :func:`increments` flags them.

    For intervals that somebody else took: derived columns, and tables of former versions.

    Args:
        intervals: Rows of ``counter_intervals``.
    """
    length = pl.when(pl.col("source").ne_missing(SIMULATED)).then(pl.col("interval_ns"))
    room = max_bytes(length, pl.col("capacity_gbps"))
    allowed = length.cast(pl.Float64) * RATE_TOLERANCE
    beyond = {
        "stall": (pl.col("stall_fraction") > RATE_TOLERANCE)
        | (pl.col("stall_ns") > allowed)
        | (pl.col("xmit_wait_ticks") > allowed / SHORTEST_TICK_NS),
        "inner": pl.col("internal_stall_fraction") > RATE_TOLERANCE,
        "data": (pl.col("utilization") > RATE_TOLERANCE) | (pl.col("data_bytes") > room),
        "packets": pl.col("packets") > room / SMALLEST_PACKET_BYTES,
    }
    wrong = {name: found.fill_null(False) for name, found in beyond.items()}
    columns = {
        "stall": ("xmit_wait_ticks", "stall_ns", "stall_fraction"),
        "inner": ("internal_stall_fraction",),
        "data": ("data_bytes", "utilization"),
        "packets": ("packets",),
    }
    flag = pl.when(wrong["stall"] | wrong["inner"]).then(int(Flag.IMPOSSIBLE)).otherwise(0)
    data_flag = pl.when(wrong["data"] | wrong["packets"]).then(int(Flag.DATA_IMPOSSIBLE))
    return intervals.with_columns(
        *(
            pl.when(~wrong[name]).then(pl.col(column)).alias(column)
            for name, mine in columns.items()
            for column in mine
        ),
        flags=pl.col("flags") | flag.cast(pl.UInt32) | data_flag.otherwise(0).cast(pl.UInt32),
    )
