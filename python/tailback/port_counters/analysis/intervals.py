"""From readings to intervals: the activity of a port between two readings of its counters.

A counter that fell, or that is at its largest value, gives no ordinary difference.
:mod:`tailback.port_counters.increments` defines these cases.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.port_counters.increments import (
    SMALLEST_PACKET_BYTES,
    Counter,
    exact_value,
    increments,
    mark_beside_resets,
    max_bytes,
    max_stall_ns,
    max_ticks,
    shifted,
    stopped_at,
    was_reset,
    with_widths,
)
from tailback.port_counters.schema import (
    INTERVALS,
    READINGS,
    SIMULATED,
    U32_MAX,
    WORD_BYTES,
    Flag,
    conform,
)

KEY: Final = ("node_guid", "node_name", "port", "interface", "direction")
"""Two readings with equal values in these columns belong to the same port."""


def difference(readings: pl.DataFrame, *, tick_ns: float | None = None) -> pl.DataFrame:
    """Turn readings into intervals: n readings of a port give n − 1.

    The time of a reading is the estimate of equation 3 of Alali et al., *A Measurement Study of
    Congestion in an InfiniBand Network* (start of the query plus half its turn-around). A stall
    fraction above 1 is kept, because it shows the error of those times.

    Args:
        readings: Rows of ``READINGS`` in any order; see :func:`in_order`.
        tick_ns: Length of a PortXmitWait tick where a reading does not give it, nanoseconds.

    Returns:
        Rows of ``INTERVALS`` in order of port and time. Two readings of a port at the same time
        give no interval.
    """
    tick = pl.col("tick_ns").fill_null(pl.lit(tick_ns, pl.Float64))
    tick_high = pl.when(pl.col("tick_ns").is_not_null()).then(pl.col("tick_high_ns"))
    same = pl.all_horizontal(pl.col(name).eq_missing(shifted(name)) for name in KEY)
    interval = pl.col("time_ns") - shifted("time_ns")
    measured = pl.when(pl.col("source").ne_missing(SIMULATED)).then(interval)
    byte_limit = max_bytes(measured, pl.col("capacity_gbps"))
    gbps = pl.col("capacity_gbps")
    changed = (gbps != shifted("capacity_gbps")).fill_null(False)
    lanes = pl.col("lanes").fill_null(1).cast(pl.Float64)
    stalled = max_stall_ns(measured, lanes)
    low, wrong, full = Flag.DATA_AT_LEAST, Flag.DATA_IMPOSSIBLE, Flag.DATA_LATCHED
    packet_limit = byte_limit / SMALLEST_PACKET_BYTES
    # Only SNMP counts bytes, not words, in 32 bits.
    wraps = (pl.col("data_limit") == U32_MAX).fill_null(False)
    unit = pl.when(wraps).then(1).otherwise(WORD_BYTES).cast(pl.UInt64)
    counters = (
        Counter("data_bytes", "data_limit", low, byte_limit, unit, wrong, full, wraps),
        Counter("packets", "packets_limit", low, packet_limit, 1, wrong, full),
        Counter("xmit_wait_ticks", "wait_limit", most=max_ticks(measured, tick)),
        Counter("stall_ns", None, most=stalled),
        Counter("internal_stall_ns", None, most=stalled),
        Counter("drops", None, low, impossible=wrong),
        Counter("overlimits", None, low, impossible=wrong),
        Counter("paused_ns", None, most=max_stall_ns(measured, pl.lit(1.0))),
        Counter("pause_frames", None, low, impossible=wrong),
        Counter("received_bytes", "data_limit", low, byte_limit, unit, wrong, full, wraps),
        Counter("received_packets", "packets_limit", low, packet_limit, 1, wrong, full),
    )
    ordered = with_widths(in_order(conform(READINGS, readings)).lazy(), KEY).with_columns(
        interval_ns=pl.when(same).then(interval), reset=same & was_reset(counters)
    )
    steps = increments(counters, any_reset=pl.col("reset") | pl.col("during_reset"))
    data, packets, wait, stall, inner, drops, over, paused, frames, received, arrived = steps
    rows = (
        mark_beside_resets(ordered.collect())
        .lazy()
        .with_columns(
            data=data.value,
            sent=packets.value,
            wait=wait.value,
            stalled=stall.value,
            inner=inner.value,
            dropped=drops.value,
            held=over.value,
            paused=paused.value,
            frames=frames.value,
            received=exact_value(received),
            arrived=exact_value(arrived),
            queued=pl.when(same).then(shifted("backlog_bytes")),
            stall_flags=wait.flags | stall.flags | paused.flags,
            data_flags=data.flags | packets.flags | (drops.flags & int(Flag.RESET)),
            internal_flags=inner.flags,
            changed=pl.when(changed).then(int(Flag.RATE_CHANGED)).otherwise(0).cast(pl.UInt32),
        )
        .filter(pl.col("interval_ns") > 0)
    )
    return conform(INTERVALS, _interval_columns(rows, tick, tick_high, lanes).collect())


def in_order(readings: pl.DataFrame) -> pl.DataFrame:
    """The readings by port and series, each series in the order in which it was taken.

    That is the order of time, unless the clock was set back. Counters rise with time. Of the order
    of time and that of the rows, the one is taken in which the counters of the series fall less
    often.

    Args:
        readings: Rows of ``READINGS``.
    """
    rows = readings.with_row_index("_given")
    same = pl.all_horizontal(pl.col(name).eq_missing(shifted(name)) for name in KEY)
    as_given, by_time = rows.sort(*KEY, "_given"), rows.sort(*KEY, "time_ns", "_given")
    if not as_given.select((same & (pl.col("time_ns") < shifted("time_ns"))).any()).item():
        return by_time.drop("_given")
    fell = pl.any_horizontal(
        (pl.col(name) < shifted(name)).fill_null(False)
        for name in ("data_bytes", "packets", "xmit_wait_ticks", "stall_ns", "internal_stall_ns")
    )
    falls = (fell & same).sum().over(*KEY)
    given_order = as_given.select("_given", _given_falls=falls)
    timed = by_time.with_row_index("_by_time").with_columns(_time_falls=falls)
    place = pl.when(pl.col("_given_falls") < pl.col("_time_falls")).then("_given")
    return (
        timed.join(given_order, on="_given", maintain_order="left")
        .sort(*KEY, place.otherwise("_by_time"))
        .drop("_given", "_by_time", "_given_falls", "_time_falls")
    )


def _interval_columns(
    rows: pl.LazyFrame, tick: pl.Expr, tick_high: pl.Expr, lanes: pl.Expr
) -> pl.LazyFrame:
    """Columns of ``INTERVALS`` from readings and the increment of each counter."""
    length = pl.col("interval_ns").cast(pl.Float64)
    usual = pl.col("interval_ns").median().over(*KEY)
    # No tick is no stall, however long a tick is.
    waited = pl.when(pl.col("wait") == 0).then(0.0).otherwise(pl.col("wait") * tick)
    # Pauses are Ethernet's stalls: they have no credit counter beside them.
    stall_ns = pl.coalesce(pl.col("stalled") / lanes, waited, pl.col("paused").cast(pl.Float64))
    most_waited = pl.when(pl.col("stalled").is_null()).then(pl.col("wait") * tick_high)
    latched = stopped_at(pl.col("xmit_wait_ticks"), pl.col("wait_limit"))
    return rows.with_columns(stall_time=stall_ns).select(
        "time_ns",
        "interval_ns",
        *("node_guid", "port", "node_name", "link", "direction", "interface"),
        data_bytes=pl.col("data"),
        packets=pl.col("sent"),
        received_bytes="received",
        received_packets="arrived",
        xmit_wait_ticks=pl.col("wait"),
        stall_ns=pl.col("stall_time"),
        stall_fraction=pl.col("stall_time") / length,
        stall_high_fraction=pl.when(most_waited.is_not_null()).then(
            pl.max_horizontal(
                (most_waited / length).clip(upper_bound=1.0), pl.col("stall_time") / length
            )
        ),
        paused_fraction=pl.col("paused") / length,
        pause_frames="frames",
        latched_stall_ns=pl.when(latched).then(pl.col("wait_limit") * tick),
        internal_stall_fraction=pl.col("inner") / lanes / length,
        utilization=pl.col("data") * 8 / (pl.col("capacity_gbps") * length),
        backlog_before_bytes="queued",
        backlog_bytes="backlog_bytes",
        drops="dropped",
        overlimits="held",
        capacity_gbps="capacity_gbps",
        flags=_row_flags(length, usual),
        source="source",
    )


def _row_flags(length: pl.Expr, usual: pl.Expr) -> pl.Expr:
    """Flags of an interval from those of its reading and of each counter."""
    kept_flags = int(Flag.AT_LEAST | Flag.NO_COUNTER | Flag.STALE)
    gap = pl.when(length > 1.5 * usual).then(int(Flag.GAP)).otherwise(0).cast(pl.UInt32)
    # A lower bound of the time inside the router is not a lower bound of the stall.
    noted = int(Flag.WRAP | Flag.RESET | Flag.LATCHED | Flag.IMPOSSIBLE)
    return (
        (pl.col("flags") & kept_flags)
        | pl.col("stall_flags")
        | pl.col("data_flags")
        | pl.col("changed")
        | (pl.col("internal_flags") & noted)
        | gap
    )
