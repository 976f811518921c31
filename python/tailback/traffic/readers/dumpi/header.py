"""Headers of DUMPI files: host, start and clock of a rank, without reading its calls."""

from __future__ import annotations

import calendar
import io
import re
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tailback.errors import TraceError
from tailback.io.input_files import TRACE_MEMORY, content, head, head_bytes, is_gzip, opened

MAGIC = b"\xff\xaa\xddDUMPI"
"""First bytes of a binary file."""

_INDEX_BYTES = 56
"""Seven offsets of 64 bits at the end of a binary file; the fourth is that of the header, and the
fifth that of the calls."""
_WALL = 8
"""Bit of a call's mask: it has times by the wall clock."""
_SAME_CLOCK_S = 60
_TIME_ZONES_S = 86_400
"""Texts state the start by the local time of where they were converted."""
_HOST_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_HOST = re.compile(r"^hostname=(\S+)$", re.MULTILINE)
_START = re.compile(r"^starttime=(.+)$", re.MULTILINE)
_WALLTIME = re.compile(r"^MPI_\w+ entering at walltime (\d{1,12})\.(\d{1,9})", re.MULTILINE)


@dataclass(frozen=True)
class RankHeader:
    """What the file of a rank says besides its calls.

    Attributes:
        host: Its host, None if not recorded.
        start_s: When the recording began, seconds since 1970; None if not recorded.
        clock_s: What the clock of the calls showed then, seconds; None if calls have only processor
            time, which does not run while a rank waits.
        shows_utc: Whether that clock shows UTC. The library takes CLOCK_MONOTONIC, which counts
            from when the host was started, or gettimeofday (sst-dumpi, ``common/gettime.c``).
    """

    host: str | None
    start_s: int | None
    clock_s: int | None
    shows_utc: bool


def read_header(path: Path) -> RankHeader:
    """The header of a file; what a damaged file does not have is None."""
    if head_bytes(path).startswith(MAGIC):
        host, start, clock, tolerance = *_binary(path), _SAME_CLOCK_S
    else:
        host, start, clock, tolerance = *_text(head(path)), _TIME_ZONES_S
    near = start is not None and clock is not None and abs(start - clock) <= tolerance
    return RankHeader(host, start, clock, near)


def _binary(path: Path) -> tuple[str | None, int | None, int | None]:
    """Host, start and clock of a binary file."""
    host = start = clock = None
    # What follows in a damaged file is found when its calls are read.
    with (
        suppress(OSError, ValueError, OverflowError, struct.error, TraceError),
        _opened(path) as file,
    ):
        file.seek(-_INDEX_BYTES, io.SEEK_END)
        header, calls = struct.unpack(">7Q", file.read(_INDEX_BYTES))[3:5]
        file.seek(calls)
        _, seconds, _, mask = struct.unpack(">iiHB", file.read(11))
        clock = seconds if mask & _WALL else None
        file.seek(header + 3)
        start, length = struct.unpack(">qh", file.read(10))
        name = file.read(max(length, 0)).rstrip(b"\0")
        host = name.decode("ascii") if _HOST_NAME.fullmatch(name) else None
    return host, start if start and 0 < start < 1 << 40 else None, clock


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if is_gzip(path):
        yield io.BytesIO(content(path, TraceError, TRACE_MEMORY))
        return
    with opened(path, TraceError) as file:
        yield file


def _text(text: str) -> tuple[str | None, int | None, int | None]:
    """Host, start and clock of a text."""
    host, begun, first = _HOST.search(text), _START.search(text), _WALLTIME.search(text)
    start = None
    if begun:
        with suppress(ValueError):
            start = calendar.timegm(time.strptime(begun[1].strip(), "%a %b %d %H:%M:%S %Y"))
    has_clock = first is not None and (int(first[1]) or int(first[2]))
    return host[1] if host else None, start, int(first[1]) if first and has_clock else None


def common_clocks(headers: Iterable[RankHeader]) -> list[int]:
    """Number of the clock of each rank: the first rank of its host.

    Both clocks that the library takes are the kernel's. Hosts that call themselves localhost may be
    different ones.
    """
    first: dict[str, int] = {}
    return [
        rank
        if header.host is None or header.host.startswith("localhost")
        else first.setdefault(header.host, rank)
        for rank, header in enumerate(headers)
    ]


def clock_shifts_ns(headers: Sequence[RankHeader]) -> list[int]:
    """What to add to the clock of each rank so that it shows UTC to a second or two.

    0 for clocks that show UTC already, and without a start. Ranks with one clock get the same: that
    of the first.
    """
    out: list[int] = []
    for rank, (header, clock) in enumerate(zip(headers, common_clocks(headers), strict=True)):
        shift = 0
        if header.start_s is not None and header.clock_s is not None and not header.shows_utc:
            shift = (header.start_s - header.clock_s) * 10**9
        out.append(shift if clock == rank else out[clock])
    return out
