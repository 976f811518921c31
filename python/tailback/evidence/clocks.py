"""Bounds on differences between the clocks of ranks, and offsets consistent with all messages.

No message is received earlier than its send time plus the least latency between its ends. Each
message
bounds the difference of two clocks from one side, and messages both ways bound it from both. The
bounds are difference constraints; the shortest paths through them are the tightest bounds that all
messages together give (Duda et al. 1987, extended to all pairs at once).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import (
    NegativeCycleError,
    bellman_ford,
    connected_components,
    dijkstra,
    floyd_warshall,
)

from tailback.evidence.recorded import RecordedRun
from tailback.traffic.readers.otf2_names import OPERATIONS, ROOTED

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Latency = Callable[[Ints, Ints], Ints]
"""Least time from the start of a send to the end of its receive: ranks of the senders and of the
receivers, shape (M,) each, to picoseconds, shape (M,)."""

LEAST_LATENCY_PS = 100_000
"""Least latency by default: 0.1 µs, what CPU cores of one host need to
pass a message through memory. No network is faster, so no bound comes out too tight."""

_SYNCHRONISES = frozenset(
    ("MPI_Barrier", "MPI_Allgather", "MPI_Alltoall", "MPI_Allreduce", "MPI_Reduce_scatter_block")
)
"""Collectives that no rank leaves before all have entered; those with counts per rank may have zero
counts."""

_FROM_ROOT = frozenset(("MPI_Bcast", "MPI_Scatter"))
_TO_ROOT = frozenset(("MPI_Reduce", "MPI_Gather"))

_ALL_PAIRS = 10_000_000
"""Constraints up to which every pair of members of synchronising collectives becomes one (400 MB);
beyond, the last to enter is compared with all others, and all with the first to leave."""
_MATRIX = 1024
"""Clocks up to which bounds of every pair are computed; beyond, those by way of the first clock."""
_LP_ROWS = 40_000
"""Constraints that the linear programme for drifting clocks takes at most."""


@dataclass(frozen=True)
class ClockConstraints:
    """Pairs of events with a fixed order, K of them.

    Attributes:
        src: Rank of the event that comes first, shape (K,).
        dst: Rank of the event that follows, shape (K,).
        sent_ps: When the first is, by its rank's clock, shape (K,).
        received_ps: When the other is, by its own, shape (K,).
        least_ps: Least time between the two, shape (K,).
    """

    src: Ints
    dst: Ints
    sent_ps: Ints
    received_ps: Ints
    least_ps: Ints

    @property
    def slack_ps(self) -> Ints:
        """Slack of the second event, shape (K,); negative: impossible."""
        return self.received_ps - self.sent_ps - self.least_ps


@dataclass(frozen=True)
class OffsetBounds:
    """Bounds on how much later each clock may be, relative to the others.

    Attributes:
        clock_of: Clock of each rank, shape (R,).
        later_ps: ``[a, b]``: how much later clock b may be relative to clock a, shape (n, n);
            infinite
            without messages. With many clocks ``[a, 0]`` and ``[a, 1]``: how much later clock 0 may
            be relative to a, and a relative to clock 0, shape (n, 2).
        whole: Whether it is the former.
    """

    clock_of: Ints
    later_ps: Floats
    whole: bool

    def later(self, of: Ints, other: Ints) -> Floats:
        """How much later the clocks of ranks ``other`` may be against those of ``of``, (N,)."""
        a, b = self.clock_of[of], self.clock_of[other]
        if self.whole:
            return np.asarray(self.later_ps[a, b])
        by_first = self.later_ps[a, 0] + self.later_ps[b, 1]
        return np.asarray(np.where(a == b, 0.0, by_first))

    def widths(self) -> Floats:
        """Width of the bounds on the difference of two clocks: all pairs, or each with clock 0."""
        if not self.whole:
            return np.asarray(self.later_ps[1:].sum(axis=1))
        both = self.later_ps + self.later_ps.T
        return np.asarray(both[np.triu_indices(len(both), 1)])


@dataclass(frozen=True)
class Clocks:
    """Corrections of the ranks' clocks, with bounds.

    Attributes:
        unit: What has a separate clock: ``none`` (all clocks are taken as recorded), ``host`` or
            ``rank``.
        offset_ps: Added to the times of each rank at ``middle_ps``, shape (R,).
        drift: Added for each picosecond from there on, shape (R,); 0 unless needed.
        middle_ps: Where the offsets hold.
        bounds: How much later each clock may be relative to each other one.
        violated: Messages received before they were sent, by the clocks as recorded.
        largest_ps: Largest such violation.
        left: The same after offsets and drifts, before the repair.
        left_largest_ps: Largest such violation.
    """

    unit: str
    offset_ps: Floats
    drift: Floats
    middle_ps: int
    bounds: OffsetBounds
    violated: int
    largest_ps: int
    left: int
    left_largest_ps: int

    def corrected(self, rank: Ints, time_ps: Ints) -> Ints:
        """Times of ranks by the common clock."""
        shift = self.offset_ps[rank] + self.drift[rank] * (time_ps - self.middle_ps)
        return time_ps + np.rint(shift).astype(np.int64)

    def later(self, of: Ints, other: Ints) -> Floats:
        """How much later the clocks of ``other`` may be against those of ``of``, shape (N,)."""
        return self.bounds.later(of, other)


def constraints(recorded: RecordedRun, latency: Latency | None = None) -> ClockConstraints:
    """All pairs of events in a trace with a fixed order."""
    calls, t = recorded.calls, recorded.transfers
    use = np.flatnonzero((t.send_call >= 0) & (t.recv_done_call >= 0) & (t.src_rank != t.dst_rank))
    done = calls.leave_ps[t.recv_done_call[use]]
    completed = t.recv_done_ps[use]
    # The record of a completion may stand before the call is left.
    enter = calls.enter_ps[t.recv_done_call[use]]
    done = np.where((completed >= enter) & (completed < done), completed, done)
    parts = [(t.src_rank[use], t.dst_rank[use], calls.enter_ps[t.send_call[use]], done)]
    parts += _of_collectives(recorded)
    src, dst, sent, received = (
        np.concatenate([part[i] for part in parts]).astype(np.int64) for i in range(4)
    )
    least = np.full(len(src), LEAST_LATENCY_PS) if latency is None else latency(src, dst)
    return ClockConstraints(src, dst, sent, received, least)


def _of_collectives(recorded: RecordedRun) -> list[tuple[Ints, Ints, Ints, Ints]]:
    """Constraints of collectives in which the data or the barrier must reach all ranks."""
    c, calls = recorded.collectives, recorded.calls
    parts = []
    order = np.lexsort((c.rank, c.instance))
    bounds = np.append(0, np.cumsum(np.bincount(c.instance[order]))) if len(c) else np.zeros(1, int)
    size = np.diff(bounds)
    named = np.array([_direction(OPERATIONS[op]) for op in c.operation[order[bounds[:-1]]]], int)
    for members in np.unique(size).tolist():
        rows = order[
            (bounds[:-1][size == members][:, None] + np.arange(members)).reshape(-1)
        ].reshape(-1, members)
        way = named[size == members]
        moved = (c.sent_bytes[rows] + c.received_bytes[rows]).max(axis=1) > 0
        moved |= c.operation[rows[:, 0]] == OPERATIONS.index("MPI_Barrier")
        rank, enter = c.rank[rows], calls.enter_ps[c.start_call[rows]]
        leave, is_root = calls.leave_ps[c.call[rows]], c.rank[rows] == c.root[rows]
        for direction in (1, 2, 3):
            chosen = np.flatnonzero((way == direction) & moved)
            if not len(chosen):
                continue
            r, e, l = rank[chosen], enter[chosen], leave[chosen]
            if direction == 1 and members * members * len(chosen) <= _ALL_PAIRS:
                # Each rank's entry before every other rank's exit.
                one, other = np.nonzero(~np.eye(members, dtype=bool))
                parts.append(
                    (r[:, one].ravel(), r[:, other].ravel(), e[:, one].ravel(),
                     l[:, other].ravel())
                )  # fmt: skip
                continue
            last, first = e.argmax(axis=1), l.argmin(axis=1)
            row = np.arange(len(chosen))
            root = is_root[chosen].argmax(axis=1)
            one = {1: last, 2: root, 3: root}[direction]
            if direction in (1, 2):
                parts.append(_star(r, e, l, one, row, outward=True))
            if direction in (1, 3):
                one = first if direction == 1 else root
                parts.append(_star(r, e, l, one, row, outward=False))
    return parts


def _direction(name: str) -> int:
    """1 for all to all, 2 from the root, 3 to the root, 0 where some may move nothing."""
    if name in _SYNCHRONISES:
        return 1
    if name in ROOTED:
        return 2 if name in _FROM_ROOT else 3 if name in _TO_ROOT else 0
    return 0


def _star(
    rank: Ints, enter: Ints, leave: Ints, one: Ints, row: Ints, *, outward: bool
) -> tuple[Ints, Ints, Ints, Ints]:
    """Constraints between one member of each collective and all others."""
    members = rank.shape[1]
    centre = np.repeat(rank[row, one], members)
    other = rank.reshape(-1)
    apart = centre != other
    if outward:
        sent, received = np.repeat(enter[row, one], members), leave.reshape(-1)
        return centre[apart], other[apart], sent[apart], received[apart]
    sent, received = enter.reshape(-1), np.repeat(leave[row, one], members)
    return other[apart], centre[apart], sent[apart], received[apart]


def solve(
    found: ClockConstraints, n_ranks: int, hosts: list[str] | None, resolution_ps: int = 1
) -> Clocks:
    """Find corrections of the clocks that are consistent with all messages, the simplest first.

    Clocks as recorded; else an offset for each host, if the ranks of a host agree; else one for
    each rank; else offsets and drifts that contradict as little as possible.

    Args:
        found: Pairs of events with a fixed order.
        n_ranks: Number of ranks.
        hosts: Host of each rank, None where unknown.
        resolution_ps: A tick of the clock: smaller contradictions are ignored.
    """
    slack = found.slack_ps
    bad = slack < -resolution_ps
    violated, largest = int(bad.sum()), int(max(-slack.min(initial=0), 0))
    ranks = np.arange(n_ranks)
    zero = np.zeros(n_ranks)
    middle = int(np.median(found.sent_ps)) if len(found.sent_ps) else 0
    if not violated:
        return Clocks("none", zero, zero, middle, _bounds(found, ranks, n_ranks), 0, 0, 0, 0)
    unit, clock_of = "rank", ranks
    if hosts is not None:
        _, of_host = np.unique(np.array(hosts), return_inverse=True)
        shared = of_host[found.src] == of_host[found.dst]
        if not (bad & shared).any() and len(np.unique(of_host)) < n_ranks:
            unit, clock_of = "host", of_host.astype(np.int64)
    n = int(clock_of.max(initial=0)) + 1
    drift = np.zeros(n)
    offset = _offsets(found, clock_of, n, resolution_ps)
    if offset is None:
        offset, drift = _drifting(found, clock_of, n, middle)
        straight = _moved(found, offset[clock_of], drift[clock_of], middle)
        centred = _offsets(straight, clock_of, n, resolution_ps)
        offset = offset + (centred if centred is not None else 0)
    of_rank, drift_of_rank = offset[clock_of], drift[clock_of]
    after = _moved(found, of_rank, drift_of_rank, middle)
    left = after.slack_ps
    return Clocks(
        unit, of_rank, drift_of_rank, middle, _bounds(after, clock_of, n), violated, largest,
        int((left < -resolution_ps).sum()), int(max(-left.min(initial=0) - resolution_ps, 0)),
    )  # fmt: skip


def _moved(found: ClockConstraints, offset: Floats, drift: Floats, middle: int) -> ClockConstraints:
    def at(rank: Ints, time: Ints) -> Ints:
        shift = offset[rank] + drift[rank] * (time - middle)
        return time + np.rint(shift).astype(np.int64)

    return ClockConstraints(
        found.src, found.dst, at(found.src, found.sent_ps), at(found.dst, found.received_ps),
        found.least_ps,
    )  # fmt: skip


def _least(found: ClockConstraints, clock_of: Ints, n: int) -> tuple[Ints, Ints, Ints]:
    """Pairs of clocks and the least slack of what compares them."""
    src, dst = clock_of[found.src], clock_of[found.dst]
    apart = src != dst
    pair, slack = dst[apart] * n + src[apart], found.slack_ps[apart]
    order = np.lexsort((slack, pair))
    keys, first = np.unique(pair[order], return_index=True)
    return keys // n, keys % n, slack[order][first]


def _paths(found: ClockConstraints, clock_of: Ints, n: int, floor: float | None) -> Floats:
    """``[a, b]``: the most that can be added to b's clock relative to a's, shape (n, n).

    Raises:
        NegativeCycleError: The constraints contradict one another; not with a ``floor``, the least
            value of each.
    """
    follows, leads, slack = _least(found, clock_of, n)
    # Leading clock minus following clock is at most the slack.
    matrix = np.full((n, n), np.inf)
    values = slack.astype(np.float64)
    matrix[follows, leads] = values if floor is None else np.maximum(values, floor)
    np.fill_diagonal(matrix, 0.0)
    return np.asarray(floyd_warshall(matrix, directed=True))


def _bounds(found: ClockConstraints, clock_of: Ints, n: int) -> OffsetBounds:
    """How much later each clock may be against each other one.

    Remaining contradictions count as zero slack; they are repaired.
    """
    if n <= _MATRIX:
        return OffsetBounds(clock_of, _paths(found, clock_of, n, 0.0), True)
    follows, leads, slack = _least(found, clock_of, n)
    # A weight of exactly 0 would be no edge.
    weight = np.maximum(slack, 1).astype(np.float64)
    one_way = []
    for ends in ((leads, follows), (follows, leads)):
        graph = coo_array((weight, ends), shape=(n, n)).tocsr()
        # scipy's stubs do not know that it takes sparse matrices.
        one_way.append(dijkstra(graph, indices=0))  # type: ignore[call-overload]
    return OffsetBounds(clock_of, np.stack(one_way, axis=1), False)


def _offsets(found: ClockConstraints, clock_of: Ints, n: int, resolution_ps: int) -> Floats | None:
    """Offset of each clock in the middle of the range that messages allow; None if it is empty.

    The bounds against one clock are offsets that contradict no message, both the upper and the
    lower ones. So are their means, and the means over all clocks they are taken against.
    """
    if n > _MATRIX:
        return _around_first(found, clock_of, n)
    relaxed = ClockConstraints(
        found.src, found.dst, found.sent_ps, found.received_ps, found.least_ps - resolution_ps
    )
    try:
        most = _paths(relaxed, clock_of, n, None)
    except NegativeCycleError:
        return None
    offset = np.zeros(n)
    _, part = connected_components(np.isfinite(most), directed=True, connection="strong")
    for number in range(int(part.max(initial=0)) + 1):
        mine = np.flatnonzero(part == number)
        up = most[np.ix_(mine, mine)]
        middle = (up - up.T) / 2
        offset[mine] = (middle - middle[:, :1]).mean(axis=0)
    return _together(most, part, offset)


def _around_first(found: ClockConstraints, clock_of: Ints, n: int) -> Floats | None:
    """As :func:`_offsets`, against the first clock alone; None also where one is not compared."""
    follows, leads, slack = _least(found, clock_of, n)
    weight = slack.astype(np.float64)
    limits = []
    for ends in ((follows, leads), (leads, follows)):
        graph = coo_array((weight, ends), shape=(n, n)).tocsr()
        try:
            limits.append(bellman_ford(graph, indices=0))  # type: ignore[call-overload]
        except NegativeCycleError:
            return None
    middle = (limits[0] - limits[1]) / 2
    return middle if np.isfinite(middle).all() else None


def _together(most: Floats, part: NDArray[np.int32], offset: Floats) -> Floats:
    """Move groups of clocks compared in only one direction by the least amount necessary."""
    n_parts = int(part.max(initial=0)) + 1
    if n_parts == 1:
        return offset
    for _ in range(n_parts):
        # Clock b may be at most most[a, b] later than a: else a is moved up.
        excess = offset[None, :] - offset[:, None] - most
        need = np.zeros(n_parts)
        np.maximum.at(need, part, excess.max(axis=1))
        if (need <= 0).all():
            break
        offset = offset + need[part]
    return offset


def _drifting(
    found: ClockConstraints, clock_of: Ints, n: int, middle: int
) -> tuple[Floats, Floats]:
    """Offsets and drifts with the least sum of contradictions, by linear programming."""
    rows = _tightest(found, clock_of, n)
    src, dst = clock_of[found.src[rows]], clock_of[found.dst[rows]]
    apart = src != dst
    rows, src, dst = rows[apart], src[apart], dst[apart]
    span = float(max(int(np.ptp(found.sent_ps)), 1))
    unit = float(np.abs(found.slack_ps[rows]).max(initial=1))
    at_src = (found.sent_ps[rows] - middle) / span
    at_dst = (found.received_ps[rows] - middle) / span
    k, m = np.arange(len(rows)), len(rows)
    # Columns: offsets, drifts over the whole span, excess of each row, margin of all.
    one = np.ones(m)
    row = np.concatenate([k, k, k, k, k, k])
    column = np.concatenate([src, dst, n + src, n + dst, 2 * n + k, np.full(m, 2 * n + m)])
    value = np.concatenate([one, -one, at_src, -at_dst, -one, one])
    matrix = coo_array((value, (row, column)), shape=(m, 2 * n + m + 1)).tocsr()
    cost = np.concatenate([np.zeros(2 * n), one, [-0.5]])
    bounds = [(0.0, 0.0), *[(None, None)] * (n - 1)] * 2 + [(0.0, None)] * m + [(0.0, 1.0)]
    limit = found.slack_ps[rows] / unit
    from scipy.optimize import linprog  # takes half a second to import: only where it is needed

    # scipy's stubs do not know that it takes sparse matrices.
    solved = linprog(cost, A_ub=matrix, b_ub=limit, bounds=bounds)  # type: ignore[call-overload]
    if solved.x is None:
        return np.zeros(n), np.zeros(n)
    return solved.x[:n] * unit, solved.x[n : 2 * n] * unit / span


def _tightest(found: ClockConstraints, clock_of: Ints, n: int) -> Ints:
    """Of each pair of clocks the constraint with the least slack in each stretch of time."""
    pair = clock_of[found.dst] * n + clock_of[found.src]
    pairs = max(len(np.unique(pair)), 1)
    bins = int(np.clip(_LP_ROWS // pairs, 2, 64))
    start, width = int(found.sent_ps.min()), max(int(np.ptp(found.sent_ps)), 1)
    stretch = np.minimum((found.sent_ps - start) * bins // (width + 1), bins - 1)
    order = np.lexsort((found.slack_ps, stretch, pair))
    _, first = np.unique(pair[order] * bins + stretch[order], return_index=True)
    return order[first]
