"""Output of ``perfquery``, plain, ``-x`` (64-bit) and ``-r``, with one or more ports per file.

A section header names the port and the capabilities of its device::

    # Port extended counters: Lid 2052 port 1 (CapMask: 0x5300 CapMask2: 0x0000002)
    PortXmitData:....................178791657177235

The optional sections are read, too: congestion control (``--xmitcc``, ``--rcvcc``, ``--slrcvfecn``,
``--vlxmittimecc``), waits and discards by virtual lane (``--vlxmitcounters``, ``--swportvlcong``),
kinds of discards and errors (``-D``, ``-E``), and forward error correction (``-T``).

A section ``# PortSamplesControl`` (``-c``) states the bytes in a tick of the device: its ``Tick``
plus 1. Its other fields set up a sampling of which nothing is printed.

PortXmitWait is supported in an extended section only if CapMask2 has bit 1, and in a plain one only
if CapMask has bit 12. Otherwise perfquery prints 0 (InfiniBand Architecture, vol. 1, 16.1.3.5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailback.port_counters.findings.port_events import EXTENDED, meaning_of
from tailback.port_counters.readers.model import (
    U32_MAX,
    U64_MAX,
    WORD_BYTES,
    CounterData,
    begins_with,
    cut_text,
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
from tailback.port_counters.schema import LID_NAME, CounterError

_KIND = r"Port(?P<kind>| extended|[A-Z][A-Za-z]*(?: with RS-FEC Active)?)"
_SECTION = re.compile(
    rf"# (?:Sw)?{_KIND} counters: "
    r"Lid (?P<lid>[0-9]{1,5}) port (?P<port>[0-9]{1,5})\b"
    r"(?:.*?CapMask: (?P<cap>0x[0-9a-fA-F]{1,8}))?(?:.*?CapMask2: (?P<cap2>0x[0-9a-fA-F]{1,8}))?"
)
_SAMPLES_CONTROL = re.compile(r"# PortSamplesControl: Lid (?P<lid>[0-9]{1,5}) port [0-9]{1,5}\b")
_OTHER = re.compile(r"# (?P<what>[A-Za-z0-9 ]{1,60}?)(?: counters)?:? (?:.*)?Lid [0-9]+")
_FIELD = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_]{0,63}):\.*(?P<value>.*)")
_GUID_FILE = re.compile(r"0x[0-9a-f]{16}")

_RECEIVE_ERRORS = "PortRcvErrors"
_PARTS_OF_RECEIVE_ERRORS = (
    "PortLocalPhysicalErrors",
    "PortMalformedPktErrors",
    "PortBufferOverrunErrors",
    "PortDLIDMappingErrors",
    "PortVLMappingErrors",
    "PortLoopingErrors",
)
"""Kinds of packets that ``PortRcvErrors`` counts (InfiniBand Architecture, vol. 1, 16.1.4.1)."""
_ALL_PORTS = 255
_UNKNOWN_PORT = -1
_XMIT_WAIT_SUPPORTED = 1 << 12
_ADDITIONAL_EXTENDED = 1 << 1


@dataclass
class _PortBlock:
    """One ``# Port… counters`` block; ``kind`` is what is between, empty in a plain one."""

    line: int
    kind: str
    lid: int
    port: int
    cap: int | None
    cap2: int | None
    values: dict[str, int] = field(default_factory=dict)
    further: dict[str, Any] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    damage: CounterError | None = None

    @property
    def extended(self) -> bool:
        """Whether its counters have 64 bits."""
        return self.kind == "extended"

    def counters(self) -> list[tuple[str, str, int, int]]:
        """The counters: column, column of the limit (``""`` if it has none), value, limit."""
        largest = U64_MAX if self.extended else U32_MAX
        out = []
        if (words := self.values.get("PortXmitData")) is not None:
            size = min(words * WORD_BYTES, U64_MAX)
            out.append(("data_bytes", "data_limit", size, min(largest * WORD_BYTES, U64_MAX)))
        if (packets := self.values.get("PortXmitPkts")) is not None:
            out.append(("packets", "packets_limit", packets, largest))
        if (words := self.values.get("PortRcvData")) is not None:
            out.append(("received_bytes", "", min(words * WORD_BYTES, U64_MAX), largest))
        if (packets := self.values.get("PortRcvPkts")) is not None:
            out.append(("received_packets", "", packets, largest))
        wait = self.values.get("PortXmitWait")
        if wait is not None and self._has_wait():
            out.append(("xmit_wait_ticks", "wait_limit", wait, largest))
        return out

    def _has_wait(self) -> bool:
        """Whether the device counts PortXmitWait in this section; perfquery prints 0 if not."""
        if self.extended:
            return self.cap2 is None or bool(self.cap2 & _ADDITIONAL_EXTENDED)
        return self.cap is None or bool(self.cap & _XMIT_WAIT_SUPPORTED)


HAS_TIME_STAMPS = False


def sniff(path: Path) -> bool:
    """A text file that starts with a perfquery section."""
    return begins_with(path, rf"^# (?:PortSamplesControl|(?:Sw)?{_KIND} counters): Lid")


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read what perfquery printed at one instant.

    A file called ``0x<GUID>.…``, as written by exporters, gives the GUID of its node. A plain and
    an extended section of one port make one reading, with 64-bit values where available. A port
    with a damaged section, or in which the file ends, is left out.

    Args:
        path: The text.
        time_ns: When it was taken, UTC nanoseconds; the modification time of the file when None.

    Raises:
        CounterError: No section that can be read, or a port that appears twice.
    """
    ticks: dict[int, int] = {}
    text = read_text(path)
    sections, unknown, notes = _sections(path, text, ticks)
    if sections and _is_cut(text, sections):
        last, line = sections[-1], text.rstrip().count("\n") + 1
        last.damage = last.damage or cut_text(path, line)
        # The number of a port at the end of the file may lack digits.
        last.port = _UNKNOWN_PORT if last.line == line else last.port
    problems = {(s.lid, s.port): s.damage for s in sections if s.damage is not None}
    sections = [section for section in sections if (section.lid, section.port) not in problems]
    if problems and not sections:
        raise next(iter(problems.values()))
    stem = path.name.split(".", 1)[0].lower()
    guid = int(stem, 16) if _GUID_FILE.fullmatch(stem) else 0
    when = time_of(path, time_ns)
    if time_ns is None:
        notes.append("perfquery prints no time: the file's modification time was used")
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    seen: set[tuple[int, int, str]] = set()
    for section in sections:
        if section.port == _ALL_PORTS:
            notes.append("sums over all ports of a device (port 255) were left out")
            continue
        if (section.lid, section.port, section.kind) in seen:
            raise CounterError(
                f"Lid {section.lid} port {section.port} appears twice without a time stamp",
                file=path,
                place=f"line {section.line}, column 1",
                remedy="keep one file per instant, or collect with 'tailback collect'",
            )
        seen.add((section.lid, section.port, section.kind))
        place = {
            "time_ns": when,
            "node_guid": guid,
            "port": section.port,
            "node_name": LID_NAME.format(section.lid),
            "source": "perfquery",
        }
        _merge_sections(rows.setdefault((section.lid, section.port), place), section)
    if not rows and not ticks:
        if sections:
            raise CounterError(
                "only sums over all ports of a device (port 255)",
                file=path,
                place=f"line {sections[0].line}, column 1",
                remedy="perfquery -l prints each of the ports, and adds up none",
            )
        raise CounterError(
            "no port counters in it",
            file=path,
            place="line 1, column 1",
            remedy="give what perfquery printed, with its '# Port counters' line",
        )
    notes = list(dict.fromkeys(notes))
    return CounterData(
        readings_of(list(rows.values())),
        unknown=unknown,
        notes=notes,
        untimed=True,
        events=events_of(rows.values()),
        left_out=[left_out_rows(list(problems.values()), "damaged port")] if problems else [],
        damaged=frozenset((LID_NAME.format(lid), port) for lid, port in problems),
        stated_ticks={LID_NAME.format(lid): size for lid, size in ticks.items()},
    )


def _is_cut(text: str, sections: list[_PortBlock]) -> bool:
    """Whether the text ends within its last section: in a line, or before a field of others."""
    last = sections[-1]
    kind = (last.kind, last.cap, last.cap2)
    alike = [each for each in sections[:-1] if (each.kind, each.cap, each.cap2) == kind]
    return not text.endswith("\n") or any(each.names > last.names for each in alike)


def _merge_sections(row: dict[str, Any], section: _PortBlock) -> None:
    """Add a section to the reading of its port: the wider counter wins."""
    tops = row.setdefault("tops", {})
    for column, limit, value, largest in section.counters():
        if largest >= tops.get(column, 0):
            row[column] = value
            tops[column] = largest
            row |= {limit: largest} if limit else {}
    events = row.setdefault("events", {})
    events.update(section.further.get("events", {}))
    for name in [name for name in events if name + EXTENDED in events]:
        del events[name]
    if _RECEIVE_ERRORS in events or _RECEIVE_ERRORS + EXTENDED in events:
        for part in _PARTS_OF_RECEIVE_ERRORS:
            events.pop(part, None)
    row["flags"] = missing_flags(row)


def _sections(
    path: Path, text: str, ticks: dict[int, int]
) -> tuple[list[_PortBlock], list[str], list[str]]:
    """The sections of counters, unused fields and notes; ``ticks`` grows by stated ones, by LID."""
    out: list[_PortBlock] = []
    unknown: dict[str, None] = {}
    notes: list[str] = []
    current: _PortBlock | None = None
    other: str | None = None
    control: re.Match[str] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        if match := _SECTION.match(line):
            cap, cap2 = match["cap"], match["cap2"]
            current, other = (
                _PortBlock(
                    number,
                    match["kind"].strip(),
                    int(match["lid"]),
                    int(match["port"]),
                    None if cap is None else int(cap, 16),
                    None if cap2 is None else int(cap2, 16),
                ),
                None,
            )
            if current.port > 65535:
                raise CounterError(
                    f"port {current.port} is outside 0 to 65535",
                    file=path,
                    remedy="the output was cut or edited; collect it again",
                    place=f"line {number}, column {match.start('port') + 1}",
                )
            out.append(current)
        elif line.startswith("#"):
            control, what = _SAMPLES_CONTROL.match(line), _OTHER.match(line)
            current, other = None, what["what"] if what else "comment"
        elif (match := _FIELD.fullmatch(line)) and (current is not None or other is not None):
            if current is None and control is not None:
                if match["name"] == "Tick":
                    size = _tick_bytes(path, number, match)
                    ticks |= {int(control["lid"]): size} if size else {}
            elif current is None:
                unknown.setdefault(f"{other}: {match['name']}")
            elif current.damage is None:
                current.names.add(match["name"])
                try:
                    _take(path, number, match, current, unknown)
                except CounterError as error:
                    current.damage = error
        elif current is None and other is None:
            notes.append(
                f"line {number} before the first section was left out: {quoted_text(line)}"
            )
        elif re.match(r"(ibwarn|ibpanic|perfquery|ibdebug): ", line):
            notes.append(f"line {number} is a message of perfquery: {quoted_text(line)}")
        else:
            damage = CounterError(
                f"{quoted_text(line)} is not a counter",
                file=path,
                place=f"line {number}, column 1",
                remedy="lines are like 'PortXmitWait:....................0'",
            )
            if current is None:
                raise damage
            current.damage = current.damage or damage
    return out, list(unknown), notes


_USED = ("PortXmitData", "PortXmitPkts", "PortXmitWait", "PortRcvData", "PortRcvPkts")
_SELECTORS = ("PortSelect", "CounterSelect", "CounterSelect2")


def _tick_bytes(path: Path, number: int, match: re.Match[str]) -> int:
    """Bytes in a tick: ``Tick`` plus 1 (IBA 16.1.3.2); 0 where it is 0, as without sampling."""
    column = match.start("value") + 1
    tick = parse_counter(match["value"], path, number, column, 16)
    if tick > 255:
        raise CounterError(
            f"Tick {tick} does not fit 8 bits", file=path, place=f"line {number}, column {column}"
        )
    return tick + 1 if tick else 0


def _take(
    path: Path, number: int, match: re.Match[str], section: _PortBlock, unknown: dict[str, None]
) -> None:
    name, column = match["name"], match.start("value") + 1
    value = match["value"]
    number_base = 16 if value.strip().lower().startswith("0x") else 10
    parsed = parse_counter(value, path, number, column, number_base)
    if name in _USED:
        if name in section.values:
            raise CounterError(
                f"{name} appears twice in one section", file=path, place=f"line {number}, column 1"
            )
        if not section.extended and parsed > U32_MAX:
            raise CounterError(
                f"{parsed} does not fit a 32-bit counter",
                file=path,
                place=f"line {number}, column {column}",
            )
        section.values[name] = parsed
    elif name not in _SELECTORS:
        # The narrow counter of the same name stops at its largest value, this one does not.
        narrow = meaning_of(name) if section.extended else None
        wide = narrow is not None and narrow.bits is not None
        note_counter(section.further, unknown, name + EXTENDED if wide else name, parsed)
