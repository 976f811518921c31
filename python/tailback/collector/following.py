"""A collection followed while a collector writes it: new intervals, ports and changes.

Finished segments are read once from their tables; the one being written is read as far as it is,
again and again. The collector is not disturbed, and its folder need not be writable.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tailback.collector.difference import ACTIVITY, activity_frame, pairs
from tailback.collector.readings import RAW, Rows, TargetTable, last_of_each
from tailback.collector.segments import SUFFIX, SegmentTail
from tailback.port_counters.changes import changes_of, no_changes
from tailback.port_counters.readers import collection
from tailback.port_counters.schema import INTERVALS, CounterError, conform
from tailback.port_counters.targets import PortTarget, ports_frame


@dataclass
class News:
    """What a collection has that it had not at the last look.

    Attributes:
        intervals: Columns ``difference.ACTIVITY`` of ``counter_intervals``, in order.
        ports: The ports, rows of ``targets.PORTS``; None if they are the same.
        changes: Rows of ``changes.LINK_CHANGES``.
    """

    intervals: list[pl.DataFrame] = field(default_factory=list)
    ports: pl.DataFrame | None = None
    changes: pl.DataFrame = field(default_factory=no_changes)


class CollectionFollower:
    """Follows a collection.

    Args:
        path: Folder of ``tailback collect``.
        span_ns: How much of its past is wanted, nanoseconds.

    Raises:
        CounterError: It is not a collection, or none of its tables can be read.
    """

    def __init__(self, path: Path, span_ns: int) -> None:
        if not collection.sniff(path):
            raise CounterError(
                "no collection (it has no collection.json)",
                file=path,
                remedy="give the folder that 'tailback collect --out' writes",
            )
        self._path, self._span_ns = path, span_ns
        self._tail: SegmentTail | None = None
        self._table = TargetTable.of(())
        self._last: Rows = np.empty(0, RAW)
        self._done = ""
        self._is_first = True

    def close(self) -> None:
        """Close the segment."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def read(self) -> News:
        """What is new since the last call; at the first, the past of ``span_ns``.

        Raises:
            CounterError: A segment cannot be read by this version.
        """
        news = News()
        if self._is_first:
            self._read_past(news)
            self._is_first = False
        events: list[Mapping[str, Any]] = []
        self._read_tail(news, events)
        for file in sorted(self._path.glob(f"segments/*{SUFFIX}")):
            if file.name > self._done:
                # Between two looks, the collector may convert a segment.
                with suppress(FileNotFoundError):
                    self._begin(file)
                    self._read_tail(news, events)
        if events:
            news.changes = pl.concat([news.changes, changes_of(events)])
        return news

    def _begin(self, file: Path) -> None:
        tail = SegmentTail(file)
        self.close()
        self._tail, self._done = tail, file.name

    def _read_tail(self, news: News, events: list[Mapping[str, Any]]) -> None:
        if self._tail is None:
            return
        segment = self._tail.read()
        if segment.targets:
            news.ports = self._use(segment.targets)
        events += segment.events
        if not len(segment.rows) or not len(self._table):
            return
        intervals = activity_frame(*self._paired(segment.rows), self._table)
        news.intervals += [intervals] if intervals.height else []

    def _paired(self, rows: Rows) -> tuple[Rows, Rows]:
        """Readings with those before them of the same ports; they are the last ones then."""
        at = rows["target"]
        if len(self._last) == len(self._table) and np.bincount(at).max(initial=0) < 2:
            # One sweep after all ports were read: no need to sort the readings.
            before = self._last[at]
            self._last[at] = rows
            return before, rows
        rows = np.concatenate([self._last, rows])
        self._last = last_of_each(rows)
        return pairs(rows)

    def _use(self, targets: list[PortTarget]) -> pl.DataFrame:
        """Take over the ports of a new segment, with the last readings of those that stay."""
        row_of = {(t.guid, t.port): row for row, t in enumerate(targets)}
        before = [row_of.get((t.guid, t.port), -1) for t in self._table.targets]
        moved = np.array(before, np.int64)[self._last["target"]] if len(self._last) else None
        if moved is not None:
            self._last = self._last[moved >= 0]
            self._last["target"] = moved[moved >= 0]
        self._table = TargetTable.of(targets)
        return ports_frame(targets)

    def _read_past(self, news: News) -> None:
        """The tables of finished segments."""
        tables, _ = collection.scan(self._path)
        news.ports, _ = collection.fabric_ports(self._path)
        news.changes, _ = collection.changes(self._path)
        if not tables:
            return
        self._done = f"{tables[-1][0].stem}{SUFFIX}"
        end = tables[-1][1].select(pl.col("time_ns").max()).collect().item() or 0
        for _, rows in reversed(tables):
            recent = rows.filter(pl.col("time_ns") > end - self._span_ns).collect()
            if recent.is_empty():
                break
            news.intervals.insert(0, conform(INTERVALS, recent).select(ACTIVITY))
