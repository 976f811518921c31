r"""InfluxDB's line protocol: exports of a database, and what Telegraf writes to a file.

::

    infiniband,device=mlx5_0,host=n1,port=1 port_xmit_data=2383i,port_xmit_wait=44i 1700000000

Counters of Telegraf's inputs ``infiniband``, ``ethtool`` and ``net`` are read, and those of other
measurements with the same fields. Times are nanoseconds since 1970; other precisions of an export
are told by their size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tailback.io.input_files import content, head, is_input_file
from tailback.port_counters.readers.interface_counters import COLUMNS, interface_row
from tailback.port_counters.readers.model import (
    U64_MAX,
    WORD_BYTES,
    CounterData,
    DeviceIdentity,
    events_of,
    left_out_rows,
    missing_flags,
    note_counter,
    quoted_text,
    readings_of,
)
from tailback.port_counters.schema import CounterError

HAS_TIME_STAMPS = True

_WORDS: Final = {
    f"port_{side}_data{width}": column
    for side, column in (("xmit", "data_bytes"), ("rcv", "received_bytes"))
    for width in ("", "_64")
}
_COUNTS: Final = {
    "port_rcv_packets": "received_packets",
    "port_rcv_packets_64": "received_packets",
    "port_xmit_packets": "packets",
    "port_xmit_packets_64": "packets",
    "port_xmit_wait": "xmit_wait_ticks",
}
_NODE: Final = ("host", "node", "node_name", "hostname", "switch", "source")
_INTERFACE: Final = ("interface", "iface", "ifname", "name")
_PORT: Final = ("port", "port_num", "port_number")
_ONE: Final = r"(?:\\.|[^\\,= ])+"
_FIELD: Final = rf'{_ONE}=(?:"(?:\\.|[^"\\])*"|(?:\\.|[^\\, ])+)'
_LINE: Final = re.compile(
    rf"(?P<measurement>(?:\\.|[^\\, ])+)(?P<tags>(?:,{_ONE}={_ONE})*)"
    rf" +(?P<fields>{_FIELD}(?:,{_FIELD})*)(?: +(?P<time>-?[0-9]{{1,19}}))?\s*"
)
_PAIR: Final = re.compile(rf'({_ONE})=("(?:\\.|[^"\\])*"|(?:\\.|[^\\, ])+)')
_WHOLE: Final = re.compile(r"([0-9]{1,20})[iu]?|([0-9]+\.0*(?:e\+?[0-9]+)?)")
_ETHERNET: Final = frozenset(n for names in COLUMNS.values() for group in names for n in group)
_REMEDY: Final = "export it again, as lines of InfluxDB's line protocol"


def sniff(path: Path) -> bool:
    """A text whose first line is a point with a counter of a port."""
    if not is_input_file(path):
        return False
    for line in head(path).splitlines()[:50]:
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            return False
        fields = dict(_PAIR.findall(match["fields"]))
        if fields.keys() & (_WORDS.keys() | _COUNTS.keys() | _ETHERNET):
            return True
    return False


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the points of one file.

    Args:
        path: The file, plain or gzip.
        time_ns: Not needed: every point has its time. Given, it is added to all of them.

    Raises:
        CounterError: No point is a counter of a port, or no line can be read; a damaged line, or
            one without a time, is left out.
    """
    problems: list[CounterError] = []
    readings: dict[tuple[Any, ...], tuple[DeviceIdentity, dict[str, int]]] = {}
    text = content(path, CounterError).decode("utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or match["time"] is None:
            what = "is no point of the line protocol" if match is None else "has no time"
            damage = CounterError(
                f"{quoted_text(line)} {what}",
                file=path,
                place=f"line {number}, column 1",
                remedy=_REMEDY,
            )
            problems.append(damage)
            continue
        counters = {
            _plain(name): value
            for name, shown in _PAIR.findall(match["fields"])
            if (value := _number(shown)) is not None
        }
        tags = {_plain(name): _plain(value) for name, value in _PAIR.findall(match["tags"])}
        device, port, interface = _place(tags)
        if not counters or (port == 0 and interface is None):
            continue
        time = _nanoseconds(int(match["time"])) + (time_ns or 0)
        key = (time, device.key, port, interface)
        readings.setdefault(key, (device, {}))[1].update(counters)
    rows: list[dict[str, Any]] = []
    unknown: dict[str, None] = {}
    for (time, node, port, interface), (_, counters) in readings.items():
        row = _row(counters, unknown, numbered=interface is None)
        if row is not None:
            place = {"time_ns": time, "node_name": node, "port": port, "interface": interface}
            rows.append({**row, **place, "source": "influxdb"})
    if problems and not rows:
        raise problems[0]
    if not rows:
        raise CounterError(
            "no point is a counter of a port",
            file=path,
            place="line 1, column 1",
            remedy="export the measurements infiniband, ethtool or net of Telegraf",
        )
    return CounterData(
        readings_of(rows),
        unknown=list(unknown),
        events=events_of(rows),
        left_out=[left_out_rows(problems)] if problems else [],
        devices={device.key: device for device, _ in readings.values()},
    )


def _row(
    counters: Mapping[str, int], unknown: dict[str, None], *, numbered: bool
) -> dict[str, Any] | None:
    """Columns of a reading; None if it has no counter of what a port sends."""
    if not numbered:
        return interface_row(counters, unknown)
    row: dict[str, Any] = {}
    for name, value in counters.items():
        if name in _WORDS:
            row[_WORDS[name]] = max(row.get(_WORDS[name], 0), min(value * WORD_BYTES, U64_MAX))
        elif name in _COUNTS:
            row[_COUNTS[name]] = max(row.get(_COUNTS[name], 0), value)
        else:
            note_counter(row, unknown, name, value)
    if not row:
        return None
    return {**row, "flags": missing_flags(row)}


def _place(tags: Mapping[str, str]) -> tuple[DeviceIdentity, int, str | None]:
    """Device, number and interface of the port of a point."""
    node = _first(tags, _NODE)
    port, interface, adapter = _first(tags, _PORT), _first(tags, _INTERFACE), tags.get("device")
    name = tags.get(node, "") if node else ""
    number = tags.get(port, "") if port else ""
    used = {node, port, interface, "device", "driver"}
    if number.isdecimal() and len(number) < 5:
        name = f"{name} {adapter}".strip() if adapter else name
        at, face = int(number), None
    else:
        at, face = 0, tags.get(interface, adapter) if interface else adapter
    labels = tuple(sorted((k, v) for k, v in tags.items() if k not in used and v))
    return DeviceIdentity(name, labels), at, face


def _first(tags: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if tags.get(name)), None)


def _plain(text: str) -> str:
    return re.sub(r"\\([,= ])", r"\1", text)


def _number(text: str) -> int | None:
    """A counter, None for other values."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    value = int(match[1]) if match[1] else float(match[2])
    return int(value) if 0 <= value <= U64_MAX else None


def _nanoseconds(time: int) -> int:
    """A time in nanoseconds; exports may have seconds, milliseconds or microseconds."""
    for digits, scale in ((11, 10**9), (14, 10**6), (17, 10**3)):
        if abs(time) < 10**digits:
            return time * scale
    return time
