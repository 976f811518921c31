"""Data frames of pipit (CSV or Parquet): messages of every pair of ranks.

A row is an event with ``Timestamp (ns)`` (or ``(s)``), ``Event Type``, ``Name`` and ``Process``.
Frames that pipit made from OTF2 have a column ``Attributes`` with a dictionary: the rows
``MpiSend`` and ``MpiIsend`` state ``receiver`` and ``msg_length``. Other frames do not say who sent
to whom.
"""

from __future__ import annotations

import ast
import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tailback.errors import TraceError
from tailback.io.delimited import NotUsed
from tailback.io.input_files import content, head, opened, regular_file
from tailback.io.parquet import read_table
from tailback.traffic.program import Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.message_rows import check_message, program_of_rows, whole

CAPABILITIES = Capabilities(
    times="in the frame, not used",
    sources="totals of every pair of ranks, if the frame has attributes",
    completion="no",
    call_site="no",
    compute="no",
)

_HEAD = re.compile(r'\A[^\n]*\bTimestamp \(n?s\)"?[ ]*,[^\n]*\bEvent Type\b[^\n]*\bProcess\b')
_PARQUET = b"PAR1"
_SENDS = ("MpiSend", "MpiIsend")
_LONGEST = 4096
"""Characters of the attributes of one event; a longer text is damaged or hostile."""
_AGAIN = "write the frame again: trace.events.to_csv(FILE) or to_parquet(FILE), of an OTF2 trace"


def sniff(path: Path) -> bool:
    """A CSV or Parquet file with pipit's columns, or a folder with one."""
    return len(_frames(path)) == 1 if path.is_dir() else _is_frame(path)


def read(path: Path) -> Program:
    """Compile a frame to a program of messages.

    Args:
        path: The frame (CSV, plain or gzip, or Parquet), or the folder that holds it.

    Returns:
        The program; phases are the kinds of sends.

    Raises:
        TraceError: It is damaged, or does not say who sent to whom.
    """
    if path.is_dir():
        frames = _frames(path)
        if len(frames) != 1:
            raise TraceError(
                f"holds {len(frames)} frames of pipit", file=path, remedy="name the frame"
            )
        path = frames[0]
    totals: defaultdict[tuple[int, int, str], Counter[int]] = defaultdict(Counter)
    last = rows = 0
    others: Counter[str] = Counter()
    world: str | None = None
    for place, row in _rows(path):
        rows += 1
        try:
            source = whole(row.get("Process"))
            if row.get("Name") not in _SENDS:
                check_message(source, 0, 0, 1)
                last = max(last, source)
                continue
            attributes = _attributes(row.get("Attributes"))
            target, size = whole(attributes.get("receiver")), whole(attributes.get("msg_length"))
            check_message(source, target, size, 1)
        except (ValueError, OverflowError) as error:
            raise TraceError(str(error), file=path, place=place, remedy=_AGAIN) from None
        communicator = str(attributes.get("communicator", ""))
        world = communicator if world is None else world
        if communicator != world:
            others[communicator] += 1
            continue
        last = max(last, source, target)
        totals[source, target, str(row["Name"])][size] += 1
    if not totals:
        raise TraceError(
            f"has {rows:,} events, none of which says who sent to whom (MpiSend or MpiIsend with "
            "attributes)",
            file=path,
            remedy="give Tailback the trace that the frame was made of, or " + _AGAIN,
        )
    notes: list[str] = []
    if others:
        notes.append(
            NotUsed(
                f"{sum(others.values())} messages on communicators other than the first are "
                "left out: their receivers are not ranks of the run"
            )
        )
    return program_of_rows(path, last + 1, totals, notes)


def _is_frame(path: Path) -> bool:
    if path.suffix == ".parquet":
        try:
            with opened(path, TraceError) as file:
                file.seek(max(0, regular_file(path, TraceError).st_size - (1 << 16)))
                data = file.read()
        except TraceError:
            return False
        return data.endswith(_PARQUET) and b"Event Type" in data and b"Timestamp (" in data
    return _HEAD.match(head(path)) is not None


def _frames(folder: Path) -> list[Path]:
    files = sorted(
        entry for entry in folder.iterdir() if {".csv", ".parquet"} & set(entry.suffixes)
    )
    return [file for file in files if file.is_file() and _is_frame(file)]


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events with their place in the file."""
    if path.suffix == ".parquet":
        table = read_table(path, error=TraceError, remedy=_AGAIN)
        wanted = [name for name in ("Name", "Process", "Attributes") if name in table.columns]
        frame = table.select(wanted)
        for number, row in enumerate(frame.iter_rows(named=True), 1):
            yield f"row {number}", row
        return
    try:
        text = content(path, TraceError).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text), skipinitialspace=True, strict=True)
        for row in reader:
            if None in row or None in row.values():
                raise csv.Error("has another number of fields than the first line")
            yield f"line {reader.line_num}", row
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"is not a CSV file: {error}", file=path, remedy=_AGAIN) from None


def _attributes(value: object) -> dict[str, Any]:
    """The attributes of an event: a dictionary, or its text; raises ValueError."""
    if isinstance(value, str):
        if len(value) > _LONGEST:
            raise ValueError(f"attributes of {len(value):,} characters")
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            raise ValueError(f"{str(value)[:40]!r} are no attributes") from None
    if not isinstance(value, dict):
        raise ValueError("a send without attributes")
    return value
