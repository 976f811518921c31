"""Wait states: time in MPI calls before data can be transferred.

Names and severities follow Scalasca (Geimer et al. 2010). If a call completes several messages, the
one that delays it longest counts, so no time is counted twice. MPI_Test calls are excluded. Unlike
in Scalasca, non-blocking collectives are analysed in the calls that complete them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.evidence.clocks import Clocks
from tailback.traffic.readers.otf2.names import OPERATIONS, normalised_call
from tailback.traffic.readers.recorded_run import RecordedRun

KINDS = (
    "late_sender",
    "late_receiver",
    "wait_nxn",
    "wait_barrier",
    "late_broadcast",
    "early_reduce",
    "nxn_completion",
    "barrier_completion",
)
"""Kinds of wait states; numeric columns hold indices into this tuple."""

(
    LATE_SENDER,
    LATE_RECEIVER,
    WAIT_NXN,
    WAIT_BARRIER,
    LATE_BROADCAST,
    EARLY_REDUCE,
    NXN_COMPLETION,
    BARRIER_COMPLETION,
) = range(len(KINDS))

_FROM_ROOT = ("MPI_Bcast", "MPI_Scatter", "MPI_Scatterv")
TO_ROOT = ("MPI_Reduce", "MPI_Gather", "MPI_Gatherv")
"""Collectives in which the root receives."""

PREFIX = ("MPI_Scan", "MPI_Exscan")
"""Collectives in which a rank depends on lower ranks only."""


@dataclass(frozen=True)
class Waits:
    """Wait states, W of them: at most one at the start of a call and one at its end.

    Attributes:
        call: Row in the table of calls, shape (W,).
        kind: Index into :data:`KINDS`, shape (W,).
        partner: Rank waited for, shape (W,).
        partner_call: Call of that rank that was waited for, shape (W,).
        start_ps: Start, shape (W,).
        value_ps: Duration; 0 if within the error of the clocks, shape (W,).
        low_ps: Lower bound, given the uncertainty of the clocks, shape (W,).
        high_ps: Upper bound, shape (W,).
    """

    call: Ints
    kind: Ints
    partner: Ints
    partner_call: Ints
    start_ps: Ints
    value_ps: Ints
    low_ps: Ints
    high_ps: Ints

    def __len__(self) -> int:
        return len(self.call)


@dataclass
class _Candidates:
    """Pairs of a waiting call and the partner call that it depends on."""

    call: list[Ints]
    kind: list[Ints]
    partner_call: list[Ints]

    def add(self, call: Ints, kind: int, partner_call: Ints) -> None:
        """Add calls that cannot continue before the partner call has been entered."""
        self.call.append(call)
        self.kind.append(np.full(len(call), kind))
        self.partner_call.append(partner_call)


def find_waits(recorded: RecordedRun, clocks: Clocks) -> Waits:
    """Find the wait states of a trace.

    Args:
        recorded: The trace on a common clock.
        clocks: Clock corrections with their bounds.
    """
    candidates = _Candidates([], [], [])
    _late_senders(recorded, candidates)
    _late_receivers(recorded, candidates)
    completions = _collectives(recorded, candidates)
    call, kind, partner_call = (
        np.concatenate(column).astype(np.int64)
        for column in (candidates.call, candidates.kind, candidates.partner_call)
    )
    calls = recorded.calls
    partner_enter = calls.enter_ps[partner_call]
    # The last dependency determines the wait.
    order = np.lexsort((-kind, partner_enter, call))
    last = np.append(call[order][1:] != call[order][:-1], True) if len(order) else order
    rows = order[last.astype(np.bool_)]
    call, kind, partner_call = call[rows], kind[rows], partner_call[rows]
    partner = calls.rank[partner_call]
    enter = calls.enter_ps[call]
    span = partner_enter[rows] - enter
    early, late = _uncertainty(clocks, calls.rank[call], partner)
    # Drop waits that are impossible within the clock bounds; keep those that clock errors may hide.
    possible = span + late > 0
    begin = _bounded_waits(
        call[possible],
        kind[possible],
        partner[possible],
        partner_call[possible],
        enter[possible],
        span[possible],
        recorded.exposed_ps[call][possible],
        early[possible],
        late[possible],
    )
    end = _completions(recorded, clocks, begin, completions)
    return Waits(
        *(
            np.concatenate([getattr(begin, name), getattr(end, name)])
            for name in (
                "call",
                "kind",
                "partner",
                "partner_call",
                "start_ps",
                "value_ps",
                "low_ps",
                "high_ps",
            )
        )
    )


def _uncertainty(clocks: Clocks, rank: Ints, partner: Ints) -> tuple[Floats, Floats]:
    """How much earlier and later than by its corrected clock the partner may have arrived."""
    return clocks.later(partner, rank), clocks.later(rank, partner)


def _bounded_waits(
    call: Ints,
    kind: Ints,
    partner: Ints,
    partner_call: Ints,
    start: Ints,
    span: Ints,
    available: Ints,
    early: Floats,
    late: Floats,
) -> Waits:
    """Waits with durations limited to the available time, and bounds from clock errors."""
    # Clocks without mutual bounds are used as recorded; the interval covers their error.
    certain = (span > early) | np.isinf(early)
    value = np.where(certain, np.clip(span, 0, available), 0)
    low = np.clip(np.where(np.isinf(early), 0, span - np.nan_to_num(early, posinf=0)), 0, available)
    high = np.where(
        np.isinf(late), available, np.clip(span + np.nan_to_num(late, posinf=0), 0, available)
    )
    low, high = np.rint(low).astype(np.int64), np.rint(high).astype(np.int64)
    value = value.astype(np.int64)
    low, high = np.minimum(low, value), np.maximum(high, value)
    return Waits(call, kind, partner, partner_call, start, value, low, high)


def _named(recorded: RecordedRun, prefix: str) -> NDArray[np.bool_]:
    names = [normalised_call(name).startswith(prefix) for name in recorded.names]
    return np.array(names, np.bool_)[recorded.calls.name]


def _late_senders(recorded: RecordedRun, candidates: _Candidates) -> None:
    """Scalasca: min(enter of send, leave of receive) - enter of receive."""
    t = recorded.transfers
    rows = np.flatnonzero((t.recv_done_call >= 0) & (t.send_call >= 0) & (t.src_rank != t.dst_rank))
    rows = rows[~_named(recorded, "mpi_test")[t.recv_done_call[rows]]]
    candidates.add(t.recv_done_call[rows], LATE_SENDER, t.send_call[rows])


def _late_receivers(recorded: RecordedRun, candidates: _Candidates) -> None:
    """Scalasca: post of receive - enter of the send's completion, if that lasts until the post.

    Only where the trace records the completion: eager sends may complete much earlier.
    """
    t, calls = recorded.transfers, recorded.calls
    rows = np.flatnonzero((t.send_done_call >= 0) & (t.recv_call >= 0) & (t.src_rank != t.dst_rank))
    blocking = t.send_done_call[rows] == t.send_call[rows]
    rows = rows[blocking | (t.send_done_ps[rows] >= 0)]
    rows = rows[~_named(recorded, "mpi_test")[t.send_done_call[rows]]]
    posted = calls.enter_ps[t.recv_call[rows]]
    overlaps = posted < calls.leave_ps[t.send_done_call[rows]]
    candidates.add(t.send_done_call[rows[overlaps]], LATE_RECEIVER, t.recv_call[rows[overlaps]])


@dataclass(frozen=True)
class _Completions:
    """Members of synchronising collectives, and the call that left each collective first."""

    call: Ints
    kind: Ints
    first_call: Ints


def _collectives(recorded: RecordedRun, candidates: _Candidates) -> _Completions:
    """Scalasca: latest enter - own enter; root's enter - own enter; on the root latest - own."""
    c, calls = recorded.collectives, recorded.calls
    n = int(c.instance.max(initial=-1)) + 1
    enter, leave = calls.enter_ps[c.start_call], calls.leave_ps[c.call]
    latest = _latest_row(c.instance, enter, n)
    names = np.array([OPERATIONS[op] for op in range(len(OPERATIONS))])[c.operation]
    from_root, to_root = np.isin(names, _FROM_ROOT), np.isin(names, TO_ROOT)
    barrier = names == "MPI_Barrier"
    nxn = ~from_root & ~to_root & ~barrier & ~np.isin(names, PREFIX)
    for chosen, kind in ((nxn, WAIT_NXN), (barrier, WAIT_BARRIER)):
        rows = np.flatnonzero(chosen)
        awaited = latest[c.instance[rows]]
        rows, awaited = (
            rows[c.rank[rows] != c.rank[awaited]],
            awaited[c.rank[rows] != c.rank[awaited]],
        )
        candidates.add(c.call[rows], kind, c.start_call[awaited])
    is_root = c.rank == c.root
    root_row = np.full(n, -1, np.int64)
    root_row[c.instance[is_root]] = np.flatnonzero(is_root)
    rows = np.flatnonzero(from_root & ~is_root & (root_row[c.instance] >= 0))
    awaited = root_row[c.instance[rows]]
    candidates.add(c.call[rows], LATE_BROADCAST, c.start_call[awaited])
    senders = np.flatnonzero(~is_root)
    latest_sender = np.full(n, -1, np.int64)
    order = senders[np.argsort(enter[senders], kind="stable")]
    latest_sender[c.instance[order]] = order
    rows = np.flatnonzero(to_root & is_root & (latest_sender[c.instance] >= 0))
    awaited = latest_sender[c.instance[rows]]
    candidates.add(c.call[rows], EARLY_REDUCE, c.start_call[awaited])
    first_to_leave = _latest_row(c.instance, -leave, n)
    # The end of a fence waits for data, which ranks receive at different times.
    rows = np.flatnonzero((nxn | barrier) & ~_named(recorded, "mpi_win_")[c.call])
    which = np.where(barrier[rows], BARRIER_COMPLETION, NXN_COMPLETION)
    return _Completions(c.call[rows], which, c.call[first_to_leave[c.instance[rows]]])


def _latest_row(instance: Ints, time: Ints, n: int) -> Ints:
    """Row with the latest time of each instance."""
    out = np.full(n, -1, np.int64)
    order = np.argsort(time, kind="stable")
    out[instance[order]] = order
    return out


def _completions(recorded: RecordedRun, clocks: Clocks, begin: Waits, done: _Completions) -> Waits:
    """Scalasca: own leave - earliest leave of any member."""
    calls = recorded.calls
    start_wait = np.zeros(len(calls), np.int64)
    start_wait[begin.call] = begin.high_ps
    rank = calls.rank[done.call]
    available = recorded.exposed_ps[done.call] - start_wait[done.call]
    partner = calls.rank[done.first_call]
    span = calls.leave_ps[done.call] - calls.leave_ps[done.first_call]
    # Here an earlier partner means a longer wait, so the bounds are swapped.
    late, early = _uncertainty(clocks, rank, partner)
    waiting = (span > 0) & (available > 0) & (partner != rank)
    zeros = np.zeros(int(waiting.sum()), np.int64)
    out = _bounded_waits(
        done.call[waiting],
        done.kind[waiting],
        partner[waiting],
        done.first_call[waiting],
        zeros,
        span[waiting],
        available[waiting],
        early[waiting],
        late[waiting],
    )
    return replace(out, start_ps=calls.leave_ps[out.call] - out.value_ps)
