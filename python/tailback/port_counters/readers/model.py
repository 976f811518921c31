"""The result of every reader of port counters, and the parsing of numbers in text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import polars as pl

from tailback.errors import TailbackError
from tailback.io.delimited import Delimited, header_names, normal, parse
from tailback.io.input_files import content, head, is_input_file
from tailback.port_counters.analysis.classes import CLASSES
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
from tailback.units import counted

COORDINATES: Final[dict[str, type[pl.DataType]]] = {
    "node_name": pl.String,
    "x": pl.Int32,
    "y": pl.Int32,
    "z": pl.Int32,
}


FAR_ENDS: Final[dict[str, type[pl.DataType]]] = {
    "node_guid": pl.UInt64,
    "node_name": pl.String,
    "port": pl.UInt16,
    "interface": pl.String,
    "peer_name": pl.String,
    "peer_port": pl.UInt16,
}
"""Ports with the device, and the port if known, at the far end of their cables."""


def _schema(table: Table) -> dict[str, DataType]:
    return dict(table.polars_schema)


@dataclass(frozen=True)
class DeviceIdentity:
    """A device as its source identifies it.

    Attributes:
        name: Its name.
        labels: Name and value of each further field that identifies it.
    """

    name: str
    labels: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """Text that only this device has."""
        return repr((self.name, self.labels))


@dataclass(frozen=True)
class Unprinted:
    """Counters and ports that a source leaves out of one reading of a fabric.

    Attributes:
        thresholds: Largest value that is not printed, of counters with one above 0; None if the
            source does not state it.
        suppressed: Counters that are never printed.
        checked: Numbers of devices and ports that were read; None if not stated.
        complete: No query failed.
    """

    thresholds: Mapping[str, int] | None
    suppressed: frozenset[str] = frozenset()
    checked: tuple[int, int] | None = None
    complete: bool = True


@dataclass
class CounterData:
    """Port counters of one source.

    Attributes:
        readings: Cumulative counters, rows of ``schema.READINGS``.
        intervals: Intervals that the source gives directly, rows of ``schema.INTERVALS``.
        unknown: Columns or fields of the source that were not used, in order, each once.
        coordinates: ``node_name, x, y, z`` of torus routers, empty elsewhere.
        notes: What was odd and tolerated.
        untimed: The source states no time: that of the file or of the caller is used.
        events: Counters of errors, pauses, marks and losses, rows of ``port_events.READINGS``.
        left_out: Notes on files, and on rows of files, that could not be read beside others that
            could. :func:`united` puts them first among its notes.
        damaged: Devices, by their names here, and numbers of ports of which a reading was damaged.
        stated_ticks: Bytes in a tick of PortXmitWait that a device states, by its name here.
        devices: Devices that fields beside their name identify. Until :func:`united`, their
            ``node_name`` in the tables is the key in this dictionary.
        unprinted: What the source leaves out; None if it prints every counter.
        far_ends: Far ends of ports that the source states, ``FAR_ENDS``.
        classes: Classes of ports that the source states, as ``classes.classify`` returns them.
    """

    readings: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_schema(READINGS)))
    intervals: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_schema(INTERVALS)))
    unknown: list[str] = field(default_factory=list)
    coordinates: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COORDINATES))
    notes: list[str] = field(default_factory=list)
    untimed: bool = False
    events: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=port_events.READINGS))
    left_out: list[str] = field(default_factory=list)
    damaged: frozenset[tuple[str, int]] = frozenset()
    stated_ticks: dict[str, int] = field(default_factory=dict)
    devices: dict[str, DeviceIdentity] = field(default_factory=dict)
    unprinted: Unprinted | None = None
    far_ends: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FAR_ENDS))
    classes: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=CLASSES))

    def all_events(self) -> pl.DataFrame:
        """Its counters of errors, pauses and marks, and the speeds of its ports."""
        speeds = port_events.speeds(self.readings)
        return pl.concat([self.events, speeds], how="diagonal")

    @property
    def waits_counted(self) -> bool:
        """Whether most ports have ever waited, so that one that does not wait counts so."""
        waits = self.readings.group_by("node_guid", "node_name", "port").agg(
            (pl.col("xmit_wait_ticks") > 0).any().fill_null(False).alias("waited")
        )["waited"]
        return 2 * int(waits.sum()) > len(waits)

    def all_intervals(self, *, tick_ns: float | None = None) -> pl.DataFrame:
        """The intervals of the source and those between its readings, ``schema.INTERVALS``.

        Args:
            tick_ns: Length of a PortXmitWait tick where the source does not give it.
        """
        measured = possible(self.intervals.lazy()).collect()
        return pl.concat([measured, difference(self.readings, tick_ns=tick_ns)])


def begins_with(path: Path, line: str) -> bool:
    """Whether ``path`` is a text file with a line that matches ``line`` in its first 4 KiB."""
    return is_input_file(path) and bool(re.search(line, _strip_quotes(head(path, 4096)), re.M))


def _strip_quotes(text: str) -> str:
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


def identified(
    frame: pl.DataFrame, labels: Mapping[str, str]
) -> tuple[pl.DataFrame, dict[str, DeviceIdentity]]:
    """Rows whose ``node_name`` is the key of a device, and the devices.

    Args:
        frame: Rows with ``node_name`` and the columns of ``labels``.
        labels: Columns that identify a device beside its name, and their names in the source.
    """
    if not labels:
        return frame, {}
    columns = ["node_name", *labels]
    rows = frame.select(columns).unique(maintain_order=True)
    devices = [
        DeviceIdentity(
            str(name),
            tuple((n, str(v)) for n, v in zip(labels.values(), values, strict=True) if v),
        )
        for name, *values in rows.cast(pl.String).iter_rows()
    ]
    keys = rows.with_columns(_key=pl.Series([device.key for device in devices], dtype=pl.String))
    out = frame.join(keys, on=columns, how="left", nulls_equal=True, maintain_order="left")
    named = out.with_columns(node_name="_key").drop("_key")
    return named, {device.key: device for device in devices}


def united(parts: Sequence[CounterData]) -> CounterData:
    """Several sources as one, for example one file per instant, with the names of all devices."""
    devices = {key: device for part in parts for key, device in part.devices.items()}
    readings = pl.concat([part.readings for part in parts])
    intervals = pl.concat([part.intervals for part in parts])
    events = pl.concat([part.events for part in parts], how="diagonal")
    names, notes = _names(devices, (readings, intervals, events))
    left_out = [note for part in parts for note in part.left_out]
    shared = [name for name, count in Counter(names.values()).items() if count > 1]

    def named(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("node_name").replace(names)) if names else frame

    return CounterData(
        numbered(_merge_series(named(readings), shared)),
        named(intervals),
        list(dict.fromkeys(name for part in parts for name in part.unknown)),
        pl.concat([part.coordinates for part in parts]).unique(maintain_order=True),
        list(dict.fromkeys([*left_out, *(note for part in parts for note in part.notes), *notes])),
        any(part.untimed for part in parts),
        named(events),
        left_out=left_out,
        damaged=frozenset[tuple[str, int]]().union(*(part.damaged for part in parts)),
        stated_ticks={name: size for part in parts for name, size in part.stated_ticks.items()},
        far_ends=named(pl.concat([part.far_ends for part in parts]).unique(maintain_order=True)),
        classes=pl.concat([part.classes for part in parts]).unique(maintain_order=True),
    )


_COUNTERS: Final = (
    "data_bytes",
    "packets",
    "xmit_wait_ticks",
    "stall_ns",
    "stall_fraction",
    "utilization",
    "backlog_bytes",
    "drops",
)
"""Columns of readings or intervals that only one device can have of one port."""


def _names(
    devices: Mapping[str, DeviceIdentity], tables: Sequence[pl.DataFrame]
) -> tuple[dict[str, str], list[str]]:
    """Name of each device by its key, and a note on names that several devices have.

    Labels are part of a name only where they distinguish two devices with the same counter of the
    same port. A label may also describe a counter, such as the kind of its queue.
    """
    sharing = Counter(device.name for device in devices.values())
    keys = [key for key, device in devices.items() if sharing[device.name] > 1]
    values: dict[tuple[object, ...], dict[str, DeviceIdentity]] = defaultdict(dict)
    for key, *port, counter in _list_counters(tables, keys).iter_rows() if keys else ():
        values[devices[key].name, *port, counter][key] = devices[key]
    telling: dict[str, set[str]] = defaultdict(set)
    for alike in values.values():
        first, *others = (dict(device.labels) for device in alike.values())
        for labels in others:
            differing = (n for n in {*first, *labels} if first.get(n) != labels.get(n))
            telling[next(iter(alike.values())).name].update(differing)
    names = {}
    for key, device in devices.items():
        suffix = [f"{n} {v}" for n, v in device.labels if n in telling.get(device.name, ())]
        names[key] = f"{device.name} ({', '.join(suffix)})" if suffix else device.name
    if not telling:
        return names, []
    apart = [names[key] for key in keys if devices[key].name in telling]
    labels_used = ", ".join(sorted(set().union(*telling.values())))
    some = ", ".join(dict.fromkeys(name[:60] for name in apart[:3]))
    return names, [
        f"names that several devices have: {len(telling)}; {labels_used} told them apart, like "
        f"{some}; if these are one device, give the counters of one source"
    ]


def _list_counters(tables: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """Key, port and counter of each counter of some devices."""
    place = ["node_name", "node_guid", "port", "interface"]
    parts = []
    for table in tables:
        rows = table.filter(pl.col("node_name").is_in(keys))
        if "counter" not in rows.columns:
            columns = [name for name in _COUNTERS if name in rows.columns]
            counted = rows.group_by(place).agg(pl.col(columns).is_not_null().any())
            rows = counted.unpivot(columns, index=place, variable_name="counter").filter("value")
        parts.append(rows.select(*place, "counter").unique())
    return pl.concat(parts).sort("node_name")


def _merge_series(readings: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Readings in which the counters of a port at an instant, from several series, are one row."""
    if not names:
        return readings
    place = ["time_ns", "node_guid", "node_name", "port", "interface", "direction"]
    several = pl.col("node_name").is_in(names)
    merged = readings.filter(several).group_by(place, maintain_order=True)
    joined = merged.agg(pl.exclude(place).drop_nulls().first()).select(readings.columns)
    return pl.concat([readings.filter(~several), joined])


def with_all_drops(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the ``queue_drops`` of each reading added to its ``drops``.

    Linux counts what the queueing discipline of an interface drops apart from what its core and the
    driver drop (``tx_dropped``): no packet is in both. Where a port has both, a reading of one
    alone does not give the sum.
    """
    if "queue_drops" not in frame.columns:
        return frame
    kinds = [name for name in ("drops", "queue_drops") if name in frame.columns]
    place = ("node_name", "port", "interface")
    lacking = [
        pl.col(name).is_null() & pl.col(name).is_not_null().any().over(place) for name in kinds
    ]
    counted = pl.any_horizontal(pl.col(kinds).is_not_null()) & ~pl.any_horizontal(lacking)
    total = pl.when(counted).then(pl.sum_horizontal(kinds))
    return frame.with_columns(drops=total).drop("queue_drops")


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


def event_aliases(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Roles of the columns of errors, pauses and marks, for ``delimited.parse``."""
    return {f"event {name}": (normal(name),) for name in names}


def events_of_table(table: Delimited, place: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Rows of ``port_events.READINGS`` from the columns of :func:`event_aliases`.

    Args:
        table: The table.
        place: Time and port of each of its rows, under the names of ``READINGS``.
        names: The columns.
    """
    counters = {
        name: table.number(role, integer=True)
        for name in names
        if (role := f"event {name}") in table.header
    }
    index = [name for name in port_events.READINGS if name in place.columns]
    rows = place.select(index).with_columns(**counters)
    rows = rows.unpivot(list(counters), variable_name="counter", index=index)
    kept = rows.drop_nulls("value") if counters else rows.clear()
    empty = {"node_guid": 0, "node_name": "", "port": 0}
    return kept.select(
        pl.col(name).cast(dtype)
        if name in kept.columns
        else pl.lit(empty.get(name), dtype).alias(name)
        for name, dtype in port_events.READINGS.items()
    )


def parse_with_events(
    path: Path,
    aliases: Mapping[str, tuple[str, ...]],
    needed: Sequence[str],
    *,
    integers: Collection[str],
    numbers: Collection[str] = (),
) -> tuple[Delimited, list[str], list[str]]:
    """A table of text whose rows have times, its columns of events, and notes on damaged rows.

    A row that is cut, or holds a wrong value, is left out.

    Args:
        path: The file, plain or gzip.
        aliases: Names of the columns of each role.
        needed: Roles that the table must have.
        integers: Roles of whole numbers, beside those of errors, pauses and marks. Unlike others of
            ``needed``, their fields may be empty.
        numbers: Roles of other numbers.

    Raises:
        CounterError: It is damaged or lacks a column, or no row can be read; with line and column.
    """
    names = [name for name in header_names(head(path)) if meaning_of(name) is not None]
    events = event_aliases(names)
    data, cut = content(path, CounterError), list[TailbackError]()
    table = parse(
        data, {**aliases, **events}, needed, path=path, error_type=CounterError, damaged=cut
    )
    table, wrong = table.without_damaged_rows(
        needed=[role for role in needed if role not in integers],
        times=("time",),
        integers=(*integers, *events),
        numbers=numbers,
    )
    problems = [*cut, *wrong]
    if problems and table.rows.is_empty():
        raise problems[0]
    return table, names, [left_out_rows(problems)] if problems else []


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
    return _strip_quotes(content(path, CounterError).decode("utf-8", errors="replace"))


def cut_text(path: Path, line: int) -> CounterError:
    """Error for the last port in the output of a tool that was cut within it.

    Args:
        path: The file.
        line: Its last line.
    """
    return CounterError(
        "the file ends within this port",
        file=path,
        place=f"line {line}",
        remedy="the output was cut; collect it again",
    )


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


def left_out_rows(problems: Sequence[TailbackError], what: str = "damaged row") -> str:
    """A note on damaged parts of a file, the first of which it names.

    Args:
        problems: One for each part, with file and place; at least one.
        what: One of the parts.
    """
    first = problems[0]
    file = "" if first.file is None else f"{first.file.name}, "
    return f"left out: {counted(len(problems), what)} ({file}{first.place}: {first.message})"


def quoted_text(text: str) -> str:
    """Text from a file, quoted and short enough for a message."""
    return repr(text if len(text) <= 60 else text[:57] + "…")
