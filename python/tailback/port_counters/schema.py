"""The common tables of port counters, whatever collected them: readings and intervals.

A *reading* has the values of a port's counters at one instant, cumulative since the last reset. An
*interval* is a port's activity between two readings. Collectors and most readers give readings.
``tailback.port_counters.analysis.intervals.difference`` turns them into intervals, the input of
every analysis. Simulated runs and derived LDMS columns give intervals directly. A value that the
source does not have is null, never zero. A flag marks lower bounds.
"""

from __future__ import annotations

from enum import IntFlag, unique
from typing import Final

import polars as pl

from tailback.errors import TailbackError
from tailback.run.schema import Column, Table, type_name

U64_MAX: Final = 2**64 - 1
U32_MAX: Final = 2**32 - 1
WORD_BYTES: Final = 4
"""InfiniBand counts data in words of four octets (InfiniBand Architecture, vol. 1, 16.1.3)."""


class CounterError(TailbackError):
    """Port counters that cannot be read, or that do not hold what an analysis needs."""


LID_NAME: Final = "lid {}"
"""Name of a device of which a source states the local identifier only."""


@unique
class Flag(IntFlag):
    """Properties of a reading or an interval; the ``flags`` column is their sum.

    Attributes:
        AT_LEAST: The stall of this row is a lower bound.
        WRAP: A counter wrapped at its maximum to 0; the number is corrected.
        RESET: A counter was reset; the number counts from the reset (a lower bound).
        GAP: Readings are missing within the interval.
        LATCHED: The stall counter has stopped at its maximum (the stall is a lower bound).
        NO_COUNTER: The device lacks a counter that its kind normally has.
        STALE: The device was not read: the values are those of the previous reading.
        DATA_AT_LEAST: The bytes or packets of this row are a lower bound.
        RATE_CHANGED: The port changed speed within the interval; shares refer to the new speed.
        IMPOSSIBLE: A stall counter rose by more than the time allows; its number is left out.
        DATA_IMPOSSIBLE: Bytes or packets rose by more than the link can carry; left out.
        DATA_LATCHED: The counter of bytes or packets has stopped at its maximum.
    """

    AT_LEAST = 1
    WRAP = 2
    RESET = 4
    GAP = 8
    LATCHED = 16
    NO_COUNTER = 32
    STALE = 64
    DATA_AT_LEAST = 128
    RATE_CHANGED = 256
    IMPOSSIBLE = 512
    DATA_IMPOSSIBLE = 1024
    DATA_LATCHED = 2048


def _columns(*columns: tuple[str, type[pl.DataType], str]) -> tuple[Column, ...]:
    return tuple(Column(*column) for column in columns)


_PLACE = _columns(
    ("node_guid", pl.UInt64, "GUID of the node or switch, 0 where the source does not give it"),
    ("port", pl.UInt16, "port number, as printed on the device"),
    ("node_name", pl.String, "name of the node or switch, as the source gives it"),
    ("link", pl.UInt32, "directed link that leaves the port, null when no fabric was given"),
    ("direction", pl.String, "X+ … Z- on a torus, up, down or flat in a fat tree, null unknown"),
    ("interface", pl.String, "name of the interface, null if ports have only numbers"),
)

READINGS: Final = Table(
    "counter_readings",
    "one port's counters at one instant",
    (
        *_columns(
            ("time_ns", pl.Int64, "estimated instant of the reading, UTC nanoseconds since 1970"),
            ("turnaround_ns", pl.UInt64, "time from the query to its answer, null unknown"),
        ),
        *_PLACE,
        *_columns(
            ("data_bytes", pl.UInt64, "bytes sent since the last reset"),
            ("data_limit", pl.UInt64, "largest value of data_bytes, null unknown"),
            ("packets", pl.UInt64, "packets sent since the last reset"),
            ("packets_limit", pl.UInt64, "largest value of packets, null unknown"),
            ("received_bytes", pl.UInt64, "bytes received; stops where data_bytes does"),
            ("received_packets", pl.UInt64, "packets received; stops where packets does"),
            ("xmit_wait_ticks", pl.UInt64, "ticks with data but no credit since the last reset"),
            ("wait_limit", pl.UInt64, "largest value of xmit_wait_ticks, null unknown"),
            ("tick_ns", pl.Float64, "least length of a tick in nanoseconds, null unknown"),
            ("tick_high_ns", pl.Float64, "longest that a tick may be, null if tick_ns is exact"),
            ("stall_ns", pl.UInt64, "time with data but no credit, if the device counts time"),
            ("paused_ns", pl.UInt64, "time that pause frames of the far end stopped the port"),
            ("pause_frames", pl.UInt64, "pause frames received since the last reset"),
            ("internal_stall_ns", pl.UInt64, "time data waited in an input buffer for its output"),
            ("lanes", pl.UInt32, "tiles or lanes that the stall times are summed over, null = 1"),
            ("backlog_bytes", pl.UInt64, "bytes in the port's queue at this instant (Ethernet)"),
            ("drops", pl.UInt64, "packets dropped at the port's queue since the last reset"),
            ("overlimits", pl.UInt64, "packets delayed by the port's shaper since the reset"),
            ("capacity_gbps", pl.Float64, "data rate of the port, gigabits per second"),
            ("flags", pl.UInt32, "sum of Flag values"),
            ("source", pl.String, "what it was read from"),
        ),
    ),
)

INTERVALS: Final = Table(
    "counter_intervals",
    "what one port did between two instants",
    (
        *_columns(
            ("time_ns", pl.Int64, "end of the interval, UTC nanoseconds since 1970"),
            ("interval_ns", pl.Int64, "length of the interval"),
        ),
        *_PLACE,
        *_columns(
            ("data_bytes", pl.UInt64, "bytes sent"),
            ("packets", pl.UInt64, "packets sent"),
            ("received_bytes", pl.UInt64, "bytes received, null unless exact"),
            ("received_packets", pl.UInt64, "packets received, null unless exact"),
            ("xmit_wait_ticks", pl.UInt64, "ticks with data but no credit, null if not a tick"),
            ("stall_ns", pl.Float64, "time with data but no credit, nanoseconds"),
            (
                "stall_fraction",
                pl.Float64,
                "stall_ns over interval_ns: can exceed 1 through timing",
            ),
            (
                "stall_high_fraction",
                pl.Float64,
                "the most it may be, by the longest possible tick; null if the tick is known",
            ),
            (
                "paused_fraction",
                pl.Float64,
                "share of time paused by the far end: part of the stall",
            ),
            ("pause_frames", pl.UInt64, "pause frames received"),
            (
                "latched_stall_ns",
                pl.Float64,
                "stall since the last reset that a latched counter shows",
            ),
            ("internal_stall_fraction", pl.Float64, "share of time waiting inside the router"),
            ("utilization", pl.Float64, "data sent over what the capacity allows"),
            (
                "backlog_before_bytes",
                pl.UInt64,
                "bytes in the port's queue when it began (Ethernet)",
            ),
            ("backlog_bytes", pl.UInt64, "bytes in the port's queue when it ended"),
            ("drops", pl.UInt64, "packets dropped at the port's queue"),
            ("overlimits", pl.UInt64, "packets delayed by the port's shaper"),
            ("capacity_gbps", pl.Float64, "data rate of the port, gigabits per second"),
            ("flags", pl.UInt32, "sum of Flag values"),
            ("source", pl.String, "what it was read from"),
        ),
    ),
)


ETHERNET: Final = "ethernet csv"
"""Source of the rows of Ethernet interfaces, which may have queues and drops but no stalls."""

SIMULATED: Final = "simulation"
"""Source of simulated rows: the engine counts a packet as a whole, so no time bound applies."""

ROUNDING: Final = 1e-12
"""Relative rounding error of a percentage: in floats, 100 times 0.07 is above 7."""


def conform(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``frame`` with exactly the columns and types of ``table``.

    Columns that are missing are null (``flags`` 0, ``node_guid`` 0, ``node_name`` empty).

    Args:
        table: ``READINGS`` or ``INTERVALS``.
        frame: Any subset of its columns.

    Raises:
        CounterError: A column is not in the table or cannot be converted.
    """
    schema = table.polars_schema
    for column in frame.columns:
        if column not in schema:
            raise CounterError(
                f"table {table.name!r} has no column {column!r}",
                remedy="its columns are: " + ", ".join(schema),
            )
    if frame.height == 0:
        return pl.DataFrame(schema=schema)
    empty: dict[str, object] = {"flags": 0, "node_guid": 0, "node_name": ""}
    try:
        return frame.select(
            pl.col(name).cast(dtype)
            if name in frame.columns
            else pl.lit(empty.get(name), dtype).alias(name)
            for name, dtype in schema.items()
        )
    except pl.exceptions.PolarsError as error:
        raise CounterError(f"table {table.name!r}: {error}") from None


def ends_with_full_stall_counter() -> pl.Expr:
    """Which rows of ``counter_intervals`` end with a stall counter at its largest value (Boolean).

    Such a row gives a lower bound of the stall, or none where the counter stood there all the time.
    """
    latched, impossible = int(Flag.LATCHED), int(Flag.IMPOSSIBLE)
    return (pl.col("flags") & (latched | impossible)) == latched


def counter_is_full(key: str) -> pl.Expr:
    """Which rows end with a full stall counter that is plausible (Boolean).

    Args:
        key: Column that identifies ports. The counter of a port is implausible if it ever rose by
            more than time allows.
    """
    jumped = ((pl.col("flags") & int(Flag.IMPOSSIBLE)) > 0).any().over(key)
    return ends_with_full_stall_counter() & ~jumped


def exact_data(*columns: str) -> pl.Expr:
    """Columns of bytes or packets of ``counter_intervals``, null where they are lower bounds."""
    flags = pl.col("flags").fill_null(0)
    return pl.when((flags & int(Flag.DATA_AT_LEAST)) == 0).then(pl.col(*columns))


def lost_gbps(stall_fraction: pl.Expr, capacity_gbps: pl.Expr) -> pl.Expr:
    """Bandwidth that a port lost to stalls, Gb/s."""
    return stall_fraction.clip(0.0, 1.0) * capacity_gbps


def markdown() -> str:
    """The two tables as Markdown for the documentation."""
    lines = [
        "## Port counters",
        "",
        "Collections and archives of [port counters](../how-to/counters.md) have two tables.",
        "",
    ]
    for table in (READINGS, INTERVALS):
        lines += [f"### {table.name}", "", f"A row is {table.row}.", ""]
        lines += ["| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{c.name}` | {type_name(c.dtype)} | {c.meaning} |" for c in table.columns]
        lines.append("")
    lines += ["### flags", "", "| bit | value | meaning |", "|---|---|---|"]
    meaning = dict(
        line.strip().split(": ", 1)
        for line in (Flag.__doc__ or "").splitlines()
        if ": " in line and line.strip().split(":")[0].isupper()
    )
    lines += [f"| `{flag.name}` | {flag.value} | {meaning[flag.name or '']} |" for flag in Flag]
    return "\n".join([*lines, ""])
