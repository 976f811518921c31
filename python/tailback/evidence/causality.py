"""Repair messages that still violate causality after clock offsets and drifts are applied.

Implements the controlled logical clock (Rabenseifner 1997; Becker et al. 2009). A receive that is
too early is moved to the time of its send plus the minimum latency. The shift decays over later
events of the same rank (forward amortization); earlier events are moved along a linear ramp, as far
as their own messages allow (backward amortization).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tailback.arrays import Floats, Ints
from tailback.evidence.clocks import Clocks, Latency, constraints
from tailback.traffic.readers.recorded_run import RecordedRun

DECAY = 0.01
"""Decay of a shift per unit of time after a repair: a repaired clock runs 1 % slow until the shift
has decayed to zero. Scalasca tries 0.001 %, 0.01 %, 0.1 % and more: a slower decay distorts
durations less but moves more events."""

REACH = 0.1
"""Slope of the ramp before a jump: the clock runs 10 % fast for ten times the size of the jump."""

_PASSES = 1000


@dataclass(frozen=True)
class CausalityRepair:
    """Result of a repair.

    Attributes:
        moved: Number of calls whose times changed.
        largest_ps: Largest shift.
        left: Number of remaining causality violations: 0 unless the iteration limit was reached.
    """

    moved: int
    largest_ps: int
    left: int


def correct(
    recorded: RecordedRun, clocks: Clocks, latency: Latency | None = None
) -> tuple[RecordedRun, CausalityRepair]:
    """Apply clock corrections and repair the remaining causality violations.

    Args:
        recorded: A trace with the local clock of each rank.
        clocks: Clock corrections.
        latency: Minimum latency between ranks.

    Returns:
        The trace on a common clock, and the result of the repair.
    """
    calls, t = recorded.calls, recorded.transfers
    ranks = np.arange(recorded.n_ranks)
    called = recorded.start_ps >= 0
    start = clocks.corrected(ranks, recorded.start_ps)
    # Time 0 is when the first rank begins: alignment with counters and plots starts there.
    to_zero = -int(start[called].min()) if called.any() else 0
    corrected = clocks.corrected(t.dst_rank, t.recv_done_ps) + to_zero
    moved = recorded.moved(
        clocks.corrected(calls.rank, calls.enter_ps) + to_zero,
        clocks.corrected(calls.rank, calls.leave_ps) + to_zero,
        np.where(called, start + to_zero, -1),
        np.where(called, clocks.corrected(ranks, recorded.end_ps) + to_zero, -1),
    )
    origin = recorded.origin_unix_ns
    steps = recorded.steps
    if steps is not None:
        begun = clocks.corrected(steps.src_rank, steps.start_ps) + to_zero
        moved = replace(moved, steps=replace(steps, start_ps=begun))
    moved = replace(
        moved,
        transfers=replace(t, recv_done_ps=np.where(t.recv_done_ps >= 0, corrected, -1)),
        origin_unix_ns=None if origin is None else origin - to_zero // 1000,
    )
    if not clocks.left:
        return moved, CausalityRepair(0, 0, 0)
    return _repair(moved, latency)


def _repair(recorded: RecordedRun, latency: Latency | None) -> tuple[RecordedRun, CausalityRepair]:
    calls, n = recorded.calls, len(recorded.calls)
    # Events in program order of each rank: enter and leave of every call.
    time = np.stack([calls.enter_ps, calls.leave_ps], axis=1).reshape(-1).astype(np.float64)
    owner = np.repeat(calls.rank, 2)
    earlier, later, min_gap_ps = _event_pairs(recorded, latency)
    shifted = _forward(time, owner, earlier, later, min_gap_ps)
    shifted = _backward(time, shifted, owner, earlier, later, min_gap_ps)
    remaining = int((shifted[later] - shifted[earlier] - min_gap_ps < -1).sum())
    shift = np.abs(shifted - time)
    moved = int((shift.reshape(n, 2).max(axis=1) >= 0.5).sum())
    largest_ps = int(shift.max(initial=0))
    del time, owner, earlier, later, min_gap_ps, shift
    repaired = np.rint(shifted, out=shifted).astype(np.int64).reshape(n, 2)
    del shifted
    limits = np.stack([recorded.start_ps, recorded.end_ps], axis=1)
    out = recorded.moved(
        repaired[:, 0],
        repaired[:, 1],
        _rank_limits(recorded, limits[:, 0], repaired, first=True),
        _rank_limits(recorded, limits[:, 1], repaired, first=False),
    )
    t = out.transfers
    # A completion keeps its offset from the end of its call.
    call = np.maximum(t.recv_done_call, 0)
    before_end = np.maximum(calls.leave_ps[call] - t.recv_done_ps, 0)
    completed = np.maximum(repaired[call, 1] - before_end, repaired[call, 0])
    completed = np.where((t.recv_done_ps >= 0) & (t.recv_done_call >= 0), completed, t.recv_done_ps)
    out = replace(out, transfers=replace(t, recv_done_ps=completed))
    return out, CausalityRepair(moved, largest_ps, remaining)


def _event_pairs(recorded: RecordedRun, latency: Latency | None) -> tuple[Ints, Ints, Floats]:
    """Pairs of ordered events (indices), and the minimum time between them."""
    calls = recorded.calls
    pairs = constraints(recorded, latency)
    # Constraints hold ranks and times, which are looked up among enters of sends and leaves of
    # receives.
    span = 2 + max(int(calls.leave_ps.max()), int(pairs.received_ps.max(initial=0)))
    low = min(int(calls.enter_ps.min()), 0)
    enters = calls.rank * span + (calls.enter_ps - low)
    leaves = calls.rank * span + (calls.leave_ps - low)
    earlier = np.searchsorted(enters, pairs.src * span + (pairs.sent_ps - low))
    later = np.searchsorted(leaves, pairs.dst * span + (pairs.received_ps - low))
    last = len(calls) - 1
    later = np.minimum(later, last)
    # A receive may complete before its call is left.
    min_gap_ps = pairs.least_ps + np.maximum(calls.leave_ps[later] - pairs.received_ps, 0)
    return 2 * np.minimum(earlier, last), 2 * later + 1, min_gap_ps.astype(np.float64)


def _forward(time: Floats, owner: Ints, earlier: Ints, later: Ints, min_gap_ps: Floats) -> Floats:
    """Move receives after their sends, and later events of the same rank by a decaying shift."""
    new = time.copy()
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    ends = np.append(starts[1:], len(owner))
    for _ in range(_PASSES):
        required = new[earlier] + min_gap_ps
        early = new[later] < required - 0.5
        if not early.any():
            break
        shift = new - time
        np.maximum.at(shift, later[early], (required - time[later])[early])
        # Shifts decay over time: the largest of all earlier decayed shifts applies.
        amortized = shift + DECAY * time
        for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
            amortized[begin:end] = np.maximum.accumulate(amortized[begin:end])
        new = np.maximum(time, time + amortized - DECAY * time)
    return new


def _backward(
    time: Floats, new: Floats, owner: Ints, earlier: Ints, later: Ints, min_gap_ps: Floats
) -> Floats:
    """Spread each jump over the time before it, without moving a send past its receive."""
    shift = new - time
    latest = np.full(len(time), np.inf)
    np.minimum.at(latest, earlier, new[later] - min_gap_ps)
    out = new.copy()
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    for begin, end in zip(starts.tolist(), np.append(starts[1:], len(owner)).tolist(), strict=True):
        if not (shift[begin:end] > 0.5).any():
            continue
        t, s = time[begin:end], shift[begin:end]
        reach = (s - REACH * t)[::-1]
        ramp = np.maximum.accumulate(reach)[::-1] + REACH * t
        moved = np.minimum(t + np.maximum(ramp, s), np.maximum(latest[begin:end], new[begin:end]))
        # Events keep their order on each rank.
        out[begin:end] = np.minimum.accumulate(moved[::-1])[::-1]
    return np.maximum(out, new)


def _rank_limits(recorded: RecordedRun, ends: Ints, new: Ints, *, first: bool) -> Ints:
    """Start (``first``) or end of each rank, extended to include all of its calls."""
    out = ends.copy()
    used = recorded.start_ps >= 0
    rank = recorded.calls.rank
    if first:
        limit = np.full(len(ends), np.iinfo(np.int64).max)
        np.minimum.at(limit, rank, new[:, 0])
        return np.where(used, np.minimum(out, limit), out)
    limit = np.full(len(ends), np.iinfo(np.int64).min)
    np.maximum.at(limit, rank, new[:, 1])
    return np.where(used, np.maximum(out, limit), out)
