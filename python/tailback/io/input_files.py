"""Files that a user names, opened in one place: which kinds, how many bytes, and for how long.

A small gzip file can expand to more than the machine's memory, a device never ends, and a pipe may
wait for its writer for ever. Everything that reads a user's file opens it here; only the libraries
that take a path (Parquet, SQLite, OTF2, captures) open it themselves, after :func:`regular_file`.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from tailback.available import available_memory, memory_for_input, memory_remedy
from tailback.errors import TailbackError
from tailback.units import format_bytes

ErrorType = Callable[..., TailbackError]
"""The type of error to raise, like ``FabricError``."""

TEXT_MEMORY: Final = 24.0
"""Bytes of memory for each byte of a text that is parsed into rows or objects. Measured, as the
growth of the peak: Prometheus JSON 22.8, perfquery 16.6, CSV 13.7, LDMS 10.2, ibnetdiscover 8.7."""

TRACE_MEMORY: Final = 6.0
"""The same for a trace, whose events become columns. Measured: Kineto 5.3, GOAL 3.0."""

PIPE_SILENCE_S: float = 60.0
"""Time for which the writer of a pipe may be silent: enough to discover a fabric of thousands of
nodes or to decompress from tape, and short for somebody who waits for a mistake to show."""

_GZIP: Final = b"\x1f\x8b"
_PIECE: Final = 1 << 20
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_DIGITS_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_TOO_MANY_DIGITS: Final = b"0" * (sys.float_info.max_10_exp + 1)
"""No such number is a float; one of more than 4,300 digits Python does not even convert."""

_piped: dict[tuple[int, int, int], bytes] = {}
"""What was read from pipes, by device, inode and time of the last write: the bytes come once, and
formats are recognised before they are read."""


_read: ContextVar[set[Path] | None] = ContextVar("files_read", default=None)


@contextmanager
def recording_files() -> Iterator[set[Path]]:
    """The absolute paths of the files that are read in a ``with`` block, not those only tried."""
    files = set[Path]()
    token = _read.set(files)
    try:
        yield files
    finally:
        _read.reset(token)


def record_files(paths: Iterable[Path]) -> None:
    """Record files as read, for a library that opens them itself."""
    files = _read.get()
    if files is not None:
        files.update(Path(os.path.abspath(path)) for path in paths)


def is_input_file(path: Path) -> bool:
    """Whether a path is a regular file or a pipe; False where it cannot be looked at."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def regular_file(path: Path, error_type: ErrorType = TailbackError) -> os.stat_result:
    """Refuse everything but a regular file, for a library that opens the path itself.

    Raises:
        TailbackError: It does not exist, or is a folder, device, pipe or socket.
    """
    status = _status(path, error_type)
    if stat.S_ISFIFO(status.st_mode):
        raise error_type(
            "is a pipe, and this format needs a file", file=path, remedy="write it to a file first"
        )
    record_files([path])
    return status


def content(
    path: Path, error_type: ErrorType = TailbackError, memory_per_byte: float = TEXT_MEMORY
) -> bytes:
    """The bytes of a file or pipe, decompressed if they are gzip.

    Args:
        path: The file.
        error_type: Error to raise.
        memory_per_byte: Memory that the caller needs for each byte, with the byte itself.

    Raises:
        TailbackError: It cannot be read, is no file or pipe, is a damaged gzip file, or would need
            more memory than one input may take.
    """
    with opened(path, error_type, memory_per_byte) as file:
        # None: a file of the kernel that waits for an event.
        data = b"".join(iter(lambda: file.read(_PIECE) or b"", b""))
    at = data.translate(_DIGITS_AS_ZERO).find(_TOO_MANY_DIGITS)
    if at >= 0:
        line = data.count(b"\n", 0, at) + 1
        raise error_type(
            f"has a number of more than {len(_TOO_MANY_DIGITS) - 1:,} digits",
            file=path,
            place=f"line {line}",
            remedy="the file is damaged: copy it or make it again",
        )
    return data


def text_content(path: Path, error_type: ErrorType = TailbackError) -> str:
    """The text of a UTF-8 file or pipe, decompressed if it is gzip, without a byte order mark.

    Raises:
        TailbackError: As :func:`content`, or it is not UTF-8.
    """
    data = content(path, error_type)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise error_type(
            "is not a text file (UTF-8)",
            file=path,
            place=f"line {line}",
            remedy="check the path, or convert it with iconv -t UTF-8",
        ) from None


def parsed_json(data: bytes, path: Path, error_type: ErrorType, remedy: str) -> Any:
    """The value that JSON states; raises an error of ``error_type`` if it is damaged or cut."""
    try:
        return json.loads(data)
    except ValueError as error:
        place = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else None
        raise error_type(
            f"is not valid JSON: {error}", file=path, place=place, remedy=remedy
        ) from None
    except RecursionError:
        raise error_type("is nested too deeply", file=path, remedy=remedy) from None


def require_text(
    data: str | bytes, path: Path | None, error_type: ErrorType = TailbackError, remedy: str = ""
) -> None:
    """Refuse a file without content.

    Args:
        data: What was read of it.
        path: The file, for the error.
        error_type: Error to raise.
        remedy: What to do; by default, to look at the command that wrote it.

    Raises:
        TailbackError: There is nothing in it but white space.
    """
    if not data.strip():
        raise error_type(
            "the file is empty",
            file=path,
            remedy=remedy or "make it again: the command that wrote it may have failed",
        )


@contextmanager
def opened(
    path: Path, error_type: ErrorType = TailbackError, memory_per_byte: float = TEXT_MEMORY
) -> Iterator[BinaryIO]:
    """Open a file or pipe to read its bytes, decompressed if they are gzip.

    Raises:
        TailbackError: As :func:`content`; also while reading.
    """
    with _uncompressed(path, error_type) as raw:
        record_files([path])
        compressed = raw.read(len(_GZIP)) == _GZIP
        limit = _Limit(path, error_type, memory_per_byte, compressed)
        if not compressed:
            limit.check(raw.seek(0, os.SEEK_END))
        raw.seek(0)
        try:
            # The size of a plain file has been checked.
            yield cast(BinaryIO, _Expanded(raw, limit)) if compressed else raw
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise error_type(
                f"damaged gzip file: {error}", file=path, remedy="copy or create the file again"
            ) from None


def is_gzip(path: Path) -> bool:
    """Whether a file is a gzip file; False where it cannot be read."""
    return _beginning(path, len(_GZIP)) == _GZIP


def head_bytes(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of a file, decompressed; empty where it cannot be read."""
    return _decompressed(_beginning(path, size), size) or b""


def is_empty(path: Path) -> bool:
    """Whether there is nothing in a file but white space; a damaged one has something in it."""
    size = 1 << 16
    data = _decompressed(_beginning(path, size), size)
    return data is not None and not data.strip()


def _decompressed(data: bytes, size: int) -> bytes | None:
    """The first bytes of what may be gzip, decompressed; None if it is damaged."""
    if not data.startswith(_GZIP):
        return data
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, size)
    except zlib.error:
        return None


def head(path: Path, size: int = 1 << 16) -> str:
    """The first characters of a file, decompressed; empty where it cannot be read."""
    return head_bytes(path, size).decode("utf-8-sig", errors="replace")


def require_memory_for(path: Path, needed: int, error_type: ErrorType = TailbackError) -> None:
    """Refuse a file that needs more memory than one input may take.

    Args:
        path: The file.
        needed: The estimate, in bytes.
        error_type: Error to raise.

    Raises:
        TailbackError: States the estimate, the limit, and how to raise it.
    """
    limit = memory_for_input()
    if limit is not None and needed > limit:
        raise error_type(
            f"needs about {format_bytes(needed)} of memory to read ({path.stat().st_size:,} bytes "
            f"on disk), and the limit for one file is {format_bytes(limit)}",
            file=path,
            remedy=memory_remedy(needed),
        )


class _Limit:
    """How many bytes of a file may be read.

    The size of a plain file tells what is in it: it may take half of the available memory. What
    expands as it is read, a gzip file or a pipe, may take what one input may take.
    """

    def __init__(
        self, path: Path, error_type: ErrorType, memory_per_byte: float, expands: bool
    ) -> None:
        self._path, self._error_type, self._memory_per_byte = path, error_type, memory_per_byte
        available = None if expands else available_memory()
        self._expands = expands
        self._most = memory_for_input() if expands else available and available // 2

    def check(self, size: int) -> None:
        """Refuse ``size`` bytes if these are too many."""
        needed = int(size * self._memory_per_byte)
        if self._most is None or needed <= self._most:
            return
        amount = f"more than {format_bytes(self._most)}"
        if not self._expands:
            amount = f"about {format_bytes(needed)}"
        raise self._error_type(
            f"needs {amount} of memory to read ({self._path.stat().st_size:,} bytes on disk), and "
            f"the limit for one file is {format_bytes(self._most)}",
            file=self._path,
            remedy=memory_remedy(2 * needed if self._expands else needed),
        )


class _Expanded(gzip.GzipFile):
    """The content of a gzip file, up to a limit."""

    def __init__(self, raw: BinaryIO, limit: _Limit) -> None:
        super().__init__(fileobj=raw, mode="rb")
        self._limit = limit

    def read(self, size: int | None = -1) -> bytes:
        """Read up to ``size`` bytes."""
        data = super().read(size)
        self._limit.check(self.tell())
        return data

    def readline(self, size: int | None = -1) -> bytes:
        """Read a line of up to ``size`` bytes."""
        data = super().readline(-1 if size is None else size)
        self._limit.check(self.tell())
        return data


# --- kinds of file ----------------------------------------------------------------------------

_REFUSED: Final = (
    (stat.S_ISDIR, "this is a directory", "name a file in it"),
    (stat.S_ISCHR, "is a device, not a file", "check the path"),
    (stat.S_ISBLK, "is a device, not a file", "check the path"),
    (stat.S_ISSOCK, "is a socket, not a file", "check the path"),
)


def _status(path: Path, error_type: ErrorType) -> os.stat_result:
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error, error_type) from None
    except ValueError as error:
        raise error_type(
            f"{str(path)!r} is not a file name: {error}", remedy="check the path"
        ) from None
    for is_kind, what, remedy in _REFUSED:
        if is_kind(status.st_mode):
            raise error_type(what, file=path, remedy=remedy)
    return status


def _unreadable(path: Path, error: OSError, error_type: ErrorType) -> TailbackError:
    return error_type(
        f"cannot be read: {error.strerror or error}", file=path, remedy="check the path"
    )


@contextmanager
def _uncompressed(path: Path, error_type: ErrorType) -> Iterator[BinaryIO]:
    """The bytes of a file or pipe as they are, in a stream that can seek."""
    status = _status(path, error_type)
    try:
        if stat.S_ISFIFO(status.st_mode):
            with io.BytesIO(_from_pipe(path, status, error_type)) as buffer:
                yield buffer
            return
        # Without blocking, in case that another kind of file has taken its place.
        with open(os.open(path, _FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise error_type("was replaced while it was opened", file=path)
            yield file
    except (gzip.BadGzipFile, UnicodeError):
        raise
    except OSError as error:
        raise _unreadable(path, error, error_type) from None


def _from_pipe(path: Path, status: os.stat_result, error_type: ErrorType) -> bytes:
    """Content of a pipe until its writers close it, or the content read from it last."""
    key = (status.st_dev, status.st_ino, status.st_mtime_ns)
    if key in _piped:
        return _piped[key]
    limit = _Limit(path, error_type, 1.0, expands=True)
    data = bytearray()
    descriptor = os.open(path, _FLAGS)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        written = False
        while True:
            try:
                piece = os.read(descriptor, _PIECE)
            except BlockingIOError:
                piece = None
            if piece:
                data += piece
                limit.check(len(data))
            elif piece is not None and (data or written):
                break
            elif not poll.poll(PIPE_SILENCE_S * 1000):
                raise error_type(
                    f"is a pipe, and nothing was written to it for {PIPE_SILENCE_S:g} s",
                    file=path,
                    remedy="check the command that writes it, or write a file first",
                )
            else:
                written = True
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    _piped[status.st_dev, status.st_ino, status.st_mtime_ns] = bytes(data)
    return bytes(data)


def _beginning(path: Path, size: int) -> bytes:
    try:
        with _uncompressed(path, TailbackError) as file:
            return file.read(size) or b""
    except TailbackError:
        return b""
