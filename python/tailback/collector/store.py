"""A collection on disk: a segment while collecting, Parquet tables once it is finished.

::

    DIR/collection.json          marks the folder as a collection
    DIR/segments/000007.segment  being written, or left by a process that was killed
    DIR/readings/000006.parquet  tailback.port_counters.schema.READINGS
    DIR/intervals/000006.parquet tailback.port_counters.schema.INTERVALS
    DIR/ports/000006.parquet     the ports that were read, with their far ends
    DIR/events/000006.jsonl      events during collection
    DIR/carry-000006.npy         the last reading of every port, where the next intervals begin
    DIR/sha256/000006.json       SHA-256 of these

Each step of a compaction writes a new file and renames it, and the segment is deleted last, so a
compaction that is killed can be repeated.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.collector.difference import intervals_frame, pairs
from tailback.collector.readings import (
    ERRORS,
    RAW,
    Rows,
    TargetTable,
    errors_frame,
    last_of_each,
    readings_frame,
)
from tailback.collector.segments import (
    FULL,
    SUFFIX,
    DiskFullError,
    Segment,
    SegmentWriter,
    read_segment,
)
from tailback.io.atomic_exchange import sync
from tailback.io.folders import require_owner
from tailback.io.input_files import content
from tailback.io.parquet import read_table, scan_tables
from tailback.port_counters.schema import CounterError, Flag
from tailback.port_counters.segment_digests import FOLDER, check, digests_of
from tailback.port_counters.targets import PortTarget, ports_frame, targets_of

FORMAT: Final = 2
CARRY: Final = np.dtype(
    [
        ("guid", "<u8"),
        ("port", "<u2"),
        ("data_top", "<u8"),
        ("wait_top", "<u8"),
        ("row", RAW),
        ("errors", ERRORS["values"]),
        ("counted", "?"),
        ("gbps", "<f8"),
        ("boot", "<u8"),
        ("offset_ns", "<i8"),
    ]
)
"""The last reading of a port, its counters' largest values, its speed, and its clock.

``counted`` tells whether its counters of errors are known.
"""

_PARTS: Final = ("segments", "readings", "intervals", "errors", "ports", "events", FOLDER)
_OURS: Final = {*_PARTS, "lock", ".collection.json.new"}
"""Contents of a folder whose creation was interrupted, for example by a full disk."""

_NUMBERED: Final = re.compile(r"(?:carry-)?([0-9]{6})\.(?:segment|damaged|parquet|jsonl|npy|json)")
"""Names of files that belong to a segment."""


@dataclass(frozen=True)
class Clock:
    """The clock of a session: UTC at its start, continued by the monotonic clock of the machine.

    Attributes:
        boot: Boot of the machine, within which monotonic times can be compared. 0 if unknown.
        offset_ns: UTC minus monotonic time, nanoseconds.
    """

    boot: int = 0
    offset_ns: int = 0

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Clock:
        """The clock that a segment states."""
        return cls(int(facts.get("boot", 0)), int(facts.get("offset_ns", 0)))


@dataclass(frozen=True)
class Carried:
    """Last readings before a segment.

    Attributes:
        rows: One reading of each target that has one, as rows of the segment's table.
        other_speed: Targets whose port had another speed then.
        clocks: Clock of each row's time.
        errors: Counters of errors at these readings, as far as they are known.
    """

    rows: Rows
    other_speed: NDArray[np.uint32]
    clocks: list[Clock]
    errors: Rows


class Collection:
    """The folder of a collection, held by one collector at a time.

    Args:
        path: The folder. It is created if it does not exist, and continued if it is a collection.

    Raises:
        CounterError: The folder holds something else, belongs to another user, cannot be written,
            or another collector writes to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        mark = path / "collection.json"
        try:
            path.mkdir(parents=True, exist_ok=True)
            require_owner(path, error=CounterError)
            if not mark.exists() and not {entry.name for entry in path.iterdir()} <= _OURS:
                raise CounterError(
                    "the folder is not empty and is not a collection of port counters",
                    file=path,
                    remedy="choose another folder with --out",
                )
            for part in _PARTS:
                (path / part).mkdir(exist_ok=True)
            self._lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            if not mark.exists():
                text = json.dumps({"what": "port counters", "format": FORMAT}) + "\n"
                _replace(mark, lambda new: _write_text(new, text))
                sync(path.parent)
        except OSError as error:
            raise CounterError(
                f"cannot be written: {error.strerror}",
                file=path,
                remedy="choose another folder with --out",
            ) from None
        _check_format(mark)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise CounterError(
                "another collector writes to this folder",
                file=path,
                remedy="stop it first, or choose another folder with --out",
            ) from None
        except OSError as error:
            os.close(self._lock)
            raise CounterError(
                f"the folder cannot be locked against a second collector: {error.strerror}",
                file=path,
                remedy="choose a folder with --out on a file system with locks (Lustre has them "
                "where it is mounted with -o flock)",
            ) from None

    def close(self) -> None:
        """Release the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def begin(self, targets: list[PortTarget], facts: dict[str, Any]) -> SegmentWriter:
        """Begin the next segment."""
        path = self.path / "segments" / f"{self._next_number():06d}{SUFFIX}"
        return SegmentWriter(path, targets, facts)

    def segments(self) -> list[Path]:
        """Segments that are not compacted yet, oldest first."""
        files = (self.path / "segments").glob(f"*{SUFFIX}")
        # Ignore other names, for example a user's copy of a segment.
        return sorted(path for path in files if path.name[: -len(SUFFIX)].isdecimal())

    def compact(self, being_written: Path | None = None) -> list[str]:
        """Convert every segment to Parquet, except the one being written.

        Returns:
            Notes: octets lost at the end of a segment or within it, segments with a damaged header.

        Raises:
            CounterError: A file cannot be read or written. Its segment stays.
        """
        notes = []
        for path in self.segments():
            if path == being_written:
                continue
            segment = read_segment(path)
            if segment is None:
                notes.append(
                    f"{path.name}: the collector was killed before anything was written to it"
                )
                path.unlink()
                continue
            notes += _loss_notes(path, segment)
            if not segment.header_damaged:
                self._compact_one(int(path.name[: -len(SUFFIX)]), segment)
            if segment.damaged_bytes or segment.header_damaged:
                path.replace(path.with_suffix(".damaged"))
            else:
                path.unlink()
        return notes

    def _compact_one(self, number: int, segment: Segment) -> None:
        table = TargetTable.of(segment.targets)
        name = f"{number:06d}"
        clock = Clock.of(segment.facts)
        carried = self._carry_over(number, table, clock)
        _flag_first(segment.rows, carried.other_speed)
        rows = np.concatenate([carried.rows, segment.rows])
        before, after = pairs(rows)
        errors = np.concatenate([carried.errors, segment.errors])
        parts = (
            ("readings", readings_frame(segment.rows, table)),
            ("intervals", intervals_frame(before, after, table)),
            ("errors", errors_frame(errors, rows, table)),
            ("ports", ports_frame(segment.targets)),
        )
        for folder, frame in parts:
            _replace(self.path / folder / f"{name}.parquet", _parquet_writer(frame))
        if segment.events:
            lines = "".join(json.dumps(event) + "\n" for event in segment.events)
            _replace(self.path / "events" / f"{name}.jsonl", lambda new: _write_text(new, lines))
        # If a segment has no reading of a port, the last reading before it still counts.
        clocks = [*carried.clocks, *[clock] * len(segment.rows)]
        carry = _last_of_each(rows, table, clocks, last_of_each(errors))
        _replace(self.path / f"carry-{name}.npy", lambda new: _save(new, carry))
        _replace(
            self.path / FOLDER / f"{name}.json",
            lambda new: _write_text(new, digests_of(self.path, name)),
        )
        earlier = (p for p in self.path.glob("carry-*.npy") if p.name < f"carry-{name}.npy")
        # Keep the previous one: this compaction may be killed and have to be repeated.
        for old in sorted(earlier)[:-1]:
            old.unlink()

    def last_readings(self, targets: Sequence[PortTarget], clock: Clock) -> Rows:
        """The last reading of each target in the compacted part, with times of ``clock``."""
        return self._carry_over(self._next_number(), TargetTable.of(targets), clock).rows

    def last_targets(self) -> tuple[list[PortTarget] | None, int | None]:
        """The ports of the last finished segment and the time of their last reading.

        Both are None where there is none, or it cannot be read.
        """
        files = sorted((self.path / "ports").glob("*.parquet"))
        try:
            check(files[-1])
            rows = read_table(files[-1], error=CounterError)
            intervals = scan_tables(self.path / "intervals" / files[-1].name, error=CounterError)
            last = intervals.select(pl.col("time_ns").max()).collect().item()
            return targets_of(rows), last
        except (IndexError, CounterError, OSError, pl.exceptions.PolarsError):
            return None, None

    def _carry_over(self, number: int, table: TargetTable, clock: Clock) -> Carried:
        """The last reading of each target before segment ``number``, as rows of its table.

        A reading of the same boot gets the time of ``clock``. A step of the machine's clock between
        two sessions then neither prevents an interval nor changes its length.
        """
        files = [p for p in self.path.glob("carry-*.npy") if p.name < f"carry-{number:06d}.npy"]
        if not files:
            return Carried(np.empty(0, RAW), np.empty(0, np.uint32), [], np.empty(0, ERRORS))
        last = max(files)
        check(last)
        try:
            carry = np.load(last, allow_pickle=False)
            if carry.dtype != CARRY or carry.ndim != 1:
                raise ValueError("it has another format")
        except (OSError, EOFError, ValueError) as error:
            raise CounterError(
                f"the last readings before the segment cannot be read: {error}",
                file=last,
                remedy="delete it: intervals then begin with the next reading of each port",
            ) from None
        index = {(t.guid, t.port): i for i, t in enumerate(table.targets)}
        rows: Rows = carry["row"].copy()
        keep = np.zeros(len(carry), np.bool_)
        for place, (guid, port) in enumerate(
            zip(carry["guid"].tolist(), carry["port"].tolist(), strict=True)
        ):
            target = index.get((guid, port))
            if target is None:
                continue
            # A counter whose width changed cannot be continued.
            keep[place] = (
                carry["data_top"][place] == table.data_top[target]
                and carry["wait_top"][place] == table.wait_top[target]
            )
            rows["target"][place] = target
        same_boot = (carry["boot"] == clock.boot) & (clock.boot != 0)
        rows["time_ns"] += np.where(same_boot, clock.offset_ns - carry["offset_ns"], 0)
        clocks = [
            clock if same else Clock(int(boot), int(offset))
            for same, boot, offset in zip(
                same_boot[keep], carry["boot"][keep], carry["offset_ns"][keep], strict=True
            )
        ]
        kept: Rows = rows[keep]
        now, before = table.gbps[kept["target"]], carry["gbps"][keep]
        # An unknown speed does not count as a change.
        changed = (before != now) & (before > 0) & (now > 0)
        counted_rows = carry["counted"][keep]
        errors = np.empty(np.count_nonzero(counted_rows), ERRORS)
        errors["target"] = kept["target"][counted_rows]
        errors["time_ns"] = kept["time_ns"][counted_rows]
        errors["values"] = carry["errors"][keep][counted_rows]
        return Carried(kept, kept["target"][changed], clocks, errors)

    def _next_number(self) -> int:
        # Tables may have been moved elsewhere, and a number must not be reused. The last readings
        # of ports remain. Other names are the user's own files.
        names = [p.name for part in (".", *_PARTS) for p in (self.path / part).iterdir()]
        matches = (_NUMBERED.fullmatch(name) for name in names)
        return max((int(match[1]) for match in matches if match), default=0) + 1


def _loss_notes(path: Path, segment: Segment) -> list[str]:
    """Notes on lost data of a segment, one line each."""
    notes = []
    kept = f"the segment is kept as {path.stem}.damaged"
    if segment.header_damaged:
        notes.append(f"{path.name}: its header is damaged and none of it can be read; {kept}")
    elif segment.damaged_bytes:
        notes.append(
            f"{path.name}: {segment.damaged_bytes} octets are damaged and were not read; {kept}"
        )
    if segment.torn_bytes and not segment.header_damaged:
        notes.append(f"{path.name}: {segment.torn_bytes} octets at its end are incomplete")
    return notes


def _flag_first(rows: Rows, targets: NDArray[np.uint32]) -> None:
    """Flag the first reading of each of ``targets`` as having a changed speed."""
    _, first = np.unique(rows["target"], return_index=True)
    first = first[np.isin(rows["target"][first], targets)]
    rows["flags"][first] |= np.uint32(Flag.RATE_CHANGED)


def _last_of_each(
    rows: Rows, table: TargetTable, clocks: list[Clock], errors: Rows
) -> NDArray[Any]:
    """The last reading of each target, with the identity of its port and the clock of its time."""
    # In order of writing, not by time: the clock may have been set back between sessions.
    order = np.argsort(rows["target"], kind="stable")
    if len(rows):
        target = rows["target"][order]
        order = order[np.append(target[1:] != target[:-1], True)]
    rows, clocks = rows[order], [clocks[row] for row in order]
    carry = np.zeros(len(rows), CARRY)
    _, mine, theirs = np.intersect1d(rows["target"], errors["target"], return_indices=True)
    carry["errors"][mine], carry["counted"][mine] = errors["values"][theirs], True
    at = rows["target"]
    carry["guid"], carry["port"], carry["row"] = table.guid[at], table.port[at], rows
    carry["data_top"], carry["wait_top"] = table.data_top[at], table.wait_top[at]
    carry["gbps"] = table.gbps[at]
    carry["boot"] = [clock.boot for clock in clocks]
    carry["offset_ns"] = [clock.offset_ns for clock in clocks]
    return carry


def _check_format(mark: Path) -> None:
    try:
        facts = json.loads(content(mark, CounterError))
        is_readable = facts["what"] == "port counters" and facts["format"] == FORMAT
    except (CounterError, ValueError, KeyError, TypeError):
        is_readable = False
    if not is_readable:
        raise CounterError(
            "is not a collection this version can continue",
            file=mark,
            remedy="choose another folder with --out",
        )


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file next to ``path`` and rename it once it is complete and on the disk.

    Raises:
        CounterError: It cannot be written. No partial file is left.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        write(new)
        sync(new)
        new.replace(path)
        sync(path.parent)
    except (OSError, pl.exceptions.PolarsError) as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        full = getattr(error, "errno", None) in FULL or "No space left" in str(error)
        kind = DiskFullError if full else CounterError
        raise kind(
            f"cannot be written: {getattr(error, 'strerror', None) or error}",
            file=path,
            remedy="free space on the disk, then add --compact: what was collected is in segments/",
        ) from None


def _parquet_writer(frame: pl.DataFrame) -> Callable[[Path], None]:
    return lambda new: frame.write_parquet(new, compression="zstd")


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _save(path: Path, array: NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)
