"""Plausibility of the instants of readings, for formats without time stamps.

The output of perfquery has no time stamp. The modification time of the file replaces it, but
copying changes that. The user may instead give the order of the files and the time between them.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from tailback.errors import option
from tailback.names.ports import some_ports
from tailback.port_counters.analysis.intervals import KEY, in_order
from tailback.port_counters.increments import stopped_at, with_widths
from tailback.port_counters.schema import CounterError, Flag
from tailback.units import format_time

Instants = Literal["recorded", "written", "every"]
"""Source of the instants: recorded in the file, its modification time, or the user."""


def _remedy(instants: Instants) -> str:
    order = "the files in the order in which they were read"
    if instants == "every":
        return f"give {order}, and {option('every_ns')} as it was"
    return (
        f"copying a file changes its time: give {option('every_ns')}, the time from one reading "
        f"to the next like 60 s, and {order}"
    )


def check(readings: pl.DataFrame, intervals: pl.DataFrame, instants: Instants) -> None:
    """Refuse readings whose instants are impossible.

    Args:
        readings: Rows of ``READINGS``.
        intervals: What :func:`difference` makes of them.
        instants: Where the instants come from; recorded ones are not checked.

    Raises:
        CounterError: Two readings of a port have the same instant, or most active ports would have
            sent or stalled more than the time allows.
    """
    if instants == "recorded":
        return
    if instants == "written":
        twice = readings.filter(pl.struct(*KEY, "time_ns").is_duplicated())
        if twice.height:
            raise CounterError(
                f"two readings of {some_ports(twice, 1)} are in files written at the same instant",
                remedy=_remedy(instants),
            )
    done = pl.max_horizontal("utilization", "stall_fraction")
    ports = (
        intervals.group_by("node_guid", "node_name", "port", "interface")
        .agg(
            done=done.max(),
            shortest=pl.col("interval_ns").filter(_rose_too_much() | _fell_too_little()).min(),
            rose=_rose_too_much().any(),
            fell=_fell_too_little().any(),
        )
        .filter((pl.col("done") > 0) | pl.col("rose") | pl.col("fell"))
    )
    wrong = ports.filter(pl.col("rose") | pl.col("fell")).sort("rose", "node_name", "port")
    if 2 * wrong.height <= ports.height:
        return
    most = wrong.row(-1, named=True)
    example = f"{some_ports(wrong[-1])} within {format_time(1000 * most['shortest'])}"
    if most["fell"]:
        raise CounterError(
            f"{wrong.height} of {ports.height} active ports have counters that fell, yet show more "
            f"than they can have counted since a reset: {example}",
            remedy=_remedy(instants),
        )
    raise CounterError(
        f"{wrong.height} of {ports.height} active ports sent or stalled more than is possible "
        f"between two readings, like {example}",
        remedy=_remedy(instants),
    )


def note_decreasing_counters(intervals: pl.DataFrame, instants: Instants) -> list[str]:
    """A note on pairs of consecutive files in which most counters fell.

    Either the counters were reset between the files, or the files are in the wrong order and every
    number of such a step is wrong.

    Args:
        intervals: What :func:`difference` makes of the readings.
        instants: Where the instants come from; recorded ones give no note.
    """
    if instants == "recorded":
        return []
    fell = (pl.col("flags") & int(Flag.RESET)) != 0
    steps = intervals.group_by("time_ns").agg(fell=fell.mean())
    back = steps.filter(pl.col("fell") > 0.5).height
    if not back:
        return []
    return [
        f"in {back} of {steps.height} steps from one file to the next most counters "
        f"fell: correct if they were reset; otherwise {_remedy(instants)}"
    ]


def note_clock_steps(readings: pl.DataFrame) -> list[str]:
    """A note on ports whose clock was set back between two readings."""
    rows = in_order(readings)
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in KEY)
    back = rows.filter(same & (pl.col("time_ns") < pl.col("time_ns").shift(1)))
    if back.is_empty():
        return []
    ports = back.unique(["node_guid", "node_name", "port"], maintain_order=True)
    return [
        f"ports whose clock was set back: {ports.height}, like {some_ports(ports)}; there is no "
        "interval across the step"
    ]


def _rose_too_much() -> pl.Expr:
    """Whether a counter rose by more than the port can do in the time."""
    return (pl.col("flags") & int(Flag.IMPOSSIBLE | Flag.DATA_IMPOSSIBLE)) != 0


def _fell_too_little() -> pl.Expr:
    """Whether a counter fell, but to more than can have been counted since.

    It then gives no number.
    """
    flags = pl.col("flags")

    def earned(low: Flag, number: str) -> pl.Expr:
        bits = int(Flag.RESET | low)
        return ((flags & bits) == bits) & pl.col(number).is_null()

    latched = (flags & int(Flag.LATCHED | Flag.DATA_LATCHED)) != 0
    data = earned(Flag.DATA_AT_LEAST, "data_bytes")
    return ~latched & (data | earned(Flag.AT_LEAST, "xmit_wait_ticks"))


def read_once(readings: pl.DataFrame) -> pl.DataFrame:
    """Ports that have one reading, so that they give no rate."""
    reading_counts = readings.group_by(*KEY).agg(n=pl.col("time_ns").n_unique())
    return reading_counts.filter(pl.col("n") == 1).sort("node_name", "port")


def note_single_readings(readings: pl.DataFrame) -> list[str]:
    """A note on these ports while others have more; of all ports, on their full stall counters."""
    once = read_once(readings)
    if once.is_empty():
        return []
    if once.height == readings.select(KEY).n_unique():
        full = (
            with_widths(readings.lazy(), KEY)
            .filter(stopped_at(pl.col("xmit_wait_ticks"), pl.col("wait_limit")))
            .collect()
        )
        if full.is_empty():
            return []
        return [
            f"ports whose stall counter is full: {full.height}, like "
            f"{some_ports(full.sort('node_name', 'port'))}: they waited for credit longer than it "
            "can count; when is not known"
        ]
    return [
        f"ports with only one reading, which gives no rate: {once.height}, like {some_ports(once)}"
    ]
