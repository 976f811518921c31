"""The result of every reader of port counters, and the parsing of numbers in text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import polars as pl

from tailback.io.input_files import content, head, is_input_file
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.findings import port_events
from tailback.port_counters.findings.port_events import meaning_of
from tailback.port_counters.increments import possible
from tailback.port_counters.schema import (
    INTERVALS,
    READINGS,
    CounterError,
    Flag,
    conform,
)
from tailback.port_counters.schema import U32_MAX as U32_MAX
from tailback.port_counters.schema import U64_MAX as U64_MAX
from tailback.port_counters.schema import WORD_BYTES as WORD_BYTES
from tailback.port_counters.ticks import OMNI_PATH, tick_of
from tailback.run.schema import DataType, Table

COORDINATES: Final[dict[str, type[pl.DataType]]] = {
    "node_name": pl.String,
    "x": pl.Int32,
    "y": pl.Int32,
    "z": pl.Int32,
}


def _schema(table: Table) -> dict[str, DataType]:
    return dict(table.polars_schema)


@dataclass
class CounterData:
    """Port counters of one source.

    Attributes:
        readings: Cumulative counters, rows of ``schema.READINGS``.
        intervals: Intervals that the source gives directly, rows of ``schema.INTERVALS``.
        unknown: Columns or fields of the source that were not used, in order, each once.
        coordinates: ``node_name, x, y, z`` of torus routers, empty elsewhere.
        notes: What was odd and tolerated.
        by_file_time: Its format has no time stamps, so modification times of files are used.
        events: Counters of errors, pauses, marks and losses, rows of ``port_events.READINGS``.
        left_out: Notes on the files that could not be read beside others that could.
    """

    readings: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_schema(READINGS)))
    intervals: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_schema(INTERVALS)))
    unknown: list[str] = field(default_factory=list)
    coordinates: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COORDINATES))
    notes: list[str] = field(default_factory=list)
    by_file_time: bool = False
    events: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=port_events.READINGS))
    left_out: list[str] = field(default_factory=list)

    def all_events(self) -> pl.DataFrame:
        """Its counters of errors, pauses and marks, and the speeds of its ports."""
        return pl.concat([self.events, port_events.speeds(self.readings)])

    def all_intervals(self, *, tick_ns: float | None = None) -> pl.DataFrame:
        """The intervals of the source and those between its readings, ``schema.INTERVALS``.

        Args:
            tick_ns: Length of a PortXmitWait tick where the source does not give it.
        """
        given = possible(self.intervals.lazy()).collect()
        return pl.concat([given, difference(self.readings, tick_ns=tick_ns)])


def begins_with(path: Path, line: str) -> bool:
    """Whether ``path`` is a text file with a line that matches ``line`` in its first 4 KiB."""
    return is_input_file(path) and bool(re.search(line, _unquoted(head(path, 4096)), re.M))


def _unquoted(text: str) -> str:
    """Text without the marks with which a mail quotes each of its lines."""
    if re.search(r"^(?!>)[^\n]*\S", text, re.M):
        return text
    return re.sub(r"^(?:> ?)+", "", text, flags=re.M)


class CounterReader(Protocol):
    """Interface of a reader module.

    Attributes:
        HAS_TIME_STAMPS: Whether the format has time stamps.
    """

    HAS_TIME_STAMPS: bool

    def sniff(self, path: Path) -> bool:
        """Whether ``path`` (an existing file or folder) looks like this format."""

    def read(self, path: Path, *, time_ns: int | None = None) -> CounterData:
        """Read ``path``; raises CounterError with line and column when it is damaged.

        Args:
            path: A file or folder.
            time_ns: Time of the reading, for sources without time stamps; by default that of the
                file.
        """


def numbered(readings: pl.DataFrame) -> pl.DataFrame:
    """Readings with port numbers for named interfaces: 1, 2, … in natural order on each device.

    Port numbers of a fabric, if given, replace them later; other readings are unchanged.
    """
    ends = readings.filter(pl.col("interface").is_not_null()).select("node_name", "interface")
    if ends.is_empty():
        return readings
    names: dict[str, list[str]] = {}
    for node, interface in ends.unique().iter_rows():
        names.setdefault(node, []).append(interface)
    rows = [
        (node, interface, min(number, 65535))
        for node, mine in names.items()
        for number, interface in enumerate(sorted(mine, key=natural), start=1)
    ]
    schema = {"node_name": pl.String, "interface": pl.String, "_port": pl.UInt16}
    numbers = pl.DataFrame(rows, schema=schema, orient="row")
    joined = readings.join(
        numbers, on=["node_name", "interface"], how="left", maintain_order="left"
    )
    return joined.with_columns(port=pl.coalesce("_port", "port")).drop("_port")


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key under which ``swp2`` comes before ``swp10``."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(1, int(p), "") if p.isdecimal() else (0, 0, p) for p in parts if p]


def merged(parts: Sequence[CounterData]) -> CounterData:
    """Several sources as one, for example one file per instant."""
    return CounterData(
        numbered(pl.concat([part.readings for part in parts])),
        pl.concat([part.intervals for part in parts]),
        list(dict.fromkeys(name for part in parts for name in part.unknown)),
        pl.concat([part.coordinates for part in parts]).unique(maintain_order=True),
        list(dict.fromkeys(note for part in parts for note in part.notes)),
        any(part.by_file_time for part in parts),
        pl.concat([part.events for part in parts]),
    )


def events_of(rows: Iterable[dict[str, Any]], names: str = "events") -> pl.DataFrame:
    """Rows of ``port_events.READINGS``: one for each counter of a reading.

    Args:
        rows: Readings with their place and time, as :func:`readings_of` takes them.
        names: Key of a reading's other counters, by the names of the source.
    """
    place = ("time_ns", "node_guid", "node_name", "port", "interface")
    empty = {"node_guid": 0, "node_name": "", "port": 0}
    return pl.DataFrame(
        [
            (*(row.get(name, empty.get(name)) for name in place), counter, value)
            for row in rows
            for counter, value in row.get(names, {}).items()
        ],
        schema=port_events.READINGS,
        orient="row",
    )


def note_counter(row: dict[str, Any], unknown: dict[str, None], name: str, value: int) -> None:
    """Keep a further counter of a reading if its name has a meaning, else note its name.

    Args:
        row: The reading; its ``events`` grow.
        unknown: Names of counters that are not used; grows.
        name: Name of the counter.
        value: Its value.
    """
    if meaning_of(name) is None:
        unknown.setdefault(name)
    else:
        row.setdefault("events", {})[name] = value


def adapter_tick(device: str, gbps: float | None, lanes: int) -> dict[str, float | None]:
    """``tick_ns`` and ``tick_high_ns`` of a port of an adapter.

    Args:
        device: Name of the adapter, as the kernel gives it.
        gbps: Data rate of the port, None where unknown.
        lanes: Its active lanes, 0 where unknown.
    """
    if gbps is None:
        return {}
    device_id = OMNI_PATH if device.startswith("hfi1_") else 0
    tick = tick_of(gbps, device_id=device_id, lanes=lanes)
    return {"tick_ns": tick.low_ns, "tick_high_ns": None if tick.exact else tick.high_ns}


def readings_of(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a table of readings; ``READINGS`` names and types, missing ones null."""
    schema = READINGS.polars_schema
    present = {name for row in rows for name in row}
    frame = pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in schema if name in present},
        schema={name: dtype for name, dtype in schema.items() if name in present},
    )
    return conform(READINGS, frame)


def missing_flags(row: dict[str, Any]) -> int:
    """Flags of one reading: a missing PortXmitWait."""
    return int(Flag.NO_COUNTER) if row.get("xmit_wait_ticks") is None else 0


def read_text(path: Path) -> str:
    """Text of a file, also as quoted in a mail, bytes that are not UTF-8 replaced.

    Raises:
        CounterError: It cannot be read.
    """
    return _unquoted(content(path, CounterError).decode("utf-8", errors="replace"))


def unreadable(path: Path, error: OSError) -> CounterError:
    """Error for a file that cannot be opened."""
    remedy = "check the path and its permissions"
    if path.is_dir():
        remedy = f"give the files in it: {path}/*"
    return CounterError(f"cannot be read: {error.strerror}", file=path, remedy=remedy)


def time_of(path: Path, time_ns: int | None) -> int:
    """``time_ns``, or the modification time of the file."""
    return path.stat().st_mtime_ns if time_ns is None else time_ns


def parse_counter(text: str, path: Path, line: int, column: int, base: int = 10) -> int:
    """A counter's value; CounterError with line and column unless it is 0 … 2^64 − 1."""
    digits = text.strip()
    allowed = "0123456789abcdefABCDEFxX" if base == 16 else "0123456789"
    if digits and len(digits) <= 32 and all(c in allowed for c in digits):
        try:
            value = int(digits, base)
        except ValueError:
            value = -1
        if 0 <= value <= U64_MAX:
            return value
    raise CounterError(
        f"{quoted_text(text)} is not a counter value (0 to 2^64 − 1)",
        file=path,
        place=f"line {line}, column {column}",
        remedy="the output was cut or edited; collect it again",
    )


def quoted_text(text: str) -> str:
    """Text from a file, quoted and short enough for a message."""
    return repr(text if len(text) <= 60 else text[:57] + "…")
