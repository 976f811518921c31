"""A full disk: a collector waits, says so, and goes on with all that it could hold."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.collector import Collection, CollectorSettings, MetricsBoard, segments
from tailback.collector import journal as journals
from tailback.collector.journal import Journal
from tailback.collector.readings import RAW, Rows
from tailback.port_counters.schema import CounterError, Flag
from tailback.port_counters.targets import PortTarget
from tests.factories.collect_subnet import row_of_switches, session

MS = 1_000_000
TARGETS = [PortTarget(1, "s", True, port, 1, 100.0, 22.0, "given") for port in (1, 2)]


class Disk:
    """Takes all, half of a write, or nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.torn = False
        self._write = os.write
        monkeypatch.setattr(segments.os, "write", self.write)

    def write(self, file: int, data: bytes) -> int:
        if self.torn:
            self.torn, self.full = False, True
            return self._write(file, data[: len(data) // 2])
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(file, data)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("torn", [False, True])
def test_a_full_disk_loses_nothing(tmp_path: Path, disk: Disk, torn: bool) -> None:
    subnet = row_of_switches(2, 1)
    board, collection, lines = MetricsBoard(), Collection(tmp_path / "c"), []
    settings = CollectorSettings(interval_ns=500 * MS, sweeps=12)
    made = session(subnet, settings, collection, board, lines.append)
    pages: list[str] = []

    def filled() -> None:
        disk.full, disk.torn = not torn, torn

    def emptied() -> None:
        pages.append(board.metrics())
        disk.full = False

    subnet.clock.when(lambda: board.sweeps >= 3, filled)
    subnet.clock.when(lambda: board.sweeps >= 9, emptied)
    summary = made.run()
    collection.close()
    readings = pl.read_parquet(tmp_path / "c" / "readings" / "*.parquet")
    assert readings.height == summary.readings == 12 * 6
    intervals = pl.read_parquet(tmp_path / "c" / "intervals" / "*.parquet")
    assert intervals.height == 11 * 6 and not (intervals["flags"] & int(Flag.GAP)).sum()
    assert [line for line in lines if "disk" in line] == [
        "the disk is full: readings wait in memory until there is room",
        "the disk has space again: 36 readings written",
    ]
    assert "tailback_collector_disk_full 1" in pages[0]
    assert "tailback_collector_readings_held 36" in pages[0]
    assert "tailback_collector_disk_full 0" in board.metrics()
    assert "tailback_collector_readings_lost_total 0" in board.metrics()


def test_a_full_disk_delays_a_new_segment(tmp_path: Path, disk: Disk) -> None:
    subnet = row_of_switches(2, 1)
    board, collection = MetricsBoard(), Collection(tmp_path / "c")
    made = session(subnet, CollectorSettings(interval_ns=500 * MS, sweeps=8), collection, board)

    def unplugged() -> None:
        disk.full = True
        subnet.devices[0x1001].ports[1].state = 1
        made.rediscover()

    subnet.clock.when(lambda: board.sweeps >= 2, unplugged)
    subnet.clock.when(lambda: board.sweeps >= 6, lambda: setattr(disk, "full", False))
    summary = made.run()
    collection.close()
    readings = pl.read_parquet(tmp_path / "c" / "readings" / "*.parquet")
    assert readings.height == summary.readings == 2 * 6 + 6 * 4
    assert len(list((tmp_path / "c" / "readings").iterdir())) == 2


def block(second: int) -> Rows:
    out = np.zeros(2, RAW)
    out["target"], out["time_ns"], out["wait"] = (0, 1), (second + 1) * 10**9, second
    return out


def test_waiting_data_is_bounded_and_the_latest_kept(tmp_path: Path, disk: Disk) -> None:
    collection, lines = Collection(tmp_path / "c"), []
    journal = Journal(collection, lines.append, lambda path: None, 10 * 2 * RAW.itemsize)
    journal.begin(TARGETS, {})
    journal.append(block(0))
    disk.full = True
    for second in range(1, 1001):
        journal.append(block(second))
    assert (journal.held, journal.lost) == (20, 2 * 990)
    disk.full = False
    journal.append(block(1001))
    journal.close()
    assert "20 readings written, 1980 readings lost" in lines[-1]
    assert sum("the oldest are dropped" in line for line in lines) == 1
    collection.compact()
    collection.close()
    intervals = pl.read_parquet(tmp_path / "c" / "intervals" / "*.parquet").filter(port=1)
    assert intervals["xmit_wait_ticks"].to_list() == [991] + 10 * [1]
    assert [bool(flags & int(Flag.GAP)) for flags in intervals["flags"]] == [True] + 10 * [False]


def test_messages_at_a_segments_start_enter_that_segment(tmp_path: Path) -> None:
    """A compaction that failed is told of where the next segment begins: within a write."""
    collection = Collection(tmp_path / "c")

    def begun(path: Path) -> None:
        journal.event({"time_ns": 7, "what": "not compacted", "segment": path.name})

    journal = Journal(collection, lambda line: None, begun)
    journal.begin(TARGETS, {})
    journal.append(block(0))
    journal.begin(TARGETS, {})
    journal.append(block(1))
    journal.close()
    assert len(collection.segments()) == 2
    collection.compact()
    collection.close()
    assert pl.read_parquet(tmp_path / "c" / "readings" / "*.parquet").height == 4
    events = sorted((tmp_path / "c" / "events").glob("*.jsonl"))
    assert [len(file.read_text("utf-8").splitlines()) for file in events] == [1, 1]


def test_unwritten_data_at_the_end_is_reported(tmp_path: Path, disk: Disk) -> None:
    subnet = row_of_switches(1, 1)
    board, collection = MetricsBoard(), Collection(tmp_path / "c")
    made = session(subnet, CollectorSettings(interval_ns=500 * MS, sweeps=4), collection, board)
    subnet.clock.when(lambda: board.sweeps >= 2, lambda: setattr(disk, "full", True))
    with pytest.raises(CounterError, match="4 readings held in memory could not be written"):
        made.run()
    collection.close()
    assert journals.MAX_HELD_BYTES < 100 << 20
