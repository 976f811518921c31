"""What happened between two readings of a port, and how sure that is.

Counters of 32 bits stop at all ones (IBA 16.1.3.5), so they say "at least" from there on; others
start again. A counter that stands lower than before was set back by somebody, unless going past
its top would explain it within what the link can do in the time: then it wrapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.counters.collect import mad as mads
from tailback.counters.collect.readings import SOURCE, WORD_BYTES, Rows, TargetTable
from tailback.counters.schema import INTERVALS, Flag, conform

_SLACK: Final = 1.25
"""How much more than the link allows still passes for a wrap: the clock of a reading is a guess."""

_SMALLEST_PACKET_BYTES: Final = 24


@dataclass(frozen=True)
class Steps:
    """Intervals, one entry for each pair of readings.

    Attributes:
        interval_ns: Length, nanoseconds.
        words: Data sent, in words of 4 octets.
        packets: Packets sent.
        ticks: Ticks with data to send and no credit.
        flags: Sum of ``tailback.counters.schema.Flag``.
        stood: For ``words``, ``packets`` and ``wait``, where the counter stood at its top all the
            time: nothing is known of it then, not even a lower bound worth telling.
    """

    interval_ns: NDArray[np.int64]
    words: NDArray[np.uint64]
    packets: NDArray[np.uint64]
    ticks: NDArray[np.uint64]
    flags: NDArray[np.uint32]
    stood: dict[str, NDArray[np.bool_]]


def difference(before: Rows, after: Rows, table: TargetTable) -> Steps:
    """Difference pairs of readings, each pair of one target.

    Args:
        before: Earlier readings, shape (N,).
        after: Later readings of the same targets, shape (N,).
        table: The targets.
    """
    at = after["target"]
    interval = after["time_ns"] - before["time_ns"]
    span = np.maximum(interval, 1).astype(np.float64)
    # gbps is bits in a nanosecond; a port of unknown rate is taken to be the fastest there is.
    gbps = np.where(table.gbps[at] > 0, table.gbps[at], 1000.0)
    most_bytes = gbps / 8 * span * _SLACK + 1e6
    tops = {"words": table.data_top[at], "packets": table.data_top[at], "wait": table.wait_top[at]}
    most = {
        "words": most_bytes / WORD_BYTES,
        "packets": most_bytes / _SMALLEST_PACKET_BYTES,
        "wait": span / table.tick_ns[at] * _SLACK + 1e5,
    }
    flags = after["flags"] & np.uint32(Flag.GAP | Flag.NO_COUNTER)
    delta: dict[str, NDArray[np.uint64]] = {}
    wrapped: dict[str, NDArray[np.bool_]] = {}
    stood: dict[str, NDArray[np.bool_]] = {}
    reset = np.zeros(len(after), np.bool_)
    for name, top in tops.items():
        old, new = before[name], after[name]
        fell = new < old
        # Unsigned arithmetic: top - old cannot be negative, and neither can what is kept of it.
        around = np.where(fell, top - old, 0).astype(np.float64) + new.astype(np.float64) + 1
        latched = (top == mads.ALL_ONES_32) & (new == top)
        full = (top == mads.ALL_ONES_32) & (old == top)
        stood[name] = full & latched
        wrapped[name] = fell & (around <= most[name]) & ~full
        reset |= fell & ~wrapped[name]
        delta[name] = np.where(fell, new, new - old)
        flags[latched] |= np.uint32(Flag.LATCHED | Flag.AT_LEAST)
    for name, top in tops.items():
        old, new = before[name], after[name]
        # Who sets one counter back sets them all back: then this one did not wrap either.
        wrap = wrapped[name] & ~reset
        delta[name] = np.where(wrap, (top - old) + new + np.uint64(1), delta[name])
        flags[wrap] |= np.uint32(Flag.WRAP)
    flags[reset] |= np.uint32(Flag.RESET | Flag.AT_LEAST)
    return Steps(interval, delta["words"], delta["packets"], delta["wait"], flags, stood)


def stall_fraction(
    steps: Steps, targets: NDArray[np.uint32], table: TargetTable
) -> NDArray[np.float64]:
    """Share of each interval with data and no credit (002, equation 3); NaN where not counted.

    It may pass 1 by the error of the readings' instants, as 002 explains with its table III.
    """
    stall = steps.ticks.astype(np.float64) * table.tick_ns[targets]
    share = stall / np.maximum(steps.interval_ns, 1)
    share[((steps.flags & int(Flag.NO_COUNTER)) != 0) | steps.stood["wait"]] = np.nan
    return np.asarray(share, np.float64)


def intervals_frame(before: Rows, after: Rows, table: TargetTable) -> pl.DataFrame:
    """Return pairs of readings as the common table of intervals.

    Pairs without a positive length (the clock was set back) are left out.
    """
    keep = after["time_ns"] > before["time_ns"]
    before, after = before[keep], after[keep]
    at = after["target"]
    steps = difference(before, after, table)
    counted = ((steps.flags & int(Flag.NO_COUNTER)) == 0) & ~steps.stood["wait"]
    share = stall_fraction(steps, at, table)
    gbps = table.gbps[at]
    names = np.array([t.node_name for t in table.targets], object)
    with np.errstate(divide="ignore", invalid="ignore"):
        used = steps.words.astype(np.float64) * WORD_BYTES * 8 / (gbps * steps.interval_ns)
    frame = pl.DataFrame(
        {
            "time_ns": after["time_ns"],
            "interval_ns": steps.interval_ns,
            "round": after["round"],
            "node_guid": table.guid[at],
            "port": table.port[at],
            "node_name": pl.Series(names[at], dtype=pl.String),
            "data_bytes": steps.words * np.uint64(WORD_BYTES),
            "packets": steps.packets,
            "xmit_wait_ticks": steps.ticks,
            "stall_ns": steps.ticks.astype(np.float64) * table.tick_ns[at],
            "stall_fraction": share,
            "utilization": used,
            "capacity_gbps": gbps,
            "flags": steps.flags,
            "source": pl.repeat(SOURCE, len(after), eager=True),
            "counted": counted,
            "sized": ~steps.stood["words"],
            "numbered": ~steps.stood["packets"],
        }
    )
    counted_only = ("xmit_wait_ticks", "stall_ns", "stall_fraction")
    rated_only = ("utilization", "capacity_gbps")
    frame = frame.with_columns(
        *(pl.when(pl.col("counted")).then(pl.col(c)).alias(c) for c in counted_only),
        *(pl.when(pl.col("capacity_gbps") > 0).then(pl.col(c)).alias(c) for c in rated_only),
        pl.when(pl.col("round") > 0).then(pl.col("round")).alias("round"),
    )
    frame = frame.with_columns(
        *(pl.when(pl.col("sized")).then(pl.col(c)).alias(c) for c in ("data_bytes", "utilization")),
        pl.when(pl.col("numbered")).then(pl.col("packets")).alias("packets"),
    ).drop("counted", "sized", "numbered")
    return conform(INTERVALS, frame)


def pairs(rows: Rows) -> tuple[Rows, Rows]:
    """Pair each reading with the one before it of the same target and round."""
    rows = rows[np.lexsort((rows["time_ns"], rows["round"], rows["target"]))]
    same = (rows["target"][1:] == rows["target"][:-1]) & (rows["round"][1:] == rows["round"][:-1])
    return rows[:-1][same], rows[1:][same]
