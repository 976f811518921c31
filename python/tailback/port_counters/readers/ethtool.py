r"""What ``ethtool -S`` prints, for one or more interfaces at one instant.

::

    for i in eth0 eth1; do echo "# $(hostname) $i $(date +%s)"; ethtool -S $i; done > 12h00.txt

The line above each block names the host, the interface and, if it has one, the time in seconds
since 1970. A fourth word is the speed in Mb/s (``/sys/class/net/eth0/speed``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from tailback.port_counters.readers.interface_counters import interface_row
from tailback.port_counters.readers.model import (
    CounterData,
    begins_with,
    cut_text,
    events_of,
    left_out_rows,
    parse_counter,
    quoted_text,
    read_text,
    readings_of,
    time_of,
)
from tailback.port_counters.schema import CounterError

HAS_TIME_STAMPS = False

_HEAD: Final = "NIC statistics:"
_PLACE: Final = re.compile(
    r"#\s*(?P<node>\S+)\s+(?P<interface>\S+)(?:\s+(?P<time>[1-8]?[0-9]{9}(?:\.[0-9]+)?))?"
    r"(?:\s+(?P<mbps>-?[0-9]{1,8}))?\s*"
)
_COUNTER: Final = re.compile(r"\s+(?P<name>\S.*?)\s*:\s*(?P<value>\S+)\s*")
_REMEDY: Final = 'print a line above each block: echo "# $(hostname) eth0 $(date +%s)"'


def sniff(path: Path) -> bool:
    """A text with the heading that ethtool prints."""
    return begins_with(path, rf"^{_HEAD}\s*$")


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the statistics of some interfaces.

    Args:
        path: The text.
        time_ns: Time of blocks without one; the modification time of the file when None.

    Raises:
        CounterError: A block does not name its interface, or a counter is not a number.
    """
    rows: list[dict[str, Any]] = []
    unknown: dict[str, None] = {}
    counters: dict[str, int] = {}
    place: re.Match[str] | None = None
    untimed = False
    blocks: list[tuple[re.Match[str], dict[str, int]]] = []
    text = read_text(path)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            place = _PLACE.fullmatch(line.rstrip())
        elif line.strip() == _HEAD:
            if place is None:
                raise CounterError(
                    "statistics of an interface that is not named",
                    file=path,
                    place=f"line {number}, column 1",
                    remedy=_REMEDY,
                )
            counters = {}
            blocks.append((place, counters))
            place = None
        elif blocks and (match := _COUNTER.fullmatch(line)):
            column = match.start("value") + 1
            counters[match["name"]] = parse_counter(match["value"], path, number, column)
        elif line.strip():
            raise CounterError(
                f"{quoted_text(line)} is no counter of an interface",
                file=path,
                place=f"line {number}, column 1",
                remedy=_REMEDY,
            )
    left_out = list[str]()
    if blocks and not text.endswith("\n"):
        error = cut_text(path, text.count("\n") + 1)
        if len(blocks) == 1:
            raise error
        left_out = [left_out_rows([error], "damaged port")]
        blocks.pop()
    for named, values in blocks:
        row = interface_row(values, unknown)
        stated = named["time"]
        untimed |= stated is None
        row["time_ns"] = (
            time_of(path, time_ns) if stated is None else round(float(stated) * 1e3) * 1_000_000
        )
        mbps = int(named["mbps"] or 0)
        row |= {"node_name": named["node"], "interface": named["interface"], "source": "ethtool"}
        rows.append(row | ({"capacity_gbps": mbps / 1e3} if mbps > 0 else {}))
    if not rows:
        raise CounterError(
            "no statistics of an interface in it",
            file=path,
            place="line 1, column 1",
            remedy=_REMEDY,
        )
    return CounterData(
        readings_of(rows),
        unknown=list(unknown),
        untimed=untimed,
        events=events_of(rows),
        left_out=left_out,
    )
