"""Lines of large text files as one column, and errors that name the file and the line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tailback.delimited import content, shown
from tailback.errors import TraceError

_NEVER = "\x1f"
"""A separator of columns that no text file holds."""


@dataclass(frozen=True)
class Lines:
    """Lines of one or several files, one file after the other, N of them.

    Attributes:
        text: Each line without blanks around it; null where there is nothing else, shape (N,).
        files: The files.
        first: Row of the first line of each file.
    """

    text: pl.Series
    files: list[Path]
    first: list[int]

    def place(self, row: int) -> tuple[Path, str]:
        """File and line of a row."""
        at = bisect_right(self.first, row) - 1
        return self.files[at], f"line {row - self.first[at] + 1}"

    def fault(self, row: int, message: str, remedy: str | None = None) -> TraceError:
        """The error ``message`` about a row."""
        file, place = self.place(row)
        return TraceError(message, file=file, place=place, remedy=remedy)

    def quoted(self, row: int) -> str:
        """The line of a row for a message: quoted, and cut where it is long."""
        return shown(self.text[row] or "")


def read_lines(
    files: Iterable[Path], change: Callable[[bytes], bytes] = lambda data: data
) -> Lines:
    """Read text files, plain or gzip.

    Args:
        files: The files.
        change: What to make of the bytes of each; must keep the ends of lines.

    Raises:
        TraceError: A file cannot be read, is not text, or is a damaged gzip file.
    """
    columns: list[pl.Series] = []
    paths, first = [], []
    rows = 0
    for path in files:
        column = _column(path, change)
        columns.append(column)
        paths.append(path)
        first.append(rows)
        rows += len(column)
    text = pl.concat(columns) if columns else pl.Series([], dtype=pl.String)
    text = text.str.strip_chars(" \t\r")
    return Lines(text.set(text == "", None), paths, first)


def _column(path: Path, change: Callable[[bytes], bytes]) -> pl.Series:
    data = change(content(path, TraceError))
    if not data:
        return pl.Series("line", [], dtype=pl.String)
    try:
        table = pl.read_csv(
            data, has_header=False, separator=_NEVER, quote_char=None, schema={"line": pl.String}
        )
    except pl.exceptions.PolarsError:
        byte = _first_strange(data)
        raise TraceError(
            "is not text", file=path, place=f"byte {byte}",
            remedy="the file is damaged or of another format: copy it again",
        ) from None  # fmt: skip
    return table.to_series()


def _first_strange(data: bytes) -> int:
    """The first byte that is not text."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return max(data.find(_NEVER.encode()), 0)
