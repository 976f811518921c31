"""Names in a trace: meaning of calls, labels of messages, world ranks of local ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.errors import TraceError
from tailback.traffic.program import Label
from tailback.traffic.readers.otf2.columns import MessageColumns, Trace
from tailback.traffic.readers.posts import dense, distinct

OPERATIONS = (
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Gather",
    "MPI_Gatherv",
    "MPI_Scatter",
    "MPI_Scatterv",
    "MPI_Allgather",
    "MPI_Allgatherv",
    "MPI_Alltoall",
    "MPI_Alltoallv",
    "MPI_Alltoallw",
    "MPI_Allreduce",
    "MPI_Reduce",
    "MPI_Reduce_scatter",
    "MPI_Scan",
    "MPI_Exscan",
    "MPI_Reduce_scatter_block",
)
"""Call of each OTF2_CollectiveOp; larger numbers manage handles and move no data."""

ROOTED = ("MPI_Bcast", "MPI_Gather", "MPI_Gatherv", "MPI_Scatter", "MPI_Scatterv", "MPI_Reduce")
"""Collectives with a root."""

LARGEST_TAG = 2**31 - 1
"""Largest tag of a program; ``tailback record`` gives messages of collectives larger ones."""

_SINGLE_WAITS = frozenset(("mpi_wait", "mpi_waitany", "mpi_waitsome"))

_COLLECTIVES = frozenset(name.removeprefix("MPI_").lower() for name in OPERATIONS)
_ONE_SIDED = frozenset(
    f"mpi_{name}"
    for name in (
        *("put", "get", "accumulate", "get_accumulate", "fetch_and_op", "compare_and_swap"),
        *("rput", "rget", "raccumulate", "rget_accumulate"),
    )
)
_TIMED_ONLY = _ONE_SIDED | frozenset(
    f"mpi_{name}"
    for name in (
        *("isendrecv", "isendrecv_replace"),
        *(f"neighbor_{name}" for name in _COLLECTIVES),
        *(f"ineighbor_{name}" for name in _COLLECTIVES),
    )
)

_MOVES_DATA = _ONE_SIDED | frozenset(
    f"mpi_{name}"
    for name in (
        *("send", "bsend", "ssend", "rsend", "isend", "ibsend", "issend", "irsend"),
        *("recv", "irecv", "mrecv", "imrecv", "sendrecv", "sendrecv_replace", "isendrecv"),
        *("isendrecv_replace", "start", "startall", "pready", "pready_range", "pready_list"),
        *_COLLECTIVES,
        *(f"i{name}" for name in _COLLECTIVES),
        *(f"neighbor_{name}" for name in _COLLECTIVES),
        *(f"ineighbor_{name}" for name in _COLLECTIVES),
    )
)

_NCCL = frozenset(
    f"nccl{name}"
    for name in (
        *("allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall"),
        *("gather", "scatter", "sendrecv", "send", "recv", "exchange"),
    )
)
"""NCCL's calls, all of which move data."""

EXPANDED_CALLS = (
    *OPERATIONS,
    *(f"nccl{name}" for name in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")),
    *(f"nccl{name}" for name in ("AllToAll", "Gather", "Scatter")),
)
"""Calls whose messages no trace records, so that they are those of the model."""

_JOINS_GROUPS = frozenset(
    f"mpi_{name}"
    for name in (
        *("intercomm_create", "intercomm_create_from_groups", "comm_spawn", "comm_spawn_multiple"),
        *("comm_accept", "comm_connect", "comm_join"),
    )
)


def normalised_call(region: str) -> str:
    """Name of a call in lower case, without Fortran's underscores and the mark of large counts."""
    return region.lower().rstrip("_").removesuffix("_c")


def communicates(region: str) -> bool:
    """Whether the call moves data or waits for it."""
    name = normalised_call(region)
    return moves_data(region) or name.startswith(
        ("mpi_wait", "mpi_test", "mpi_probe", "mpi_mprobe")
    )


def is_synchronising(region: str) -> bool:
    """Whether no rank leaves the call before all have entered it."""
    return normalised_call(region) in ("mpi_barrier", "mpi_allreduce")


def is_single_wait(region: str) -> bool:
    """Whether the call waits for one request, or for at least one."""
    return normalised_call(region) in _SINGLE_WAITS


def is_waitall(region: str) -> bool:
    """Whether the call waits for all of its requests."""
    return normalised_call(region) == "mpi_waitall"


def joins_groups(region: str) -> bool:
    """Whether the call creates an inter-communicator."""
    return normalised_call(region) in _JOINS_GROUPS


def moves_data(region: str) -> bool:
    """Whether the call sends or receives, so that the trace should have a record of it."""
    name = normalised_call(region)
    return name in _MOVES_DATA or name in _NCCL


def is_one_sided(region: str) -> bool:
    """Whether the call reads, writes or updates the memory of another rank."""
    return normalised_call(region) in _ONE_SIDED


def is_timed_only(region: str) -> bool:
    """Whether ``tailback record`` may write the time of a call and no messages.

    That is so for MPI_Isendrecv and one-sided calls with MPI_PROC_NULL, for neighbourhood
    collectives without neighbours and, in older recordings, for every MPI_Isendrecv and every
    non-blocking neighbourhood collective.
    """
    return normalised_call(region) in _TIMED_ONLY


class Labels:
    """Assigns numbers to the labels of messages."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._numbers: dict[Label, int] = {}

    def all(self) -> list[Label]:
        """The labels by number."""
        return list(self._numbers)

    @staticmethod
    def none() -> list[Label]:
        """The labels of a program without messages."""
        return [Label("all", "none")]

    def number(
        self,
        phase: NDArray[np.int64],
        path: NDArray[np.int64],
        call: NDArray[np.int64],
        tag: NDArray[np.int64],
        comm: NDArray[np.int64],
        calls: dict[int, str],
    ) -> NDArray[np.int64]:
        """Number of the label of each message.

        Args:
            phase: Enclosing region or -1, shape (P,).
            path: Index into the trace's call paths, shape (P,).
            call: Key into ``calls``, shape (P,).
            tag: MPI tag, -1 for collectives, shape (P,).
            comm: Communicator, shape (P,).
            calls: Name of each call.
        """
        table = [phase, path, call, tag, comm]
        first, index = distinct(table)
        columns = np.stack([column[first] for column in table], axis=1)
        numbers = np.zeros(len(columns), np.int64)
        for row, (region, route, key, mpi_tag, communicator) in enumerate(columns.tolist()):
            name = calls[key]
            if mpi_tag > LARGEST_TAG:
                mpi_tag = -1
            if region >= 0:
                where = self._trace.regions[region]
            else:
                where = f"tag {mpi_tag}" if mpi_tag >= 0 else name
            definition = self._trace.communicators.get(communicator)
            comm_name = definition.name if definition else "unknown"
            label = Label(where, name, mpi_tag, comm_name, self._trace.paths[route])
            numbers[row] = self._numbers.setdefault(label, len(self._numbers))
        return numbers[index.reshape(-1)]


def world_ranks(
    trace: Trace, rows: NDArray[np.int64], own_rank: NDArray[np.int64], file: Path
) -> NDArray[np.int64]:
    """World rank of the peer of message records, which is numbered within its communicator.

    Args:
        trace: The trace.
        rows: Rows of its messages that have a peer, shape (P,).
        own_rank: World rank of each record, shape (P,).
        file: Anchor file, for errors.

    Returns:
        World ranks, shape (P,).

    Raises:
        TraceError: A communicator or a rank in it does not exist.
    """
    m = trace.messages
    peer, comm = m.peer[rows], m.comm[rows]
    out = np.zeros(len(rows), np.int64)
    for number in dense(comm)[0].tolist():
        mine = np.flatnonzero(comm == number)
        communicator = trace.communicators.get(number)
        if communicator is None:
            raise _damaged(m, rows[mine[0]], f"communicator {number} is not defined", file)
        if communicator.is_self:
            out[mine] = own_rank[mine]
            continue
        sides = [(mine, communicator.members)]
        if communicator.remote is not None:
            # On an inter-communicator the peer is a member of the other group.
            inside = np.isin(own_rank[mine], communicator.members)
            sides = [
                (mine[inside], communicator.remote),
                (mine[~inside], communicator.members),
            ]
        for at, members in sides:
            wrong = (peer[at] < 0) | (peer[at] >= len(members))
            if wrong.any():
                row = rows[at[int(np.flatnonzero(wrong)[0])]]
                raise _damaged(
                    m,
                    row,
                    f"rank {int(m.peer[row])} of {communicator.name!r}, "
                    f"which has {len(members)} members",
                    file,
                )
            out[at] = members[peer[at]]
    return out


def _damaged(messages: MessageColumns, row: int, message: str, file: Path) -> TraceError:
    return TraceError(
        message,
        file=file,
        place=messages.place(int(row)),
        remedy="the trace is damaged: copy it again or record it again",
    )
