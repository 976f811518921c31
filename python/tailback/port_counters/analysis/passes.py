"""Passes over counter archives of any size: the contribution of a piece, and how to add them up.

An archive is processed piece by piece. A *pass* makes a small table of a piece, and the tables of
pieces are merged into one of the same shape, in any order. The same passes therefore run in this
process, one piece after the other, or on the workers of a cluster, and need memory only for a piece
and the small tables. An :class:`Engine` decides where pieces are processed. Passes do not depend on
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import polars as pl

from tailback.io.parquet import reading, scan_tables
from tailback.port_counters.schema import CounterError

SLICE_ROWS: Final = 1_000_000
"""Most rows of a piece: its sums take half a gigabyte."""

FAN_IN: Final = 16
"""How many contributions are added up at a time."""


@dataclass(frozen=True)
class Piece:
    """Some rows of an archive.

    Attributes:
        rows: The rows, not read yet.
        file: The file they are in, for error messages; None where there is none.
    """

    rows: pl.LazyFrame
    file: str | None = None


@dataclass(frozen=True)
class Aggregate:
    """One aggregate.

    Attributes:
        partial: Makes the contribution of a piece.
        merge: Adds up concatenated contributions.
        columns: Columns that ``partial`` needs; others are not read.
    """

    partial: Callable[[Piece], pl.LazyFrame]
    merge: Callable[[pl.LazyFrame], pl.LazyFrame]
    columns: tuple[str, ...] = field(default=())


class Engine(Protocol):
    """Processes pieces."""

    @property
    def ahead(self) -> int:
        """How many pieces it works on at a time."""
        ...

    def add_up(self, pieces: Sequence[Piece], passes: Sequence[Aggregate]) -> list[pl.DataFrame]:
        """The total of each pass over all pieces."""
        ...


def contributions(piece: Piece, passes: Sequence[Aggregate]) -> list[pl.DataFrame]:
    """The contribution of a piece to each pass; the piece is read once.

    Raises:
        CounterError: The file of the piece cannot be decoded.
    """
    if piece.file is None:
        return _contributions(piece, passes)
    cut = "the archive was cut or edited; its columns are in docs/how-to/counters.md"
    with reading(piece.file, error=CounterError, remedy=cut):
        return _contributions(piece, passes)


def _contributions(piece: Piece, passes: Sequence[Aggregate]) -> list[pl.DataFrame]:
    if len(passes) == 1:  # nothing to share: the reader of the file may leave rows out
        return pl.collect_all([passes[0].partial(piece)])
    wanted = dict.fromkeys(name for entry in passes for name in entry.columns)
    present = piece.rows.collect_schema().names()
    columns = [name for name in wanted if name in present]
    rows = piece.rows.select(columns) if columns else piece.rows
    held = Piece(rows.collect().lazy(), piece.file)
    return pl.collect_all([entry.partial(held) for entry in passes])


def added(
    parts: Iterable[Sequence[pl.DataFrame]], passes: Sequence[Aggregate]
) -> list[pl.DataFrame]:
    """Contributions of several pieces, each pass added up."""
    columns = zip(*parts, strict=True)
    return pl.collect_all(
        [
            entry.merge(pl.concat(frames).lazy()).select(frames[0].columns)
            for entry, frames in zip(passes, columns, strict=True)
        ]
    )


class LocalEngine:
    """Processes pieces in this process, one after the other, each on all cores."""

    ahead = 1

    def add_up(self, pieces: Sequence[Piece], passes: Sequence[Aggregate]) -> list[pl.DataFrame]:
        """The total of each pass over all pieces."""
        waiting: list[list[pl.DataFrame]] = []
        for piece in pieces:
            waiting.append(contributions(piece, passes))
            if len(waiting) == FAN_IN:
                waiting = [added(waiting, passes)]
        return added(waiting, passes)


LOCAL_ENGINE: Final = LocalEngine()


Prepare = Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True)
class Archive:
    """Rows that are processed piece by piece.

    Attributes:
        rows: All rows, lazily.
        files: The Parquet files they are in, in order, checked (``scan_tables``); empty where they
            come from elsewhere.
        prepare: Row-wise preparation of the rows of a file.
    """

    rows: pl.LazyFrame
    files: tuple[str, ...] = ()
    prepare: Prepare | None = None

    @staticmethod
    def of(rows: pl.LazyFrame | Archive) -> Archive:
        """``rows`` as an archive."""
        return rows if isinstance(rows, Archive) else Archive(rows)

    def then(self, more: Prepare) -> Archive:
        """The archive with a further row-wise transformation."""
        first = self.prepare
        both = more if first is None else partial(_both, first=first, second=more)
        return Archive(more(self.rows), self.files, both)

    def pieces(self) -> list[Piece]:
        """The pieces: slices of the files, or of the rows where there are none."""
        if not self.files:
            return [Piece(rows) for rows in _slices(self.rows)]
        return [piece for file in self.files for piece in self._of_file(file)]

    def _of_file(self, file: str) -> list[Piece]:
        prepare = self.prepare or (lambda rows: rows)
        table = scan_tables(file, error=CounterError, checked=True)
        with reading(file, error=CounterError):
            return [Piece(prepare(rows), file) for rows in _slices(table)]


def _slices(rows: pl.LazyFrame) -> list[pl.LazyFrame]:
    count = int(rows.select(pl.len()).collect(engine="streaming").item())
    return [rows.slice(start, SLICE_ROWS) for start in range(0, max(count, 1), SLICE_ROWS)]


def _both(rows: pl.LazyFrame, first: Prepare, second: Prepare) -> pl.LazyFrame:
    return second(first(rows))
