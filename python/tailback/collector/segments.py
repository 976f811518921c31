"""Append-only segments of checksummed records, which a collector writes while it runs.

A segment is eight octets of magic followed by records::

    length u32 | crc32 u32 | kind u8 | 3 zeros | payload (length octets)

all little-endian. The checksum covers the kind and the payload. The first record is the header
(``H``, zlib-compressed JSON: the targets and the settings), followed by readings (``R``, rows of
``readings.RAW``), counters of errors (``C``, zlib-compressed rows of ``readings.ERRORS``) and
events (``E``, JSON). A record is written with one system call and never overwritten, so a killed
process leaves whole records and at most one torn record at the end, which the checksum reveals. A
segment is never opened for writing again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tailback.collector.readings import ERRORS, RAW, Rows
from tailback.io.atomic_exchange import sync
from tailback.port_counters.schema import CounterError, Flag
from tailback.port_counters.targets import PortTarget

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of the system for a full disk, an exhausted quota or the limit of ``ulimit -f``."""


class DiskFullError(CounterError):
    """The disk is full. The write may succeed later."""


MAGIC: Final = b"TBSEG01\n"
SUFFIX: Final = ".segment"
_RECORD = struct.Struct("<IIB3x")
_HEAD, _READINGS, _ERRORS, _EVENT = b"HRCE"
_MOST_RECORD_BYTES: Final = 1 << 30
_MARK: Final = re.compile(rb"[HRCE]\0\0\0")
"""The last octets of a record header: its kind and three zeros."""
_MARK_OCTETS: Final = 4


@dataclass
class Segment:
    """Content of a segment.

    Attributes:
        targets: The ports to which ``rows["target"]`` refers by index.
        facts: How it was collected: plan, interval, session.
        rows: Readings, in the order they were written.
        errors: Counters of errors, in the order they were written.
        events: Events during collection, each with ``time_ns`` and ``what``.
        torn_bytes: Octets after the last whole record, left by a killed process.
        damaged_bytes: Octets before the last whole record that belong to no record: the file was
            damaged, not truncated. The first reading of each port after them is flagged ``GAP``.
        header_damaged: The header is damaged, so the ports of the readings are unknown and there
            are no ``rows``.
    """

    targets: list[PortTarget]
    facts: dict[str, Any]
    rows: Rows
    errors: Rows = field(default_factory=lambda: np.empty(0, ERRORS))
    events: list[dict[str, Any]] = field(default_factory=list)
    torn_bytes: int = 0
    damaged_bytes: int = 0
    header_damaged: bool = False


def _record(kind: int, payload: bytes) -> bytes:
    check = zlib.crc32(payload, zlib.crc32(bytes([kind])))
    return _RECORD.pack(len(payload), check, kind) + payload


class SegmentWriter:
    """Writes one segment.

    Args:
        path: File to create. It must not exist.
        targets: The ports that readings refer to by index.
        facts: How the readings are collected; plain data.

    Raises:
        CounterError: The file cannot be created or the disk is full.
    """

    def __init__(self, path: Path, targets: list[PortTarget], facts: dict[str, Any]) -> None:
        self.path = path
        self.size_bytes = 0
        try:
            self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        except OSError as error:
            kind = DiskFullError if error.errno in FULL else CounterError
            raise kind(
                f"cannot write: {error.strerror}",
                file=path,
                remedy="choose another folder with --out",
            ) from None
        head = {"facts": facts, "targets": [target.to_dict() for target in targets]}
        try:
            self._write(MAGIC + _record(_HEAD, zlib.compress(json.dumps(head).encode(), 1)))
            sync(path.parent)
        except CounterError:
            os.close(self._file)
            self._file = -1
            path.unlink(missing_ok=True)
            raise

    def append(self, rows: Rows) -> None:
        """Write readings, or counters of errors, as one record."""
        if len(rows):
            octets = rows.tobytes()
            errors = rows.dtype == ERRORS
            self._write(
                _record(_ERRORS, zlib.compress(octets, 1)) if errors else _record(_READINGS, octets)
            )

    def event(self, event: dict[str, Any]) -> None:
        """Write an event as one record."""
        self._write(_record(_EVENT, json.dumps(event).encode()))

    def sync(self) -> None:
        """Flush to the disk, in case of power failure.

        Raises:
            DiskFullError: The disk is full.
        """
        try:
            os.fsync(self._file)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise self._full() from None

    def close(self) -> None:
        """Finish the segment."""
        if self._file >= 0:
            try:
                os.fsync(self._file)
            finally:
                os.close(self._file)
                self._file = -1

    def _full(self) -> DiskFullError:
        return DiskFullError(
            "the disk is full",
            file=self.path,
            remedy="free space on the disk; what was collected until now is safe",
        )

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._file, data)
        except OSError as error:
            if error.errno in FULL:
                raise self._full() from None
            raise CounterError(
                f"cannot write: {error.strerror}",
                file=self.path,
                remedy="check the disk; what was collected until now is safe",
            ) from None
        if written != len(data):
            # Remove the torn record: anything written after it would be lost with it.
            os.ftruncate(self._file, self.size_bytes)
            raise self._full()
        self.size_bytes += written


def read_segment(path: Path) -> Segment | None:
    """Read all whole records of a segment, including those after a damaged one.

    Returns:
        The segment; None if the process was killed before the header was complete, or the power
        failed while the file on disk had only zeros.

    Raises:
        CounterError: The file is not a segment, or this version cannot read its header.
    """
    data = path.read_bytes()
    if not data.strip(b"\0"):
        return None
    records = list(_records(data))
    headed = bool(records) and records[0].kind == _HEAD
    if data[: len(MAGIC)] != MAGIC[: len(data)] and not headed:
        raise CounterError(
            "is not a segment of port counters",
            file=path,
            remedy="move the file out of the folder",
        )
    if not records:
        return None
    segment = Segment([], {}, np.empty(0, RAW), header_damaged=True)
    if headed:
        segment = _head(path, records[0].payload(data))
    segment.torn_bytes = len(data) - records[-1].end
    record_bytes = sum(record.end - record.start for record in records)
    segment.damaged_bytes = records[-1].end - record_bytes - len(MAGIC)
    if data[: len(MAGIC)] != MAGIC:
        segment.damaged_bytes += len(MAGIC)
    if not segment.header_damaged:
        _fill(segment, records, data)
    return segment


class SegmentTail:
    """A segment that is being written, read as far as it is, again and again.

    The file stays open: what was written before its conversion can be read after it.

    Args:
        path: The segment.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        self._unread = b""
        self._start = len(MAGIC)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self) -> Segment:
        """The records since the last call; ``targets`` only if the header is among them.

        Raises:
            CounterError: This version cannot read its header.
        """
        data = self._unread + self._file.read()
        records = list(_records(data, self._start))
        segment = Segment([], {}, np.empty(0, RAW))
        if not records:
            self._unread = data
            return segment
        if records[0].kind == _HEAD:
            segment = _head(self.path, records[0].payload(data))
        _fill(segment, records, data, self._start)
        self._unread, self._start = data[records[-1].end :], 0
        return segment


@dataclass(frozen=True, slots=True)
class _Record:
    """Position of a whole record: its header begins at ``start``, and it ends before ``end``."""

    kind: int
    start: int
    end: int

    def payload(self, data: bytes) -> bytes:
        return data[self.start + _RECORD.size : self.end]


def _records(data: bytes, place: int = len(MAGIC)) -> Iterator[_Record]:
    """The complete records of a segment, in order. Octets between them are damaged."""
    while True:
        record = _record_at(data, place)
        if record is None:
            # Search for the next header, as the length of a damaged record may itself be wrong.
            marks = _MARK.finditer(data, place + _RECORD.size - _MARK_OCTETS)
            starts = (mark.end() - _RECORD.size for mark in marks)
            record = next(filter(None, (_record_at(data, start) for start in starts)), None)
        if record is None:
            return
        yield record
        place = record.end


def _record_at(data: bytes, place: int) -> _Record | None:
    """The record that begins at ``place``, None unless it is whole."""
    start = place + _RECORD.size
    if start > len(data) or not _MARK.match(data, start - _MARK_OCTETS):
        return None
    length, check, kind = _RECORD.unpack_from(data, place)
    if length > min(_MOST_RECORD_BYTES, len(data) - start):
        return None
    if kind == _READINGS and length % RAW.itemsize:
        return None
    with memoryview(data) as view:
        sound = zlib.crc32(view[start : start + length], zlib.crc32(bytes([kind]))) == check
    return _Record(kind, place, start + length) if sound else None


def _fill(
    segment: Segment, records: Sequence[_Record], data: bytes, start: int = len(MAGIC)
) -> None:
    """Add the readings and events of ``records`` to ``segment``."""
    blocks: list[Rows] = []
    errors: list[Rows] = [segment.errors]
    breaks: list[int] = []
    taken, end = 0, start
    for record in records:
        if record.start != end:
            breaks.append(taken)
        end = record.end
        if record.kind == _READINGS:
            blocks.append(np.frombuffer(record.payload(data), RAW))
            taken += len(blocks[-1])
        elif record.kind == _ERRORS:
            errors.append(np.frombuffer(zlib.decompress(record.payload(data)), ERRORS))
        elif record.kind == _EVENT:
            segment.events.append(json.loads(record.payload(data)))
    if blocks:
        segment.rows = np.concatenate(blocks)
    segment.errors = np.concatenate(errors)
    for first in breaks:
        _, where = np.unique(segment.rows["target"][first:], return_index=True)
        segment.rows["flags"][first + where] |= np.uint32(Flag.GAP)


def _head(path: Path, payload: bytes) -> Segment:
    try:
        head = json.loads(zlib.decompress(payload))
        targets = [PortTarget(**target) for target in head["targets"]]
        return Segment(targets, dict(head["facts"]), np.empty(0, RAW))
    except (ValueError, TypeError, KeyError, zlib.error) as error:
        raise CounterError(
            f"its header cannot be read: {error}",
            file=path,
            remedy="read it with the version of Tailback that wrote it",
        ) from None
