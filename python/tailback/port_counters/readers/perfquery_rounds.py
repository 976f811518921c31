"""CSV of rounds of ``perfquery``, as Alali et al. (2017, sections III-B and III-C) collected them.

A *round* reads PortXmitWait of one port a hundred times; the counter is reset before. A row is one
call, with the fields of equation 1, in its order: start of the round, LID of the switch, port, time
of the query, turnaround, PortXmitWait. The merged file has the category of the switch and ``up`` or
``down`` before them (equation 2). Times of queries and turnarounds are nanoseconds, as in Table
III; the start of a round only identifies it. The paper names no header: a first row without numbers
is one.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Final

import polars as pl

from tailback.io.input_files import content, head, is_input_file
from tailback.port_counters.analysis.classes import CLASSES
from tailback.port_counters.readers.model import U32_MAX, CounterData
from tailback.port_counters.schema import INTERVALS, LID_NAME, CounterError, Flag, conform

HAS_TIME_STAMPS = True

_CLASS: Final = ("category", "port_type")
_CALL: Final = ("round", "lid", "port", "query", "turnaround", "wait")
_NUMBERS: Final = {
    "lid": 0xBFFF,
    "port": 255,
    "query": 2**62,
    "turnaround": 60 * 10**9,
    "wait": U32_MAX,
}
"""Fields with numbers, and the largest value of each; a query takes less than a minute."""
_ROUND: Final = ("round", "lid", "port")
_FIRST_NS: Final = 10**18
"""Smallest time of a query in nanoseconds since 1970: 2001. Seconds are far below."""
_MERGED: Final = re.compile(
    r"^(?:(?:ToR|(?:Glade|DAV)?(?:Leaf|Spine)),(?:up|down),)[^,\n]+,[0-9]+,[0-9]+,"
    r"[0-9.eE+]+,[0-9.eE+]+,[0-9]+\r?$",
    re.MULTILINE,
)


def sniff(path: Path) -> bool:
    """The merged file; the other one has nothing but numbers to be known by."""
    return is_input_file(path) and _MERGED.search(head(path, 4096)) is not None


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the calls of one file.

    Args:
        path: The file, plain or gzip.
        time_ns: Not needed: every row has its time. Given, it is added to all of them.

    Raises:
        CounterError: It has other fields, or a value is not a number; with line and column.
    """
    table, names = _table(path)
    calls = _numbered(path, table, names)
    at = pl.col("query") + pl.col("turnaround") // 2
    calls = calls.with_columns(time_ns=at + (time_ns or 0)).sort(*_ROUND, "time_ns")
    rise = pl.col("wait").diff().over(_ROUND)
    was_full = pl.col("wait").shift(1).over(_ROUND) == U32_MAX
    full = pl.col("wait") == U32_MAX
    flags = (
        pl.when(rise < 0)
        .then(int(Flag.RESET | Flag.AT_LEAST))
        .when(full)
        .then(int(Flag.LATCHED | Flag.AT_LEAST))
        .otherwise(0)
    )
    rows = calls.with_columns(
        interval_ns=pl.col("time_ns").diff().over(_ROUND),
        xmit_wait_ticks=pl.when((rise >= 0) & ~(full & was_full)).then(rise),
        flags=flags,
        node_name=pl.format(LID_NAME, "lid"),
        source=pl.lit("perfquery rounds"),
    ).filter(pl.col("interval_ns") > 0)
    columns = [name for name in INTERVALS.polars_schema if name in rows.columns]
    intervals = conform(INTERVALS, rows.select(columns))
    if _CLASS[0] not in names:
        return CounterData(intervals=intervals)
    classes = rows.select("node_name", "port", *_CLASS, link=None).unique(maintain_order=True)
    return CounterData(
        intervals=intervals,
        classes=classes.select(pl.col(name).cast(dtype) for name, dtype in CLASSES.items()),
    )


def _table(path: Path) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The fields as text, with the number of their line, and their names."""
    data = content(path, CounterError)
    try:
        table = pl.read_csv(io.BytesIO(data), has_header=False, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise CounterError(
            f"is no CSV with equally many fields a line: {str(error).splitlines()[0]}", file=path
        ) from None
    layouts = {len(_CALL): _CALL, len(_CLASS + _CALL): _CLASS + _CALL}
    names = layouts.get(table.width)
    if names is None:
        raise CounterError(
            f"{table.width} fields a line, not 6 or 8",
            file=path,
            place="line 1",
            remedy=f"write {', '.join(_CALL)}, if known after category and up or down",
        )
    table = table.rename(dict(zip(table.columns, names, strict=True))).with_row_index("line", 1)
    starts_with_header = table["wait"][0] is None or not re.search("[0-9]", table["wait"][0])
    return table[1:] if starts_with_header else table, names


def _numbered(path: Path, table: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
    """The table with numbers; raises CounterError at the first field that is none."""
    integers = table.with_columns(
        # Written as a float, a time has the precision of its digits.
        pl.coalesce(
            pl.col(name).str.strip_chars().cast(pl.Int64, strict=False),
            pl.col(name)
            .str.strip_chars()
            .cast(pl.Float64, strict=False)
            .cast(pl.Int64, strict=False),
        ).alias(name)
        for name in _NUMBERS
    )
    for name, largest in _NUMBERS.items():
        least = _FIRST_NS if name == "query" else 0
        wrong = ~pl.col(name).is_between(least, largest).fill_null(False)
        if not (bad := integers.filter(wrong)).is_empty():
            line = int(bad["line"][0])
            text = table.filter(pl.col("line") == line)[name][0]
            raise CounterError(
                f"{name} {str(text)[:40]!r} is not {least} to {largest}",
                file=path,
                place=f"line {line}, column {names.index(name) + 1}",
                remedy="queries and turnarounds are nanoseconds, PortXmitWait has 32 bits",
            )
    return integers
