"""What is on the disk survives whatever happens to the process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.counters.collect.readings import RAW
from tailback.counters.collect.segments import SegmentWriter, read_segment
from tailback.counters.collect.store import Collection
from tailback.counters.collect.subnet import PortTarget
from tailback.counters.schema import CounterError, Flag

HOSTILE = "sw\"'<script>\n\x1b[31m`rm -rf`\\"
TARGETS = [
    PortTarget(5, HOSTILE, True, 1, 7, 54.5, 22.0, "published", extended=True),
    PortTarget(5, HOSTILE, True, 2, 7, 54.5, 22.0, "published", extended=True),
]


def block(first: int, count: int) -> np.ndarray:
    made = np.zeros(count, RAW)
    made["time_ns"] = np.arange(first, first + count) * 1000 + 1000
    made["wait"] = np.arange(first, first + count)
    return made


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
    whole = small_segment(tmp_path / "a")
    cut = tmp_path / "cut"
    lengths = set()
    for size in range(0, len(whole), 2):
        cut.write_bytes(whole[:size])
        segment = read_segment(cut)
        waits = [] if segment is None else segment.rows["wait"].tolist()
        assert waits == list(range(len(waits))) and len(waits) % 4 == 0
        lengths.add(len(waits))
    assert lengths == {0, 4, 8, 12, 16} - {16}


def test_a_flipped_bit_is_never_taken_for_a_reading(tmp_path: Path) -> None:
    whole = small_segment(tmp_path / "a")
    draw = random.Random(5)
    bad = tmp_path / "bad"
    for _ in range(300):
        place = draw.randrange(8, len(whole))
        bad.write_bytes(
            whole[:place] + bytes([whole[place] ^ (1 << draw.randrange(8))]) + whole[place + 1 :]
        )
        segment = read_segment(bad)
        waits = [] if segment is None else segment.rows["wait"].tolist()
        assert waits == list(range(len(waits)))


def test_a_file_that_is_no_segment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing of the kind")
    with pytest.raises(CounterError, match="not a segment"):
        read_segment(tmp_path / "x")
    with pytest.raises(CounterError, match="cannot write"):
        SegmentWriter(tmp_path / "x", TARGETS, {})


COLLECTOR = """
import sys, time
from pathlib import Path
from collect_subnet import row_of_switches
from tailback.counters.collect import Board, Collection, Exchange, Session, Settings
import tailback.counters.collect.session as session
session.ROLL_BYTES = 30_000
subnet = row_of_switches(2, 2)
exchange = Exchange(subnet)
collection = Collection(Path(sys.argv[1]))
Session(Settings(interval_ns=2_000_000), exchange, collection, Board(),
        lambda line: print(line, flush=True)).run()
"""


def test_a_collector_killed_again_and_again_loses_a_second_at_most(tmp_path: Path) -> None:
    """SIGKILL at random moments: segments, rolls and compactions are caught at every stage."""
    out = tmp_path / "out"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    }
    draw = random.Random(1)
    killed_ns = []
    for _ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", COLLECTOR, str(out)],
            env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        assert "ports" in child.stdout.readline()
        time.sleep(0.4 + draw.random() * 0.4)
        child.send_signal(signal.SIGKILL)
        killed_ns.append(time.time_ns())
        child.wait()
        child.stdout.close()
    collection = Collection(out)
    collection.compact()
    collection.close()
    assert collection.segments() == []
    readings = pl.read_parquet(out / "readings" / "*.parquet")
    intervals = pl.read_parquet(out / "intervals" / "*.parquet")
    times = readings["time_ns"].sort()
    for moment in killed_ns:
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


def test_a_full_disk_keeps_the_segment_and_leaves_no_part(
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
    whole = small_segment(tmp_path / "whole")
    place = whole.index(block(4, 4).tobytes())
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    flipped = path.read_bytes()
    assert "damaged" in collection.compact()[0] and collection.segments() == []
    assert path.with_suffix(".damaged").read_bytes() == flipped
    assert pl.read_parquet(tmp_path / "readings" / "000001.parquet").height == 4
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


def test_a_segment_without_readings_does_not_break_the_chain(tmp_path: Path) -> None:
    collection = Collection(tmp_path / "c")
    for first in (0, None, 4):
        writer = collection.begin(TARGETS, {})
        if first is not None:
            writer.append(block(first, 4))
        writer.close()
        assert collection.compact() == []
    collection.close()
    assert pl.read_parquet(tmp_path / "c/intervals/000003.parquet").height == 4
