"""Times of an OTF2 trace: MPI calls, point-to-point messages and collectives.

Clock offsets in the trace are already applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tailback.arrays import Bools, Ints
from tailback.io.delimited import NotUsed
from tailback.traffic.readers.narrow_columns import narrowed
from tailback.traffic.readers.otf2.collectives import agreement, locate
from tailback.traffic.readers.otf2.columns import Trace
from tailback.traffic.readers.otf2.compile import (
    implied_waits,
    no_calls,
    point_to_point,
    request_outcomes,
    with_guessed_sources,
)
from tailback.traffic.readers.otf2.names import OPERATIONS, ROOTED
from tailback.traffic.readers.posts import Posts, in_order
from tailback.traffic.readers.recorded_run import (
    RecordedCalls,
    RecordedCollectives,
    RecordedRun,
    RecordedTransfers,
    measured_time,
    within_measured_time,
)
from tailback.traffic.readers.timed_posts import busiest_threads, guessed_sources


def record(trace: Trace, file: Path) -> RecordedRun:
    """Convert a trace to calls, messages and collectives with their times.

    Args:
        trace: The trace as read.
        file: Anchor file, for error messages.

    Raises:
        TraceError: The trace has no MPI call, or records contradict the definitions.
    """
    if not len(trace.calls.rank):
        raise no_calls(file)
    origin = min(int(trace.calls.enter.min()), trace.start or int(trace.calls.enter.min()))
    clock = _Clock(trace.ticks_per_second, origin)
    notes: list[str] = []
    kept, row_of = _kept_calls(trace, notes)
    # Ordered by the memory that they need.
    transfers = _transfers(trace, row_of, clock, notes, file)
    collectives = _collectives(trace, row_of, file)
    calls, names = _calls(trace, kept, row_of, clock)
    del kept, row_of
    start, end, inside = measured_time(trace.n_ranks, calls, names)
    realtime = None
    if trace.realtime_ns is not None:
        realtime = trace.realtime_ns + (origin - trace.start) * 10**9 // trace.ticks_per_second
    recorded = RecordedRun(
        n_ranks=trace.n_ranks,
        resolution_ps=max(1, round(1e12 / trace.ticks_per_second)),
        names=names,
        paths=trace.paths,
        innermost=trace.innermost,
        comms={number: comm.name for number, comm in trace.communicators.items()},
        calls=calls,
        transfers=transfers,
        collectives=collectives,
        start_ps=start,
        end_ps=end,
        system=trace.system,
        clock_offsets=trace.clock_offsets,
        origin_unix_ns=realtime,
        notes=notes,
    )
    # The columns of the trace are no longer needed.
    del trace
    return within_measured_time(recorded, inside)


@dataclass(frozen=True)
class _Clock:
    """Conversion of ticks to picoseconds."""

    ticks_per_second: int
    origin: int

    def ps(self, ticks: Ints) -> Ints:
        # Ticks times 10^12 would overflow; fractions of a second are precise enough in floats.
        seconds, remainder = np.divmod(ticks - self.origin, self.ticks_per_second)
        return seconds * 10**12 + np.rint(remainder * (1e12 / self.ticks_per_second)).astype(
            np.int64
        )


def _kept_calls(trace: Trace, notes: list[str]) -> tuple[Ints, Ints]:
    """Calls of one thread per rank by rank and time, and the row of each call, -1 if dropped."""
    calls = trace.calls
    keep = np.ones(len(calls.rank), np.bool_)
    if trace.threaded.any():
        keep = busiest_threads(calls.rank, calls.thread, notes)
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
    row, comms = row_of[m.call], m.comm
    with_comm = np.flatnonzero((row >= 0) & (comms >= 0))[::-1]
    comm = np.full(len(rows), -1, np.int64)
    comm[row[with_comm]] = comms[with_comm]
    del comms, with_comm
    sent, received = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    # Kinds 0 and 1 are sends, 4, 5, 12 and 14 receives, 8 and 10 collectives, which do both.
    for total, column, kinds in (
        (sent, m.bytes, (0, 1, 8, 10)),
        (received, m.bytes, (4, 5, 12, 14)),
        (received, m.received, (8, 10)),
    ):
        selected = np.flatnonzero((row >= 0) & np.isin(m.kind, kinds))
        np.add.at(total, row[selected], column[selected].astype(np.int64))
    del row
    calls = RecordedCalls(
        rank=narrowed(c.rank[rows]),
        name=narrowed(of_name[np.searchsorted(regions, c.region[rows])]),
        path=narrowed(c.path[rows]),
        enter_ps=clock.ps(c.enter[rows]),
        leave_ps=clock.ps(c.leave[rows]),
        comm=narrowed(comm),
        sent_bytes=narrowed(sent),
        received_bytes=narrowed(received),
        paused=c.paused[rows],
    )
    return calls, list(number)


def _transfers(
    trace: Trace, row_of: Ints, clock: _Clock, notes: list[str], file: Path
) -> RecordedTransfers:
    m = trace.messages
    # Notes are discarded here, because compiling the program reports them too.
    posts, rows = point_to_point(trace, [], file)
    unknown = posts.peer < 0
    _, even = with_guessed_sources(trace, posts)
    if unknown.any():
        notes.append(guessed_sources(int(unknown.sum()), even))
    order = np.lexsort((posts.step, posts.position, posts.rank))
    rows, unknown = rows[order], unknown[order]
    del order
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
    unmatched = int(((partner < 0) & (posts.peer >= 0)).sum())
    if unmatched:
        notes.append(NotUsed(f"{unmatched} sends and receives have no other end in the trace"))
    send = np.flatnonzero(posts.is_send & (partner >= 0))
    receive = partner[send]
    channel = posts.channel[send]
    post_call = row_of[m.call[rows]]
    done_call, post_call = narrowed(done_call), narrowed(post_call)
    del rows, done_row, partner
    return RecordedTransfers(
        src_rank=narrowed(posts.rank[send]),
        dst_rank=narrowed(posts.rank[receive]),
        comm=narrowed(channel >> 32),
        tag=narrowed(channel & 0xFFFF_FFFF),
        size_bytes=narrowed(posts.size[send].astype(np.int64)),
        send_call=narrowed(post_call[send]),
        send_done_call=narrowed(done_call[send]),
        send_done_ps=done_ps[send],
        recv_call=narrowed(post_call[receive]),
        recv_done_call=narrowed(done_call[receive]),
        recv_done_ps=done_ps[receive],
        guessed=unknown[receive] | implied[receive],
    )


def _completions(
    trace: Trace, posts: Posts, rows: Ints, done_row: Ints, row_of: Ints, clock: _Clock
) -> tuple[Ints, Ints, Bools]:
    """Call in which each post completes, recorded time, and whether the call is inferred."""
    m, c = trace.messages, trace.calls
    done = done_row[rows]
    blocking = (posts.wait_position >= 0) & (done < 0)
    row = np.where(done >= 0, done, rows)
    call = np.where(done >= 0, m.call[row], np.where(blocking, m.call[rows], -1))
    # Blocking receives are recorded on completion, blocking sends when posted.
    timed = (done >= 0) | (blocking & ~posts.is_send)
    ps = np.where(timed, clock.ps(m.time[row]), -1)
    open_, position, _ = implied_waits(trace, posts)
    implied = np.zeros(len(rows), np.bool_)
    order = np.argsort(c.leave_position, kind="stable")
    leave_index = np.searchsorted(c.leave_position[order], position)
    matched = leave_index < len(order)
    matched[matched] = c.leave_position[order[leave_index[matched]]] == position[matched]
    call[open_[matched]] = order[leave_index[matched]]
    implied[open_] = True
    return np.where(call >= 0, row_of[call], -1), ps, implied


def _collectives(trace: Trace, row_of: Ints, file: Path) -> RecordedCollectives:
    m = trace.messages
    records = locate(trace, [], file)
    root, agree = agreement(trace, records)
    call, start = row_of[m.call[records.row]], row_of[m.call[records.start]]
    # If a member is missing, the last rank to enter is unknown.
    incomplete = np.unique(records.instance[(call < 0) | (start < 0) | ~agree])
    keep = ~np.isin(records.instance, incomplete)
    world_root = np.full(len(records.row), -1, np.int64)
    rooted = np.isin(m.tag[records.row], [OPERATIONS.index(name) for name in ROOTED])
    for number in np.unique(records.comm[keep & rooted]).tolist():
        members = keep & rooted & (records.comm == number)
        world_root[members] = trace.communicators[number].members[root[members]]
    row = records.row[keep]
    _, instance = np.unique(records.instance[keep], return_inverse=True)
    return RecordedCollectives(
        instance=instance.reshape(-1).astype(np.int64),
        operation=m.tag[row],
        comm=records.comm[keep],
        rank=m.rank[row],
        root=world_root[keep],
        start_call=start[keep],
        call=call[keep],
        sent_bytes=m.bytes[row].astype(np.int64),
        received_bytes=m.received[row].astype(np.int64),
    )
