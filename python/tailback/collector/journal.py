"""Ordered writes of a collector, held in memory while the disk is full.

Readings cannot be taken again, so a full disk does not end a session: readings wait in memory, up
to ``MAX_HELD_BYTES``, and are written when there is space. Beyond that the oldest are dropped:
counters are cumulative, so the latest are worth most, and the first of each port after a loss is
flagged ``GAP``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np

from tailback.collector.readings import RAW, Rows
from tailback.collector.segments import DiskFullError, SegmentWriter
from tailback.collector.store import Collection
from tailback.port_counters.schema import CounterError, Flag
from tailback.port_counters.targets import PortTarget
from tailback.units import counted

MAX_HELD_BYTES: Final = 64 << 20
"""Readings held in memory while the disk is full: 1.4 million."""

MAX_HELD_EVENTS: Final = 10_000

_Begin = tuple[list[PortTarget], dict[str, Any]]
_Pending = _Begin | Rows | dict[str, Any]


def _are_readings(item: _Pending) -> TypeGuard[Rows]:
    """Whether a pending item is a block of readings, and not of counters of errors."""
    return isinstance(item, np.ndarray) and item.dtype == RAW


class Journal:
    """Writes the segments of a collection and keeps readings while the disk is full.

    Args:
        collection: Where segments go.
        log: Gets lines for the administrator.
        on_segment: Called with the path of each new segment. May add events.
        max_held_bytes: Readings to hold while the disk is full.

    Attributes:
        full: Whether the disk was full at the last attempt.
        held: Readings that wait in memory.
        lost: Readings dropped because memory was full.
    """

    def __init__(
        self,
        collection: Collection,
        log: Callable[[str], None],
        on_segment: Callable[[Path], None],
        max_held_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        self.full = False
        self.held = self.lost = 0
        self._collection, self._log, self._on_segment = collection, log, on_segment
        self._max_held = max_held_bytes
        self._pending: deque[_Pending] = deque()
        self._events = 0
        self._waited = self._lost_before = 0
        self._writer: SegmentWriter | None = None
        self._lossy = self._flushing = False
        self._seen: set[int] = set()

    @property
    def size_bytes(self) -> int:
        """Size of the segment that is being written, bytes; 0 where there is none."""
        return 0 if self._writer is None else self._writer.size_bytes

    def begin(self, targets: list[PortTarget], facts: dict[str, Any]) -> None:
        """Finish the segment and begin the next one."""
        self._put((targets, facts))

    def append(self, rows: Rows) -> None:
        """Write readings, or counters of errors, of the segment's ports."""
        if len(rows):
            self.held += len(rows) if _are_readings(rows) else 0
            self._put(rows)

    def event(self, event: dict[str, Any]) -> None:
        """Write an event."""
        if self._events < MAX_HELD_EVENTS:
            self._events += 1
            self._put(event)

    def _put(self, item: _Pending) -> None:
        self._pending.append(item)
        self.flush()

    def flush(self) -> None:
        """Write as much of the pending data as fits on the disk."""
        if self._flushing:
            # Called by ``on_segment``: its events are written after the header of the new segment.
            return
        self._flushing = True
        try:
            while self._pending:
                self._write(self._pending[0])
                self._written(self._pending.popleft())
        except DiskFullError:
            if not self.full:
                self._log("the disk is full: readings wait in memory until there is room")
                self._waited, self._lost_before = 0, self.lost
            self.full = True
            self._drop()
            self._waited = max(self._waited, self.held)
            return
        finally:
            self._flushing = False
        if self.full:
            self.full = False
            lost = self.lost - self._lost_before
            self._log(
                f"the disk has space again: {counted(self._waited, 'reading')} written"
                + (f", {counted(lost, 'reading')} lost because memory was full" if lost else "")
            )

    def sync(self) -> None:
        """Flush to the disk, in case of power failure."""
        if self._writer is not None:
            try:
                self._writer.sync()
            except DiskFullError:
                self._log("the disk is full: the last writes may not be on disk yet")

    def close(self) -> None:
        """Finish.

        Raises:
            CounterError: The disk is full, so readings in memory are lost.
        """
        self.flush()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        if self.held:
            raise CounterError(
                f"the disk is full: {counted(self.held, 'reading')} held in memory could not be "
                "written and are lost",
                file=self._collection.path,
                remedy="free space on the disk before the next run; what was written is safe",
            )

    def _write(self, item: _Pending) -> None:
        if isinstance(item, tuple):
            writer = self._collection.begin(*item)
            if self._writer is not None:
                self._writer.close()
            self._writer = writer
            # Readings may have been dropped before this segment began.
            self._lossy, self._seen = self._lossy and self.full, set()
            self._on_segment(writer.path)
        elif self._writer is None:
            raise RuntimeError("a segment begins before anything is written to it")
        elif isinstance(item, dict):
            self._writer.event(item)
        else:
            flagged = self._lossy and _are_readings(item)
            self._writer.append(self._flagged(item) if flagged else item)

    def _written(self, item: _Pending) -> None:
        if isinstance(item, dict):
            self._events -= 1
        elif _are_readings(item):
            self.held -= len(item)
            if self._lossy:
                self._seen.update(item["target"].tolist())

    def _flagged(self, rows: Rows) -> Rows:
        """Readings with ``GAP`` set on the first of each port since readings were lost."""
        targets, first = np.unique(rows["target"], return_index=True)
        new = [
            i for t, i in zip(targets.tolist(), first.tolist(), strict=True) if t not in self._seen
        ]
        out: Rows = rows.copy()
        out["flags"][new] |= np.uint32(Flag.GAP)
        return out

    def _drop(self) -> None:
        """Drop the oldest readings beyond the limit."""
        itemsize = 0
        for place, item in enumerate(self._pending):
            if _are_readings(item):
                itemsize = item.dtype.itemsize
                if self.held * itemsize <= self._max_held:
                    return
                if self.lost == self._lost_before:
                    self._log("too many readings wait for the disk: the oldest are dropped")
                self.held -= len(item)
                self.lost += len(item)
                self._pending[place] = item[:0]
                self._lossy, self._seen = True, set()
        self._pending = deque(
            p for p in self._pending if not isinstance(p, np.ndarray) or len(p) > 0
        )
