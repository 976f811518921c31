"""From readings to intervals: what a port did between two looks at its counters.

A counter that goes back was reset, or passed its largest value; one that stands at its largest
value has latched and tells a lower bound at most. Neither is ever taken for a plain number.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.counters.schema import INTERVALS, READINGS, Flag, conform

KEY: Final = ("node_guid", "node_name", "port", "direction", "round")
"""What makes two readings be of one port and one series."""

_POSSIBLE = 1.5
"""A wrap is believed when the counted amount could have happened in this many times the interval:
readings may be later than their time stamps say."""


def _before(column: str) -> pl.Expr:
    return pl.col(column).shift(1)


def _increase(column: str, limit: str, most: pl.Expr, unit: int = 1) -> tuple[pl.Expr, pl.Expr]:
    """Increase of a counter over an interval and the flags it earned.

    Args:
        column: The cumulative counter, non-negative.
        limit: Column of its largest value.
        most: Largest increase the interval allows, null when unknown.
        unit: What one count is worth: data is counted in words of four octets.

    Returns:
        The increase (null when the counter was latched all the time) and the flags.
    """
    now, before = pl.col(column), _before(column)
    limited = pl.col(limit)
    full, was_full = (now >= limited).fill_null(False), (before >= limited).fill_null(False)
    back = now < before
    rest = limited - before + unit
    around = rest.cast(pl.Float64) + now.cast(pl.Float64)
    wrapped = (
        back
        & ~was_full
        & (limited < 2**63).fill_null(False)
        & (before.cast(pl.Float64) > 0.75 * limited.cast(pl.Float64))
        & (now.cast(pl.Float64) < 0.25 * limited.cast(pl.Float64))
        & (around <= most).fill_null(True)
    ).fill_null(False)
    value = (
        pl.when(full & was_full)
        .then(None)
        .when(wrapped)
        .then(rest + now)
        .when(back)
        .then(now)
        .otherwise(now - before)
    )
    flags = (
        pl.when(full)
        .then(int(Flag.LATCHED | Flag.AT_LEAST))
        .when(wrapped)
        .then(int(Flag.WRAP))
        .when(back)
        .then(int(Flag.RESET | Flag.AT_LEAST))
        .otherwise(0)
        .fill_null(0)
        .cast(pl.UInt32)
    )
    return value, flags


def difference(readings: pl.DataFrame, *, tick_ns: float | None = None) -> pl.DataFrame:
    """Turn readings into intervals, one less a port and series than there are readings.

    The time of a reading is the estimate of equation 3 of Alali et al., *A Measurement Study of
    Congestion in an InfiniBand Network* (start of the query plus half its turn-around); a stall
    fraction above 1 is left as it is, because it tells how wrong those times are.

    Args:
        readings: Rows of ``READINGS`` in any order.
        tick_ns: Length of a tick of PortXmitWait where a reading does not say it, nanoseconds.

    Returns:
        Rows of ``INTERVALS`` in order of port and time. Readings of a port with one and the same
        time are no interval and give no row.
    """
    tick = pl.col("tick_ns").fill_null(pl.lit(tick_ns, pl.Float64))
    same = pl.all_horizontal(pl.col(name).eq_missing(_before(name)) for name in KEY)
    interval = pl.col("time_ns") - _before("time_ns")
    span = interval.cast(pl.Float64) * _POSSIBLE
    data, data_flags = _increase("data_bytes", "data_limit", span * pl.col("capacity_gbps") / 8, 4)
    packets, packet_flags = _increase("packets", "packets_limit", pl.lit(None, pl.Float64))
    wait, wait_flags = _increase("xmit_wait_ticks", "wait_limit", span / tick)
    stall, stall_flags = _increase("stall_ns", "no_limit", pl.lit(None, pl.Float64))
    inner, inner_flags = _increase("internal_stall_ns", "no_limit", pl.lit(None, pl.Float64))
    steps = (
        conform(READINGS, readings)
        .lazy()
        .with_columns(no_limit=pl.lit(None, pl.UInt64))
        .sort(*KEY, "time_ns", maintain_order=True)
        .with_columns(
            interval_ns=pl.when(same).then(interval),
            data=data, sent=packets, wait=wait, stalled=stall, inner=inner,
            earned=wait_flags | stall_flags,
            earned_data=data_flags | packet_flags,
            earned_inner=inner_flags,
        )
        .filter(pl.col("interval_ns") > 0)
    )  # fmt: skip
    lanes = pl.col("lanes").fill_null(1).cast(pl.Float64)
    length = pl.col("interval_ns").cast(pl.Float64)
    usual = pl.col("interval_ns").median().over(*KEY)
    stall_ns = pl.coalesce(pl.col("stalled") / lanes, pl.col("wait") * tick)
    out = steps.with_columns(stall_time=stall_ns).select(
        "time_ns",
        "interval_ns",
        *(name for name in ("round", "node_guid", "port", "node_name", "link", "direction")),
        data_bytes=pl.col("data"),
        packets=pl.col("sent"),
        xmit_wait_ticks=pl.col("wait"),
        stall_ns=pl.col("stall_time"),
        stall_fraction=pl.col("stall_time") / length,
        internal_stall_fraction=pl.col("inner") / lanes / length,
        utilization=pl.col("data") * 8 / (pl.col("capacity_gbps") * length),
        capacity_gbps="capacity_gbps",
        flags=_row_flags(length, usual),
        source="source",
    )
    return conform(INTERVALS, out.collect())


def _row_flags(length: pl.Expr, usual: pl.Expr) -> pl.Expr:
    """Flags of an interval from those of its reading and of each counter."""
    own = int(Flag.NO_COUNTER | Flag.STALE)
    gap = pl.when(length > 1.5 * usual).then(int(Flag.GAP)).otherwise(0).cast(pl.UInt32)
    at_least = int(Flag.AT_LEAST)
    data_low = (pl.col("earned_data") & at_least) > 0
    data = pl.when(data_low).then(int(Flag.DATA_AT_LEAST)).otherwise(0).cast(pl.UInt32)
    rest = (pl.col("earned_data") | pl.col("earned_inner")) & int(
        Flag.WRAP | Flag.RESET | Flag.LATCHED
    )
    return (pl.col("flags") & own) | pl.col("earned") | data | rest | gap
