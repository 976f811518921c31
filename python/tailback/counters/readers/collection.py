"""What ``tailback collect`` wrote: the intervals of its finished segments.

``DIR/intervals/*.parquet`` holds rows of ``counter_intervals``, in order; a segment that is still
being written is not there yet. For the rounds of an InfiniBand study, give ``DIR/readings`` to
``analysis.rounds.scan``.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tailback.counters.readers.model import Counters
from tailback.counters.schema import INTERVALS, CounterError, conform
from tailback.units import counted


def sniff(path: Path) -> bool:
    """A folder with ``collection.json``."""
    return path.is_dir() and (path / "collection.json").is_file()


def read(path: Path, *, time_ns: int | None = None) -> Counters:
    """Read a collection.

    Args:
        path: The folder given to ``tailback collect``.
        time_ns: Not needed: every row has its time.

    Raises:
        CounterError: A damaged file, or one with other columns.
    """
    del time_ns
    parts = []
    for file in sorted((path / "intervals").glob("*.parquet")):
        try:
            parts.append(conform(INTERVALS, pl.read_parquet(file)))
        except (OSError, pl.exceptions.PolarsError) as error:
            raise CounterError(f"damaged: {error}", file=file) from None
        except CounterError as error:
            raise error.located(file) from None
    out = Counters()
    if parts:
        out.intervals = pl.concat(parts)
    waiting = len(list((path / "segments").glob("*.segment")))
    if waiting:
        out.notes.append(
            f"{counted(waiting, 'segment')} not finished and left out; "
            "where no collector runs any more: tailback collect --compact"
        )
    return out
