"""Caliper's records of messages, exported by ``cali-query`` as JSON.

The mpi service with ``CALI_MPI_MSG_TRACING=true`` records the destination and the size of every
message sent (``mpi.msg.dst``, ``mpi.msg.size``). A row of the export is one message, or ``count``
of them, of rank ``mpi.rank``. Destinations are ranks of the communicator, which are ranks of the
run where ``mpi.comm.is_world`` is true.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tailback.errors import TraceError
from tailback.io.input_files import content, head_bytes
from tailback.traffic.program import Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.message_rows import check_message, program_of_rows, whole

CAPABILITIES = Capabilities(
    times="no",
    sources="totals of every pair of ranks, if messages were traced",
    completion="no",
    call_site="no",
    compute="no",
)

_HEAD = re.compile(rb'\A\s*(?:\[|\{\s*"(?:data|columns)")')
_OURS = re.compile(rb'"mpi\.(?:rank|msg\.dst|function)"')
_AGAIN = (
    "export it again: cali-query -q 'SELECT mpi.rank, mpi.msg.dst, mpi.msg.size, "
    "mpi.comm.is_world, count() WHERE mpi.msg.dst GROUP BY mpi.rank, mpi.msg.dst, mpi.msg.size, "
    "mpi.comm.is_world FORMAT json' *.cali > pairs.json"
)
_COUNTS = ("count", "aggregate.count", "sum#aggregate.count", "cali.count")


def sniff(path: Path) -> bool:
    """A JSON file with attributes of Caliper's mpi service, or a folder with one."""
    return len(_exports(path)) == 1 if path.is_dir() else _is_export(path)


def read(path: Path) -> Program:
    """Compile an export to a program of messages.

    Args:
        path: The export, plain or gzip, or the folder that holds it.

    Returns:
        The program; its only phase is ``"point-to-point"``.

    Raises:
        TraceError: It is damaged, or names no destinations.
    """
    if path.is_dir():
        exports = _exports(path)
        if len(exports) != 1:
            raise TraceError(
                f"holds {len(exports)} exports of Caliper", file=path, remedy="name the export"
            )
        path = exports[0]
    totals: defaultdict[tuple[int, int, str], Counter[int]] = defaultdict(Counter)
    last, elsewhere, rows = -1, 0, _rows(path)
    for number, row in enumerate(rows, 1):
        try:
            if row.get("mpi.rank") is not None:
                last = max(last, whole(row["mpi.rank"]))
            if row.get("mpi.msg.dst") is None:
                continue
            source, target = whole(row.get("mpi.rank")), whole(row["mpi.msg.dst"])
            size = whole(row.get("mpi.msg.size"))
            counts = [row[name] for name in _COUNTS if row.get(name) is not None]
            count = whole(counts[0]) if counts else 1
            check_message(source, target, size, count)
        except (ValueError, OverflowError) as error:
            raise TraceError(
                str(error), file=path, place=f"record {number}", remedy=_AGAIN
            ) from None
        if str(row.get("mpi.comm.is_world", True)).lower() in ("false", "0"):
            elsewhere += count
            continue
        last = max(last, target)
        totals[source, target, "point-to-point"][size] += count
    if not totals:
        raise TraceError(
            f"has {len(rows)} records and no destination of a message (mpi.msg.dst)",
            file=path,
            remedy="record messages: CALI_SERVICES_ENABLE=event,trace,mpi,recorder "
            "CALI_MPI_MSG_TRACING=true; then " + _AGAIN,
        )
    notes = [f"{elsewhere} messages on communicators other than MPI_COMM_WORLD are left out"]
    return program_of_rows(path, last + 1, totals, notes if elsewhere else [])


def _is_export(path: Path) -> bool:
    beginning = head_bytes(path)
    return _HEAD.match(beginning) is not None and _OURS.search(beginning) is not None


def _exports(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if ".json" in entry.suffixes)
    return [file for file in files if file.is_file() and _is_export(file)]


def _rows(path: Path) -> list[dict[str, Any]]:
    """The records: a list of objects, or the columns and data of ``json-split``."""
    try:
        records = json.loads(content(path, TraceError))
        if isinstance(records, dict):
            names, data = records["columns"], records["data"]
            records = [dict(zip(names, row, strict=True)) for row in data]
        if not isinstance(records, list) or not all(isinstance(row, dict) for row in records):
            raise TypeError("is not a list of records")
    except (ValueError, TypeError, KeyError) as error:
        raise TraceError(
            f"is not an export of Caliper: {error}", file=path, remedy=_AGAIN
        ) from None
    except RecursionError:
        raise TraceError("is nested too deeply", file=path, remedy=_AGAIN) from None
    return records
