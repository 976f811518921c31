"""What is on the disk survives whatever happens to the process."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.collector import store
from tailback.collector.segments import MAGIC, SegmentWriter, read_segment
from tailback.collector.store import Collection
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.schema import CounterError, Flag
from tests.factories.counter_collection import HOSTILE, TARGETS, block


def small_segment(path: Path) -> bytes:
    writer = SegmentWriter(path, TARGETS, {"plan": "sweep"})
    for n in range(3):
        writer.append(block(n * 4, 4))
    writer.event({"time_ns": 1, "what": "reads failed", "node": HOSTILE})
    writer.append(block(12, 4))
    writer.close()
    return path.read_bytes()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    small_segment(tmp_path / "a")
    segment = read_segment(tmp_path / "a")
    assert segment is not None
    assert segment.targets == TARGETS and segment.facts == {"plan": "sweep"}
    assert segment.rows["wait"].tolist() == list(range(16))
    assert segment.events[0]["node"] == HOSTILE and segment.torn_bytes == 0


def test_a_segment_cut_anywhere_holds_a_whole_beginning(tmp_path: Path) -> None:
    contents = small_segment(tmp_path / "a")
    cut = tmp_path / "cut"
    lengths = set()
    for size in range(0, len(contents), 2):
        cut.write_bytes(contents[:size])
        segment = read_segment(cut)
        waits = [] if segment is None else segment.rows["wait"].tolist()
        assert waits == list(range(len(waits))) and len(waits) % 4 == 0
        lengths.add(len(waits))
    assert lengths == {0, 4, 8, 12, 16} - {16}


def test_a_flipped_bit_costs_one_record(tmp_path: Path) -> None:
    contents = small_segment(tmp_path / "a")
    bad = tmp_path / "bad"
    blocks = [list(range(first, first + 4)) for first in (0, 4, 8, 12)]
    lost = set()
    for place in range(len(contents)):
        bad.write_bytes(
            contents[:place] + bytes([contents[place] ^ (1 << place % 8)]) + contents[place + 1 :]
        )
        segment = read_segment(bad)
        assert segment is not None and (segment.damaged_bytes or segment.torn_bytes)
        if segment.header_damaged:
            lost.add("head")
            assert not len(segment.rows)
            continue
        waits = segment.rows["wait"].tolist()
        there = [block for block in blocks if block[0] in waits]
        assert waits == list(itertools.chain(*there)) and len(there) >= 3
        assert len(there) + len(segment.events) == (5 if place < len(MAGIC) else 4)
        lost |= {str(block) for block in blocks if block not in there}
        # Not a reading, but the interval that ends with the next one is not whole.
        flagged = segment.rows["wait"][segment.rows["flags"] == int(Flag.GAP)].tolist()
        first = [block[0] for a, block in itertools.pairwise(blocks) if a not in there]
        if len(segment.events) == 1 and place >= len(MAGIC):
            assert flagged == first
    assert lost == {"head", *map(str, blocks)}


def test_a_damaged_head_costs_readings_not_the_file(tmp_path: Path) -> None:
    collection = _with_a_segment(tmp_path)
    path = collection.segments()[0]
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    assert collection.compact() == [
        "000001.segment: its header is damaged and none of it can be read; "
        "the segment is kept as 000001.damaged"
    ]
    assert path.with_suffix(".damaged").read_bytes() == bytes(data)
    after = collection.begin(TARGETS, {})
    assert after.path.name == "000002.segment", "what is kept is not written over later"
    after.close()
    collection.close()


def test_compaction_after_a_damaged_segment_is_repeatable(tmp_path: Path) -> None:
    collection = _with_a_segment(tmp_path)
    assert collection.compact() == []
    lost = collection.begin(TARGETS, {})
    lost.append(block(4, 4))
    lost.close()
    data = bytearray(lost.path.read_bytes())
    data[30] ^= 1
    lost.path.write_bytes(data)
    last = collection.begin(TARGETS, {})
    last.append(block(8, 4))
    last.close()
    kept = last.path.read_bytes()
    collection.compact()
    first = pl.read_parquet(tmp_path / "intervals/000003.parquet")
    assert first.height == 4
    last.path.write_bytes(kept)
    collection.compact()
    assert pl.read_parquet(tmp_path / "intervals/000003.parquet").equals(first)
    collection.close()


def test_zeros_after_power_loss_stop_no_collector(tmp_path: Path) -> None:
    collection = _with_a_segment(tmp_path)
    path = collection.segments()[0]
    path.write_bytes(bytes(path.stat().st_size))
    assert "before anything was written to it" in collection.compact()[0]
    assert collection.segments() == []
    collection.close()


def test_a_clock_set_back_makes_no_interval(tmp_path: Path) -> None:
    collection = Collection(tmp_path)
    for start, waits in ((7_200_000, [100, 200]), (3_600_000, [300, 400]), (3_600_100, [500, 600])):
        rows = block(0, 2)
        rows["time_ns"] = [start * 1000, start * 1000 + 9000]
        rows["wait"] = waits
        writer = collection.begin(TARGETS, {})
        writer.append(rows)
        writer.close()
        assert collection.compact() == []
    collection.close()
    intervals = pl.read_parquet(tmp_path / "intervals" / "*.parquet")
    # The first interval of the second session has no length; all others are of 100 ticks.
    assert intervals["xmit_wait_ticks"].to_list() == [100, 100, 100, 100]
    assert intervals["interval_ns"].to_list() == [9000, 9000, 91_000, 9000]
    assert intervals["flags"].sum() == 0


def test_numbers_go_on_when_tables_are_moved_away(tmp_path: Path) -> None:
    collection = _with_a_segment(tmp_path)
    assert collection.compact() == []
    for folder in ("readings", "intervals"):
        for file in (tmp_path / folder).iterdir():
            file.rename(tmp_path.parent / f"{folder}-{file.name}")
    (tmp_path / "readings" / "all of May.parquet").touch()
    after = collection.begin(TARGETS, {})
    assert after.path.name == "000002.segment"
    after.close()
    collection.close()


def test_a_collection_that_failed_to_begin_begins_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store, "_write_text", full)
        with pytest.raises(CounterError, match="No space left on device"):
            Collection(tmp_path / "c")
    Collection(tmp_path / "c").close()


def test_a_file_system_without_locks_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_arguments: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(store.fcntl, "flock", unknown)
    with pytest.raises(CounterError, match=r"cannot be locked.*Function not implemented"):
        Collection(tmp_path / "c")


def test_a_file_that_is_no_segment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing of the kind")
    with pytest.raises(CounterError, match="not a segment"):
        read_segment(tmp_path / "x")
    with pytest.raises(CounterError, match="cannot write"):
        SegmentWriter(tmp_path / "x", TARGETS, {})


COLLECTOR = """
import sys
from pathlib import Path
from tests.factories.collect_subnet import row_of_switches, session
from tailback.collector import Collection, CollectorSettings
from tailback.collector import session as sessions
sessions.ROLL_BYTES = 30_000
subnet = row_of_switches(2, 2)
subnet.clock.now = int(sys.argv[2])
made = session(subnet, CollectorSettings(interval_ns=20_000_000), Collection(Path(sys.argv[1])))
made._offset_ns = 0
pause = subnet.clock.sleep
def sleep(seconds):
    print(subnet.clock.now, flush=True)
    pause(seconds)
made._sleep = sleep
made.run()
"""
ROUND_NS = 40_000_000


@pytest.mark.slow
def test_a_killed_collector_loses_a_second_at_most(tmp_path: Path) -> None:
    """SIGKILL at random moments: segments, rolls and compactions are caught at every stage."""
    out = tmp_path / "out"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    draw = random.Random(1)
    killed_ns = [10**9]
    # A collector may read its ports once more between its last line and its death: the next one
    # starts a round later, as time does not run backwards from one collector to the next.
    for _ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", COLLECTOR, str(out), str(killed_ns[-1] + ROUND_NS)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        printed = [child.stdout.readline() for _ in range(draw.randint(40, 120))]
        child.send_signal(signal.SIGKILL)
        printed += child.stdout.read().splitlines(keepends=True)
        # By its own clock: how fast the machine is does not matter.
        killed_ns.append(max(int(line) for line in printed if line.endswith("\n")))
        child.wait()
        child.stdout.close()
    collection = Collection(out)
    collection.compact()
    collection.close()
    assert collection.segments() == []
    readings = pl.read_parquet(out / "readings" / "*.parquet")
    intervals = pl.read_parquet(out / "intervals" / "*.parquet")
    times = readings["time_ns"].sort()
    for moment in killed_ns[1:]:
        before = times.filter(times <= moment)
        assert moment - int(before[-1]) < 1_000_000_000
    place = ["node_guid", "port"]
    assert not readings.select(*place, "time_ns").is_duplicated().any()
    # One interval less than readings for each port: none is lost between segments or restarts.
    counts = readings.group_by(place).len().join(intervals.group_by(place).len(), on=place)
    assert counts.height == 10 and (counts["len"] - counts["len_right"] == 1).all()
    assert (intervals["interval_ns"] > 0).all()
    assert intervals.filter(pl.col("flags") & int(Flag.GAP) != 0).height == 4 * counts.height


def test_a_compaction_that_was_killed_is_done_again(tmp_path: Path) -> None:
    collection = Collection(tmp_path / "c")
    writer = collection.begin(TARGETS, {})
    writer.append(block(0, 4))
    writer.close()
    kept = writer.path.read_bytes()
    collection.compact()
    second = collection.begin(TARGETS, {})
    second.append(block(4, 4))
    second.close()
    again = second.path.read_bytes()
    assert collection.compact() == []
    first = {p.name: p.read_bytes() for p in (tmp_path / "c" / "intervals").iterdir()}
    assert pl.read_parquet(tmp_path / "c/intervals/000002.parquet").height == 4
    # Killed after everything but the removal of the segment.
    second.path.write_bytes(again)
    (tmp_path / "c" / "readings" / "000002.parquet").unlink()
    collection.compact()
    assert {p.name: p.read_bytes() for p in (tmp_path / "c" / "intervals").iterdir()} == first
    third = collection.begin(TARGETS, {})
    assert third.path.name == "000003.segment" and kept != again
    third.close()
    collection.close()


def _with_a_segment(path: Path) -> Collection:
    """A collection with one finished segment."""
    collection = Collection(path)
    writer = collection.begin(TARGETS, {})
    writer.append(block(0, 4))
    writer.close()
    return collection


def test_a_full_disk_keeps_the_segment_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = _with_a_segment(tmp_path)

    def full(_frame: pl.DataFrame, path: Path, **_options: object) -> None:
        path.write_bytes(b"part")
        raise pl.exceptions.ComputeError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pl.DataFrame, "write_parquet", full)
        with pytest.raises(CounterError, match="No space left on device"):
            collection.compact()
    assert len(collection.segments()) == 1
    assert not list(tmp_path.rglob(".*.new"))
    assert collection.compact() == []
    collection.close()


@pytest.mark.parametrize("content", [b"", b"junk", b"array of another kind"])
def test_a_damaged_carry_is_named(tmp_path: Path, content: bytes) -> None:
    collection = _with_a_segment(tmp_path)
    carry = tmp_path / "carry-000000.npy"
    carry.write_bytes(content)
    if content.startswith(b"array"):
        np.save(carry, np.zeros(3))
    with pytest.raises(CounterError, match="last readings") as caught:
        collection.compact()
    assert str(carry) in str(caught.value)
    carry.unlink()
    assert collection.compact() == []
    collection.close()


def test_a_segment_with_a_flipped_bit_is_kept(tmp_path: Path) -> None:
    collection = _with_a_segment(tmp_path)
    path = collection.segments()[0]
    segment = small_segment(tmp_path / "whole")
    place = segment.index(block(4, 4).tobytes())
    path.write_bytes(segment[:place] + bytes([segment[place] ^ 1]) + segment[place + 1 :])
    flipped = path.read_bytes()
    assert "damaged" in collection.compact()[0] and collection.segments() == []
    assert path.with_suffix(".damaged").read_bytes() == flipped
    kept = pl.read_parquet(tmp_path / "readings" / "000001.parquet")["xmit_wait_ticks"]
    assert kept.to_list() == [*range(4), *range(8, 16)]
    collection.close()


def test_a_copy_among_the_segments_is_left_alone(tmp_path: Path) -> None:
    collection = _with_a_segment(tmp_path)
    copy = tmp_path / "segments" / "backup.segment"
    copy.write_bytes(collection.segments()[0].read_bytes())
    assert collection.compact() == [] and copy.exists()
    collection.close()


def test_a_folder_is_one_collectors(tmp_path: Path) -> None:
    collection = Collection(tmp_path / "c")
    with pytest.raises(CounterError, match="another collector"):
        Collection(tmp_path / "c")
    collection.close()
    Collection(tmp_path / "c").close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(CounterError, match="not empty"):
        Collection(tmp_path / "other")
    (tmp_path / "c" / "collection.json").write_text('{"what": "port counters", "format": 99}')
    with pytest.raises(CounterError, match="not a collection"):
        Collection(tmp_path / "c")


def test_a_segment_without_readings_keeps_the_chain(tmp_path: Path) -> None:
    collection = Collection(tmp_path / "c")
    for first in (0, None, 4):
        writer = collection.begin(TARGETS, {})
        if first is not None:
            writer.append(block(first, 4))
        writer.close()
        assert collection.compact() == []
    collection.close()
    assert pl.read_parquet(tmp_path / "c/intervals/000003.parquet").height == 4


def test_the_interval_of_a_speed_change_is_flagged(tmp_path: Path) -> None:
    slower = [replace(TARGETS[0], gbps=13.6), TARGETS[1], replace(TARGETS[1], port=3)]
    faster = [TARGETS[0], TARGETS[1], replace(TARGETS[1], port=3)]
    collection = Collection(tmp_path)
    rows = np.concatenate([block(0, 2), block(0, 2), block(0, 2)])
    rows["target"] = [0, 0, 1, 1, 2, 2]
    for number, targets in enumerate((slower, faster)):
        writer = collection.begin(targets, {})
        rows["time_ns"] += 2000 * number
        writer.append(rows)
        writer.close()
        collection.compact()
    collection.close()
    for table in ("readings", "intervals"):
        readings = pl.read_parquet(tmp_path / table / "*.parquet")
        flagged = readings.filter((pl.col("flags") & int(Flag.RATE_CHANGED)) > 0)
        assert flagged.select("port", "time_ns").rows() == [(1, 3000)]
    # Whoever takes differences of the readings sees it by the speeds that they tell.
    again = difference(pl.read_parquet(tmp_path / "readings" / "*.parquet"))
    flagged = again.filter((pl.col("flags") & int(Flag.RATE_CHANGED)) > 0)
    assert flagged.select("port", "time_ns").rows() == [(1, 3000)]


@pytest.mark.parametrize("wider", ["extended", "extended_wait"])
def test_a_counter_that_got_wider_is_another_one(tmp_path: Path, wider: str) -> None:
    """New firmware counts in 64 bits: what its counter shows says nothing of the old one's."""
    before = [replace(TARGETS[0], extended=wider != "extended")]
    after = [replace(TARGETS[0], **{wider: True})]  # type: ignore[arg-type]
    collection = Collection(tmp_path)
    for number, targets in enumerate((before, after)):
        writer = collection.begin(targets, {})
        rows = block(2 * number, 2)
        rows["wait"] += 10**9 * number
        writer.append(rows)
        writer.close()
        collection.compact()
    collection.close()
    intervals = pl.read_parquet(tmp_path / "intervals" / "*.parquet")
    # One interval in each segment, none between them.
    assert intervals.select("time_ns", "xmit_wait_ticks").rows() == [(2000, 1), (4000, 1)]
