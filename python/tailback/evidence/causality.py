"""Repairs messages that are received before they were sent after offsets and drifts are applied.

The controlled logical clock (Rabenseifner 1997; Becker et al. 2009). A receive that is too early is
moved to the time of its send plus the least latency. Later events of that rank are moved along by a
decaying shift; earlier ones by a ramp, as far as their own messages allow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.evidence.clocks import Clocks, Latency, constraints
from tailback.evidence.recorded import RecordedRun

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DECAY = 0.01
"""Share of the time that passes by which a shift shrinks after a repair: a repaired clock runs 1 %
slow until it has its own time again. Scalasca tries 0.001 %, 0.01 %, 0.1 % and more: slower decay
distorts durations less but moves more events."""

REACH = 0.1
"""Slope of the ramp up to a jump: clocks run up to 10 % fast for ten times the jump before it."""

_PASSES = 1000


@dataclass(frozen=True)
class CausalityRepair:
    """Result of a repair.

    Attributes:
        moved: Calls whose times changed.
        largest_ps: Largest shift.
        left: Messages still received before they were sent: 0 unless the repair was aborted.
    """

    moved: int
    largest_ps: int
    left: int


def correct(
    recorded: RecordedRun, clocks: Clocks, latency: Latency | None = None
) -> tuple[RecordedRun, CausalityRepair]:
    """Apply corrections of the clocks, and repair what still contradicts a message.

    Args:
        recorded: A trace by the clocks of its ranks.
        clocks: Corrections.
        latency: Least latency between ranks.

    Returns:
        The trace by one clock, and what the repair did.
    """
    calls, t = recorded.calls, recorded.transfers
    ranks = np.arange(recorded.n_ranks)
    called = recorded.start_ps >= 0
    start = clocks.corrected(ranks, recorded.start_ps)
    # The measured time begins at 0, when the first rank begins: what is compared with counters and
    # drawn starts there. Earlier times have no meaning.
    early = -int(start[called].min()) if called.any() else 0
    corrected = clocks.corrected(t.dst_rank, t.recv_done_ps) + early
    moved = recorded.moved(
        clocks.corrected(calls.rank, calls.enter_ps) + early,
        clocks.corrected(calls.rank, calls.leave_ps) + early,
        np.where(called, start + early, -1),
        np.where(called, clocks.corrected(ranks, recorded.end_ps) + early, -1),
    )
    origin = recorded.origin_unix_ns
    moved = replace(
        moved,
        transfers=replace(t, recv_done_ps=np.where(t.recv_done_ps >= 0, corrected, -1)),
        origin_unix_ns=None if origin is None else origin - early // 1000,
    )
    if not clocks.left:
        return moved, CausalityRepair(0, 0, 0)
    return _repair(moved, latency)


def _repair(recorded: RecordedRun, latency: Latency | None) -> tuple[RecordedRun, CausalityRepair]:
    calls, n = recorded.calls, len(recorded.calls)
    # Events in the order of each rank: enter and leave of call after call.
    time = np.stack([calls.enter_ps, calls.leave_ps], axis=1).reshape(-1).astype(np.float64)
    owner = np.repeat(calls.rank, 2)
    first, then, least = _edges(recorded, latency)
    shifted = _forward(time, owner, first, then, least)
    shifted = _backward(time, shifted, owner, first, then, least)
    left = int((shifted[then] - shifted[first] - least < -1).sum())
    new = np.rint(shifted).astype(np.int64).reshape(n, 2)
    shift = shifted - time
    ends = np.stack([recorded.start_ps, recorded.end_ps], axis=1)
    out = recorded.moved(
        new[:, 0], new[:, 1],
        _ends(recorded, ends[:, 0], new, first=True), _ends(recorded, ends[:, 1], new, first=False),
    )  # fmt: skip
    t = out.transfers
    # A completion keeps its distance from the end of its call.
    call = np.maximum(t.recv_done_call, 0)
    before_end = np.maximum(calls.leave_ps[call] - t.recv_done_ps, 0)
    inside = np.maximum(new[call, 1] - before_end, new[call, 0])
    inside = np.where((t.recv_done_ps >= 0) & (t.recv_done_call >= 0), inside, t.recv_done_ps)
    out = replace(out, transfers=replace(t, recv_done_ps=inside))
    moved = int((np.abs(shift.reshape(n, 2)).max(axis=1) >= 0.5).sum())
    return out, CausalityRepair(moved, int(np.abs(shift).max(initial=0)), left)


def _edges(recorded: RecordedRun, latency: Latency | None) -> tuple[Ints, Ints, Floats]:
    """Pairs of events with a fixed order, and the least time between them."""
    calls = recorded.calls
    found = constraints(recorded, latency)
    # A constraint names a rank and a time; those are enters of sends and leaves of receives.
    span = 2 + max(int(calls.leave_ps.max()), int(found.received_ps.max(initial=0)))
    low = min(int(calls.enter_ps.min()), 0)
    enters = calls.rank * span + (calls.enter_ps - low)
    leaves = calls.rank * span + (calls.leave_ps - low)
    first = np.searchsorted(enters, found.src * span + (found.sent_ps - low))
    then = np.searchsorted(leaves, found.dst * span + (found.received_ps - low))
    last = len(calls) - 1
    then = np.minimum(then, last)
    # A receive may be over before its call is left.
    least = found.least_ps + np.maximum(calls.leave_ps[then] - found.received_ps, 0)
    return 2 * np.minimum(first, last), 2 * then + 1, least.astype(np.float64)


def _forward(time: Floats, owner: Ints, first: Ints, then: Ints, least: Floats) -> Floats:
    """Move receives after their sends, and later events of their ranks along with them."""
    new = time.copy()
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    ends = np.append(starts[1:], len(owner))
    for _ in range(_PASSES):
        need = new[first] + least
        early = new[then] < need - 0.5
        if not early.any():
            break
        shift = new - time
        np.maximum.at(shift, then[early], (need - time[then])[early])
        # A shift decays with time: the largest of all earlier ones, decayed, holds.
        level = shift + DECAY * time
        for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
            level[begin:end] = np.maximum.accumulate(level[begin:end])
        new = np.maximum(time, time + level - DECAY * time)
    return new


def _backward(
    time: Floats, new: Floats, owner: Ints, first: Ints, then: Ints, least: Floats
) -> Floats:
    """Ramp up to each jump over the time before it, without moving a send past its receive."""
    shift = new - time
    room = np.full(len(time), np.inf)
    np.minimum.at(room, first, new[then] - least)
    out = new.copy()
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    for begin, end in zip(starts.tolist(), np.append(starts[1:], len(owner)).tolist(), strict=True):
        if not (shift[begin:end] > 0.5).any():
            continue
        t, s = time[begin:end], shift[begin:end]
        reach = (s - REACH * t)[::-1]
        ramp = np.maximum.accumulate(reach)[::-1] + REACH * t
        moved = np.minimum(t + np.maximum(ramp, s), np.maximum(room[begin:end], new[begin:end]))
        # Events keep their order on each rank.
        out[begin:end] = np.minimum.accumulate(moved[::-1])[::-1]
    return np.maximum(out, new)


def _ends(recorded: RecordedRun, ends: Ints, new: Ints, *, first: bool) -> Ints:
    """Beginnings or ends of the ranks' time, no later or earlier than their calls."""
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
