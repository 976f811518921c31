"""The rule for the increment of a counter between two readings.

The collector and the readers of files both use it.

**The counter rose or stayed**: the increment is the difference, if the port can have counted that
much in 1.5 times the interval. Otherwise the reading is *impossible*: flagged, without a number.
Where the speed or tick is unknown, that of the fastest link is the limit.

**It is at its largest value**: it has *latched*. InfiniBand counters stop at all ones (InfiniBand
Architecture, vol. 1, 16.1.3.5), so the difference is a lower bound, and the increment is unknown if
the counter was there before. :func:`with_widths` finds the largest value where a source does not
state it. No counter of 64 bits gets to its largest value.

**It fell**: either it was *reset*, and its present value is a lower bound, unless the port cannot
have counted that much in 1.5 times the interval: then it did not start at 0 (the clock was set
back, or another device now has the name) and the increment is unknown. Or, on devices whose
counters do not stop, it *wrapped*, and the increment is the distance through its largest value.
Both look alike, so a wrap, which gives an exact number, is assumed only if all of the following
hold:

1. the largest value is known and has fewer than 64 bits (a 64-bit counter never wraps), and the
   counter was not at it;
2. it was in the last quarter of its range and is now in the first, but not at 0: a reset sets it to
   0, and a wrap rarely ends exactly there;
3. the distance is no longer than the port can count in 1.5 times the interval, where its speed
   (data, packets) or tick (stall) is known;
4. every other counter that fell at the same time can be explained by a wrap too: whoever resets
   one counter often resets others.

A counter that rose while another was reset may have been reset too, and have passed its old value
since. Its rise is then a lower bound, unless its value is more than the port can have counted in
the interval: `perfquery -R` resets the data counters but not PortXmitWait. Where no counter of any
port fell, nothing tells of a reset.

SNMP's Counter32 has no reset (RFC 2578, 7.1.6), and wraps every 34 s at 1 Gb/s. Where an interval
allows a whole range or more, any fall of it is a wrap, and every increment is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from tailback.fabric.rates import LANE_SIGNAL_GBPS, WIDTHS, data_rate_gbps
from tailback.port_counters.schema import SIMULATED, U32_MAX, U64_MAX, WORD_BYTES, Flag
from tailback.port_counters.ticks import SHORTEST_TICK_NS

RATE_TOLERANCE: Final = 1.5
"""Limit of a rise in intervals' worth of time: readings may be later than their time stamps."""

FASTEST_GBPS: Final = max(
    data_rate_gbps(width, speed) or 0.0 for width in WIDTHS for speed in LANE_SIGNAL_GBPS
)
"""Data rate of the fastest known link: the limit where a port's own rate is unknown."""

SMALLEST_PACKET_BYTES: Final = 24
"""Octets of the shortest packet: limits the packets that a port can send."""

_WRAP_LIMIT: Final = 2**63


@dataclass(frozen=True)
class Counter:
    """One cumulative counter, non-negative.

    Attributes:
        name: Its column.
        limit: Column of its largest value; None where it has none.
        low: Flag for an increment that is a lower bound.
        most: Largest increase that an interval allows; None or null where unknown.
        impossible: Flag for a larger increase.
        unit: Value of one count: data in bytes are counted in words of four.
        wraps: Whether it is known to wrap and never to be reset alone.
        latched: Flag for a counter at its largest value.
    """

    name: str
    limit: str | None
    low: Flag = Flag.AT_LEAST
    most: pl.Expr | None = None
    unit: int | pl.Expr = 1
    impossible: Flag = Flag.IMPOSSIBLE
    latched: Flag = Flag.LATCHED
    wraps: pl.Expr = field(default_factory=lambda: pl.lit(False))

    @property
    def laps(self) -> pl.Expr:
        """Whether it may have wrapped more than once in an interval."""
        if self.limit is None or self.most is None:
            return pl.lit(False)
        return (self.wraps & (pl.col(self.limit).cast(pl.Float64) <= self.most)).fill_null(False)


_NARROW_TOPS: Final = {
    "data_bytes": ("data_limit", WORD_BYTES * U32_MAX),
    "packets": ("packets_limit", U32_MAX),
    "xmit_wait_ticks": ("wait_limit", U32_MAX),
}
"""Column of the largest value of each InfiniBand counter, and that value at 32 bits."""


def with_widths(readings: pl.LazyFrame, port: Sequence[str]) -> pl.LazyFrame:
    """Readings with the largest value of each counter: the place where latching is found.

    The values of a port tell its width. A counter that never exceeds 32 ones and stands at exactly
    that value has 32 bits, whatever the source states. A wider one has that value in one reading of
    four billion. One that exceeds it has 64. Otherwise the source states the width. If it states
    none, PortXmitWait has 32 bits: kernels, samplers and tools read these unless the device
    announces more. The width of data and packets is then unknown.

    Args:
        readings: Rows of ``counter_readings``.
        port: Columns that identify a port.
    """
    columns = {}
    for counter, (limit, narrow) in _NARROW_TOPS.items():
        largest, top = pl.col(counter).max().over(port), pl.lit(narrow, pl.UInt64)
        usual = pl.when(largest < narrow).then(top) if counter == "xmit_wait_ticks" else None
        columns[limit] = (
            pl.when(largest == narrow)
            .then(top)
            .when(pl.col(limit).is_not_null())
            .then(limit)
            .when(largest > narrow)
            .then(pl.lit(U64_MAX, pl.UInt64))
            .otherwise(usual)
        )
    return readings.with_columns(**columns)


def stopped_at(value: pl.Expr, limit: pl.Expr) -> pl.Expr:
    """Whether a counter stands at its largest value. One of 64 bits never reaches it."""
    return (value >= limit) & (limit < _WRAP_LIMIT)


def exact_value(step: Increment) -> pl.Expr:
    """An increment, null where it is a lower bound or unknown."""
    inexact = (step.flags & ~pl.lit(int(Flag.WRAP), pl.UInt32)) != 0
    return pl.when(~inexact).then(step.value)


Before = Callable[[str], pl.Expr]
"""The value of a column in the reading before."""


def shifted(name: str) -> pl.Expr:
    """The reading before is the row before."""
    return pl.col(name).shift(1)


@dataclass(frozen=True)
class Increment:
    """Increase of one counter over an interval, and its flags."""

    value: pl.Expr
    flags: pl.Expr


def was_reset(counters: Sequence[Counter], before: Before = shifted) -> pl.Expr:
    """Whether a counter of a reading fell and no wrap explains it."""
    return pl.any_horizontal(_fell(c, before) & ~_could_wrap(c, before) for c in counters)


def mark_beside_resets(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with ``during_reset``: whether their interval overlaps one that contains a ``reset``.

    Of any port: whoever resets one often resets all, and a port that has since passed its old value
    does not show it.

    Args:
        rows: Intervals with ``time_ns`` (their end), ``interval_ns`` and ``reset``.
    """
    resets = (
        rows.filter("reset")
        .select("time_ns", start=pl.col("time_ns") - pl.col("interval_ns"))
        .sort("start")
    )
    if resets.is_empty():
        return rows.with_columns(during_reset=pl.lit(False))
    last_end = np.maximum.accumulate(resets["time_ns"].to_numpy())
    end = rows["time_ns"].to_numpy()
    start = end - rows["interval_ns"].fill_null(0).to_numpy()
    begun = np.searchsorted(resets["start"].to_numpy(), end)
    overlaps = (begun > 0) & (last_end[np.maximum(begun, 1) - 1] > start)
    return rows.with_columns(during_reset=pl.Series(overlaps))


def increments(
    counters: Sequence[Counter], before: Before = shifted, any_reset: pl.Expr | None = None
) -> list[Increment]:
    """The increments of the counters of a reading since the one before.

    Args:
        counters: All counters of a reading, because a reset of one bears on the others.
        before: Where the values of the reading before are.
        any_reset: Whether a counter of the port or of another was reset at the time. By default
            that of :func:`was_reset`; a column is faster, as each counter needs it.

    Returns:
        For each counter its increase, null where unknown, and its flags.
    """
    any_reset = was_reset(counters, before) if any_reset is None else any_reset
    return [_step(counter, before, any_reset) for counter in counters]


def _fell(counter: Counter, before: Before) -> pl.Expr:
    return (pl.col(counter.name) < before(counter.name)).fill_null(False)


def _could_wrap(counter: Counter, before: Before) -> pl.Expr:
    """Whether a fall can be explained by a wrap."""
    if counter.limit is None:
        return pl.lit(False)
    old, now, top = before(counter.name), pl.col(counter.name), pl.col(counter.limit)
    distance = (top - old).cast(pl.Float64) + now.cast(pl.Float64) + counter.unit
    possible = pl.lit(True) if counter.most is None else (distance <= counter.most).fill_null(True)
    over_the_end = (
        (old.cast(pl.Float64) > 0.75 * top.cast(pl.Float64))
        & (now > 0)
        & (now.cast(pl.Float64) < 0.25 * top.cast(pl.Float64))
    )
    return (
        (now < old) & (old < top) & (top < _WRAP_LIMIT) & (over_the_end | counter.laps) & possible
    ).fill_null(False)


def _step(counter: Counter, before: Before, any_reset: pl.Expr) -> Increment:
    old, now = before(counter.name), pl.col(counter.name)
    most = counter.most
    fell, wrapped = _fell(counter, before), _could_wrap(counter, before) & ~any_reset
    from_zero = pl.lit(True) if most is None else (now <= most).fill_null(True)
    if counter.limit is None:
        full = was_full = pl.lit(False)
        distance = now
    else:
        top = pl.col(counter.limit)
        full, was_full = (
            (stopped_at(value, top) & ~counter.wraps).fill_null(False) for value in (now, old)
        )
        distance = top - old + counter.unit + now
    rise = now - old
    beyond = pl.lit(False) if most is None else ((now >= old) & (rise > most)).fill_null(False)
    value = (
        pl.when((full & was_full) | beyond)
        .then(None)
        .when(wrapped)
        .then(distance)
        .when(fell)
        .then(pl.when(from_zero).then(now))
        .otherwise(rise)
    )
    low = int(counter.low)
    doubtful = ((now >= old) & any_reset & from_zero).fill_null(False) | counter.laps
    flags = (
        pl.when(full)
        .then(int(counter.latched) | low)
        .when(wrapped)
        .then(int(Flag.WRAP))
        .when(fell)
        .then(int(Flag.RESET) | low)
        .otherwise(0)
        .fill_null(0)
        .cast(pl.UInt32)
    ) | pl.when(doubtful & now.is_not_null()).then(low).otherwise(0).cast(pl.UInt32)
    too_much = pl.when(beyond).then(int(counter.impossible)).otherwise(0).cast(pl.UInt32)
    return Increment(value, flags | too_much)


def max_bytes(interval_ns: pl.Expr, gbps: pl.Expr) -> pl.Expr:
    """The most that a port of ``gbps`` can send in an interval, within ``RATE_TOLERANCE``."""
    return interval_ns.cast(pl.Float64) * RATE_TOLERANCE * gbps.fill_null(FASTEST_GBPS) / 8


def max_stall_ns(interval_ns: pl.Expr, lanes: pl.Expr) -> pl.Expr:
    """The longest stall in an interval, summed over ``lanes``, within ``RATE_TOLERANCE``."""
    return interval_ns.cast(pl.Float64) * RATE_TOLERANCE * lanes


def max_ticks(interval_ns: pl.Expr, tick_ns: pl.Expr) -> pl.Expr:
    """The most ticks of PortXmitWait in an interval, within ``RATE_TOLERANCE``."""
    return interval_ns.cast(pl.Float64) * RATE_TOLERANCE / tick_ns.fill_null(SHORTEST_TICK_NS)


def possible(intervals: pl.LazyFrame) -> pl.LazyFrame:
    """Intervals without impossible values, flagged as by :func:`increments`.

    For intervals that were computed elsewhere.

    Args:
        intervals: Rows of ``counter_intervals``.
    """
    length = pl.when(pl.col("source").ne_missing(SIMULATED)).then(pl.col("interval_ns"))
    byte_limit = max_bytes(length, pl.col("capacity_gbps"))
    allowed = length.cast(pl.Float64) * RATE_TOLERANCE
    beyond = {
        "stall": (pl.col("stall_fraction") > RATE_TOLERANCE)
        | (pl.col("stall_ns") > allowed)
        | (pl.col("xmit_wait_ticks") > allowed / SHORTEST_TICK_NS),
        "inner": pl.col("internal_stall_fraction") > RATE_TOLERANCE,
        "data": (pl.col("utilization") > RATE_TOLERANCE) | (pl.col("data_bytes") > byte_limit),
        "packets": pl.col("packets") > byte_limit / SMALLEST_PACKET_BYTES,
    }
    wrong = {name: is_beyond.fill_null(False) for name, is_beyond in beyond.items()}
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
