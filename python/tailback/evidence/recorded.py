"""Recorded events of a trace with their times: MPI calls, point-to-point messages and collectives.

All times are picoseconds since the trace's origin, by the clock of the rank that recorded them,
after the corrections that the trace itself holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tailback.errors import TraceError
from tailback.traffic.readers.otf2_collectives import agreement, locate
from tailback.traffic.readers.otf2_columns import Trace
from tailback.traffic.readers.otf2_compile import implied_waits, point_to_point, request_outcomes
from tailback.traffic.readers.otf2_names import OPERATIONS, ROOTED, normalised_call
from tailback.traffic.readers.posts import Posts, guess_sources, in_order

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_STARTUP = ("mpi_init", "mpi_init_thread", "mpi_initialized")
_SHUTDOWN = ("mpi_finalize", "mpi_finalized")


class _Table:
    """A table of columns of one length."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def take(self, rows: Ints | Bools) -> Self:
        """The given rows."""
        columns = {one.name: getattr(self, one.name)[rows] for one in fields(self)}  # type: ignore[arg-type]
        return replace(self, **columns)  # type: ignore[type-var]


@dataclass(frozen=True)
class RecordedCalls(_Table):
    """MPI calls, ordered by rank and time, C of them; calls of one rank do not overlap.

    Attributes:
        rank: World rank, shape (C,).
        name: Index into :attr:`RecordedRun.names`, shape (C,).
        path: Index into :attr:`RecordedRun.paths`, shape (C,).
        enter_ps: When it was entered, shape (C,).
        leave_ps: When it was left, shape (C,).
        comm: Communicator of its first record, -1 without, shape (C,).
        sent_bytes: Bytes its records send, shape (C,).
        received_bytes: Bytes its records receive, shape (C,).
        paused: Whether recording was off for a while before it, shape (C,).
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


@dataclass(frozen=True)
class RecordedTransfers(_Table):
    """Point-to-point messages with both ends, T of them. Calls are rows of :class:`RecordedCalls`.

    Attributes:
        src_rank: Sender, shape (T,).
        dst_rank: Receiver, shape (T,).
        comm: Communicator, shape (T,).
        tag: MPI tag, shape (T,).
        size_bytes: Bytes, shape (T,).
        send_call: Call that posts the send, -1 outside of any, shape (T,).
        send_done_call: Call in which the send completes, -1 where not recorded, shape (T,).
        send_done_ps: Record of that completion, -1 without, shape (T,).
        recv_call: Call that posts the receive, -1 outside of any, shape (T,).
        recv_done_call: Call in which the receive completes, -1 where unknown, shape (T,).
        recv_done_ps: Record of that completion, -1 without, shape (T,).
        guessed: Whether the match or the receive's completion is inferred, not recorded, shape
            (T,).
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


@dataclass(frozen=True)
class RecordedCollectives(_Table):
    """Ranks in collectives, one row for each that took part, M of them.

    Attributes:
        instance: Number of the collective, shape (M,).
        operation: Index into ``OPERATIONS`` of the OTF2 reader, shape (M,).
        comm: Communicator, shape (M,).
        rank: World rank, shape (M,).
        root: World rank of the root, -1 without, shape (M,).
        start_call: Call that enters it, shape (M,).
        call: Call in which it completes: the same unless it is non-blocking, shape (M,).
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
class RecordedRun:
    """A trace with its times.

    Attributes:
        n_ranks: Number of ranks.
        resolution_ps: One tick of the clock, at least 1.
        names: Names of calls.
        paths: Call paths around calls, outermost frame first; the first is the empty one.
        innermost: The innermost frame of each path.
        comms: Name of each communicator.
        calls: MPI calls.
        transfers: Messages with both ends.
        collectives: Collectives of all members.
        start_ps: Where each rank's measured time begins: when it left MPI_Init or, where that is
            not recorded, entered its first call; -1 for a rank without calls, shape (n_ranks,).
        end_ps: Where it ends: when the rank entered MPI_Finalize, or left its last call, shape
            (n_ranks,).
        system: Name and class of what encloses each process, nearest first.
        clock_offsets: Clock offsets recorded for each rank, shape (n_ranks,).
        origin_unix_ns: UTC of the origin of times, None where the tracer did not say.
        notes: What is missing or inferred.
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

    def moved(self, enter_ps: Ints, leave_ps: Ints, start_ps: Ints, end_ps: Ints) -> RecordedRun:
        """The same with other times of the calls, shape (C,), and of the ranks, shape (R,)."""
        calls = replace(self.calls, enter_ps=enter_ps, leave_ps=leave_ps)
        return replace(self, calls=calls, start_ps=start_ps, end_ps=end_ps)


def record(trace: Trace, file: Path) -> RecordedRun:
    """Put the times of a trace in order.

    Args:
        trace: The trace as it was read.
        file: Anchor file, for errors.

    Raises:
        TraceError: The trace has no MPI call, or records contradict the definitions.
    """
    if not len(trace.calls.rank):
        raise TraceError(
            "the trace has no MPI call", file=file,
            remedy="record with the tracer's MPI module, for example eztrace -t openmpi",
        )  # fmt: skip
    origin = min(int(trace.calls.enter.min()), trace.start or int(trace.calls.enter.min()))
    clock = _Clock(trace.ticks_per_second, origin)
    notes: list[str] = []
    kept, row_of = _kept_calls(trace, notes)
    calls, names = _calls(trace, kept, row_of, clock)
    start, end, inside = _measured(trace.n_ranks, calls, names)
    realtime = None
    if trace.realtime_ns is not None:
        realtime = trace.realtime_ns + (origin - trace.start) * 10**9 // trace.ticks_per_second
    recorded = RecordedRun(
        n_ranks=trace.n_ranks,
        resolution_ps=max(1, round(1e12 / trace.ticks_per_second)),
        names=names,
        paths=trace.paths,
        innermost=trace.innermost,
        comms={number: one.name for number, one in trace.communicators.items()},
        calls=calls,
        transfers=_transfers(trace, row_of, clock, notes, file),
        collectives=_collectives(trace, row_of, file),
        start_ps=start,
        end_ps=end,
        system=trace.system,
        clock_offsets=trace.clock_offsets,
        origin_unix_ns=realtime,
        notes=notes,
    )
    return _only(recorded, inside)


@dataclass(frozen=True)
class _Clock:
    """Ticks to picoseconds."""

    ticks_per_second: int
    origin: int

    def ps(self, ticks: Ints) -> Ints:
        # Ticks times 10^12 would overflow; a second's share of them in floats is exact enough.
        seconds, rest = np.divmod(ticks - self.origin, self.ticks_per_second)
        return seconds * 10**12 + np.rint(rest * (1e12 / self.ticks_per_second)).astype(np.int64)


def _kept_calls(trace: Trace, notes: list[str]) -> tuple[Ints, Ints]:
    """Calls of one thread of each rank, ordered by rank and time, and where each call went (-1)."""
    calls = trace.calls
    keep = np.ones(len(calls.rank), np.bool_)
    if trace.threaded.any():
        busiest: dict[int, tuple[int, int]] = {}
        threads, count = np.unique(calls.thread, return_counts=True)
        rank_of = dict(zip(calls.thread.tolist(), calls.rank.tolist(), strict=True))
        for thread, number in zip(threads.tolist(), count.tolist(), strict=True):
            best = busiest.get(rank_of[thread], (0, 0))
            busiest[rank_of[thread]] = max(best, (number, -thread))
        keep = np.isin(calls.thread, [-thread for _, thread in busiest.values()])
        notes.append(
            f"{int(trace.threaded.sum())} ranks call MPI from several threads: the time of each is "
            f"split for the thread with most calls; {int((~keep).sum())} calls of others are left "
            "out"
        )
    rows = np.flatnonzero(keep)
    rows = rows[np.lexsort((calls.enter_position[rows], calls.rank[rows]))]
    row_of = np.full(len(calls.rank) + 1, -1, np.int64)
    row_of[rows] = np.arange(len(rows))
    return rows, row_of


def _calls(
    trace: Trace, rows: Ints, row_of: Ints, clock: _Clock
) -> tuple[RecordedCalls, list[str]]:
    c, m = trace.calls, trace.messages
    number: dict[str, int] = {}
    of_region = {
        region: number.setdefault(trace.regions[region], len(number))
        for region in np.unique(c.region).tolist()
    }
    regions = np.array(sorted(of_region), np.int64)
    of_name = np.array([of_region[region] for region in regions.tolist()], np.int64)
    at = row_of[m.call]
    inside = np.flatnonzero((at >= 0) & (m.comm >= 0))
    comm = np.full(len(rows), -1, np.int64)
    comm[at[inside[::-1]]] = m.comm[inside[::-1]]
    sent, received = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    # Kinds 0 and 1 are sends, 4, 5, 12 and 14 receives, 8 and 10 collectives, which do both.
    for total, column, kinds in (
        (sent, m.bytes, (0, 1, 8, 10)),
        (received, m.bytes, (4, 5, 12, 14)),
        (received, m.received, (8, 10)),
    ):
        mine = np.flatnonzero((at >= 0) & np.isin(m.kind, kinds))
        np.add.at(total, at[mine], column[mine].astype(np.int64))
    calls = RecordedCalls(
        rank=c.rank[rows],
        name=of_name[np.searchsorted(regions, c.region[rows])],
        path=c.path[rows],
        enter_ps=clock.ps(c.enter[rows]),
        leave_ps=clock.ps(c.leave[rows]),
        comm=comm,
        sent_bytes=sent,
        received_bytes=received,
        paused=c.paused[rows],
    )
    return calls, list(number)


def _measured(n_ranks: int, calls: RecordedCalls, names: list[str]) -> tuple[Ints, Ints, Bools]:
    """Where each rank's measured time begins and ends, and which calls lie between."""
    startup = np.isin(
        calls.name, [i for i, name in enumerate(names) if normalised_call(name) in _STARTUP]
    )
    shutdown = np.isin(
        calls.name, [i for i, name in enumerate(names) if normalised_call(name) in _SHUTDOWN]
    )
    start, end = np.full(n_ranks, -1, np.int64), np.full(n_ranks, -1, np.int64)
    real = ~startup & ~shutdown
    first = np.full(n_ranks, np.iinfo(np.int64).max)
    np.minimum.at(first, calls.rank[~shutdown], calls.enter_ps[~shutdown])
    some = first < np.iinfo(np.int64).max
    start[some] = first[some]
    np.maximum.at(start, calls.rank[startup], calls.leave_ps[startup])
    np.maximum.at(end, calls.rank[real], calls.leave_ps[real])
    last = np.full(n_ranks, np.iinfo(np.int64).max)
    np.minimum.at(last, calls.rank[shutdown], calls.enter_ps[shutdown])
    end = np.where(last < np.iinfo(np.int64).max, last, end)
    end = np.where(start >= 0, np.maximum(end, start), -1)
    inside = real & (calls.enter_ps >= start[calls.rank]) & (calls.leave_ps <= end[calls.rank])
    return start, end, inside


def _only(recorded: RecordedRun, inside: Bools) -> RecordedRun:
    """What happens in calls of the measured time; MPI_Init and MPI_Finalize are outside of it."""
    if inside.all():
        return recorded
    row_of = np.append(np.where(inside, np.cumsum(inside) - 1, -1), -1)
    t, c = recorded.transfers, recorded.collectives
    columns = ("send_call", "send_done_call", "recv_call", "recv_done_call")
    moved = {name: row_of[getattr(t, name)] for name in columns}
    calls_of = {name: row_of[getattr(c, name)] for name in ("start_call", "call")}
    collectives = replace(c, **calls_of)
    complete = (collectives.call >= 0) & (collectives.start_call >= 0)
    return replace(
        recorded,
        calls=recorded.calls.take(inside),
        transfers=replace(t, **moved),
        collectives=collectives.take(complete),
    )


def _transfers(
    trace: Trace, row_of: Ints, clock: _Clock, notes: list[str], file: Path
) -> RecordedTransfers:
    m = trace.messages
    # Its notes are those of the program too.
    posts, rows = point_to_point(trace, [], file)
    unknown = posts.peer < 0
    _, even = guess_sources(posts, trace.n_ranks)
    if unknown.any():
        notes.append(
            f"the trace does not record the source of {int(unknown.sum())} receives: they are "
            "matched in order to the messages that no other receive takes"
            + ("" if even else "; streams differ in length, so some matches may be wrong")
        )
    order = np.lexsort((posts.step, posts.position, posts.rank))
    rows, unknown = rows[order], unknown[order]
    done_row, _ = request_outcomes(trace)
    posts, partner = in_order(posts, trace.n_ranks)
    done_call, done_ps, implied = _completions(trace, posts, rows, done_row, row_of, clock)
    for is_send, what in ((False, "receives"), (True, "non-blocking sends")):
        number = int((implied & (posts.is_send == is_send)).sum())
        if number:
            notes.append(
                f"the trace does not record when {number} {what} complete: taken to be in the "
                "next call of their rank that waits for them"
            )
    lost = int(((partner < 0) & (posts.peer >= 0)).sum())
    if lost:
        notes.append(f"{lost} sends and receives have no other end in the trace")
    send = np.flatnonzero(posts.is_send & (partner >= 0))
    receive = partner[send]
    channel = posts.channel[send]
    post_call = row_of[m.call[rows]]
    return RecordedTransfers(
        src_rank=posts.rank[send],
        dst_rank=posts.rank[receive],
        comm=channel >> 32,
        tag=channel & 0xFFFF_FFFF,
        size_bytes=posts.size[send].astype(np.int64),
        send_call=post_call[send],
        send_done_call=done_call[send],
        send_done_ps=done_ps[send],
        recv_call=post_call[receive],
        recv_done_call=done_call[receive],
        recv_done_ps=done_ps[receive],
        guessed=unknown[receive] | implied[receive],
    )


def _completions(
    trace: Trace, posts: Posts, rows: Ints, done_row: Ints, row_of: Ints, clock: _Clock
) -> tuple[Ints, Ints, Bools]:
    """Call in which each post completes, its record's time, and whether that is inferred."""
    m, c = trace.messages, trace.calls
    done = done_row[rows]
    blocking = (posts.wait_position >= 0) & (done < 0)
    row = np.where(done >= 0, done, rows)
    call = np.where(done >= 0, m.call[row], np.where(blocking, m.call[rows], -1))
    # A blocking receive is recorded when it is complete, a blocking send when it is posted.
    known = (done >= 0) | (blocking & ~posts.is_send)
    ps = np.where(known, clock.ps(m.time[row]), -1)
    open_, position, _ = implied_waits(trace, posts)
    implied = np.zeros(len(rows), np.bool_)
    order = np.argsort(c.leave_position, kind="stable")
    at = np.searchsorted(c.leave_position[order], position)
    found = at < len(order)
    found[found] = c.leave_position[order[at[found]]] == position[found]
    call[open_[found]] = order[at[found]]
    implied[open_] = True
    return np.where(call >= 0, row_of[call], -1), ps, implied


def _collectives(trace: Trace, row_of: Ints, file: Path) -> RecordedCollectives:
    m = trace.messages
    records = locate(trace, [], file)
    root, agree = agreement(trace, records)
    call, start = row_of[m.call[records.row]], row_of[m.call[records.start]]
    # If a rank of a collective is missing, the last one is unknown.
    broken = np.unique(records.instance[(call < 0) | (start < 0) | ~agree])
    keep = ~np.isin(records.instance, broken)
    world = np.full(len(records.row), -1, np.int64)
    rooted = np.isin(m.tag[records.row], [OPERATIONS.index(name) for name in ROOTED])
    for number in np.unique(records.comm[keep & rooted]).tolist():
        mine = keep & rooted & (records.comm == number)
        world[mine] = trace.communicators[number].members[root[mine]]
    row = records.row[keep]
    _, instance = np.unique(records.instance[keep], return_inverse=True)
    return RecordedCollectives(
        instance=instance.reshape(-1).astype(np.int64),
        operation=m.tag[row],
        comm=records.comm[keep],
        rank=m.rank[row],
        root=world[keep],
        start_call=start[keep],
        call=call[keep],
        sent_bytes=m.bytes[row].astype(np.int64),
        received_bytes=m.received[row].astype(np.int64),
    )
