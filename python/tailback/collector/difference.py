"""Differences of the collector's rows, by the rule of :mod:`tailback.port_counters.increments`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.collector.readings import SOURCE, WORD_BYTES, Rows, TargetTable
from tailback.port_counters.increments import (
    SMALLEST_PACKET_BYTES,
    Counter,
    exact_value,
    increments,
    mark_beside_resets,
    max_bytes,
    max_ticks,
    was_reset,
)
from tailback.port_counters.schema import INTERVALS, Flag, conform

_COUNTERS: Final = ("words", "packets", "wait", "received_words", "received_packets")
_EXACT: Final = ("received_words", "received_packets")

ACTIVITY: Final = (
    "node_guid",
    "port",
    "time_ns",
    "interval_ns",
    "stall_fraction",
    "utilization",
    "flags",
)
"""Columns of ``counter_intervals`` that tell the present state of ports, NaN or null unknown."""


@dataclass(frozen=True)
class IntervalColumns:
    """Intervals, one entry for each pair of readings.

    Attributes:
        interval_ns: Length, nanoseconds.
        words: Data sent, in words of 4 octets.
        packets: Packets sent.
        ticks: Ticks with data to send and no credit.
        flags: Sum of ``tailback.port_counters.schema.Flag``.
        unknown: For each counter of a row, where the increment is unknown: the counter was at its
            largest value all the time, or rose by more than is possible. The increment is then
            given as 0.
        received_words: Data received; unknown unless exact.
        received_packets: Packets received; unknown unless exact.
    """

    interval_ns: NDArray[np.int64]
    words: NDArray[np.uint64]
    packets: NDArray[np.uint64]
    ticks: NDArray[np.uint64]
    flags: NDArray[np.uint32]
    unknown: dict[str, NDArray[np.bool_]]
    received_words: NDArray[np.uint64]
    received_packets: NDArray[np.uint64]


def difference(
    before: Rows, after: Rows, table: TargetTable, only: Collection[str] = _COUNTERS
) -> IntervalColumns:
    """Compute the increments between pairs of readings, each pair of one target.

    Args:
        before: Earlier readings, shape (N,).
        after: Later readings of the same targets, shape (N,).
        table: The targets.
        only: Counters whose increments are wanted, in the order of ``_COUNTERS``; the others are
            unknown. All of them tell of resets.
    """
    at = after["target"]
    gbps = table.gbps[at]
    frame = pl.DataFrame(
        {
            **{name: after[name] for name in _COUNTERS},
            **{f"{name}_before": before[name] for name in _COUNTERS},
            "data_top": table.data_tops(after),
            "received_top": table.received_tops(after),
            "wait_top": table.wait_tops(after),
            "time_ns": after["time_ns"],
            "interval_ns": after["time_ns"] - before["time_ns"],
            "gbps": np.where(gbps > 0, gbps, np.nan),
            "tick_ns": table.tick_ns[at],
        }
    )
    interval = pl.col("interval_ns")
    byte_limit = max_bytes(interval, pl.col("gbps").fill_nan(None))
    low, wrong, full = Flag.DATA_AT_LEAST, Flag.DATA_IMPOSSIBLE, Flag.DATA_LATCHED
    packet_limit = byte_limit / SMALLEST_PACKET_BYTES
    counters = (
        Counter("words", "data_top", low, byte_limit / WORD_BYTES, 1, wrong, full),
        Counter("packets", "data_top", low, packet_limit, 1, wrong, full),
        Counter("wait", "wait_top", most=max_ticks(interval, pl.col("tick_ns"))),
        Counter("received_words", "received_top", low, byte_limit / WORD_BYTES, 1, wrong, full),
        Counter("received_packets", "received_top", low, packet_limit, 1, wrong, full),
    )

    def earlier(name: str) -> pl.Expr:
        return pl.col(f"{name}_before")

    frame = mark_beside_resets(frame.with_columns(reset=was_reset(counters, earlier)))
    wanted = [counter for counter in counters if counter.name in only]
    steps = increments(wanted, earlier, pl.col("reset") | pl.col("during_reset"))
    values = {
        counter.name: exact_value(step) if counter.name in _EXACT else step.value
        for counter, step in zip(wanted, steps, strict=True)
    }
    flags_of = [
        step.flags
        for counter, step in zip(wanted, steps, strict=True)
        if counter.name not in _EXACT
    ]
    out = frame.select(
        **{name: values.get(name, pl.lit(None, pl.UInt64)) for name in _COUNTERS},
        counter_flags=reduce(or_, flags_of),
    )
    unknown = {name: out[name].is_null().to_numpy() for name in _COUNTERS}
    rises = {name: out[name].fill_null(0).to_numpy() for name in _COUNTERS}
    kept = after["flags"] & np.uint32(Flag.GAP | Flag.NO_COUNTER | Flag.RATE_CHANGED)
    flags = kept | out["counter_flags"].to_numpy()
    return IntervalColumns(
        frame["interval_ns"].to_numpy(),
        rises["words"],
        rises["packets"],
        rises["wait"],
        flags,
        unknown,
        rises["received_words"],
        rises["received_packets"],
    )


def stall_fraction(
    increments: IntervalColumns, targets: NDArray[np.uint32], table: TargetTable
) -> NDArray[np.float64]:
    """Share of each interval with data and no credit; NaN where not counted.

    Alali et al. (2017), equation 3. It may exceed 1 by the error of the readings' instants (their
    table III).
    """
    stall = increments.ticks.astype(np.float64) * table.tick_ns[targets]
    share = stall / np.maximum(increments.interval_ns, 1)
    share[((increments.flags & int(Flag.NO_COUNTER)) != 0) | increments.unknown["wait"]] = np.nan
    return np.asarray(share, np.float64)


def _used_share(
    steps: IntervalColumns, targets: NDArray[np.uint32], table: TargetTable
) -> NDArray[np.float64]:
    """Share of what their rate allows that ports sent, infinite or NaN where that is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = steps.words.astype(np.float64) * (WORD_BYTES * 8)
        return np.asarray(bits / (table.gbps[targets] * steps.interval_ns), np.float64)


def activity_frame(before: Rows, after: Rows, table: TargetTable) -> pl.DataFrame:
    """What ports did between pairs of readings: the columns :data:`ACTIVITY` of the intervals.

    It takes half of the time of :func:`intervals_frame`, of which it is a part.
    """
    keep = after["time_ns"] > before["time_ns"]
    before, after = before[keep], after[keep]
    at = after["target"]
    steps = difference(before, after, table, ("words", "wait"))
    used = _used_share(steps, at, table)
    used[steps.unknown["words"] | ~(table.gbps[at] > 0)] = np.nan
    frame = pl.DataFrame(
        {
            "node_guid": table.guid[at],
            "port": table.port[at],
            "time_ns": after["time_ns"],
            "interval_ns": steps.interval_ns,
            "stall_fraction": stall_fraction(steps, at, table),
            "utilization": used,
            "flags": steps.flags,
        }
    )
    return frame.cast({name: INTERVALS.polars_schema[name] for name in ACTIVITY})


def intervals_frame(before: Rows, after: Rows, table: TargetTable) -> pl.DataFrame:
    """Convert pairs of readings to the common table of intervals.

    Pairs without a positive length (the clock was set back) are left out.
    """
    keep = after["time_ns"] > before["time_ns"]
    before, after = before[keep], after[keep]
    at = after["target"]
    steps = difference(before, after, table)
    counted = ((steps.flags & int(Flag.NO_COUNTER)) == 0) & ~steps.unknown["wait"]
    share = stall_fraction(steps, at, table)
    gbps = table.gbps[at]
    latched_ns = table.latched_ns[at]
    ratio = table.tick_high_ns[at] / table.tick_ns[at]
    names = np.array([t.node_name for t in table.targets], object)
    frame = pl.DataFrame(
        {
            "time_ns": after["time_ns"],
            "interval_ns": steps.interval_ns,
            "node_guid": table.guid[at],
            "port": table.port[at],
            "node_name": pl.Series(names[at], dtype=pl.String),
            "data_bytes": steps.words * np.uint64(WORD_BYTES),
            "packets": steps.packets,
            "received_bytes": _known(
                steps.received_words * np.uint64(WORD_BYTES), steps.unknown["received_words"]
            ),
            "received_packets": _known(steps.received_packets, steps.unknown["received_packets"]),
            "xmit_wait_ticks": steps.ticks,
            "stall_ns": steps.ticks.astype(np.float64) * table.tick_ns[at],
            "stall_fraction": share,
            "stall_high_fraction": np.maximum(np.minimum(share * ratio, 1.0), share),
            "latched_stall_ns": latched_ns,
            "utilization": _used_share(steps, at, table),
            "capacity_gbps": gbps,
            "flags": steps.flags,
            "source": pl.repeat(SOURCE, len(after), eager=True),
            "counted": counted,
            "latched": table.latched(after),
            "sized": ~steps.unknown["words"],
            "numbered": ~steps.unknown["packets"],
        }
    )
    counted_only = ("xmit_wait_ticks", "stall_ns", "stall_fraction", "stall_high_fraction")
    rated_only = ("utilization", "capacity_gbps")
    frame = frame.with_columns(
        *(pl.when(pl.col("counted")).then(pl.col(c)).alias(c) for c in counted_only),
        *(pl.when(pl.col("capacity_gbps") > 0).then(pl.col(c)).alias(c) for c in rated_only),
    ).with_columns(pl.col("stall_high_fraction").fill_nan(None))
    frame = frame.with_columns(
        *(pl.when(pl.col("sized")).then(pl.col(c)).alias(c) for c in ("data_bytes", "utilization")),
        pl.when(pl.col("numbered")).then(pl.col("packets")).alias("packets"),
        pl.when(pl.col("latched")).then(pl.col("latched_stall_ns")).alias("latched_stall_ns"),
    ).drop("counted", "sized", "numbered", "latched")
    return conform(INTERVALS, frame)


def _known(values: NDArray[np.uint64], unknown: NDArray[np.bool_]) -> pl.Series:
    """Values, null where unknown."""
    return pl.Series(values).set(pl.Series(unknown), None)


def pairs(rows: Rows) -> tuple[Rows, Rows]:
    """Pair each reading with the one before it of the same target.

    "Before" means written before: if the clock was set back between sessions, the earlier reading
    may have the later time.
    """
    rows = rows[np.argsort(rows["target"], kind="stable")]
    same = rows["target"][1:] == rows["target"][:-1]
    return rows[:-1][same], rows[1:][same]
