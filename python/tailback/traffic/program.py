"""The rank program, to which every pattern and every trace compiles.

A program is a list of operations for every rank, which run in sequence with the blocking rules of
MPI. Collectives are not operations: they are expanded to the point-to-point messages a real MPI
sends, so that each message exists in the network and carries the label of its call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tailback.available import memory_remedy
from tailback.errors import TailbackError, TraceError
from tailback.io.delimited import NotUsed
from tailback.scenario.model import NcclSection
from tailback.units import format_bytes


class Op(IntEnum):
    """Kind of an operation of a rank.

    =========  ==========================================================================
    COMPUTE    occupies the rank for ``amount`` picoseconds
    ISEND      posts a send of ``amount`` bytes to ``peer`` under request ``request``, complete when
               its last byte has left the adapter
    IRECV      posts a receive of ``amount`` bytes from ``peer`` under request ``request``
    WAIT       blocks until request ``request`` is complete
    WAITALL    blocks until every request the rank has open is complete
    ISSEND     posts a synchronous send, complete when its receive is: the last byte has arrived and
               the receive is posted
    =========  ==========================================================================

    ``ACKNOWLEDGED_SEND`` posts a send that is complete when the acknowledgement that its receive is
    complete, a packet without data, has come back over the network.
    """

    COMPUTE = 0
    ISEND = 1
    IRECV = 2
    WAIT = 3
    WAITALL = 4
    ISSEND = 5
    ACKNOWLEDGED_SEND = 6


SENDS = (Op.ISEND, Op.ISSEND, Op.ACKNOWLEDGED_SEND)
"""Operations that post a send."""

POSTS = (*SENDS, Op.IRECV)
"""Operations that post a send or a receive, and so have a request."""


IS_POST = np.isin(np.arange(256), POSTS)
"""Whether the operation with each number is one of POSTS."""

_IS_SEND = np.isin(np.arange(256), SENDS)
"""The same for SENDS."""

OVERLAPPING = 1
"""Tag of computation that an accelerator does beside a collective."""

_CHECKED = 1 << 20
"""Operations to check at a time."""

MAX_OPERATIONS = 2**27
"""Largest program that is built: 29 bytes per operation, 3.9 GB."""

BYTES_PER_OPERATION = 125
"""Peak memory per operation while a program is built (measured: 62 to 225)."""


def require_memory(
    operations: int,
    limit_bytes: int | None,
    *,
    what: str,
    error: type[TailbackError],
    place: str | None = None,
    remedy: str,
) -> None:
    """Refuse a program that does not fit in memory, before it is built.

    Args:
        operations: Operations of all its ranks.
        limit_bytes: Memory it may take; None if unknown.
        what: Source of the program, for the message: ``"the pattern"``.
        error: Type of the error.
        place: Where that is said.
        remedy: What makes the program smaller.

    Raises:
        TailbackError: Of type ``error``: states the estimate, the limit, and how to raise it.
    """
    if operations > MAX_OPERATIONS:
        raise error(
            f"{what} makes {operations:,} operations; at most {MAX_OPERATIONS:,} fit in a program",
            place=place,
            remedy=remedy,
        )
    needed = operations * BYTES_PER_OPERATION
    if limit_bytes is not None and needed > limit_bytes:
        raise error(
            f"{what} makes {operations:,} operations, which take about {format_bytes(needed)} of "
            f"memory, and the limit is {format_bytes(limit_bytes)}",
            place=place,
            remedy=f"{remedy}; or {memory_remedy(needed)}",
        )


@dataclass(frozen=True)
class Label:
    """Origin of a message, shown with its traffic.

    Attributes:
        phase: The phase of the application, e.g. ``"+y"`` or ``"tag 104"``.
        call: The call that sent it, e.g. ``"MPI_Isend"``; for collectives ``"MPI_Allreduce"``.
        tag: The MPI tag, -1 where there is none.
        communicator: Name of the communicator.
        path: Call path of the application down to the call, outermost first, joined by `` > ``;
            empty where the trace does not have it.
    """

    phase: str
    call: str
    tag: int = -1
    communicator: str = "MPI_COMM_WORLD"
    path: str = ""


@dataclass(frozen=True)
class RecordedTimes:
    """Duration of the recorded run of a program, means over its ranks.

    Attributes:
        calls_ps: Time inside communication calls, which the program does not contain.
        between_ps: Time between calls, which it contains as COMPUTE.
        sharing: How many ranks shared too few cores, and where; empty if none did, None if that is
            unknown.
        processor_time: Whether ``between_ps`` is processor time, as ranks shared cores.
        oversubscribed_ps: Time that the last rank to enter spends in small collectives, where that
            exceeds any network's latency, because ranks waited for a processor; else 0.
        unrecorded_ps: Part of ``calls_ps`` in calls whose messages the tracer did not record.
        unrecorded: Those calls, in words; empty if there are none.
    """

    calls_ps: int
    between_ps: int
    oversubscribed_ps: int = 0
    unrecorded_ps: int = 0
    unrecorded: str = ""
    sharing: str | None = None
    processor_time: bool = False

    @property
    def total_ps(self) -> int:
        """Time of the run, mean over its ranks; without waits for a processor between calls."""
        return self.calls_ps + self.between_ps


@dataclass
class Program:
    """Operations of all ranks, rank after rank.

    Operations of rank ``r`` are ``rank_start[r]:rank_start[r + 1]`` of the six columns. Sends and
    receives of one (source, destination, tag) match in the order they are posted, as MPI's
    non-overtaking rule says; there are no wildcards, because traces record the actual matches.

    Attributes:
        name: What to call the application.
        rank_start: First operation of each rank, shape (R + 1,).
        kind: :class:`Op` of each operation, shape (M,).
        peer: The other rank of sends and receives, -1 otherwise, shape (M,).
        amount: Bytes (sends, receives) or picoseconds (COMPUTE), shape (M,).
        tag: Matching tag of sends and receives; includes the communicator. :data:`OVERLAPPING` for
            computation beside a collective, otherwise 0, shape (M,).
        request: Request number within the rank (sends, receives, WAIT), -1 otherwise, shape (M,).
        label: Index into ``labels`` of sends and receives, shape (M,); 0 for others.
        labels: The labels.
        grid: Extents of the Cartesian grid the ranks form (x fastest), empty when unknown.
        notes: Notes of the reader on problems that it tolerated; shown to the user.
        recording: Duration of the recorded run; None without times.
        lacks: What the recording does not contain, in a few words each; shown with a diagnosis.
        recompile: Compiles the program again with collectives run in another way; None if it has no
            NCCL collectives or has been edited.
        for_hosts: Compiles the program again for the hosts of its ranks, which decide on rings and
            trees; None if the trace names them or nothing depends on them.
        port_gbps: Rate of the port of each rank to the others of its host, Gb/s, if the recording
            states it.
        hosts: Name of the host of each rank; empty unless a recording without times, or of
            accelerators, names it.
    """

    name: str
    rank_start: NDArray[np.uint64]
    kind: NDArray[np.uint8]
    peer: NDArray[np.int32]
    amount: NDArray[np.uint64]
    tag: NDArray[np.int64]
    request: NDArray[np.int32]
    label: NDArray[np.uint32]
    labels: list[Label]
    grid: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list)
    recording: RecordedTimes | None = None
    lacks: tuple[str, ...] = ()
    recompile: Callable[[NcclSection], Program] | None = None
    for_hosts: Callable[[Sequence[int]], Program] | None = None
    port_gbps: float | None = None
    hosts: tuple[str, ...] = ()

    @property
    def not_used(self) -> list[str]:
        """Those of ``notes`` on what was read and not used."""
        return [note for note in self.notes if isinstance(note, NotUsed)]

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.rank_start) - 1

    @property
    def op_rank(self) -> NDArray[np.int64]:
        """The rank each operation belongs to, shape (M,)."""
        return np.repeat(np.arange(self.n_ranks), np.diff(self.rank_start).astype(np.int64))

    @property
    def sends(self) -> NDArray[np.bool_]:
        """Whether each operation posts a send, shape (M,)."""
        return _IS_SEND[self.kind]

    @property
    def posts(self) -> NDArray[np.bool_]:
        """Whether each operation posts a send or a receive, shape (M,)."""
        return IS_POST[self.kind]

    @property
    def separate_computations(self) -> NDArray[np.bool_]:
        """Whether each operation is a computation beside which nothing communicates, shape (M,)."""
        separate: NDArray[np.bool_] = (self.kind == Op.COMPUTE) & (self.tag != OVERLAPPING)
        return separate

    def traffic_matrix(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """Bytes between each pair of ranks.

        Returns:
            ``(source, destination, bytes)``, one entry for each pair of ranks that communicate,
            sorted by source then destination.
        """
        sends = self.sends
        n = max(self.n_ranks, 1)
        key = self.op_rank[sends] * n + self.peer[sends].astype(np.int64)
        if n * n <= 4 * len(key):
            # Without sorting.
            there = np.bincount(key, minlength=n * n) > 0
            pairs, index = np.flatnonzero(there), (np.cumsum(there) - 1)[key]
        else:
            pairs, index = np.unique(key, return_inverse=True)
        total = np.zeros(len(pairs), np.uint64)
        np.add.at(total, index, self.amount[sends])
        return pairs // n, pairs % n, total

    def check(self) -> None:
        """Raise TraceError when a peer does not exist or sends and receives do not pair up."""
        # In pieces: a program can be the largest thing in memory.
        for first in range(0, len(self.kind), _CHECKED):
            piece = slice(first, first + _CHECKED)
            # As unsigned numbers, negative ranks are too large.
            bad = self.peer[piece].view(np.uint32) >= self.n_ranks
            bad &= IS_POST[self.kind[piece]]
            if bad.any():
                op = first + int(np.flatnonzero(bad)[0])
                raise TraceError(
                    f"rank {int(self.op_rank[op])} names rank {int(self.peer[op])} "
                    f"of a program with {self.n_ranks} ranks"
                )


def without_bytes(program: Program) -> Program:
    """The same program with messages of zero bytes: only the dependencies are left."""
    amount = np.where(program.posts, np.uint64(0), program.amount)
    return replace(program, amount=amount, recompile=None)


@dataclass(frozen=True)
class PlacedProgram:
    """A program placed on a fabric: the input of the packet engine and the fluid model.

    Attributes:
        program: Operations of R ranks.
        node: Node of each rank, shape (R,).
        host: Host of each rank, shape (R,): ranks of one host use its memory, not the network.
        start_ps: When each rank starts, shape (R,).
        local_gbps: Rate at which each rank exchanges messages within its host, Gb/s, shape (R,);
            empty for that of the settings.
        label_observed: Whether each label belongs to an observed job; packet engine only.
        label_service: Service level of each label; packet engine only.
        label_step: Number of the step whose packets are counted separately that messages of each
            label belong to, 0 for none; packet engine only.
        pace_mbps: Pacing rate of each send, 0 for none, shape (M,); None for no pacing at all;
            packet engine only.
    """

    program: Program
    node: NDArray[np.uint32]
    host: NDArray[np.uint32]
    start_ps: NDArray[np.uint64]
    local_gbps: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    label_observed: list[bool] = field(default_factory=list)
    label_service: list[int] = field(default_factory=list)
    label_step: list[int] = field(default_factory=list)
    pace_mbps: NDArray[np.uint32] | None = None


class ProgramBuilder:
    """Collects operations rank by rank, in any order of ranks, and packs them."""

    def __init__(self, name: str, n_ranks: int, grid: tuple[int, ...] = ()) -> None:
        self.name = name
        self.grid = grid
        self.notes: list[str] = []
        self._ops: list[list[tuple[int, int, int, int, int, int]]] = [[] for _ in range(n_ranks)]
        self._next_request = [0] * n_ranks
        self._labels: dict[Label, int] = {}

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self._ops)

    def label(self, label: Label) -> int:
        """Return the number of ``label``, adding it when it is new."""
        return self._labels.setdefault(label, len(self._labels))

    def compute(self, rank: int, ps: int) -> None:
        """Occupy ``rank`` for ``ps`` picoseconds."""
        if ps > 0:
            self._ops[rank].append((Op.COMPUTE, -1, ps, 0, -1, 0))

    def isend(self, rank: int, peer: int, size: int, tag: int, label: int) -> int:
        """Post a send of ``size`` bytes; returns its request."""
        return self._post(Op.ISEND, rank, peer, size, tag, label)

    def irecv(self, rank: int, peer: int, size: int, tag: int, label: int) -> int:
        """Post a receive of ``size`` bytes; returns its request."""
        return self._post(Op.IRECV, rank, peer, size, tag, label)

    def wait(self, rank: int, request: int) -> None:
        """Block until ``request`` is complete."""
        self._ops[rank].append((Op.WAIT, -1, 0, 0, request, 0))

    def waitall(self, rank: int) -> None:
        """Block until every open request of the rank is complete."""
        self._ops[rank].append((Op.WAITALL, -1, 0, 0, -1, 0))

    def _post(self, op: Op, rank: int, peer: int, size: int, tag: int, label: int) -> int:
        request = self._next_request[rank]
        self._next_request[rank] += 1
        self._ops[rank].append((op, peer, size, tag, request, label))
        return request

    def build(self) -> Program:
        """Pack everything collected so far."""
        start = np.zeros(self.n_ranks + 1, np.uint64)
        start[1:] = np.cumsum([len(ops) for ops in self._ops], dtype=np.uint64)
        flat = [op for ops in self._ops for op in ops]
        columns: list[tuple[int, ...]] = list(zip(*flat, strict=True)) if flat else [()] * 6
        program = Program(
            name=self.name,
            rank_start=start,
            kind=np.array(columns[0], np.uint8),
            peer=np.array(columns[1], np.int32),
            amount=np.array(columns[2], np.uint64),
            tag=np.array(columns[3], np.int64),
            request=np.array(columns[4], np.int32),
            label=np.array(columns[5], np.uint32),
            labels=list(self._labels) or [Label("all", "none")],
            grid=self.grid,
            notes=self.notes,
        )
        program.check()
        return program
