"""The course of stalls: how long each port stalled in each of some bins of time."""

from __future__ import annotations

from functools import partial
from typing import Final

import polars as pl

from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Aggregate, Archive, Engine, Piece
from tailback.run.schema import Column, Table

MOST_BINS: Final = 84
"""Bins of a long course: two hours each in a week."""

_PORT: Final = ("node_guid", "node_name", "port")

COURSE: Final = Table(
    "stall_course",
    "a port in a bin of time in which it stalled",
    (
        Column("node_guid", pl.UInt64, "GUID of the device"),
        Column("node_name", pl.String, "name of the device"),
        Column("port", pl.UInt16, "port number"),
        Column("bin", pl.Int64, "number of the bin, from 0"),
        Column("stalled_ns", pl.Float64, "time stalled, of intervals that end in the bin"),
    ),
)


def stall_course(
    rows: pl.LazyFrame | Archive,
    start_ns: int,
    end_ns: int,
    engine: Engine = LOCAL_ENGINE,
    bins: int = MOST_BINS,
) -> pl.DataFrame:
    """How long each port stalled in each bin.

    Args:
        rows: Rows of ``counter_intervals``.
        start_ns: Begin of the first bin.
        end_ns: End of the last.
        engine: Processes the pieces.
        bins: Number of bins.

    Returns:
        Rows of :data:`COURSE`, by port and bin.
    """
    length = max((end_ns - start_ns) / bins, 1.0)
    counted = partial(_count_stalls, start_ns=start_ns, length=length, bins=bins)
    columns = (*_PORT, "time_ns", "interval_ns", "stall_fraction")
    aggregate = Aggregate(counted, _add_stalls, columns)
    total = engine.add_up(Archive.of(rows).pieces(), [aggregate])[0]
    return total.select(*COURSE.polars_schema).sort(*_PORT, "bin")


def bins_of(ports: pl.DataFrame) -> int:
    """Number of bins: none is shorter than an interval.

    Args:
        ports: Table of ``verdict.by_port``.
    """
    intervals = ports["intervals"].max()
    return max(min(MOST_BINS, intervals if isinstance(intervals, int) else 1), 1)


def _count_stalls(piece: Piece, start_ns: int, length: float, bins: int) -> pl.LazyFrame:
    at = ((pl.col("time_ns") - 1 - start_ns) / length).floor().clip(0, bins - 1).cast(pl.Int64)
    share = pl.col("stall_fraction").clip(0.0, 1.0)
    return (
        piece.rows.filter(pl.col("stall_fraction") > 0)
        .group_by(*_PORT, bin=at)
        .agg(stalled_ns=(share * pl.col("interval_ns")).sum().cast(pl.Float64))
    )


def _add_stalls(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts.group_by(*_PORT, "bin").agg(pl.col("stalled_ns").sum())
