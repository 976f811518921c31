"""The only module that opens Parquet files: a damaged one becomes a Tailback error.

Before a file is decoded, its footer gives the memory needed: a file of kilobytes can contain
gigabytes of equal values. On a damaged file polars raises an exception, or its Rust code panics,
which is not an ``Exception`` and prints to standard error; neither reaches the user.

The footer is Thrift in the compact protocol; the field numbers are those of ``parquet.thrift`` in
the Apache Parquet format specification.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import polars as pl

from tailback.errors import TailbackError
from tailback.io.input_files import regular_file, require_memory_for
from tailback.io.manifest import require_unchanged

_MAGIC: Final = b"PAR1"
_MAX_FOOTER_BYTES: Final = 64 << 20
_MAX_DEPTH: Final = 32
_MAX_HEADER_BYTES: Final = 64 << 10
_VALUE_BYTES: Final = (1, 4, 8, 12, 4, 8, 16, 16)
"""Memory per value by physical type; text and bytes are 16-byte views into a buffer."""
_COPIES: Final = 2
"""Copies of a table at the peak: the decoded columns, and the same after conversion."""


@dataclass(frozen=True)
class Footer:
    """The footer of a file.

    Attributes:
        rows: Number of rows.
        row_group_bytes: Memory of each row group when decoded.
    """

    rows: int
    row_group_bytes: tuple[int, ...]

    @property
    def table_bytes(self) -> int:
        """Peak memory of reading the whole table."""
        return _COPIES * sum(self.row_group_bytes)


def read_table(
    path: str | Path, *, error: type[TailbackError] = TailbackError, remedy: str | None = None
) -> pl.DataFrame:
    """Read a Parquet file.

    Args:
        path: The file.
        error: What to raise.
        remedy: What to do about a damaged file.

    Raises:
        TailbackError: Of type ``error``: the file is missing or damaged, or needs more memory than
            one input may take; names the file.
    """
    path = Path(path)
    require_unchanged(path)
    with reading(path, error=error, remedy=remedy):
        _require_file(path, error)
        require_memory_for(path, footer(path).table_bytes, error)
        return pl.read_parquet(path)


def scan_tables(
    paths: str | Path | Sequence[Path],
    *,
    error: type[TailbackError] = TailbackError,
    remedy: str | None = None,
    checked: bool = False,
) -> pl.LazyFrame:
    """Open Parquet files without reading their rows; collect them within :func:`reading`.

    Args:
        paths: The files.
        error: What to raise.
        remedy: What to do about a damaged file.
        checked: They were opened here before: the headers of their pages need not be read again.

    Raises:
        TailbackError: As :func:`read_table`; the memory counted is that of a single row group.
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else list(paths)
    for path in () if checked else files:
        require_unchanged(path)
        with reading(path, error=error, remedy=remedy):
            _require_file(path, error)
            require_memory_for(path, max(footer(path).row_group_bytes, default=0), error)
    with reading(files[0] if len(files) == 1 else files[0].parent, error=error, remedy=remedy):
        frame = pl.scan_parquet(files)
        frame.collect_schema()
        return frame


@contextmanager
def reading(
    path: str | Path, *, error: type[TailbackError] = TailbackError, remedy: str | None = None
) -> Iterator[None]:
    """Turn any failure to decode the file at ``path`` into a Tailback error that names it."""
    try:
        with _no_panic_message():
            yield
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as found:
        raise error(
            _damage_text(found), file=path, remedy=remedy or "write it again, or use another copy"
        ) from None


def _damage_text(error: BaseException) -> str:
    """What is wrong with a file, in one line."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    if isinstance(error, pl.exceptions.PanicException):
        return "damaged Parquet file: it cannot be decoded"
    lines = str(error).splitlines() or [type(error).__name__]
    return f"damaged Parquet file: {lines[0][:200]}"


def _require_file(path: Path, error: type[TailbackError]) -> None:
    """Refuse a device, pipe or socket; a missing file is for :func:`reading` to report."""
    if path.exists():
        regular_file(path, error)


@contextmanager
def _no_panic_message() -> Iterator[None]:
    """Suppress the message of a panic on standard error; other output is printed afterwards."""
    try:
        stderr = sys.stderr.fileno() if sys.stderr is not None else -1
    except (OSError, ValueError, io.UnsupportedOperation):
        stderr = -1
    # Not in a notebook, whose standard error is not a file descriptor, nor in other threads, which
    # share one standard error.
    if stderr != 2 or threading.current_thread() is not threading.main_thread():
        yield
        return
    with tempfile.TemporaryFile() as kept:
        sys.stderr.flush()
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)
        panicked = False
        try:
            yield
        except pl.exceptions.PanicException:
            panicked = True
            raise
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            if not panicked:
                kept.seek(0)
                with suppress(OSError):
                    os.write(2, kept.read())


# --- the footer -------------------------------------------------------------------------------


def footer(path: Path) -> Footer:
    """Read the footer of a Parquet file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no Parquet file, or its footer is damaged.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < 12:
            raise ValueError("it is too short")
        file.seek(size - 8)
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC:
            raise ValueError("it does not end with the Parquet magic number")
        if length > min(size - 12, _MAX_FOOTER_BYTES):
            raise ValueError(f"its footer claims {length:,} bytes")
        file.seek(size - 8 - length)
        data = file.read(length)
        try:
            meta = _Thrift(data).struct()
            parsed = _footer(meta)
            for group in meta[4]:
                for chunk in group[1]:
                    _check_pages(file, chunk[3], size - 8 - length)
        except (IndexError, KeyError, TypeError, AttributeError, OverflowError):
            raise ValueError("its footer cannot be decoded") from None
    return parsed


def _check_pages(file: BinaryIO, column: dict[int, Any], end_of_data: int) -> None:
    """Check the page headers of a column chunk.

    Polars allocates what they state and aborts if that fails: one flipped bit is enough.

    Args:
        file: The file.
        column: ``ColumnMetaData``: 5 num_values, 6 total_uncompressed_size, 7
            total_compressed_size, 9 data_page_offset, 11 dictionary_page_offset.
        end_of_data: Where the footer begins.

    Raises:
        ValueError: A header states impossible sizes.
    """
    values, unpacked_total = int(column[5]), int(column[6])
    at = int(column[9])
    if 0 < int(column.get(11, 0)) < at:
        at = int(column[11])
    end = at + int(column[7])
    if not len(_MAGIC) <= at <= end <= end_of_data:
        raise ValueError("a column lies outside the file")
    while at < end:
        file.seek(at)
        decoder = _Thrift(file.read(min(_MAX_HEADER_BYTES, end - at)))
        header = decoder.struct()
        # PageHeader: 2 uncompressed_page_size, 3 compressed_page_size, and one of 5 data page,
        # 7 dictionary page, 8 data page of version 2, each with 1 num_values.
        page = header.get(5) or header.get(7) or header.get(8)
        unpacked, packed = int(header[2]), int(header[3])
        at += decoder.at + packed
        fits = page and 0 <= int(page[1]) <= values and 0 <= unpacked <= unpacked_total
        if not fits or packed < 0 or at > end:
            raise ValueError("a page header is damaged")


def _footer(meta: dict[int, Any]) -> Footer:
    """The footer from ``FileMetaData``: 3 num_rows, 4 row_groups."""
    sizes = []
    for group in meta[4]:
        size = 0
        for chunk in group[1]:  # RowGroup: 1 columns; ColumnChunk: 3 meta_data
            column = chunk[3]  # 1 type, 5 num_values, 6 total_uncompressed_size
            values, uncompressed = int(column[5]), int(column[6])
            if values < 0 or uncompressed < 0:
                raise ValueError(f"its footer counts {min(values, uncompressed)} values")
            size += values * _VALUE_BYTES[int(column[1])] + uncompressed
        sizes.append(size)
    return Footer(int(meta[3]), tuple(sizes))


class _Thrift:
    """Decodes structures of Thrift's compact protocol as dictionaries by field number."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _MAX_DEPTH:
            raise ValueError("its footer is nested too deeply")
        out: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            # A boolean is encoded in the field header itself.
            out[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return out

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            return self._take(8)
        if kind == 8:
            return self._take(self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            if count > len(self.data):
                raise ValueError("its footer claims a list longer than itself")
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"its footer has a field of unknown type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError("its footer is truncated")
        self.at += count
        return self.data[self.at - count : self.at]

    def _varint(self) -> int:
        out = shift = 0
        while (byte := self._byte()) & 128:
            out |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("its footer has a number of more than 64 bits")
        return out | byte << shift

    def _zigzag(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)
