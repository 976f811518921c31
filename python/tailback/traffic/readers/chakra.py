"""Chakra execution traces (``NAME.RANK.et``): operations of accelerators and their dependencies.

Written by ASTRA-sim and PyTorch's converter. Sends, receives and computation are kept, with all
dependencies; a collective of all ranks becomes the messages of MPI's algorithm for it, posted where
it begins; operations that depend on it wait for them. There are no times of calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.errors import TraceError
from tailback.io.delimited import KEYS_NAMED, not_used, shown
from tailback.io.input_files import TRACE_MEMORY, content, head_bytes
from tailback.io.progress import report
from tailback.traffic.collectives import schedule
from tailback.traffic.program import Label, Op, Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.graph import NOTHING, DependencyCycle, DependencyGraph, compile_graph
from tailback.units import LONGEST_PS

CAPABILITIES = Capabilities(
    times="no",
    sources="yes",
    completion="by the operations that depend on it",
    call_site="no",
    compute="durations of operations, in µs",
)

_FILE = re.compile(r"^(?P<stem>.+)\.(?P<rank>\d{1,9})\.et(?:\.gz)?$")
_BEGINNING = re.compile(rb"\A([\x80-\xff]{0,9}[\0-\x7f])[\x0a\x12]", re.DOTALL)
_CALLS = {
    0: "MPI_Allreduce",
    2: "MPI_Allgather",
    5: "MPI_Bcast",
    6: "MPI_Alltoall",
    7: "MPI_Reduce_scatter",
    8: "MPI_Reduce_scatter",
    9: "MPI_Barrier",
}
_IRRELEVANT = frozenset(
    {
        *("is_cpu_op", "rf_id", "fw_parent", "fw_tid", "seq_id", "scope", "tid", "op_schema"),
        *("kernel_backend", "kernel_file"),
    }
)
"""Attributes of nodes that say where an operation comes from, as PyTorch's recorder has them; and
whether a CPU executes it, as all operations of a rank are in sequence here."""
_COLUMNS = ("kind", "peer", "amount", "label")
_ALGORITHMS = sorted(set(_CALLS.values()))
_DAMAGED = "the trace is damaged: copy it again or make it again"


def sniff(path: Path) -> bool:
    """A file called ``NAME.RANK.et`` with the content of one, or a folder with such files."""
    if path.is_dir():
        return any(_is_trace(entry) for entry in path.iterdir() if _FILE.match(entry.name))
    return _FILE.match(path.name) is not None and _is_trace(path)


def read(path: Path) -> Program:
    """Compile the traces of all ranks to a rank program.

    Args:
        path: The folder of the traces, or one of them, which stands for all of the same name.

    Returns:
        The program. The operations of a rank are in the order in which they can begin.

    Raises:
        TraceError: The trace of a rank is missing, damaged or cut short, or nodes depend on each
            other.
    """
    stem, files = _files(path)
    decoded = _decode_files(files)
    graph, labels, origin = _expand_collectives(decoded, files)
    notes = _notes(decoded)
    decoded.clear()
    try:
        return compile_graph(stem, graph, labels, notes)
    except DependencyCycle as cycle:
        row = cycle.node if origin is None else int(origin[cycle.node])
        decoded = _decode_files(files)
        number, rank = int(decoded["number"][row]), _rank_of(decoded, row)
        raise TraceError(
            f"node {number} waits for itself: a cycle of dependencies and messages",
            file=files[rank],
            place=f"node {number}",
            remedy="convert the trace again, with a newer converter",
        ) from None


def _rank_of(decoded: dict[str, Any], row: int) -> int:
    """The rank of a node."""
    return int(np.searchsorted(decoded["rank_start"], row, side="right")) - 1


def _is_trace(path: Path) -> bool:
    """Whether a file begins with a protobuf message with the expected fields."""
    # The length of the metadata, then the version or an attribute of it.
    match = _BEGINNING.match(head_bytes(path))
    return match is not None and match[1].strip(b"\x80") not in (b"", b"\0")


def _files(path: Path) -> tuple[str, list[Path]]:
    """Name of the traces, and their files by rank."""
    folder = path if path.is_dir() else path.parent
    mine = _FILE.match(path.name) if path.is_file() else None
    sets: dict[str, dict[int, Path]] = {}
    for entry in sorted(folder.iterdir()):
        match = _FILE.match(entry.name)
        if match and (mine is None or match["stem"] == mine["stem"]):
            sets.setdefault(match["stem"], {})[int(match["rank"])] = entry
    if len(sets) != 1:
        names = ", ".join(map(repr, sorted(sets)))
        raise TraceError(
            f"holds the traces of {len(sets)} runs: {names}" if sets else "holds no NAME.RANK.et",
            file=path,
            remedy="name a file of the run you mean",
        )
    ((stem, files),) = sets.items()
    for expected, rank in enumerate(sorted(files)):
        if rank != expected:
            raise TraceError(
                f"the trace of rank {expected} is missing",
                file=folder,
                remedy="copy the traces of all ranks into one folder",
            )
    return stem, [files[rank] for rank in sorted(files)]


def _decode_files(files: list[Path]) -> dict[str, Any]:
    """The nodes of all ranks as columns; raises TraceError for a damaged file."""
    numbers = [(kind, _ALGORITHMS.index(name)) for kind, name in _CALLS.items()]
    # One file at a time: together they can be as large as the result.
    data = _contents(files)
    try:
        return _core.read_chakra(len(files), data, numbers, LONGEST_PS)
    except ValueError as error:
        at, kind, number, name, message = error.args
    messages = {
        "bytes": f"cannot be decoded: {message}",
        "empty": "has no nodes",
        "again": f"two nodes have the number {number}",
        "node": f"{shown(name)}: {message}",
        "large": "has more nodes than Tailback can number",
    }
    place = None if kind in ("empty", "large") else f"node {number}"
    place = f"byte {number}" if kind == "bytes" else place
    raise TraceError(messages[kind], file=files[at], place=place, remedy=_DAMAGED)


def _contents(files: list[Path]) -> Iterator[bytes]:
    for number, file in enumerate(files):
        report(f"reading {file.name}", number / len(files))
        yield content(file, TraceError, TRACE_MEMORY)


def _expand_collectives(
    decoded: dict[str, Any], files: list[Path]
) -> tuple[DependencyGraph, list[Label], NDArray[np.int64] | None]:
    """The operations of all ranks, their labels, and the decoded row of each if it differs.

    A collective becomes an operation where it begins, one where it ends, and its messages.
    """
    labels = [_label(kind, tag) for kind, tag in decoded["labels"]]
    # Odd tags, so that those of collectives, which are even, differ.
    tag = np.array([2 * tag + 1 for _, tag in decoded["labels"]], np.int64)
    label = np.arange(len(tag), dtype=np.uint32)
    calls, n = decoded["collectives"], len(decoded["kind"])
    if not len(calls["row"]):
        kind, peer, amount, stream = (decoded[name] for name in _COLUMNS)
        graph = DependencyGraph(
            decoded["rank_start"], kind, peer, amount, stream, tag, label, decoded["required"]
        )
        return graph, labels, None
    steps = _collective_messages(decoded, files)
    width = np.ones(n, np.int64)
    width[calls["row"]] = [2 + len(posts) for posts in steps]
    origin = np.repeat(np.arange(n), width)
    begin = np.cumsum(width) - width
    end = begin.copy()
    end[calls["row"]] += 1
    expanded = {name: decoded[name][origin] for name in _COLUMNS}
    ends, required = decoded["required"]
    dependent = np.repeat(np.arange(n), np.diff(ends, prepend=0))
    before, after = [end[required]], [begin[dependent]]
    for at, posts in enumerate(steps):
        first = int(begin[calls["row"][at]])
        rows = np.arange(first + 2, first + 2 + len(posts))
        kind, peer, size = np.array(posts, np.int64).reshape(-1, 3).T
        for name, values in (("kind", kind), ("peer", peer), ("amount", size)):
            expanded[name][rows] = values
        # Each collective of a rank is a stream of its own, after those of all tags.
        expanded["label"][rows] = len(tag) + at
        before += [np.full(len(posts) + 1, first), rows]
        after += [np.append(rows, first + 1), np.full(len(posts), first + 1)]
    graph = DependencyGraph(
        np.append(begin, len(origin))[decoded["rank_start"]].astype(np.uint32),
        expanded["kind"],
        expanded["peer"],
        expanded["amount"],
        expanded["label"],
        np.append(tag, calls["ordinal"] << 1),
        np.append(label, calls["label"]),
        _lists(np.concatenate(before), np.concatenate(after), len(origin)),
    )
    return graph, labels, origin


def _lists(
    before: NDArray[np.int64], after: NDArray[np.int64], n: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """What each of ``n`` operations depends on: the ends of the lists, and the lists."""
    ends = np.cumsum(np.bincount(after, minlength=n)).astype(np.uint32)
    return ends, before[np.argsort(after, kind="stable")].astype(np.uint32)


def _collective_messages(
    decoded: dict[str, Any], files: list[Path]
) -> list[list[tuple[int, int, int]]]:
    """Kind, other rank and bytes of the messages that each collective posts."""
    calls, n_ranks = decoded["collectives"], len(files)
    out = []
    for at, (row, call) in enumerate(zip(calls["row"], calls["call"].tolist(), strict=True)):
        posts: list[tuple[int, int, int]] = []
        if call >= 0:
            rank, size = _rank_of(decoded, int(row)), int(calls["size"][at])
            # The size is the input of a rank: for an all-to-all, one block per rank.
            sent = size // n_ranks if _ALGORITHMS[call] == "MPI_Alltoall" else size
            try:
                steps = schedule(_ALGORITHMS[call], n_ranks, rank, int(calls["root"][at]), sent, 0)
            except TraceError as error:
                error.place = f"node {decoded['number'][row]}"
                raise error.located(files[rank]) from None
            for step in steps:
                for op, some in ((Op.IRECV, step.receives), (Op.ISEND, step.sends)):
                    posts += [(int(op), peer, part) for peer, part in some]
        out.append(posts)
    return out


def _label(kind: int, tag: int) -> Label:
    if kind == NOTHING:
        return Label(_ALGORITHMS[tag], _ALGORITHMS[tag])
    call = "COMM_SEND_NODE" if kind == Op.ISEND else "COMM_RECV_NODE"
    return Label(f"tag {tag}", call, tag)


def _notes(decoded: dict[str, Any]) -> list[str]:
    """What was left out."""
    out = []
    if decoded["without_duration"]:
        out.append(f"{decoded['without_duration']} computations have no duration and take no time")
    if decoded["missing_dependencies"]:
        out.append(
            f"{decoded['missing_dependencies']:,} dependencies on nodes that the trace lacks, as "
            "converters drop some, are left out: operations may begin too early"
        )
    if decoded["left_out"]:
        out.append(
            f"{decoded['left_out']} collectives of some of the ranks, or of a kind that is "
            "not expanded, are left out"
        )
    unused = [name for name in decoded["unused"] if name not in _IRRELEVANT]
    return out + not_used(unused, "attributes of nodes", KEYS_NAMED)
