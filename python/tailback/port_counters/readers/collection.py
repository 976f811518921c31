"""Collections of ``tailback collect``: the intervals of finished segments.

``DIR/intervals/*.parquet`` holds rows of ``counter_intervals``, in order. A segment that is still
being written is not among them. For the rounds of an InfiniBand study, give ``DIR/readings`` to
``analysis.rounds.scan``.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from tailback.io.input_files import text_content
from tailback.io.parquet import read_table, reading, scan_tables
from tailback.port_counters.changes import changes_of
from tailback.port_counters.findings import port_events
from tailback.port_counters.findings.port_events import meaning_of
from tailback.port_counters.readers.model import CounterData
from tailback.port_counters.schema import INTERVALS, CounterError, conform
from tailback.port_counters.segment_digests import FOLDER, check, left_out, unchecked
from tailback.port_counters.targets import PORTS
from tailback.units import counted, format_time, utc

HAS_TIME_STAMPS = True

_REMEDY = "move the file out of the folder; the other segments can be read without it"


def sniff(path: Path) -> bool:
    """A folder with ``collection.json``."""
    return path.is_dir() and (path / "collection.json").is_file()


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read a collection.

    Args:
        path: The folder given to ``tailback collect``.
        time_ns: Not needed: every row has its time.

    Raises:
        CounterError: Not a collection, or none of its tables can be read.
    """
    del time_ns
    if not sniff(path):
        raise CounterError(
            "no collection (it has no collection.json)",
            file=path,
            remedy="give the folder that 'tailback collect --out' wrote",
        )
    tables, missing = scan(path)
    out = CounterData(notes=[*missing, *notes(path)])
    out.events, out.unknown, problems = errors(path)
    out.notes += problems
    if tables:
        with reading(path, error=CounterError, remedy=_REMEDY):
            out.intervals = pl.concat([conform(INTERVALS, rows.collect()) for _, rows in tables])
    return out


def scan(path: Path) -> tuple[list[tuple[Path, pl.LazyFrame]], list[str]]:
    """The tables of intervals in order, one a segment, lazily.

    Damaged tables are left out if others can be read.

    Returns:
        Each file and its rows; and notes that name the tables that are damaged or missing, with the
        time that no table covers.

    Raises:
        CounterError: No table can be read.
    """
    tables: list[tuple[Path, pl.LazyFrame]] = []
    problems: list[CounterError] = []
    other_names: dict[str, None] = {}
    files = interval_files(path)
    for file in files:
        try:
            tables.append((file, _table(file, other_names)))
        except CounterError as error:
            problems.append(error)
    if problems and not tables:
        raise problems[0]
    present = {file.stem for file in files}
    listed = {file.stem for file in (path / FOLDER).glob("*.json")}
    numbers = [int(stem) for stem in present if stem.isdecimal()]
    between = {f"{n:06d}" for n in range(min(numbers, default=0), max(numbers, default=0))}
    absent = (listed | between) - present
    gaps = _gaps(tables, {*absent, *(file.stem for file in files)}) if absent or problems else {}
    out = [left_out(error) for error in problems]
    if other_names:
        out.append(f"columns of another version, not used: {', '.join(other_names)}")
    for stem in sorted(absent):
        if stem in listed or stem in gaps:
            out.append(f"segment {stem} is missing: it was moved or deleted")
    out += list(dict.fromkeys(gaps.values()))
    return tables, out


def _table(file: Path, other_names: dict[str, None]) -> pl.LazyFrame:
    """The rows of a table, lazily, with the columns that are known; ``other_names`` gets others.

    Raises:
        CounterError: It is damaged, or a column has another type.
    """
    check(file)
    rows = scan_tables(file, error=CounterError, remedy=_REMEDY)
    try:
        # Checks the types of columns without reading rows.
        names = rows.collect_schema().names()
        other_names |= dict.fromkeys(n for n in names if n not in INTERVALS.polars_schema)
        rows = rows.drop(other_names, strict=False)
        if not {"time_ns", "interval_ns"} <= set(names):
            raise CounterError("has no times", remedy=_REMEDY)
        conform(INTERVALS, pl.DataFrame(schema=rows.collect_schema()))
    except pl.exceptions.PolarsError as error:
        raise CounterError(f"damaged: {error}", file=file, remedy=_REMEDY) from None
    except CounterError as error:
        raise error.located(file) from None
    return rows


def _gaps(tables: list[tuple[Path, pl.LazyFrame]], stems: set[str]) -> dict[str, str]:
    """A note on the time that no table covers, for each segment without one that lies in it.

    The intervals of a segment begin with the last readings before it, so between the tables of
    consecutive segments no time is uncovered.
    """
    out: dict[str, str] = {}
    end, last = None, ""
    for file, rows in tables:
        with reading(file, error=CounterError, remedy=_REMEDY):
            begin = (pl.col("time_ns") - pl.col("interval_ns")).min()
            times = rows.select(begin=begin, end=pl.col("time_ns").max())
            begins, ends = times.collect(engine="streaming").row(0)
        within = {stem for stem in stems if last < stem < file.stem}
        if end is not None and begins is not None and begins > end and within:
            hole = f"no counters for {format_time(1000 * (begins - end))} from {utc(end)} on"
            out |= dict.fromkeys(within, hole)
        end = ends if end is None or (ends is not None and ends > end) else end
        last = file.stem
    return out


def changes(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Changes of links and devices that a collection recorded, in order.

    Returns:
        Rows of ``changes.LINK_CHANGES``; and notes on damaged files.
    """
    events: list[dict[str, object]] = []
    problems = []
    for file in sorted((path / "events").glob("*.jsonl")):
        try:
            check(file)
            text = text_content(file, CounterError)
            mine = [json.loads(line) for line in text.splitlines() if line.strip()]
            changes_of(mine)
            events += mine
        except (CounterError, ValueError, AttributeError, RecursionError) as error:
            problems.append(f"left out: events/{file.name}: {getattr(error, 'message', error)}")
    return changes_of(events), problems


def fabric_ports(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """The latest ports that a collection read. Collections of earlier versions have none.

    Returns:
        Rows of ``targets.PORTS``; and notes on damaged tables.
    """
    tables, problems = [pl.DataFrame(schema=PORTS.polars_schema)], []
    for file in sorted((path / "ports").glob("*.parquet")):
        try:
            check(file)
            tables.append(read_table(file, error=CounterError).select(*PORTS.polars_schema))
        except (CounterError, pl.exceptions.PolarsError) as error:
            problems.append(f"left out: ports/{file.name}: {getattr(error, 'message', error)}")
    ports = pl.concat(tables).unique(["node_guid", "port"], keep="last", maintain_order=True)
    return ports, problems


def errors(path: Path) -> tuple[pl.DataFrame, list[str], list[str]]:
    """Counters of errors of the ports of a collection.

    Returns:
        Rows of ``port_events.READINGS``; counters that rose and have no meaning; and notes on
        tables that are damaged or missing.
    """
    tables = [pl.DataFrame(schema=port_events.READINGS)]
    problems: list[str] = []
    folder = path / "errors"
    files = {file.stem: file for file in interval_files(path)} | {
        file.stem: file for file in folder.glob("*.parquet")
    }
    for stem in sorted(files):
        file = folder / f"{stem}.parquet"
        try:
            check(file)
            columns = (pl.col(name).cast(dtype) for name, dtype in port_events.READINGS.items())
            tables.append(read_table(file, error=CounterError).select(columns))
        except (CounterError, pl.exceptions.PolarsError) as error:
            problems.append(f"errors/{file.name}: {getattr(error, 'message', str(error))}")
    rows = pl.concat(tables)
    counters = rows["counter"].unique().sort().to_list()
    notes = [
        f"{counted(len(problems), 'segment')} without counters of errors: {problem}"
        for problem in problems[:1]
    ]
    return rows, [name for name in counters if meaning_of(name) is None], notes


def interval_files(path: Path) -> list[Path]:
    """The files of the tables of intervals, in order."""
    return sorted((path / "intervals").glob("*.parquet"))


def notes(path: Path) -> list[str]:
    """Notes on a collection: segments left out, segments that cannot be checked."""
    return [*unfinished(path), *unchecked(path)]


def unfinished(path: Path) -> list[str]:
    """A note on segments without a table yet, if there are any."""
    waiting = len(list((path / "segments").glob("*.segment")))
    if not waiting:
        return []
    return [
        f"{counted(waiting, 'segment')} not finished and left out; "
        "where no collector runs any more: tailback collect --compact"
    ]
