"""A running collection, looked at again and again: ``tb.watch`` and ``tailback watch``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tailback.collector.following import CollectionFollower
from tailback.errors import known_keywords
from tailback.port_counters.analysis.live_state import GROWTH_SHARE, LiveState, LiveView
from tailback.port_counters.changes import no_changes

BINS = 60
"""Bins of time in the course of a port."""


@dataclass(frozen=True)
class WatchResult:
    """One look at a collection.

    Attributes:
        view: Ports that lose most, congestion trees, number of stalled ports over time.
        changes: Changes of links and devices within the span, rows of ``link_changes``.
    """

    view: LiveView
    changes: pl.DataFrame


class CollectionWatch:
    """Looks at a collection, whether a collector runs or not; see :func:`watch`."""

    def __init__(self, path: Path, span_ns: int, threshold: float) -> None:
        self._span_ns = span_ns
        self._follower = CollectionFollower(path, span_ns)
        self._state = LiveState(span_ns, BINS, threshold)
        self._changes = no_changes()
        self._is_first = True

    def look(self, most: int = 8) -> WatchResult:
        """Read what is new and sum it up.

        Args:
            most: Most ports and trees that are listed.

        Raises:
            CounterError: A segment cannot be read.
        """
        news = self._follower.read()
        if news.ports is not None:
            self._state.set_ports(news.ports)
        if self._is_first and news.intervals:
            # The growth of trees needs an earlier look.
            self._is_first = False
            past = pl.concat(news.intervals)
            last_ns = int(past["time_ns"].max())  # type: ignore[arg-type]
            early = pl.col("time_ns") <= last_ns - GROWTH_SHARE * self._span_ns
            self._state.update(past.filter(early))
            self._state.look(0)
            news.intervals = [past.filter(~early)]
        for intervals in news.intervals:
            self._state.update(intervals)
        view = self._state.look(most)
        recent = pl.col("time_ns") > view.time_ns - self._span_ns
        self._changes = pl.concat([self._changes, news.changes]).filter(recent)
        return WatchResult(view, self._changes.sort("time_ns", maintain_order=True))

    def close(self) -> None:
        """Stop following."""
        self._follower.close()


@known_keywords()
def watch(
    folder: str | Path, *, span_ns: int = 300_000_000_000, threshold: float = 0.1
) -> CollectionWatch:
    """Watch a collection: each ``look()`` gives hot links, congestion trees and changes.

    Args:
        folder: Folder of ``tailback collect``, which may be running.
        span_ns: How far the course of ports goes back, nanoseconds.
        threshold: Share of an interval from which a port counts as stalled, 0–1.

    Raises:
        CounterError: It is not a collection, or none of its tables can be read.
    """
    return CollectionWatch(Path(folder), span_ns, threshold)
