"""Append-only segments of checksummed records: what a collector writes while it runs.

A segment is eight octets of magic and then records::

    length u32 | crc32 u32 | kind u8 | 3 zeros | payload (length octets)

all little-endian; the checksum covers the kind and the payload. The first record is the head
(``H``, zlib-compressed JSON: what is read, and how), then come readings (``R``, rows of
``readings.RAW``) and events (``E``, JSON). A record is written with one call to the system and
nothing is ever written over, so a process that is killed leaves whole records and at most one torn
at the end, which the checksum tells apart. A segment is never opened for writing again.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tailback.counters.collect.readings import RAW, Rows
from tailback.counters.collect.subnet import PortTarget
from tailback.counters.schema import CounterError

MAGIC: Final = b"TBSEG01\n"
SUFFIX: Final = ".segment"
_RECORD = struct.Struct("<IIB3x")
_HEAD, _READINGS, _EVENT = b"H"[0], b"R"[0], b"E"[0]
_MOST_RECORD_BYTES: Final = 1 << 30


@dataclass
class Segment:
    """What a segment holds.

    Attributes:
        targets: What ``rows["target"]`` counts in.
        facts: How it was collected: plan, interval, session.
        rows: Readings, in the order they were written.
        events: What happened meanwhile, each with ``time_ns`` and ``what``.
        torn_bytes: Octets after the last whole record: what was lost with the process.
        damaged: A whole record follows one that cannot be read: the file was damaged, not cut off.
    """

    targets: list[PortTarget]
    facts: dict[str, Any]
    rows: Rows
    events: list[dict[str, Any]] = field(default_factory=list)
    torn_bytes: int = 0
    damaged: bool = False


def _record(kind: int, payload: bytes) -> bytes:
    check = zlib.crc32(payload, zlib.crc32(bytes([kind])))
    return _RECORD.pack(len(payload), check, kind) + payload


class SegmentWriter:
    """Writes one segment.

    Args:
        path: Where; must not exist.
        targets: What readings will refer to by index.
        facts: How it is collected; plain data.

    Raises:
        CounterError: The file cannot be made or the disk is full.
    """

    def __init__(self, path: Path, targets: list[PortTarget], facts: dict[str, Any]) -> None:
        self.path = path
        self.size_bytes = 0
        try:
            self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        except OSError as error:
            raise CounterError(
                f"cannot write: {error.strerror}",
                file=path,
                remedy="choose another folder with --out",
            ) from None
        head = {"facts": facts, "targets": [target.to_dict() for target in targets]}
        self._write(MAGIC + _record(_HEAD, zlib.compress(json.dumps(head).encode(), 1)))

    def append(self, rows: Rows) -> None:
        """Write readings as one record."""
        if len(rows):
            self._write(_record(_READINGS, rows.tobytes()))

    def event(self, event: dict[str, Any]) -> None:
        """Write what happened as one record."""
        self._write(_record(_EVENT, json.dumps(event).encode()))

    def sync(self) -> None:
        """Have the disk take what was written, against loss of power."""
        os.fsync(self._file)

    def close(self) -> None:
        """Finish the segment."""
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._file, data)
        except OSError as error:
            raise CounterError(
                f"cannot write: {error.strerror}",
                file=self.path,
                remedy="make room on the disk; what was collected until now is safe",
            ) from None
        if written != len(data):
            # What follows a torn record would be lost with it, so nothing may.
            raise CounterError(
                "the disk is full",
                file=self.path,
                remedy="make room on the disk; what was collected until now is safe",
            )
        self.size_bytes += written


def read_segment(path: Path) -> Segment | None:
    """Read all whole records of a segment.

    Returns:
        What it holds; None when the process was killed before the head was complete.

    Raises:
        CounterError: The file is no segment, or its head is not one this version can read.
    """
    data = path.read_bytes()
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise CounterError(
            "is not a segment of port counters",
            file=path,
            remedy="move the file out of the folder",
        )
    segment: Segment | None = None
    blocks: list[Rows] = []
    place = len(MAGIC)
    while place + _RECORD.size <= len(data):
        length, check, kind = _RECORD.unpack_from(data, place)
        start, end = place + _RECORD.size, place + _RECORD.size + length
        if length > _MOST_RECORD_BYTES or end > len(data):
            break
        payload = data[start:end]
        if zlib.crc32(payload, zlib.crc32(bytes([kind]))) != check:
            break
        if segment is None:
            segment = _head(path, kind, payload)
        elif kind == _READINGS:
            blocks.append(np.frombuffer(payload, RAW))
        elif kind == _EVENT:
            segment.events.append(json.loads(payload))
        place = end
    if segment is not None:
        segment.torn_bytes = len(data) - place
        segment.damaged = _record_follows(data, place)
        if blocks:
            segment.rows = np.concatenate(blocks)
    return segment


def _record_follows(data: bytes, place: int) -> bool:
    """Whether a whole record comes after the one at ``place``, which cannot be read."""
    for _ in range(2):
        if place + _RECORD.size > len(data):
            return False
        length, check, kind = _RECORD.unpack_from(data, place)
        start, place = place + _RECORD.size, place + _RECORD.size + length
    payload = data[start:place]
    return place <= len(data) and zlib.crc32(payload, zlib.crc32(bytes([kind]))) == check


def _head(path: Path, kind: int, payload: bytes) -> Segment:
    try:
        if kind != _HEAD:
            raise ValueError("the first record is not a head")
        head = json.loads(zlib.decompress(payload))
        targets = [PortTarget(**target) for target in head["targets"]]
        return Segment(targets, dict(head["facts"]), np.empty(0, RAW))
    except (ValueError, TypeError, KeyError, zlib.error) as error:
        raise CounterError(
            f"its head cannot be read: {error}",
            file=path,
            remedy="read it with the version of Tailback that wrote it",
        ) from None
