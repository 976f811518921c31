"""Counters of switches by gNMI (OpenConfig), as gnmic prints them: ``get`` or ``subscribe``.

::

    {"source": "leaf01:6030", "timestamp": 1700000000000000000,
     "prefix": "interfaces/interface[name=Ethernet1]/state/counters",
     "updates": [{"Path": "out-octets", "values": {"out-octets": "370930"}}]}

Lists of such documents, documents one after the other, and gnmic's ``--format event`` are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tailback.io.input_files import content, head, is_input_file
from tailback.port_counters.readers.interface_counters import interface_row
from tailback.port_counters.readers.model import (
    CounterData,
    events_of,
    parse_counter,
    quoted_text,
    readings_of,
)
from tailback.port_counters.schema import CounterError

HAS_TIME_STAMPS = True

_INTERFACE: Final = re.compile(r"(?:interface|port)\[(?:name|port-id)=([^\]]+)\]")
_TAGS: Final = ("interface_name", "interface-name", "port_port-id", "name")
_TOKEN: Final = re.compile(r"\S")
_LIST: Final = "[],"
_REMEDY: Final = "print it with: gnmic subscribe --path /interfaces/interface/state/counters"


def sniff(path: Path) -> bool:
    """JSON with a time, and counters that OpenConfig names."""
    if not is_input_file(path):
        return False
    text = head(path)
    return (
        text.lstrip()[:1] in ("{", "[")
        and '"timestamp"' in text
        and any(name in text for name in ("out-octets", "in-octets"))
    )


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the counters of one file.

    Args:
        path: The file, plain or gzip.
        time_ns: Not needed: every document has its time. Given, it is added to all of them.

    A document that the end of the file cuts is left out with a note.

    Raises:
        CounterError: It is not JSON, a counter is not a number, or no document has counters of an
            interface.
    """
    cut: list[CounterError] = []
    counters: dict[tuple[int, str, str], dict[str, int]] = {}
    unknown: dict[str, None] = {}
    for number, document in _documents(path, cut):
        time = document.get("timestamp")
        device = re.sub(r":[0-9]{1,5}$", "", str(_tags(document).get("source", "")))
        for interface, name, value in _values(document):
            if not isinstance(time, int) or not 0 <= time < 2**63 or not device:
                raise CounterError(
                    "a document has no device or no time",
                    file=path,
                    place=f"line {number}, column 1",
                    remedy=_REMEDY,
                )
            mine = counters.setdefault((time + (time_ns or 0), device, interface), {})
            if isinstance(value, int | str) and re.fullmatch(r"[0-9]+", str(value)):
                mine[name.replace("-", "_")] = parse_counter(str(value), path, number, 1)
    rows: list[dict[str, Any]] = []
    for (time, device, interface), values in counters.items():
        row = interface_row(values, unknown)
        if set(row) & {"data_bytes", "packets", "received_bytes", "received_packets", "events"}:
            place = {"time_ns": time, "node_name": device, "interface": interface}
            rows.append(row | place | {"source": "gnmi"})
    if cut and not rows:
        raise cut[0]
    if not rows:
        raise CounterError(
            "no counters of an interface in it",
            file=path,
            place="line 1, column 1",
            remedy=_REMEDY,
        )
    left_out = [f"left out: {path.name}, {error.place}: {error.message}" for error in cut]
    return CounterData(
        readings_of(rows),
        unknown=list(unknown),
        events=events_of(rows),
        notes=left_out,
        left_out=left_out,
    )


def _documents(path: Path, cut: list[CounterError]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The documents of a file, of a list or one after the other, with their first lines.

    ``cut`` gets the document that the end of the file cuts.
    """
    text = content(path, CounterError).decode("utf-8", errors="replace")
    decoder, at, number, depth = json.JSONDecoder(), 0, 1, 0
    while (start := _TOKEN.search(text, at)) is not None:
        number += text.count("\n", at, start.start())
        at = start.start()
        if start[0] in _LIST:  # Of a list, each document is read by itself: it may be cut.
            at, depth = start.end(), depth + (start[0] == "[") - (start[0] == "]")
            continue
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if _ends_early(error, text):
                place = f"line {number}, column 1"
                why = "the document that begins here is cut by the end of the file"
                cut.append(CounterError(why, file=path, place=place, remedy=_REMEDY))
                return
            line, column = getattr(error, "lineno", number), getattr(error, "colno", 1)
            raise CounterError(
                f"is damaged JSON: {quoted_text(str(getattr(error, 'msg', error)))}",
                file=path,
                place=f"line {line}, column {column}",
                remedy=_REMEDY,
            ) from None
        for document in value if isinstance(value, list) else [value]:
            if isinstance(document, dict):
                yield number, document
        number += text.count("\n", at, end)
        at = end
    if depth > 0:
        why = "the list of documents has no end: later ones may be missing"
        cut.append(CounterError(why, file=path, place=f"line {number}", remedy=_REMEDY))


def _ends_early(error: Exception, text: str) -> bool:
    """Whether JSON is damaged only in that its end is missing."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    # A name like "true" may be cut, too.
    return error.msg.startswith("Unterminated") or error.pos >= len(text.rstrip()) - len("fals")


def _tags(document: dict[str, Any]) -> dict[str, Any]:
    tags = document.get("tags")
    return tags if isinstance(tags, dict) else document


def _values(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Interface, name and value of each counter of a document."""
    tags = _tags(document)
    tagged = next((str(tags[name]) for name in _TAGS if tags.get(name)), None)
    updates = document.get("updates")
    if not isinstance(updates, list):
        updates, tagged = [document], tagged if tags is not document else None
    for update in updates:
        values = update.get("values") if isinstance(update, dict) else None
        for key, value in (values or {}).items() if isinstance(values, dict) else ():
            path = f"{document.get('prefix', '')}/{update.get('Path', '')}/{key}"
            named = _INTERFACE.search(path)
            interface = named[1] if named else tagged
            if interface is None:
                continue
            for name, counter in value.items() if isinstance(value, dict) else ((key, value),):
                yield interface, name.rpartition("/")[2].rpartition(":")[2], counter
