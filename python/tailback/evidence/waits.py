"""Wait states: time in MPI calls during which nothing could be transferred yet.

Names and severities are Scalasca's (Geimer et al. 2010). If a call completes several messages, the
one that delays it longest counts, so no time is counted twice. Calls that only test are left
out. Beyond Scalasca, non-blocking collectives are analysed where they complete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.evidence.clocks import Clocks
from tailback.evidence.recorded import RecordedRun
from tailback.traffic.readers.otf2_names import OPERATIONS, normalised_call

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KINDS = (
    "late_sender", "late_receiver", "wait_nxn", "wait_barrier", "late_broadcast", "early_reduce",
    "nxn_completion", "barrier_completion",
)  # fmt: skip
"""Kinds of wait states; columns of numbers hold indices into this."""

(
    LATE_SENDER, LATE_RECEIVER, WAIT_NXN, WAIT_BARRIER, LATE_BROADCAST, EARLY_REDUCE,
    NXN_COMPLETION, BARRIER_COMPLETION,
) = range(len(KINDS))  # fmt: skip

_FROM_ROOT = ("MPI_Bcast", "MPI_Scatter", "MPI_Scatterv")
_TO_ROOT = ("MPI_Reduce", "MPI_Gather", "MPI_Gatherv")
PREFIX = ("MPI_Scan", "MPI_Exscan")
"""Collectives in which a rank needs the ranks below it only."""


@dataclass(frozen=True)
class Waits:
    """Waits of calls, W of them: at most one at the beginning of a call, and one at its end.

    Attributes:
        call: Row of the calls, shape (W,).
        kind: Index into :data:`KINDS`, shape (W,).
        partner: Rank waited for, shape (W,).
        partner_call: Its call that was waited for, shape (W,).
        start_ps: When it begins, shape (W,).
        value_ps: Its length; 0 if within the error of the clocks, shape (W,).
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
    """Times at which the event that a call waits for occurred."""

    call: list[Ints]
    kind: list[Ints]
    partner_call: list[Ints]

    def add(self, call: Ints, kind: int, partner_call: Ints) -> None:
        """Calls that cannot continue before another rank has entered its matching call."""
        self.call.append(call)
        self.kind.append(np.full(len(call), kind))
        self.partner_call.append(partner_call)


def find_waits(recorded: RecordedRun, clocks: Clocks) -> Waits:
    """Find the wait states of a trace.

    Args:
        recorded: The trace, by one clock.
        clocks: Uncertainty of that clock.
    """
    found = _Candidates([], [], [])
    _late_senders(recorded, found)
    _late_receivers(recorded, found)
    completions = _collectives(recorded, found)
    call, kind, partner_call = (
        np.concatenate(column).astype(np.int64)
        for column in (found.call, found.kind, found.partner_call)
    )
    calls = recorded.calls
    until = calls.enter_ps[partner_call]
    # The last event determines the wait.
    order = np.lexsort((-kind, until, call))
    last = np.append(call[order][1:] != call[order][:-1], True) if len(order) else order
    rows = order[last.astype(np.bool_)]
    call, kind, partner_call = call[rows], kind[rows], partner_call[rows]
    partner = calls.rank[partner_call]
    enter, leave = calls.enter_ps[call], calls.leave_ps[call]
    span = until[rows] - enter
    early, late = _uncertainty(clocks, calls.rank[call], partner)
    # Waits that the clocks rule out are dropped; one that clock errors may hide has an upper bound.
    maybe = span + late > 0
    begin = _sized(
        call[maybe], kind[maybe], partner[maybe], partner_call[maybe], enter[maybe],
        span[maybe], (leave - enter)[maybe], early[maybe], late[maybe],
    )  # fmt: skip
    end = _completions(recorded, clocks, begin, completions)
    return Waits(*(
        np.concatenate([getattr(begin, name), getattr(end, name)])
        for name in ("call", "kind", "partner", "partner_call", "start_ps", "value_ps", "low_ps",
                     "high_ps")
    ))  # fmt: skip


def _uncertainty(clocks: Clocks, rank: Ints, partner: Ints) -> tuple[Floats, Floats]:
    """How much earlier and later the partner may have come than its corrected clock says."""
    return clocks.later(partner, rank), clocks.later(rank, partner)


def _sized(
    call: Ints, kind: Ints, partner: Ints, partner_call: Ints, start: Ints, span: Ints,
    room: Ints, early: Floats, late: Floats,
) -> Waits:  # fmt: skip
    """Waits of a length, limited to the available time, with bounds from the clocks."""
    # Clocks that no message compares are used as recorded; the interval reflects that.
    sure = (span > early) | np.isinf(early)
    value = np.where(sure, np.clip(span, 0, room), 0)
    low = np.clip(np.where(np.isinf(early), 0, span - np.nan_to_num(early, posinf=0)), 0, room)
    high = np.where(np.isinf(late), room, np.clip(span + np.nan_to_num(late, posinf=0), 0, room))
    low, high = np.rint(low).astype(np.int64), np.rint(high).astype(np.int64)
    value = value.astype(np.int64)
    low, high = np.minimum(low, value), np.maximum(high, value)
    return Waits(call, kind, partner, partner_call, start, value, low, high)


def _named(recorded: RecordedRun, prefix: str) -> NDArray[np.bool_]:
    names = [normalised_call(name).startswith(prefix) for name in recorded.names]
    return np.array(names, np.bool_)[recorded.calls.name]


def _late_senders(recorded: RecordedRun, found: _Candidates) -> None:
    """Scalasca: min(enter of send, leave of receive) - enter of receive."""
    t = recorded.transfers
    rows = np.flatnonzero((t.recv_done_call >= 0) & (t.send_call >= 0) & (t.src_rank != t.dst_rank))
    rows = rows[~_named(recorded, "mpi_test")[t.recv_done_call[rows]]]
    found.add(t.recv_done_call[rows], LATE_SENDER, t.send_call[rows])


def _late_receivers(recorded: RecordedRun, found: _Candidates) -> None:
    """Scalasca: post of receive - enter of the send's completion, if that lasts until the post.

    Only where the trace records the completion: a small send may be over long before.
    """
    t, calls = recorded.transfers, recorded.calls
    rows = np.flatnonzero((t.send_done_call >= 0) & (t.recv_call >= 0) & (t.src_rank != t.dst_rank))
    blocking = t.send_done_call[rows] == t.send_call[rows]
    rows = rows[blocking | (t.send_done_ps[rows] >= 0)]
    rows = rows[~_named(recorded, "mpi_test")[t.send_done_call[rows]]]
    posted = calls.enter_ps[t.recv_call[rows]]
    held = posted < calls.leave_ps[t.send_done_call[rows]]
    found.add(t.send_done_call[rows[held]], LATE_RECEIVER, t.recv_call[rows[held]])


@dataclass(frozen=True)
class _Completions:
    """Members of collectives that all leave after all have entered."""

    call: Ints
    kind: Ints
    first_call: Ints


def _collectives(recorded: RecordedRun, found: _Candidates) -> _Completions:
    """Scalasca: latest enter - own enter; root's enter - own enter; on the root latest - own."""
    c, calls = recorded.collectives, recorded.calls
    n = int(c.instance.max(initial=-1)) + 1
    enter, leave = calls.enter_ps[c.start_call], calls.leave_ps[c.call]
    latest = _last(c.instance, enter, n)
    names = np.array([OPERATIONS[op] for op in range(len(OPERATIONS))])[c.operation]
    from_root, to_root = np.isin(names, _FROM_ROOT), np.isin(names, _TO_ROOT)
    barrier = names == "MPI_Barrier"
    nxn = ~from_root & ~to_root & ~barrier & ~np.isin(names, PREFIX)
    for chosen, kind in ((nxn, WAIT_NXN), (barrier, WAIT_BARRIER)):
        mine = np.flatnonzero(chosen)
        by = latest[c.instance[mine]]
        mine, by = mine[c.rank[mine] != c.rank[by]], by[c.rank[mine] != c.rank[by]]
        found.add(c.call[mine], kind, c.start_call[by])
    is_root = c.rank == c.root
    root_row = np.full(n, -1, np.int64)
    root_row[c.instance[is_root]] = np.flatnonzero(is_root)
    mine = np.flatnonzero(from_root & ~is_root & (root_row[c.instance] >= 0))
    by = root_row[c.instance[mine]]
    found.add(c.call[mine], LATE_BROADCAST, c.start_call[by])
    senders = np.flatnonzero(~is_root)
    latest_sender = np.full(n, -1, np.int64)
    order = senders[np.argsort(enter[senders], kind="stable")]
    latest_sender[c.instance[order]] = order
    mine = np.flatnonzero(to_root & is_root & (latest_sender[c.instance] >= 0))
    by = latest_sender[c.instance[mine]]
    found.add(c.call[mine], EARLY_REDUCE, c.start_call[by])
    first = _last(c.instance, -leave, n)
    mine = np.flatnonzero(nxn | barrier)
    which = np.where(barrier[mine], BARRIER_COMPLETION, NXN_COMPLETION)
    return _Completions(c.call[mine], which, c.call[first[c.instance[mine]]])


def _last(instance: Ints, time: Ints, n: int) -> Ints:
    """Row with the latest time of each instance."""
    out = np.full(n, -1, np.int64)
    order = np.argsort(time, kind="stable")
    out[instance[order]] = order
    return out


def _completions(recorded: RecordedRun, clocks: Clocks, begin: Waits, done: _Completions) -> Waits:
    """Scalasca: own leave - earliest leave of any member."""
    calls = recorded.calls
    waited = np.zeros(len(calls), np.int64)
    waited[begin.call] = begin.high_ps
    rank = calls.rank[done.call]
    room = calls.leave_ps[done.call] - calls.enter_ps[done.call] - waited[done.call]
    partner = calls.rank[done.first_call]
    span = calls.leave_ps[done.call] - calls.leave_ps[done.first_call]
    # Earlier by the partner's clock is longer here.
    late, early = _uncertainty(clocks, rank, partner)
    some = (span > 0) & (room > 0) & (partner != rank)
    none = np.zeros(int(some.sum()), np.int64)
    out = _sized(
        done.call[some], done.kind[some], partner[some], done.first_call[some], none,
        span[some], room[some], early[some], late[some],
    )  # fmt: skip
    return replace(out, start_ps=calls.leave_ps[out.call] - out.value_ps)
