"""A sysfs tree of Slingshot adapters: ``/sys/class/cxi`` or a copy of it.

``<device>/device/telemetry/hni_sts_tx_ok_octets`` and its neighbours hold a number and the time of
its reading, in seconds since 1970: ``81275@1790000000.123456789``. Names and meaning: HPE Cassini
driver (``cxi_core``), and HPE Cassini Performance Counters. ``device/properties`` has the state of
the link (``link``, 0 or 1), its rate (``speed``, Mb/s) and ``nid``, which tells adapters of one
name apart. ``device/port/speed`` names the rate: ``BS_200G``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from tailback.io.input_files import opened
from tailback.port_counters.findings.port_events import SPEED
from tailback.port_counters.readers.model import (
    CounterData,
    events_of,
    note_counter,
    parse_counter,
    readings_of,
    time_of,
)
from tailback.port_counters.schema import CounterError

HAS_TIME_STAMPS = True

_VALUE: Final = re.compile(r"(?P<value>[0-9]+)(?:@(?P<time>[0-9]{9,10}(?:\.[0-9]{1,9})?))?")
_CLASS: Final = re.compile(r"(?P<name>.+)_[0-7]")
_SPEED: Final = re.compile(r"(?P<mbps>[0-9]{3,7})|[A-Za-z_]+(?P<gbps>[0-9]{1,4})G")
_SPEEDS: Final = ("properties/speed", "port/speed", "port/0/link/speed")
_NID: Final = re.compile(r"(?P<hex>0x[0-9a-fA-F]{1,16})|(?P<number>[0-9]{1,19})")
_LONGEST: Final = 256
_BYTES: Final = {"hni_sts_tx_ok_octets": "data_bytes", "hni_sts_rx_ok_octets": "received_bytes"}
_SUMS: Final = {
    "hni_pkts_sent_by_tc": "packets",
    "hni_pkts_recv_by_tc": "received_packets",
}
"""Counters of a traffic class each, which together give a column."""


def sniff(path: Path) -> bool:
    """A folder of devices with telemetry, or one such device."""
    return path.is_dir() and bool(_devices(path))


def _devices(path: Path) -> list[Path]:
    if (path / "device" / "telemetry").is_dir():
        return [path]
    try:
        return sorted(e for e in path.iterdir() if (e / "device" / "telemetry").is_dir())
    except OSError:
        return []


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read every adapter once.

    Args:
        path: The folder that holds the devices, or one device.
        time_ns: Time of values without one; the modification time of their file when None.

    Raises:
        CounterError: No device, or a file without a number.
    """
    rows: list[dict[str, Any]] = []
    unknown: dict[str, None] = {}
    notes: list[str] = []
    untimed = False
    for device in _devices(path):
        row, stamped = _device(device, unknown)
        untimed |= not stamped
        row.setdefault("time_ns", time_of(device / "device" / "telemetry", time_ns))
        if "data_bytes" not in row:
            notes.append(f"{device.name}: no hni_sts_tx_ok_octets")
        rows.append(row | {"node_name": device.name, "port": 1, "source": "cxi"})
    if not rows:
        raise CounterError("no adapter in it", file=path, remedy="give /sys/class/cxi or a copy")
    return CounterData(
        readings_of(rows),
        unknown=list(unknown),
        notes=notes,
        untimed=untimed,
        events=events_of(rows),
    )


def _device(device: Path, unknown: dict[str, None]) -> tuple[dict[str, Any], bool]:
    """The columns of an adapter, and whether its values have times; notes unused names."""
    row: dict[str, Any] = {}
    latest = 0
    for file in sorted(e for e in (device / "device" / "telemetry").iterdir() if e.is_file()):
        value, stamp = _content(file)
        if value is None:
            continue
        latest = max(latest, stamp)
        name = file.name
        of_class = match["name"] if (match := _CLASS.fullmatch(name)) else ""
        if name in _BYTES:
            row[_BYTES[name]] = value
        elif of_class in _SUMS:
            column = _SUMS[of_class]
            row[column] = row.get(column, 0) + value
        else:
            note_counter(row, unknown, name, value)
    if match := _NID.fullmatch(_text(device / "device" / "properties" / "nid") or ""):
        row["node_guid"] = int(match["hex"] or match["number"], 16 if match["hex"] else 10)
    if _text(device / "device" / "properties" / "link") == "0":
        row.setdefault("events", {})[SPEED] = 0
    else:
        rates = (_SPEED.fullmatch(_text(device / "device" / place) or "") for place in _SPEEDS)
        if rate := next(filter(None, rates), None):
            row["capacity_gbps"] = float(rate["gbps"] or int(rate["mbps"]) / 1e3)
    if latest:
        row["time_ns"] = latest
    return row, bool(latest)


def _content(file: Path) -> tuple[int | None, int]:
    """Number in a file and its time, ns since 1970, 0 without; None where it cannot be read."""
    text = _text(file)
    if not text:
        return None, 0
    match = _VALUE.fullmatch(text)
    if match is None:
        return parse_counter(text, file, 1, 1), 0  # Raises the error of text that is no number.
    seconds, _, fraction = (match["time"] or "0").partition(".")
    stamp = int(seconds) * 10**9 + int(fraction.ljust(9, "0")[:9])
    return parse_counter(match["value"], file, 1, 1), stamp


def _text(file: Path) -> str | None:
    """Content of a file; None if it does not exist or the driver refuses."""
    try:
        with opened(file, CounterError) as counter:
            return counter.read(_LONGEST).decode("utf-8", errors="replace").strip()
    except CounterError:
        return None
