"""What ``mlxlink -c`` prints of ports, as text or with ``--json``: rate, errors, corrections.

::

    for d in mlx5_0 mlx5_1; do echo "# $(hostname) $d $(date +%s)"; mlxlink -d $d -c; done > a.txt

The line above each block names its port (:mod:`~tailback.port_counters.readers.named_blocks`), and
the counters are those since ``Time Since Last Clear``, when they were 0: so one text gives errors
per bit. Symbol errors (InfiniBand), else effective ones, are what is left behind all correction;
raw errors are before it (NVIDIA, *MFT user manual*, mlxlink; *ibdiagnet user manual*, BER).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from tailback.fabric.rates import data_rate_gbps
from tailback.port_counters.findings.port_events import SPEED
from tailback.port_counters.readers.model import CounterData, begins_with, parse_counter
from tailback.port_counters.readers.named_blocks import REMEDY, PortText, read_blocks
from tailback.port_counters.schema import CounterError, Flag

HAS_TIME_STAMPS = False

_HEAD: Final = re.compile(r"\s*(Operational Info|\{)\s*")
_FIELD: Final = re.compile(r"(?P<name>[A-Z][^:]*?)\s*:\s*(?P<value>.*?)\s*")
_ETHERNET: Final = re.compile(r"(?P<gbps>[0-9]{1,4})G(?:bE)?(?:_[0-9]+X)?")
_NO_VALUE: Final = ("", "N/A", "_")
_CLEARED: Final = "Time Since Last Clear [Min]"
_EFFECTIVE: Final = "Effective Physical Errors"
_COUNTERS: Final = {
    "Symbol Errors": "symbol_errors_after_correction",
    _EFFECTIVE: "effective_physical_errors",
    "Raw Physical Errors Per Lane": "raw_physical_errors",
    "Link Down Counter": "link_down_events_phy",
    "Link Error Recovery Counter": "link_error_recoveries_phy",
}
"""Names of counters in the table of meanings; what each line counts is summed over lanes."""


def sniff(path: Path) -> bool:
    """A text with the first heading of mlxlink, as text or JSON."""
    return begins_with(path, r'^\s*(?:Operational Info\s*$|"Operational Info": *\{)')


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the ports of a text; arguments and errors are those of ``read_blocks``."""
    return read_blocks(
        path,
        time_ns,
        "mlxlink",
        lambda line: _HEAD.fullmatch(line) is not None,
        lambda block: _rows(path, block),
        {},
        "mlx5_0",
    )


def _rows(path: Path, block: PortText) -> list[dict[str, Any]]:
    """The reading of a port, after one of zeros at the time when its counters were cleared."""
    fields = _fields(path, block)
    row: dict[str, Any] = dict(block.place) | {"flags": int(Flag.NO_COUNTER)}
    events: dict[str, int] = {}
    for name, counter in _COUNTERS.items():
        number, text = fields.get(name, (0, ""))
        if text in _NO_VALUE or (name == _EFFECTIVE and "symbol_errors_after_correction" in events):
            continue
        lanes = [lane for lane in text.split(",") if lane.strip() not in _NO_VALUE]
        events[counter] = sum(parse_counter(lane, path, number, 1) for lane in lanes)
    state = fields.get("State", (0, ""))[1]
    if state and state != "Active":
        row["events"] = events | {SPEED: 0}
    else:
        row["events"] = events
        gbps = _gbps(fields.get("Speed", (0, ""))[1], fields.get("Width", (0, ""))[1])
        row |= {} if gbps is None else {"capacity_gbps": gbps}
    number, minutes = fields.get(_CLEARED, (0, ""))
    if minutes in _NO_VALUE or not events:
        return [row]
    try:
        seconds = float(minutes) * 60
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise CounterError(
            f"{minutes[:60]!r} is no number of minutes",
            file=path,
            place=f"line {number}, column 1",
            remedy="the output was cut or edited: run mlxlink again",
        )
    cleared = row["time_ns"] - round(seconds * 1e9)
    return [dict(row, time_ns=cleared, events=dict.fromkeys(events, 0)), row]


def _fields(path: Path, block: PortText) -> dict[str, tuple[int, str]]:
    """Line and value of each field; numbers by lane are separated by commas."""
    first, text = block.lines[0]
    if text.strip() != "{":
        matches = ((number, _FIELD.fullmatch(line)) for number, line in block.lines)
        return {m["name"]: (number, m["value"]) for number, m in matches if m is not None}
    try:
        answer = json.loads("\n".join(line for _, line in block.lines))
        sections = answer["result"]["output"]
        values = [pair for section in sections.values() for pair in section.items()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise CounterError(
            "is not the JSON that mlxlink prints",
            file=path,
            place=f"line {first}, column 1",
            remedy="the output was cut or edited: run mlxlink again; " + REMEDY.format("mlx5_0"),
        ) from None
    return {name: (first, _plain(value)) for name, value in values}


def _plain(value: object) -> str:
    """A value of the JSON as the text has it."""
    if isinstance(value, dict):
        value = value.get("values", "")
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _gbps(speed: str, width: str) -> float | None:
    """Data rate by the words for speed and width, None unknown."""
    if speed.startswith("IB-"):
        return data_rate_gbps(width.upper(), speed.removeprefix("IB-"))
    match = _ETHERNET.fullmatch(speed)
    return None if match is None else float(match["gbps"])
