"""Large text files as bytes, and errors that name the file and the line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tailback.errors import TraceError
from tailback.io.delimited import shown
from tailback.io.input_files import TRACE_MEMORY, content, opened
from tailback.io.progress import report

_LONGEST_LINE = 1 << 24
_BINARY_MARK = b"\x1f"
"""The ASCII unit separator, which does not occur in text."""


@dataclass
class Text:
    """Concatenated text files; a row is a line number over all files, from 0.

    Attributes:
        data: The bytes of each file.
        files: The files.
        first: Row of the first line of each file.
    """

    data: list[bytes]
    files: list[Path]
    first: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.files) == 1:
            self.first = [0]

    def place(self, row: int) -> tuple[int, int]:
        """Number of the file and of the line in it, both from 0, of a row."""
        if not self.first:
            rows = 0
            for data in self.data:
                self.first.append(rows)
                rows += data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
        at = bisect_right(self.first, row) - 1
        return at, row - self.first[at]

    def fault(self, row: int, message: str, remedy: str | None = None) -> TraceError:
        """The error ``message`` about a row."""
        at, line = self.place(row)
        return TraceError(message, file=self.files[at], place=f"line {line + 1}", remedy=remedy)

    def quoted(self, row: int) -> str:
        """The line of a row, quoted and shortened for a message."""
        at, line = self.place(row)
        return shown(self.data[at].split(b"\n")[line].decode("utf-8", "replace").strip(" \t\r"))


def read_text(files: Iterable[Path]) -> Text:
    """Read text files, plain or gzip.

    Raises:
        TraceError: A file cannot be read, is not text, or is a damaged gzip file.
    """
    paths = list(files)
    return Text([_text(path) for path in paths], paths)


def pieces(path: Path, size: int = 1 << 18) -> Iterator[bytes]:
    """A text file, plain or gzip, in pieces of whole lines; only the last may lack its line end.

    The file is never in memory as a whole.

    Args:
        path: The file.
        size: Bytes to read at a time, before the rest of a line; by default few enough for a cache.

    Raises:
        TraceError: As :func:`read_text`; at the first piece that is damaged.
    """
    first, total = 0, path.stat().st_size
    with opened(path, TraceError, TRACE_MEMORY) as file:
        while data := file.read(size):
            piece = data + file.readline(_LONGEST_LINE)
            if len(piece) == len(data) + _LONGEST_LINE:
                raise TraceError(
                    "has a line of more than 16 MiB",
                    file=path,
                    place=f"byte {first}",
                    remedy="the file is damaged or of another format: copy it again",
                )
            _check_text(piece, path, first)
            first += len(piece)
            report(f"reading {path.name}", min(first / max(total, 1), 1.0))
            yield piece


def _text(path: Path) -> bytes:
    data = content(path, TraceError, TRACE_MEMORY)
    _check_text(data, path, 0)
    return data


def _check_text(data: bytes, path: Path, first: int) -> None:
    """Raise TraceError if bytes, which begin at byte ``first`` of a file, are not text."""
    byte = data.find(_BINARY_MARK)
    if byte < 0 and not data.isascii():
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = error.start
    if byte >= 0:
        raise TraceError(
            "is not text",
            file=path,
            place=f"byte {first + byte}",
            remedy="the file is damaged or of another format: copy it again",
        )
