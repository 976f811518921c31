"""Collections of ``tailback collect``: the intervals of finished segments.

``DIR/intervals/*.parquet`` holds rows of ``counter_intervals``, in order; a segment that is still
being written is not there yet. For the rounds of an InfiniBand study, give ``DIR/readings`` to
``analysis.rounds.scan``.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tailback.parquet import read_table, scan_tables
from tailback.port_counters.readers.model import CounterData
from tailback.port_counters.schema import INTERVALS, CounterError, conform
from tailback.port_counters.segment_digests import check, unchecked
from tailback.units import counted

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
        CounterError: Not a collection, or a file that is damaged or has other columns.
    """
    del time_ns
    if not sniff(path):
        raise CounterError(
            "no collection (it has no collection.json)", file=path,
            remedy="give the folder that 'tailback collect --out' wrote",
        )  # fmt: skip
    parts = []
    for file in interval_files(path):
        check(file)
        frame = read_table(file, error=CounterError, remedy=_REMEDY)
        try:
            parts.append(conform(INTERVALS, frame))
        except pl.exceptions.PolarsError as error:
            raise CounterError(f"damaged: {error}", file=file, remedy=_REMEDY) from None
        except CounterError as error:
            raise error.located(file) from None
    out = CounterData(notes=notes(path))
    if parts:
        out.intervals = pl.concat(parts)
    return out


def scan(path: Path) -> list[pl.LazyFrame]:
    """The tables of intervals, one per segment in order, lazily.

    Raises:
        CounterError: A file is not Parquet or has other columns.
    """
    out = []
    for file in interval_files(path):
        check(file)
        rows = scan_tables(file, error=CounterError, remedy=_REMEDY)
        try:
            # Checks the columns without reading rows.
            conform(INTERVALS, pl.DataFrame(schema=rows.collect_schema()))
        except pl.exceptions.PolarsError as error:
            raise CounterError(f"damaged: {error}", file=file, remedy=_REMEDY) from None
        except CounterError as error:
            raise error.located(file) from None
        out.append(rows)
    return out


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
