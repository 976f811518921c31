"""``ibdiagnet2.db_csv``, the tables that ibdiagnet writes; one file is one reading of a subnet.

::

    START_PM_INFO
    NodeGUID,PortGUID,PortNumber,LinkDownedCounter,PortXmitDataExtended,PortXmitWaitExt,…
    0xb8599f0300c91a2c,0xb8599f0300c91a2c,1,0,178791657177235,42,…
    END_PM_INFO

``PM_INFO`` has the counters, ``NODES`` the names of devices, and ``PHY_DB16`` (``--get_phy_info``)
group 0x16 of the register PPCNT: milliseconds since the counters were cleared, bits received,
errors behind all correction, bits corrected, raw errors of eight lanes, then coefficient and
exponent of the raw, the effective and the symbol error rate (NVIDIA, *Adapters programmer's
reference manual*, PPCNT). Its counters were 0 when they were cleared: one file gives errors per
bit. Sections of other kinds are not read.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tailback.port_counters.findings.port_events import EXTENDED, meaning_of
from tailback.port_counters.readers.model import (
    U32_MAX,
    U64_MAX,
    WORD_BYTES,
    CounterData,
    begins_with,
    events_of,
    left_out_rows,
    missing_flags,
    note_counter,
    parse_counter,
    quoted_text,
    read_text,
    readings_of,
    time_of,
)
from tailback.port_counters.schema import CounterError

HAS_TIME_STAMPS = False

_COLUMNS: Final = {
    "portxmitdata": ("data_bytes", "data_limit", WORD_BYTES),
    "portxmitpkts": ("packets", "packets_limit", 1),
    "portxmitwait": ("xmit_wait_ticks", "wait_limit", 1),
    "portrcvdata": ("received_bytes", "", WORD_BYTES),
    "portrcvpkts": ("received_packets", "", 1),
}
"""Column, column of the largest value, and the worth of one count, of each counter."""
_PLACE: Final = ("nodeguid", "portguid", "portnumber", "portnum")
_PHY: Final = "PHY_DB16"
_CLEARED_MS, _RECEIVED_BITS, _EFFECTIVE, _CORRECTED = (f"field{n}" for n in range(4))
_RATE: Final = ("field14", "field15")
"""Coefficient and exponent of the effective error rate."""
_WIDE: Final = re.compile(r"(Extended|Ext)$")
_REMEDY: Final = "the file was cut or edited: run ibdiagnet again"


def sniff(path: Path) -> bool:
    """A text whose first section of a db_csv starts within its first lines."""
    return begins_with(path, r"^START_[A-Z0-9_]+$")


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the counters of one file.

    Args:
        path: The file.
        time_ns: When it was taken, UTC nanoseconds; the modification time of the file when None.

    A damaged row is left out with a note.

    Raises:
        CounterError: There is no section ``PM_INFO``, or no row of it can be read; with line and
            column.
    """
    names: dict[int, str] = {}
    ports: list[dict[str, Any]] = []
    unknown: dict[str, None] = {}
    problems: list[CounterError] = []
    physical: list[dict[str, Any]] = []
    for section, number, row in _rows(path, problems):
        try:
            place = {name.lower(): field for name, field in row.items()}
            if section == "PM_INFO":
                ports.append(_reading(path, number, row, unknown))
            elif section == _PHY:
                physical.append(_physical(path, number, place))
            elif (guid := place.get("nodeguid")) is not None:
                names[_integer(path, number, *guid)] = place.get("nodedesc", ("", 0))[0].strip()
        except CounterError as error:
            problems.append(error)
    if problems and not ports and not physical:
        raise problems[0]
    if not ports and not physical:
        raise CounterError(
            "has no counters of ports, a section PM_INFO or PHY_DB16",
            file=path,
            place="line 1, column 1",
            remedy="run ibdiagnet with --pc or --get_phy_info, which reads them",
        )
    when = time_of(path, time_ns)
    for reading in [*_with_widths(ports), *physical]:
        name = names.get(reading["node_guid"]) or f"0x{reading['node_guid']:016x}"
        reading |= {"node_name": name, "time_ns": when, "source": "ibdiagnet"}
    cleared = [
        dict(row, time_ns=when - row["cleared_ns"], events=dict.fromkeys(row["events"], 0))
        for row in physical
    ]
    left_out = [left_out_rows(problems)] if problems else []
    notes = ["ibdiagnet states no time: the file's modification time was used"]
    return CounterData(
        readings_of(ports),
        unknown=list(unknown),
        notes=notes if time_ns is None else [],
        untimed=True,
        events=events_of([*cleared, *physical, *ports]),
        left_out=left_out,
    )


def _with_widths(ports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The readings, with 64-bit limits for counters that exceed 32 bits on a port of the device.

    Devices with 64-bit counters may have them under the names of those of 32 bits.
    """
    limits = {limit: (value, worth) for value, limit, worth in _COLUMNS.values() if limit}
    for limit, (value, worth) in limits.items():
        wide = {p["node_guid"] for p in ports if p.get(value, 0) > U32_MAX * worth}
        for port in ports:
            if port["node_guid"] in wide and limit in port:
                port[limit] = U64_MAX
    return ports


def _rows(
    path: Path, problems: list[CounterError]
) -> Iterator[tuple[str, int, dict[str, tuple[str, int]]]]:
    """Section, line number, and text and column number of each field of each row.

    ``problems`` gets the rows that do not fit their header.
    """
    section, header = "", None
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.strip()
        if match := re.fullmatch(r"(START|END)_([A-Z0-9_]+)", text):
            section, header = (match[2] if match[1] == "START" else ""), None
        elif section in ("NODES", "PM_INFO", _PHY) and text:
            fields = next(csv.reader([text]))
            if header is None:
                header = fields
            elif len(fields) != len(header):
                problems.append(
                    CounterError(
                        f"{len(fields)} fields under a header of {len(header)}",
                        file=path,
                        place=f"line {number}, column 1",
                        remedy=_REMEDY,
                    )
                )
            else:
                cells = zip(header, fields, range(1, len(fields) + 1), strict=True)
                yield section, number, {name: (field, at) for name, field, at in cells}


def _reading(
    path: Path,
    number: int,
    row: dict[str, tuple[str, int]],
    unknown: dict[str, None],
) -> dict[str, Any]:
    """The counters of a port."""
    place: dict[str, int] = {}
    reading: dict[str, Any] = {}
    wide = {name.lower() for name in row if _WIDE.search(name)}
    for name, (field, column) in row.items():
        stem = _WIDE.sub("", name).lower()
        if name.lower() in _PLACE:
            place[stem] = _integer(path, number, field, column)
            continue
        is_wide = stem != name.lower()
        if field.strip().upper() in ("N/A", "NA", "") or (
            not is_wide and {f"{stem}ext", f"{stem}extended"} & wide
        ):
            continue
        value = _integer(path, number, field, column)
        if stem in _COLUMNS:
            target, limit, worth = _COLUMNS[stem]
            reading[target] = min(value * worth, U64_MAX)
            if limit:
                reading[limit] = U64_MAX if is_wide else U32_MAX * worth
        else:
            counter = _WIDE.sub("", name)
            narrow = meaning_of(counter)
            is_wider = is_wide and narrow is not None and narrow.bits is not None
            note_counter(reading, unknown, counter + EXTENDED if is_wider else counter, value)
    return {**reading, **_device_port(path, number, place), "flags": missing_flags(reading)}


def _device_port(path: Path, number: int, place: dict[str, int]) -> dict[str, int]:
    """Columns of the port of a row."""
    port = place.get("portnumber", place.get("portnum"))
    if port is None or port > 65535:
        raise CounterError(
            "has no number of a port", file=path, place=f"line {number}, column 1", remedy=_REMEDY
        )
    return {"node_guid": place.get("nodeguid", 0), "port": port}


def _physical(path: Path, number: int, row: dict[str, tuple[str, int]]) -> dict[str, Any]:
    """The counters of a port's physical layer, and how long ago they were cleared."""
    needed = (_CLEARED_MS, _RECEIVED_BITS, _EFFECTIVE, _CORRECTED, *_RATE)
    if missing := [name for name in needed if name not in row]:
        raise CounterError(
            f"has no column {missing[0]!r} of {_PHY}",
            file=path,
            place=f"line {number}, column 1",
            remedy=_REMEDY,
        )
    place: dict[str, int] = {n: _integer(path, number, *row[n]) for n in _PLACE if n in row}
    milliseconds, bits, errors, corrected, coefficient, exponent = (
        _integer(path, number, *row[name]) for name in needed
    )
    # The register has no names in the file. Its own rate tells that the fields are those meant;
    # the coefficient has one or two digits.
    if errors and not 0.1 <= errors * 10.0 ** min(exponent, 300) / max(bits * coefficient, 1) <= 10:
        raise CounterError(
            f"{errors} errors in {bits} bits are not a rate of {coefficient}E-{exponent}",
            file=path,
            place=f"line {number}, column {row[_EFFECTIVE][1]}",
            remedy="this version of ibdiagnet has other fields; its counters of errors are read",
        )
    return {
        **_device_port(path, number, place),
        "cleared_ns": milliseconds * 1_000_000,
        "events": {"effective_physical_errors": errors, "phy_corrected_bits": corrected},
    }


def _integer(path: Path, number: int, field: str, column: int) -> int:
    text = field.strip()
    if not text:
        raise CounterError(
            f"{quoted_text(field)} is not a number",
            file=path,
            place=f"line {number}, column {column}",
            remedy=_REMEDY,
        )
    return parse_counter(text, path, number, column, 16 if text[:2].lower() == "0x" else 10)
