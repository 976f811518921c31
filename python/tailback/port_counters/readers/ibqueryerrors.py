r"""Output of ``ibqueryerrors --data``: the counters of a whole fabric at one instant.

One line per port::

    Errors for "ys053n18 HCA-1"
       GUID 0x2c90300100f2d port 1: [PortXmitWait == 1286300] [PortXmitData == 973921971 (3.6GB)]

It prints only counters above its threshold: a missing counter is unknown, not 0.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tailback.port_counters.readers.model import (
    U32_MAX,
    U64_MAX,
    WORD_BYTES,
    CounterData,
    begins_with,
    events_of,
    missing_flags,
    note_counter,
    parse_counter,
    quoted_text,
    read_text,
    readings_of,
    time_of,
)
from tailback.port_counters.schema import CounterError

_NODE = re.compile(r'Errors for (?:0x[0-9a-fA-F]{1,16} )?"(?P<name>.*)"\s*')
_PORT = re.compile(
    r"\s*GUID (?P<guid>0x[0-9a-fA-F]{1,16}) port (?P<port>[0-9]{1,5}|ALL):(?P<rest>.*)"
)
_COUNTER = re.compile(
    r"\s*\[(?P<name>[A-Za-z0-9_]{1,64}) == (?P<value>[^\s\]()]*)(?: \([^()]*\))?\]"
)
_USED = ("PortXmitData", "PortXmitPkts", "PortXmitWait")


HAS_TIME_STAMPS = False


def sniff(path: Path) -> bool:
    """A text file whose first lines say ``Errors for "…"``."""
    return begins_with(path, r'^Errors for (0x[0-9a-fA-F]+ )?"')


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read one run of ``ibqueryerrors --data``.

    Args:
        path: Its output.
        time_ns: When it ran, UTC nanoseconds; the modification time of the file when None.

    Raises:
        CounterError: No port, or a line with a counter that cannot be read.
    """
    rows: list[dict[str, Any]] = []
    unknown: dict[str, None] = {}
    notes = ["counters at or below the tool's threshold are not printed: they are null, not 0"]
    if time_ns is None:
        notes.append("ibqueryerrors prints no time: the file's modification time was used")
    when, name, sums = time_of(path, time_ns), "", 0
    for number, line in enumerate(read_text(path).split("\n"), 1):
        line = line.rstrip("\r")
        if match := _NODE.fullmatch(line):
            name = match["name"]
        elif match := _PORT.fullmatch(line):
            if match["port"] == "ALL":
                sums += 1
                continue
            if (port := int(match["port"])) > 65535:
                raise CounterError(
                    f"port {port} is outside 0 to 65535",
                    file=path,
                    remedy="the output was cut or edited; collect it again",
                    place=f"line {number}, column {match.start('port') + 1}",
                )
            further: dict[str, Any] = {}
            row = _row(_values(path, number, match, unknown, further)) | further
            row |= {
                "time_ns": when,
                "node_guid": int(match["guid"], 16),
                "port": port,
                "node_name": name,
                "source": "ibqueryerrors",
                "flags": missing_flags(row),
            }
            rows.append(row)
        elif line.strip() and not line.startswith("#"):
            if line.lstrip().startswith("Link info:"):
                unknown.setdefault("Link info")
            else:
                notes.append(f"line {number} was left out: {quoted_text(line)}")
    if not rows:
        raise CounterError(
            "no port in it",
            file=path,
            place="line 1, column 1",
            remedy="give what 'ibqueryerrors --data' printed",
        )
    if sums:
        notes.append(f"{sums} sums over all ports of a switch (port ALL) were left out")
    return CounterData(
        readings_of(rows),
        unknown=list(unknown),
        notes=notes,
        by_file_time=time_ns is None,
        events=events_of(rows),
    )


def _values(
    path: Path,
    number: int,
    match: re.Match[str],
    unknown: dict[str, None],
    further: dict[str, Any],
) -> dict[str, int]:
    """The counters of one line; others go to ``further``, or to ``unknown`` if not used."""
    out: dict[str, int] = {}
    rest, at, offset = match["rest"], 0, match.start("rest")
    while rest[at:].strip():
        counter = _COUNTER.match(rest, at)
        if counter is None:
            raise CounterError(
                f"{quoted_text(rest[at:])} is not a counter",
                file=path,
                place=f"line {number}, column {offset + at + 1}",
                remedy="counters are like '[PortXmitWait == 12]'",
            )
        column = offset + counter.start("value") + 1
        value = parse_counter(counter["value"], path, number, column)
        if counter["name"] in _USED:
            out[counter["name"]] = value
        else:
            note_counter(further, unknown, counter["name"], value)
            if "castXmitPkts" in counter["name"]:
                out["extended"] = 1
        at = counter.end()
    return out


def _row(values: dict[str, int]) -> dict[str, Any]:
    """Columns of ``READINGS`` from the counters of a line; the width follows from their kind."""
    wide = "extended" in values or any(v > U32_MAX for v in values.values())
    largest = U64_MAX if wide else U32_MAX
    row: dict[str, Any] = {}
    if "PortXmitData" in values:
        row["data_bytes"] = min(values["PortXmitData"] * WORD_BYTES, U64_MAX)
        row["data_limit"] = min(largest * WORD_BYTES, U64_MAX)
    if "PortXmitPkts" in values:
        row["packets"], row["packets_limit"] = values["PortXmitPkts"], largest
    if "PortXmitWait" in values:
        row["xmit_wait_ticks"] = values["PortXmitWait"]
    return row
