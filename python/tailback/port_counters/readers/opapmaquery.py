"""What ``opapmaquery -o getportstatus`` prints of ports of Omni-Path.

::

    echo "# $(hostname) hfi1_0 $(date +%s) 100000"; opapmaquery -o getportstatus

The line above each block names its device (:mod:`~tailback.port_counters.readers.named_blocks`). A
block has the counters of a port and then those of each virtual lane::

    Port Number             1
        Performance: Transmit
            Xmit Data                       2042 MB (267765761 Flits)

All have 64 bits, ``Xmit Wait`` and ``Xmit Time Congestion`` count times of a flit of 8 bytes
(*Intel Omni-Path Fabric Suite FastFabric CLI reference guide*).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from tailback.port_counters.findings.port_events import EXTENDED
from tailback.port_counters.readers.model import (
    U64_MAX,
    CounterData,
    adapter_tick,
    begins_with,
    missing_flags,
    note_counter,
    parse_counter,
)
from tailback.port_counters.readers.named_blocks import PortText, read_blocks

HAS_TIME_STAMPS = False

FLIT_BYTES: Final = 8
"""Data of a flit, without its 65th bit, which tells its kind."""
_PORT: Final = re.compile(r"\s*Port Number\s+(?P<port>[0-9]{1,3})\s*")
_LANE: Final = re.compile(r"\s*VL Number\s+(?P<lane>[0-9]{1,2})\s*")
_VALUE: Final = re.compile(
    r"\s*(?P<name>[A-Z][A-Za-z. ]*?)\s{2,}(?P<value>[0-9]+)"
    r"(?:\s+\([^()]*\)|\s+MB\s+\((?P<flits>[0-9]+) Flits\))?\s*"
)
_COLUMNS: Final = {
    "Xmit Data": "data_bytes",
    "Xmit Pkts": "packets",
    "Xmit Wait": "xmit_wait_ticks",
    "Rcv Data": "received_bytes",
    "Rcv Pkts": "received_packets",
}
_LIMITS: Final = ("data_limit", "packets_limit", "wait_limit")
_NARROW: Final = "Uncorrectable Errors"
"""The only counter that has fewer than 32 bits."""
_EVENTS: Final = {
    "Link Downed": "LinkDowned",
    "Link Error Recovery": "LinkErrorRecovery",
    "Rcv Errors": "PortRcvErrors",
    _NARROW: "UncorrectableErrors",
    "Exc. Buffer Overrun": "ExcessiveBufferOverrun",
    "Local Link Integ Err": "LocalLinkIntegrityErrors",
    "Rcv Rmt Phys Err": "PortRcvRemotePhysicalErrors",
    "Xmit Constraint": "PortXmitConstraintErrors",
    "Rcv Constraint": "PortRcvConstraintErrors",
    "Rcv Sw Relay Err": "PortRcvSwitchRelayErrors",
    "Xmit Discards": "PortXmitDiscards",
    "Rcv FECN": "PortRcvFECN",
    "Rcv BECN": "PortRcvBECN",
    "Mark FECN": "PortMarkFECN",
    "Xmit Time Congestion": "PortXmitTimeCong",
}
"""Names in the table of meanings of the counters of a port."""
_UNUSED: Final = (
    "MC Xmt Pkts",
    "MC Rcv Pkts",
    "Link Qual Indicator",
    "FM Config Errors",
    "Congestion Discards",
    "Xmit Wasted BW",
    "Xmit Wait Data",
    "Rcv Bubble",
)
"""Parts of other counters, and what does not tell of a fault."""


def sniff(path: Path) -> bool:
    """A text with the number of a port and flits that it sent."""
    return begins_with(path, r"^\s*Port Number\s+[0-9]+\s*$") and begins_with(
        path, r"^\s*Xmit Data\s+[0-9]+ MB \([0-9]+ Flits\)"
    )


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the ports of a text; arguments and errors are those of ``read_blocks``."""
    unknown: dict[str, None] = {}
    return read_blocks(
        path,
        time_ns,
        "opapmaquery",
        lambda line: _PORT.fullmatch(line) is not None,
        lambda block: [_row(path, block, unknown)],
        unknown,
        "hfi1_0",
    )


def _row(path: Path, block: PortText, unknown: dict[str, None]) -> dict[str, Any]:
    """The reading of a port; of its virtual lanes, waits alone."""
    head = _PORT.fullmatch(block.lines[0][1])
    row = dict(block.place) | {"interface": None, "port": int(head["port"]) if head else 0}
    lane: str | None = None
    for number, line in block.lines[1:]:
        if match := _LANE.fullmatch(line):
            lane = match["lane"]
        elif match := _VALUE.fullmatch(line):
            name, text = match["name"], match["flits"] or match["value"]
            value = parse_counter(text, path, number, match.start("value") + 1)
            if lane is not None:
                if name == "Xmit Wait":
                    note_counter(row, unknown, f"TxWaitVL{lane}", value)
            elif name in _COLUMNS:
                worth = FLIT_BYTES if name.endswith("Data") else 1
                row[_COLUMNS[name]] = min(value * worth, U64_MAX)
            elif name in _EVENTS:
                wide = "" if name == _NARROW else EXTENDED
                note_counter(row, unknown, _EVENTS[name] + wide, value)
            elif name not in _UNUSED:
                unknown.setdefault(name)
    row |= dict.fromkeys(_LIMITS, U64_MAX)
    row |= adapter_tick("hfi1_", row.get("capacity_gbps"), 4)
    row["flags"] = missing_flags(row)
    return row
