"""A recorded run: MPI calls, point-to-point messages and collectives with their times.

Readers of traces that record times return it (``record``), and the analysis of measured runs takes
it. All times are picoseconds since the origin of the trace, by the clock of the recording rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Self

import numpy as np

from tailback.arrays import Bools, Ints
from tailback.traffic.readers.narrow_columns import narrow_columns
from tailback.traffic.readers.otf2.names import normalised_call

_STARTUP = ("mpi_init", "mpi_init_thread", "mpi_initialized")
_SHUTDOWN = ("mpi_finalize", "mpi_finalized")


class _Table:
    """A table: columns of equal length."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def take(self, rows: Ints | Bools) -> Self:
        """Select rows by index or mask."""
        # As they are stored: reading a narrow column would widen it.
        columns = {name: column[rows] for name, column in vars(self).items()}
        return replace(self, **columns)  # type: ignore[type-var]


@narrow_columns("rank", "name", "path", "comm", "sent_bytes", "received_bytes")
@dataclass(frozen=True)
class RecordedCalls(_Table):
    """MPI calls, ordered by rank and time, C of them; calls of one rank do not overlap.

    Attributes:
        rank: World rank, shape (C,).
        name: Index into :attr:`RecordedRun.names`, shape (C,).
        path: Index into :attr:`RecordedRun.paths`, shape (C,).
        enter_ps: Time of entry, shape (C,).
        leave_ps: Time of exit, shape (C,).
        comm: Communicator of its first record, -1 if none, shape (C,).
        sent_bytes: Bytes sent by its records, shape (C,).
        received_bytes: Bytes received by its records, shape (C,).
        paused: Whether recording was paused before the call, shape (C,).
    """

    rank: Ints
    name: Ints
    path: Ints
    enter_ps: Ints
    leave_ps: Ints
    comm: Ints
    sent_bytes: Ints
    received_bytes: Ints
    paused: Bools

    @property
    def first_of_rank(self) -> Bools:
        """Whether each call is the first of its rank, shape (C,)."""
        return np.append(True, self.rank[1:] != self.rank[:-1])[: len(self)]


@narrow_columns(
    "src_rank",
    "dst_rank",
    "comm",
    "tag",
    "size_bytes",
    "send_call",
    "send_done_call",
    "recv_call",
    "recv_done_call",
)
@dataclass(frozen=True)
class RecordedTransfers(_Table):
    """Point-to-point messages with both ends, T of them. Calls are rows of :class:`RecordedCalls`.

    Attributes:
        src_rank: Sender, shape (T,).
        dst_rank: Receiver, shape (T,).
        comm: Communicator, shape (T,).
        tag: MPI tag, shape (T,).
        size_bytes: Bytes, shape (T,).
        send_call: Call that posts the send, -1 if none, shape (T,).
        send_done_call: Call in which the send completes, -1 if not recorded, shape (T,).
        send_done_ps: Recorded time of that completion, -1 if none, shape (T,).
        recv_call: Call that posts the receive, -1 if none, shape (T,).
        recv_done_call: Call in which the receive completes, -1 if unknown, shape (T,).
        recv_done_ps: Recorded time of that completion, -1 if none, shape (T,).
        guessed: Whether the match or the completion of the receive is inferred instead of
            recorded, shape (T,).
    """

    src_rank: Ints
    dst_rank: Ints
    comm: Ints
    tag: Ints
    size_bytes: Ints
    send_call: Ints
    send_done_call: Ints
    send_done_ps: Ints
    recv_call: Ints
    recv_done_call: Ints
    recv_done_ps: Ints
    guessed: Bools


@narrow_columns(
    "instance",
    "operation",
    "comm",
    "rank",
    "root",
    "start_call",
    "call",
    "sent_bytes",
    "received_bytes",
)
@dataclass(frozen=True)
class RecordedCollectives(_Table):
    """Participation of ranks in collectives, one row per rank and collective, M of them.

    Attributes:
        instance: Number of the collective, shape (M,).
        operation: Index into ``OPERATIONS`` of the OTF2 reader, shape (M,).
        comm: Communicator, shape (M,).
        rank: World rank, shape (M,).
        root: World rank of the root, -1 if none, shape (M,).
        start_call: Call that starts the collective, shape (M,).
        call: Call that completes it: the same unless it is non-blocking, shape (M,).
        sent_bytes: Bytes sent, as recorded, shape (M,).
        received_bytes: Bytes received, as recorded, shape (M,).
    """

    instance: Ints
    operation: Ints
    comm: Ints
    rank: Ints
    root: Ints
    start_call: Ints
    call: Ints
    sent_bytes: Ints
    received_bytes: Ints


@dataclass(frozen=True)
class RecordedSteps(_Table):
    """Steps of collectives over the network, as their senders recorded them, S of them.

    Attributes:
        src_rank: Sender, shape (S,).
        dst_rank: Receiver, shape (S,).
        channel: Channel of NCCL, shape (S,).
        size_bytes: Bytes, shape (S,).
        start_ps: When the sender began to wait for its accelerator, shape (S,).
        data_wait_ps: Wait until the accelerator has written the data, shape (S,).
        credit_wait_ps: Wait until the receiver has a free buffer, shape (S,).
        network_ps: From the send to its completion, shape (S,).
    """

    src_rank: Ints
    dst_rank: Ints
    channel: Ints
    size_bytes: Ints
    start_ps: Ints
    data_wait_ps: Ints
    credit_wait_ps: Ints
    network_ps: Ints


@dataclass(frozen=True)
class RecordedRun:
    """A trace with its times.

    Attributes:
        n_ranks: Number of ranks.
        resolution_ps: Clock resolution (one tick), at least 1.
        names: Names of calls.
        paths: Call paths of calls, outermost frame first; path 0 is empty.
        innermost: Innermost frame of each path.
        comms: Name of each communicator.
        calls: MPI calls.
        transfers: Messages with both ends.
        collectives: Collectives of all members.
        start_ps: Start of the measured time of each rank: exit of MPI_Init or, if not recorded,
            entry of its first call; -1 for ranks without calls, shape (n_ranks,).
        end_ps: End of the measured time: entry of MPI_Finalize or, if not recorded, exit of the
            last call, shape (n_ranks,).
        system: Name and class of the system tree ancestors of each process, innermost first.
        clock_offsets: Number of clock offsets recorded for each rank, shape (n_ranks,).
        origin_unix_ns: UTC of the origin of times; None if not recorded.
        notes: Missing or inferred information.
        common_clock: Number of the clock of each rank, where the trace says which ranks share one,
            shape (n_ranks,); None if it does not.
        overlapped_ps: Computation that ran beside each call, on an accelerator, shape (C,); None if
            ranks do not compute while they communicate.
        idle_ps: Part of the computation before each call in which the accelerator waited for its
            host, shape (C,); None if unknown.
        not_recorded: Ranks of which nothing is recorded, like "1 of 2 ranks", and what those that
            are recorded tell alone; empty if all are recorded.
        caveat: What the times are not, as a sentence without a full stop; empty if they are all of
            the run.
        steps: Steps of collectives over the network; None if they are not recorded.
        durations_only: Whether only the durations of calls are recorded, not when they began.
        parallelism: Dimensions of parallelism that the communicators show, like
            ``"tensor parallel 8, data parallel 4"``; empty if they show none.
    """

    n_ranks: int
    resolution_ps: int
    names: list[str]
    paths: list[str]
    innermost: list[str]
    comms: dict[int, str]
    calls: RecordedCalls
    transfers: RecordedTransfers
    collectives: RecordedCollectives
    start_ps: Ints
    end_ps: Ints
    system: list[list[tuple[str, str]]]
    clock_offsets: Ints
    origin_unix_ns: int | None
    notes: list[str] = field(default_factory=list)
    common_clock: Ints | None = None
    overlapped_ps: Ints | None = None
    idle_ps: Ints | None = None
    not_recorded: str = ""
    caveat: str = ""
    steps: RecordedSteps | None = None
    durations_only: bool = False
    parallelism: str = ""

    @property
    def starts_together(self) -> bool:
        """Whether the measured time of ranks starts as they leave MPI_Init, which is collective."""
        return any(normalised_call(name) in _STARTUP for name in self.names)

    @property
    def exposed_ps(self) -> Ints:
        """Time of each call beside which its rank does not compute, shape (C,)."""
        inside = self.calls.leave_ps - self.calls.enter_ps
        return inside if self.overlapped_ps is None else np.maximum(inside - self.overlapped_ps, 0)

    def moved(self, enter_ps: Ints, leave_ps: Ints, start_ps: Ints, end_ps: Ints) -> RecordedRun:
        """Copy with new times of calls, shape (C,), and of ranks, shape (R,)."""
        calls = replace(self.calls, enter_ps=enter_ps, leave_ps=leave_ps)
        return replace(self, calls=calls, start_ps=start_ps, end_ps=end_ps)


def measured_time(n_ranks: int, calls: RecordedCalls, names: list[str]) -> tuple[Ints, Ints, Bools]:
    """Start and end of each rank's measured time, and a mask of the calls in it.

    It begins at the exit of MPI_Init, or at the entry of the first call if that is not recorded,
    and ends at the entry of MPI_Finalize, or at the exit of the last call.

    Args:
        n_ranks: Number of ranks.
        calls: The calls.
        names: Their names.

    Returns:
        Start and end, -1 for ranks without calls, shape (n_ranks,) each; mask, shape (C,).
    """
    startup = np.isin(
        calls.name, [i for i, name in enumerate(names) if normalised_call(name) in _STARTUP]
    )
    shutdown = np.isin(
        calls.name, [i for i, name in enumerate(names) if normalised_call(name) in _SHUTDOWN]
    )
    start, end = np.full(n_ranks, -1, np.int64), np.full(n_ranks, -1, np.int64)
    regular = ~startup & ~shutdown
    first = np.full(n_ranks, np.iinfo(np.int64).max)
    np.minimum.at(first, calls.rank[~shutdown], calls.enter_ps[~shutdown])
    has_calls = first < np.iinfo(np.int64).max
    start[has_calls] = first[has_calls]
    np.maximum.at(start, calls.rank[startup], calls.leave_ps[startup])
    np.maximum.at(end, calls.rank[regular], calls.leave_ps[regular])
    last = np.full(n_ranks, np.iinfo(np.int64).max)
    np.minimum.at(last, calls.rank[shutdown], calls.enter_ps[shutdown])
    end = np.where(last < np.iinfo(np.int64).max, last, end)
    end = np.where(start >= 0, np.maximum(end, start), -1)
    inside = regular & (calls.enter_ps >= start[calls.rank]) & (calls.leave_ps <= end[calls.rank])
    return start, end, inside


def within_measured_time(recorded: RecordedRun, inside: Bools) -> RecordedRun:
    """Restrict a run to calls in the measured time, which excludes MPI_Init and MPI_Finalize."""
    if inside.all():
        return recorded
    row_of = np.append(np.where(inside, np.cumsum(inside) - 1, -1), -1)
    t, c = recorded.transfers, recorded.collectives
    columns = ("send_call", "send_done_call", "recv_call", "recv_done_call")
    new_rows = {name: row_of[getattr(t, name)] for name in columns}
    calls_of = {name: row_of[getattr(c, name)] for name in ("start_call", "call")}
    collectives = replace(c, **calls_of)
    complete = (collectives.call >= 0) & (collectives.start_call >= 0)
    return replace(
        recorded,
        calls=recorded.calls.take(inside),
        transfers=replace(t, **new_rows),
        collectives=collectives.take(complete),
    )
