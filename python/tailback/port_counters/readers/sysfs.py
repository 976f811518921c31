"""A sysfs tree of InfiniBand devices: ``/sys/class/infiniband`` or a copy of it.

``<device>/ports/<n>/counters/port_xmit_wait`` and its neighbours hold one number each. Where the
driver has no value, the file contains ``N/A (no PMA)`` or cannot be read. That value is null and
flagged, and the other ports are still read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tailback.fabric.rates import WIDTHS, data_rate_gbps
from tailback.io.input_files import opened
from tailback.port_counters.findings.port_events import SPEED, meaning_of
from tailback.port_counters.readers.model import (
    U64_MAX,
    WORD_BYTES,
    CounterData,
    adapter_tick,
    events_of,
    missing_flags,
    note_counter,
    parse_counter,
    quoted_text,
    readings_of,
    time_of,
)
from tailback.port_counters.schema import CounterError, Flag

_RATE = re.compile(r"[0-9.]+ Gb/sec \((?P<width>[0-9]+X) (?P<speed>[A-Z0-9]+)\)")
_GUID = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{4}):([0-9a-fA-F]{4}):([0-9a-fA-F]{4})")
_LONGEST = 4096
_FILES = {
    # column: files that hold it, the widest first, and what one count is worth
    "data_bytes": (("counters_ext/port_xmit_data_64", "counters/port_xmit_data"), WORD_BYTES),
    "packets": (("counters_ext/port_xmit_packets_64", "counters/port_xmit_packets"), 1),
    "xmit_wait_ticks": (("counters/port_xmit_wait",), 1),
    "received_bytes": (("counters_ext/port_rcv_data_64", "counters/port_rcv_data"), WORD_BYTES),
    "received_packets": (("counters_ext/port_rcv_packets_64", "counters/port_rcv_packets"), 1),
}


HAS_TIME_STAMPS = False


def sniff(path: Path) -> bool:
    """A folder of devices with ports, or one such device."""
    return path.is_dir() and bool(_devices(path))


def _devices(path: Path) -> list[Path]:
    if (path / "ports").is_dir():
        return [path]
    try:
        return sorted(entry for entry in path.iterdir() if (entry / "ports").is_dir())
    except OSError:
        return []


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read every port of every device once.

    Args:
        path: The folder that holds the devices, or one device.
        time_ns: Time of the reading; the modification time of the newest counter file when None.

    Raises:
        CounterError: No device, or a counter file without a number.
    """
    rows: list[dict[str, Any]] = []
    unknown: dict[str, None] = {}
    notes: list[str] = []
    for device in _devices(path):
        guid = _guid(device, notes)
        for port in _ports(device):
            row = _port(device, port, unknown, notes)
            newest = max(
                (file.stat().st_mtime_ns for file in (port / "counters").glob("*")),
                default=time_of(port, None),
            )
            row |= {
                "time_ns": newest if time_ns is None else time_ns,
                "node_guid": guid,
                "port": int(port.name),
                "node_name": device.name,
                "source": "sysfs",
            }
            rows.append(row)
    if not rows:
        raise CounterError(
            "no InfiniBand port in it", file=path, remedy="give /sys/class/infiniband or a copy"
        )
    if time_ns is None:
        notes.append(
            "sysfs has no time stamps: the modification time of the newest counter file was used"
        )
    return CounterData(
        readings_of(rows),
        unknown=list(unknown),
        notes=list(dict.fromkeys(notes)),
        untimed=True,
        events=events_of(rows),
    )


def _ports(device: Path) -> Iterator[Path]:
    numbered = [p for p in (device / "ports").iterdir() if re.fullmatch("[0-9]{1,4}", p.name)]
    return iter(sorted(numbered, key=lambda p: int(p.name)))


def _content(file: Path) -> str | None:
    """Content of a file, None if it does not exist or the driver refuses."""
    try:
        with opened(file, CounterError) as counter:
            return counter.read(_LONGEST).decode("utf-8", errors="replace").strip()
    except CounterError:
        return None


def _guid(device: Path, notes: list[str]) -> int:
    text = _content(device / "node_guid")
    if text is None:
        return 0
    if match := _GUID.fullmatch(text):
        return int("".join(match.groups()), 16)
    notes.append(f"{device.name}: node_guid {quoted_text(text)} was left out")
    return 0


def _port(device: Path, port: Path, unknown: dict[str, None], notes: list[str]) -> dict[str, Any]:
    """One port's columns; names of other files are added to ``unknown``."""
    row: dict[str, Any] = {}
    missing = False
    for column, (files, worth) in _FILES.items():
        value = _counter(port, files)
        if value is None:
            if column.startswith("received_"):
                continue
            missing = True
            notes.append(f"{device.name} port {port.name}: no {files[-1].split('/')[-1]}")
            continue
        row[column] = min(value * worth, U64_MAX)
    used_files = {name for files, _ in _FILES.values() for name in files}
    for folder in ("counters", "counters_ext", "hw_counters"):
        names = sorted(p.name for p in (port / folder).glob("*") if p.is_file())
        for name in names:
            if f"{folder}/{name}" in used_files:
                continue
            if meaning_of(name) is None:
                unknown.setdefault(name)
            elif (value := _counter(port, (f"{folder}/{name}",))) is not None:
                note_counter(row, unknown, name, value)
    rate = _content(port / "rate")
    if "DOWN" in (_content(port / "state") or ""):
        row.setdefault("events", {})[SPEED] = 0
    elif rate is not None and (match := _RATE.fullmatch(rate)):
        row["capacity_gbps"] = gbps = data_rate_gbps(match["width"], match["speed"])
        row |= adapter_tick(device.name, gbps, WIDTHS.get(match["width"].lower(), 0))
    elif rate is not None:
        notes.append(f"{device.name} port {port.name}: rate {quoted_text(rate)} is not known")
    row["flags"] = missing_flags(row) | (int(Flag.NO_COUNTER) if missing else 0)
    return row


def _counter(port: Path, files: tuple[str, ...]) -> int | None:
    """The first of ``files`` that holds a number."""
    for name in files:
        text = _content(port / name)
        if text is None or text.startswith("N/A") or text == "":
            continue
        return parse_counter(text, port / name, 1, 1)
    return None
