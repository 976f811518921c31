"""Counters of a SONiC switch: its COUNTERS_DB as JSON, one file a switch and instant.

``sonic-db-dump -n COUNTERS_DB -y > leaf01.json`` (or ``redis-dump``) prints the statistics of SAI
by object, and the map of port names. The first part of the file's name is that of the switch. Its
time is that of the file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from tailback.io.input_files import content, head, is_input_file
from tailback.port_counters.findings.port_events import meaning_of
from tailback.port_counters.readers.interface_counters import interface_row
from tailback.port_counters.readers.model import (
    CounterData,
    events_of,
    parse_counter,
    readings_of,
    time_of,
)
from tailback.port_counters.schema import CounterError

HAS_TIME_STAMPS = False

_NAMES: Final = "COUNTERS_PORT_NAME_MAP"
_SAI: Final = re.compile(r'"COUNTERS_PORT_NAME_MAP"|"SAI_PORT_STAT_[A-Z0-9_]+"')
_REMEDY: Final = "print it with: sonic-db-dump -n COUNTERS_DB -y > SWITCH.json"


def sniff(path: Path) -> bool:
    """JSON with statistics of SAI ports."""
    if not is_input_file(path):
        return False
    text = head(path)
    return text.lstrip().startswith("{") and _SAI.search(text) is not None


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the counters of the ports of one switch.

    Args:
        path: The file, plain or gzip.
        time_ns: When it was printed; the modification time of the file when None.

    Raises:
        CounterError: It is not JSON, has no port, or a counter is not a number.
    """
    objects = _objects(path)
    names = objects.get(_NAMES, {})
    rows: list[dict[str, Any]] = []
    unknown: dict[str, None] = {}
    node = path.name.partition(".")[0]
    for interface, oid in sorted(names.items()):
        statistics = objects.get(f"COUNTERS:{oid}")
        if not statistics:
            continue
        counters = {
            name: parse_counter(str(value), path, 1, 1)
            for name, value in statistics.items()
            if (name.startswith("SAI_PORT_STAT_") or meaning_of(name)) and str(value) != "N/A"
        }
        row = interface_row(counters, unknown)
        row |= {"node_name": node, "interface": interface, "source": "sonic"}
        rows.append(row | {"time_ns": time_of(path, time_ns)})
    if not rows:
        raise CounterError(
            "no counters of a named port in it",
            file=path,
            place="line 1, column 1",
            remedy=_REMEDY,
        )
    return CounterData(
        readings_of(rows), unknown=list(unknown), untimed=True, events=events_of(rows)
    )


def _objects(path: Path) -> dict[str, dict[str, str]]:
    """Fields and values of each key; dumps put them under ``value``, or give them directly."""
    try:
        document = json.loads(content(path, CounterError))
        if not isinstance(document, dict):
            raise ValueError("it is not an object")
    except (ValueError, RecursionError) as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        raise CounterError(
            f"is damaged JSON: {getattr(error, 'msg', error)}",
            file=path,
            place=f"line {line}, column {column}",
            remedy=_REMEDY,
        ) from None
    out = {}
    for key, entry in document.items():
        if isinstance(entry, dict):
            fields = entry.get("value", entry)
            out[str(key)] = fields if isinstance(fields, dict) else {}
    return out
