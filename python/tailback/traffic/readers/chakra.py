"""Chakra execution traces (``NAME.RANK.et``): operations of accelerators and what they depend on.

As ASTRA-sim and PyTorch's converter write them. Sends, receives and computation are kept, with all
dependencies; a collective of all ranks becomes the messages of MPI's algorithm for it, posted where
it begins and waited for by what depends on it. There are no times of calls.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tailback.delimited import content, head_bytes, shown
from tailback.errors import TraceError
from tailback.traffic.collectives import schedule
from tailback.traffic.program import Label, Op, Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.chakra_nodes import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    Node,
    WireError,
    messages,
    parse,
    varint,
)
from tailback.traffic.readers.graph import NOTHING, DependencyCycle, Graph, compile_graph
from tailback.units import LONGEST_PS

CAPABILITIES = Capabilities(
    times="no",
    sources="yes",
    completion="by the operations that depend on it",
    call_site="no",
    compute="durations of operations, in µs",
)

_FILE = re.compile(r"^(?P<stem>.+)\.(?P<rank>\d{1,9})\.et(?:\.gz)?$")
_PS_PER_US = 10**6
_MOST_BYTES = 1 << 53
_CALLS = {
    0: "MPI_Allreduce", 2: "MPI_Allgather", 5: "MPI_Bcast", 6: "MPI_Alltoall",
    7: "MPI_Reduce_scatter", 8: "MPI_Reduce_scatter", 9: "MPI_Barrier",
}  # fmt: skip
_DAMAGED = "the trace is damaged: copy it again or make it again"


def sniff(path: Path) -> bool:
    """A file called ``NAME.RANK.et`` that begins as one, or a folder with some."""
    if path.is_dir():
        return any(_is_trace(entry) for entry in path.iterdir() if _FILE.match(entry.name))
    return _FILE.match(path.name) is not None and _is_trace(path)


def read(path: Path) -> Program:
    """Compile the traces of all ranks to a rank program.

    Args:
        path: The folder of the traces, or one of them, for all of its name.

    Returns:
        The program. The operations of a rank stand in the order in which they can begin.

    Raises:
        TraceError: The trace of a rank is missing, damaged or cut short, or nodes depend on ones
            that are not there or on each other.
    """
    stem, files = _files(path)
    builder = _Builder(len(files))
    for rank, file in enumerate(files):
        builder.add(rank, file, _nodes(file))
    graph = builder.graph()
    try:
        return compile_graph(stem, graph, list(builder.labels), builder.notes())
    except DependencyCycle as cycle:
        file, number = builder.origin[cycle.node]
        raise TraceError(
            f"node {number} waits for itself: a cycle of dependencies and messages", file=file,
            place=f"node {number}", remedy="convert the trace again, with a newer converter",
        ) from None  # fmt: skip


def _is_trace(path: Path) -> bool:
    """Whether a file begins with a message of the right fields."""
    data = head_bytes(path)
    try:
        length, at = varint(data, 0)
    except WireError:
        return False
    # The version or an attribute of the metadata.
    return length > 0 and data[at : at + 1] in (b"\x0a", b"\x12")


def _files(path: Path) -> tuple[str, list[Path]]:
    """Name of the traces, and their files by rank."""
    folder = path if path.is_dir() else path.parent
    mine = _FILE.match(path.name) if path.is_file() else None
    sets: dict[str, dict[int, Path]] = {}
    for entry in sorted(folder.iterdir()):
        found = _FILE.match(entry.name)
        if found and (mine is None or found["stem"] == mine["stem"]):
            sets.setdefault(found["stem"], {})[int(found["rank"])] = entry
    if len(sets) != 1:
        names = ", ".join(map(repr, sorted(sets)))
        raise TraceError(
            f"holds the traces of {len(sets)} runs: {names}" if sets else "holds no NAME.RANK.et",
            file=path, remedy="name a file of the run you mean",
        )  # fmt: skip
    ((stem, files),) = sets.items()
    for expected, rank in enumerate(sorted(files)):
        if rank != expected:
            raise TraceError(f"the trace of rank {expected} is missing", file=folder,
                             remedy="copy the traces of all ranks into one folder")  # fmt: skip
    return stem, [files[rank] for rank in sorted(files)]


def _nodes(file: Path) -> list[Node]:
    """The nodes of a rank; raises TraceError for a damaged file."""
    data = content(file, TraceError)
    out = []
    begin = 0
    try:
        for number, (offset, message) in enumerate(messages(data)):
            begin = offset
            if number:
                out.append(parse(message))
    except WireError as error:
        place = f"byte {max(begin, error.at)}"
        raise TraceError(
            f"cannot be decoded: {error}", file=file, place=place, remedy=_DAMAGED
        ) from None
    if not out:
        raise TraceError("holds no node", file=file, remedy=_DAMAGED)
    return out


class _Builder:
    """Collects the operations of all ranks."""

    def __init__(self, n_ranks: int) -> None:
        self.n_ranks = n_ranks
        self.labels: dict[Label, int] = {}
        self.origin: list[tuple[Path, int]] = []
        self._rows: list[tuple[int, int, int, int, int, int]] = []
        self._edges: list[tuple[int, int]] = []
        self._silent = self._other = 0

    def add(self, rank: int, file: Path, nodes: list[Node]) -> None:
        """Add the nodes of a rank."""
        begin: dict[int, int] = {}
        end: dict[int, int] = {}
        collectives = 0
        for node in nodes:
            if node.number in begin:
                raise TraceError(f"node {node.number} again", file=file,
                                 place=f"node {node.number}", remedy=_DAMAGED)  # fmt: skip
            try:
                if node.kind == COLLECTIVE:
                    collectives += 1
                    first, last = self._collective(rank, node, collectives, file)
                else:
                    first = last = self._operation(rank, node, file)
            except (KeyError, ValueError, TypeError) as error:
                raise TraceError(
                    f"{shown(node.name)}: {error}", file=file, place=f"node {node.number}",
                    remedy=_DAMAGED,
                ) from None  # fmt: skip
            begin[node.number], end[node.number] = first, last
        for node in nodes:
            for before in node.after:
                if before not in end:
                    raise TraceError(
                        f"node {node.number} depends on node {before}, which does not exist",
                        file=file, place=f"node {node.number}",
                        remedy="the trace is cut short or damaged: copy it again or make it again",
                    )  # fmt: skip
                self._edges.append((end[before], begin[node.number]))

    def graph(self) -> Graph:
        """The operations of all ranks and their dependencies."""
        rows = np.array(self._rows, np.int64).reshape(-1, 6).T
        edges = np.array(self._edges, np.int64).reshape(-1, 2).T
        begun = np.zeros(len(self._edges), np.bool_)
        return Graph(
            self.n_ranks, rank=rows[0], kind=rows[1], peer=rows[2], tag=rows[3], amount=rows[4],
            label=rows[5], before=edges[0], after=edges[1], begun=begun,
        )  # fmt: skip

    def notes(self) -> list[str]:
        """What was left out."""
        out = []
        if self._silent:
            out.append(f"{self._silent} computations have no duration and take no time")
        if self._other:
            out.append(f"{self._other} collectives of some of the ranks, or of a kind that is not "
                       "expanded, are left out")  # fmt: skip
        return out

    def _row(self, rank: int, kind: int, file: Path, node: Node, peer: int = -1, tag: int = 0,
             amount: int = 0, label: int = 0) -> int:  # fmt: skip
        self._rows.append((rank, kind, peer, tag, amount, label))
        self.origin.append((file, node.number))
        return len(self._rows) - 1

    def _operation(self, rank: int, node: Node, file: Path) -> int:
        if node.kind == COMPUTE:
            ps = node.duration_us * _PS_PER_US
            if ps > LONGEST_PS:
                raise ValueError(f"a duration of {node.duration_us} µs")
            self._silent += ps == 0
            return self._row(rank, Op.COMPUTE, file, node, amount=ps)
        if node.kind not in (SEND, RECEIVE):
            return self._row(rank, NOTHING, file, node)
        sends = node.kind == SEND
        peer = _number(node, "comm_dst" if sends else "comm_src")
        size, tag = _number(node, "comm_size"), _number(node, "comm_tag", 0)
        if not 0 <= peer < self.n_ranks:
            raise ValueError(f"names rank {peer} of {self.n_ranks} ranks")
        if not 0 <= size <= _MOST_BYTES or not -(1 << 31) <= tag < 1 << 32:
            raise ValueError(f"{size} B with tag {tag}")
        call = "COMM_SEND_NODE" if sends else "COMM_RECV_NODE"
        label = self._label(Label(f"tag {tag}", call, tag))
        # The lower numbers of tags are those of collectives.
        kind = Op.ISEND if sends else Op.IRECV
        return self._row(rank, kind, file, node, peer, (tag << 1) + 1, size, label)

    def _collective(self, rank: int, node: Node, turn: int, file: Path) -> tuple[int, int]:
        """The operations at which a collective begins and ends, with its messages between them."""
        first = self._row(rank, NOTHING, file, node)
        last = self._row(rank, NOTHING, file, node)
        self._edges.append((first, last))
        kind = _number(node, "comm_type", -1)
        if kind not in _CALLS or node.attributes.get("pg_name", ""):
            self._other += 1
            return first, last
        size = _number(node, "comm_size", 0)
        root = _number(node, "root", 0)
        if not 0 <= size <= _MOST_BYTES:
            raise ValueError(f"{size} B")
        # The size is what a rank puts in: for an exchange a block for every rank.
        sent = size // self.n_ranks if _CALLS[kind] == "MPI_Alltoall" else size
        label = self._label(Label(_CALLS[kind], _CALLS[kind]))
        for step in schedule(_CALLS[kind], self.n_ranks, rank, root, sent, 0):
            for op, posts in ((Op.IRECV, step.receives), (Op.ISEND, step.sends)):
                for peer, part in posts:
                    row = self._row(rank, op, file, node, peer, turn << 1, part, label)
                    self._edges += [(first, row), (row, last)]
        return first, last

    def _label(self, label: Label) -> int:
        return self.labels.setdefault(label, len(self.labels))


def _number(node: Node, name: str, default: int | None = None) -> int:
    value = node.attributes.get(name, default)
    if value is None:
        raise ValueError(f"has no {name}")
    if not isinstance(value, int):
        raise ValueError(f"{name} is {shown(str(value))}")
    return value
