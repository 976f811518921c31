"""GOAL schedules (LogGOPSim, ATLAHS): messages and computation with dependencies.

As text: ``num_ranks N``, then for every rank ``rank R {``, lines like ``l1: send 8b to 1 tag 0``,
``l2: recv 8b from 1 tag 0``, ``l3: calc 100`` (nanoseconds) and ``l3 requires l2`` (once it has
ended) or ``l3 irequires l2`` (once it has begun), and ``}``. A receive may be ``from -1`` (any
source) and have ``tag -1`` (any tag). The binary form, which ``txt2bin`` writes, holds the same
without labels. There are no times and no names of calls.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tailback import _core
from tailback.available import available_memory
from tailback.errors import TraceError
from tailback.io.delimited import shown
from tailback.io.input_files import TRACE_MEMORY, content, head, head_bytes
from tailback.traffic.program import Label, Op, Program, require_memory
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.graph import (
    ANY_TAG,
    DependencyCycle,
    DependencyGraph,
    compile_graph,
)
from tailback.traffic.readers.text_lines import Text, pieces, read_text
from tailback.units import LONGEST_PS

CAPABILITIES = Capabilities(
    times="no",
    sources="yes; of any source matched in the order of arrival without a network",
    completion="by the operations that require it",
    call_site="no",
    compute="yes, in ns",
)

_FIRST_LINE = re.compile(r"\A(?:\s|//[^\n]*\n|/\*.*?\*/)*num_ranks[ \t]+\d+", re.DOTALL)
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MAGIC = (4223).to_bytes(8, "little")
"""First bytes of a binary schedule."""
_DAMAGED = "the file is damaged: copy it again or generate it again"
_LOGGOPSIM_2 = (
    "give the text from which its txt2bin made it, or convert that with the txt2bin of LogGOPSim "
    "or ATLAHS, whose operations take 39 bytes"
)
_OPERATION_BYTES_2 = 104
"""Bytes of an operation of LogGOPSim 2: the 39 of LogGOPSim, then fields for Portals and gem5. The
file has no number of a version (its ``simulator/Parser.hpp``, ``serialize_mmap``)."""
_CALLS = {int(Op.ISEND): "MPI_Isend", int(Op.IRECV): "MPI_Irecv"}


def sniff(path: Path) -> bool:
    """A file that begins as a schedule, text or binary, or a folder with one such file."""
    return len(_schedules(path)) == 1 if path.is_dir() else _is_schedule(path)


def _is_schedule(path: Path) -> bool:
    return _is_binary(path) or _FIRST_LINE.match(head(path)) is not None


def _is_binary(path: Path) -> bool:
    return head_bytes(path).startswith(_MAGIC)


def read(path: Path) -> Program:
    """Compile a schedule to a rank program.

    Args:
        path: The schedule, text or binary, plain or gzip, or the folder that holds it.

    Returns:
        The program. The operations of a rank are in the order in which they can begin.

    Raises:
        TraceError: A line that is not of this format, a label that is not defined, a missing rank,
            or operations that wait for each other.
    """
    if path.is_dir():
        schedules = _schedules(path)
        if len(schedules) != 1:
            raise TraceError(
                f"holds {len(schedules)} GOAL schedules", file=path, remedy="name the schedule"
            )
        path = schedules[0]
    schedule = _read_binary(path) if _is_binary(path) else _read_text(path)
    try:
        require_memory(
            2 * len(schedule["kind"]),
            available_memory(),
            what="the schedule",
            error=TraceError,
            remedy="generate a smaller one",
        )
    except TraceError as error:
        raise error.located(path) from None
    streams = schedule["streams"]
    graph = DependencyGraph(
        schedule["rank_start"],
        schedule["kind"],
        schedule["peer"],
        schedule["amount"],
        schedule["stream"],
        tag=np.array([tag for _, tag in streams], np.int64),
        label=np.arange(len(streams), dtype=np.uint32),
        required=schedule["required"],
    )
    labels = [_label(op, tag) for op, tag in streams]
    try:
        return compile_graph(
            path.name.split(".")[0], graph, labels, _notes(schedule["cores"], schedule["adapters"])
        )
    except DependencyCycle as cycle:
        raise _cycle(path, cycle.node) from None


def _label(op: int, tag: int) -> Label:
    if tag == ANY_TAG:
        return Label("any tag", _CALLS[op])
    return Label(f"tag {tag}", _CALLS[op], tag)


def _read_text(path: Path, keep_lines: bool = False) -> dict[str, Any]:
    try:
        return _core.read_goal(_without_comments(pieces(path)), LONGEST_PS, keep_lines)
    except ValueError as error:
        raise _schedule_error(_plain_text(path), path, *error.args) from None


def _plain_text(path: Path) -> Text:
    """The whole text without comments, for an error."""
    text = read_text([path])
    text.data[0] = b"".join(_without_comments(iter(text.data)))
    return text


def _read_binary(path: Path) -> dict[str, Any]:
    data = content(path, TraceError, TRACE_MEMORY)
    if _is_of_loggopsim_2(data):
        raise TraceError(
            f"is a binary schedule of LogGOPSim 2 (operations of {_OPERATION_BYTES_2} bytes)",
            file=path,
            remedy=_LOGGOPSIM_2,
        )
    try:
        return _core.read_goal_binary(data, LONGEST_PS)
    except ValueError as error:
        _, _, what, byte, _ = error.args
        raise TraceError(what, file=path, place=f"byte {byte}", remedy=_DAMAGED) from None


def _is_of_loggopsim_2(data: bytes) -> bool:
    """Whether the first rank with operations has as many bytes as LogGOPSim 2 writes for them."""
    try:
        (ranks,) = struct.unpack_from("<I", data, 8)
        for rank in range(ranks):
            # Positions count from byte 8, after the first number.
            begin, end = struct.unpack_from("<QQ", data, 14 + 16 * rank)
            count, roots = struct.unpack_from("<II", data, 8 + begin)
            first = 16 + begin + 4 * roots
            if count:
                size = (count, _OPERATION_BYTES_2)
                rows = np.frombuffer(data, np.uint8, count * size[1], first).reshape(size)
                # Numbers of the operations that require its end and its begin.
                later = rows[:, [*range(23, 27), *range(31, 35)]].copy().view("<u4")
                length = 8 + 4 * (roots + int(later.sum(dtype=np.int64))) + rows.size
                return bool(length == end - begin)
    except (struct.error, ValueError, OverflowError):
        return False
    return False


def _cycle(path: Path, operation: int) -> TraceError:
    """The error for an operation that waits for itself."""
    message = "waits for itself: a cycle of dependencies and messages"
    remedy = "correct what generated the schedule"
    if _is_binary(path):
        return TraceError(
            f"the operation {message}", file=path, place=f"operation {operation}", remedy=remedy
        )
    line = int(_read_text(path, keep_lines=True)["line"][operation])
    text = read_text([path])
    return text.fault(line, f"{text.quoted(line)} {message}", remedy)


def _schedules(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if ".goal" in entry.name)
    return [file for file in files if file.is_file() and _is_schedule(file)]


def _without_comments(data: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces of the text without comments; line numbers stay the same."""
    for piece in data:
        if b"/" not in piece:
            yield piece
            continue
        plain = _COMMENT.sub(_newlines, piece)
        if b"/*" in plain:
            # It ends in a later piece.
            plain = _COMMENT.sub(_newlines, b"".join([piece, *data]))
        yield plain


def _newlines(comment: re.Match[bytes]) -> bytes:
    return b"\n" * comment[0].count(b"\n")


def _notes(cores: int, adapters: int) -> list[str]:
    """Notes on concurrency that a sequence of operations cannot express."""
    notes = []
    if cores > 1:
        notes.append(
            f"ranks compute on up to {cores} cores at a time in the schedule; here what a rank "
            "computes runs one after the other"
        )
    if adapters > 1:
        notes.append(
            f"nic not used: ranks send by up to {adapters} adapters in the schedule; here all "
            "messages of a rank pass through one, which takes longer"
        )
    return notes


def _schedule_error(
    text: Text, path: Path, kind: str, row: int, detail: str, number: int, _limit: float
) -> TraceError:
    """The error for an invalid schedule."""
    again = "copy it again or generate it again"
    match kind:
        case "beginning":
            return TraceError(
                "does not begin with num_ranks",
                file=path,
                remedy="write num_ranks N as the first line",
            )
        case "missing":
            return TraceError(
                f"has no block of rank {number} of {detail}: the file is cut short",
                file=path,
                remedy=again,
            )
        case "large":
            return TraceError(
                "has more lines than Tailback can number",
                file=path,
                remedy="generate a smaller one",
            )
        case "open":
            message = "the block of the rank is not closed: the file is cut short"
            return text.fault(row, message, again)
    messages = {
        "unexpected": f"{text.quoted(row)} is outside a block, or opens a block inside another",
        "again": f"a second block of rank {number}",
        "beyond": f"a block of rank {number}, but num_ranks is {detail}",
        "unknown": f"cannot parse {text.quoted(row)}",
        "impossible": f"{text.quoted(row)} has a rank, size, time or tag out of range, or 'to' in "
        f"place of 'from'; num_ranks is {detail}",
        "twice": f"the label {shown(detail)} is used twice in this rank",
        "undefined": f"the label {shown(detail)} is not defined",
    }
    return text.fault(row, messages[kind], _DAMAGED)
