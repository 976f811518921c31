"""Bounds on differences between the clocks of ranks, and offsets consistent with all messages.

No message is received before its send time plus the minimum latency between its two ranks. So each
message bounds the difference of two clocks from one side, and messages in both directions bound it
from both sides. These are difference constraints: shortest paths in their graph are the tightest
bounds implied by all messages together (Duda et al. 1987, extended to all pairs at once).
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

from tailback.arrays import Floats, Ints
from tailback.traffic.readers.narrow_columns import narrow_columns
from tailback.traffic.readers.otf2.names import OPERATIONS, ROOTED
from tailback.traffic.readers.posts import dense
from tailback.traffic.readers.recorded_run import RecordedRun

Latency = Callable[[Ints, Ints], Ints]
"""Minimum time from the start of a send to the end of its receive: maps ranks of senders and of
receivers, shape (M,) each, to picoseconds, shape (M,)."""

LEAST_LATENCY_PS = 100_000
"""Default minimum latency: 0.1 µs, the time that two cores of a host take to pass a message through
memory. No network is faster, so no bound becomes too tight."""

_SYNCHRONISES = frozenset(
    ("MPI_Barrier", "MPI_Allgather", "MPI_Alltoall", "MPI_Allreduce", "MPI_Reduce_scatter_block")
)
"""Collectives that no rank leaves before all have entered. Those with counts per rank are excluded,
because their counts may be zero."""

_FROM_ROOT = frozenset(("MPI_Bcast", "MPI_Scatter"))
_TO_ROOT = frozenset(("MPI_Reduce", "MPI_Gather"))

_ALL_PAIRS = 10_000_000
"""Maximum number of constraints from all pairs of members of synchronising collectives (400 MB);
beyond, only those of the last rank to enter and of the first rank to leave are used."""
_MATRIX = 1024
"""Maximum number of clocks for which bounds of all pairs are computed; beyond, bounds are computed
via clock 0."""
_LP_ROWS = 40_000
"""Approximate maximum number of constraints in the linear program for drifting clocks."""


@narrow_columns("src", "dst", "least_ps")
@dataclass(frozen=True)
class ClockConstraints:
    """Pairs of ordered events, K of them.

    Attributes:
        src: Rank of the first event, shape (K,).
        dst: Rank of the second event, shape (K,).
        sent_ps: Time of the first event by the clock of ``src``, shape (K,).
        received_ps: Time of the second event by the clock of ``dst``, shape (K,).
        least_ps: Minimum time between the two, shape (K,).
    """

    src: Ints
    dst: Ints
    sent_ps: Ints
    received_ps: Ints
    least_ps: Ints

    @property
    def slack_ps(self) -> Ints:
        """Slack of each constraint, shape (K,); negative where it is violated."""
        return self.received_ps - self.sent_ps - self.least_ps


@dataclass(frozen=True)
class OffsetBounds:
    """Bounds on the pairwise differences of clocks.

    Attributes:
        clock_of: Clock of each rank, shape (R,).
        later_ps: Upper bounds. ``[a, b]``: how much later clock b may be relative to clock a, shape
            (n, n); infinite without messages. With many clocks, bounds relative to clock 0 only,
            shape (n, 2): ``[a, 0]`` how much later clock 0 may be relative to clock a, and
            ``[a, 1]`` clock a relative to clock 0.
        all_pairs: Whether ``later_ps`` has all pairs, shape (n, n).
    """

    clock_of: Ints
    later_ps: Floats
    all_pairs: bool

    def later(self, of: Ints, other: Ints) -> Floats:
        """How much later the clocks of ranks ``other`` may be relative to those of ``of``, (N,)."""
        a, b = self.clock_of[of], self.clock_of[other]
        if self.all_pairs:
            return np.asarray(self.later_ps[a, b])
        by_first = self.later_ps[a, 0] + self.later_ps[b, 1]
        return np.asarray(np.where(a == b, 0.0, by_first))

    def widths(self) -> Floats:
        """Widths of the bounds on clock differences: of all pairs, or of each clock and clock 0."""
        if not self.all_pairs:
            return np.asarray(self.later_ps[1:].sum(axis=1))
        both = self.later_ps + self.later_ps.T
        return np.asarray(both[np.triu_indices(len(both), 1)])


@dataclass(frozen=True)
class Clocks:
    """Corrections of the ranks' clocks, with bounds.

    Attributes:
        unit: Unit that gets its own correction: ``none`` (all clocks are used as recorded),
            ``host`` or ``rank``.
        offset_ps: Offset added to the times of each rank at ``middle_ps``, shape (R,).
        drift: Change of the offset per picosecond, shape (R,); 0 unless needed.
        middle_ps: Reference time of the offsets.
        bounds: Bounds on clock differences after the correction.
        violated: Number of causality violations (messages received before they were sent) by the
            clocks as recorded.
        largest_ps: Largest of them.
        left: Number of violations after offsets and drifts, before the repair.
        left_largest_ps: Largest of them.
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
        """Convert times of ranks to the common clock."""
        shift = self.offset_ps[rank] + self.drift[rank] * (time_ps - self.middle_ps)
        return time_ps + np.rint(shift).astype(np.int64)

    def later(self, of: Ints, other: Ints) -> Floats:
        """How much later the clocks of ``other`` may be relative to those of ``of``, shape (N,)."""
        return self.bounds.later(of, other)


def constraints(recorded: RecordedRun, latency: Latency | None = None) -> ClockConstraints:
    """Constraints from all messages and collectives of a trace."""
    calls, t = recorded.calls, recorded.transfers
    use = np.flatnonzero((t.send_call >= 0) & (t.recv_done_call >= 0) & (t.src_rank != t.dst_rank))
    done = calls.leave_ps[t.recv_done_call[use]]
    completed = t.recv_done_ps[use]
    # A completion may be recorded before the call is left.
    enter = calls.enter_ps[t.recv_done_call[use]]
    done = np.where((completed >= enter) & (completed < done), completed, done)
    parts = [(t.src_rank[use], t.dst_rank[use], calls.enter_ps[t.send_call[use]], done)]
    parts += _collective_constraints(recorded)
    src, dst, sent, received = (
        np.concatenate([part[i] for part in parts]).astype(np.int64) for i in range(4)
    )
    least = np.full(len(src), LEAST_LATENCY_PS) if latency is None else latency(src, dst)
    return ClockConstraints(src, dst, sent, received, least)


def _collective_constraints(recorded: RecordedRun) -> list[tuple[Ints, Ints, Ints, Ints]]:
    """Constraints from collectives that carry data or a barrier to other ranks."""
    c, calls = recorded.collectives, recorded.calls
    parts = []
    order = np.lexsort((c.rank, c.instance))
    bounds = np.append(0, np.cumsum(np.bincount(c.instance[order]))) if len(c) else np.zeros(1, int)
    size = np.diff(bounds)
    operation_direction = np.array(
        [_direction(OPERATIONS[op]) for op in c.operation[order[bounds[:-1]]]], int
    )
    for members in np.unique(size).tolist():
        rows = order[
            (bounds[:-1][size == members][:, None] + np.arange(members)).reshape(-1)
        ].reshape(-1, members)
        directions = operation_direction[size == members]
        has_data = (c.sent_bytes[rows] + c.received_bytes[rows]).max(axis=1) > 0
        has_data |= c.operation[rows[:, 0]] == OPERATIONS.index("MPI_Barrier")
        rank, enter = c.rank[rows], calls.enter_ps[c.start_call[rows]]
        leave, is_root = calls.leave_ps[c.call[rows]], c.rank[rows] == c.root[rows]
        for direction in (1, 2, 3):
            instances = np.flatnonzero((directions == direction) & has_data)
            if not len(instances):
                continue
            r, e, l = rank[instances], enter[instances], leave[instances]
            if direction == 1 and members * members * len(instances) <= _ALL_PAIRS:
                # Each rank enters before any other rank leaves.
                from_rank, other = np.nonzero(~np.eye(members, dtype=bool))
                parts.append(
                    (
                        r[:, from_rank].ravel(),
                        r[:, other].ravel(),
                        e[:, from_rank].ravel(),
                        l[:, other].ravel(),
                    )
                )
                continue
            last, first = e.argmax(axis=1), l.argmin(axis=1)
            row = np.arange(len(instances))
            root = is_root[instances].argmax(axis=1)
            centre = {1: last, 2: root, 3: root}[direction]
            if direction in (1, 2):
                parts.append(_star(r, e, l, centre, row, outward=True))
            if direction in (1, 3):
                centre = first if direction == 1 else root
                parts.append(_star(r, e, l, centre, row, outward=False))
    return parts


def _direction(name: str) -> int:
    """1 for all to all, 2 from the root, 3 to the root, 0 where ranks may exchange no data."""
    if name in _SYNCHRONISES:
        return 1
    if name in ROOTED:
        return 2 if name in _FROM_ROOT else 3 if name in _TO_ROOT else 0
    return 0


def _star(
    rank: Ints, enter: Ints, leave: Ints, centre_column: Ints, instance: Ints, *, outward: bool
) -> tuple[Ints, Ints, Ints, Ints]:
    """Constraints between one member of each collective and all others."""
    members = rank.shape[1]
    centre = np.repeat(rank[instance, centre_column], members)
    other = rank.reshape(-1)
    apart = centre != other
    if outward:
        sent, received = np.repeat(enter[instance, centre_column], members), leave.reshape(-1)
        return centre[apart], other[apart], sent[apart], received[apart]
    sent, received = enter.reshape(-1), np.repeat(leave[instance, centre_column], members)
    return other[apart], centre[apart], sent[apart], received[apart]


def solve(
    event_pairs: ClockConstraints,
    n_ranks: int,
    hosts: list[str] | None,
    resolution_ps: int = 1,
    common: Ints | None = None,
    started_ps: Ints | None = None,
) -> Clocks:
    """Find the simplest clock corrections that are consistent with all messages.

    In this order: clocks as recorded; one offset per host, if the clocks within each host agree;
    one offset per rank; offsets and drifts with the smallest total violation. What messages leave
    open is chosen so that the ranks start together.

    Args:
        event_pairs: Pairs of ordered events.
        n_ranks: Number of ranks.
        hosts: Host of each rank, None where unknown.
        resolution_ps: Clock resolution; smaller violations are ignored.
        common: Number of the clock of each rank, where the tracer says which ranks share one, shape
            (R,): their times differ by nothing. None if it does not.
        started_ps: When each rank left MPI_Init by its clock, -1 where unknown, shape (R,); None if
            not recorded.
    """
    slack = event_pairs.slack_ps
    is_violated = slack < -resolution_ps
    violated, largest = int(is_violated.sum()), int(max(-slack.min(initial=0), 0))
    ranks = np.arange(n_ranks)
    zero = np.zeros(n_ranks)
    middle = int(np.median(event_pairs.sent_ps)) if len(event_pairs.sent_ps) else 0
    if not violated:
        clock_of = ranks if common is None else dense(common)[1]
        n = int(clock_of.max(initial=0)) + 1
        return Clocks("none", zero, zero, middle, _bounds(event_pairs, clock_of, n), 0, 0, 0, 0)
    unit, clock_of = "rank", ranks
    if hosts is not None or common is not None:
        groups = common if common is not None else np.array(hosts)
        _, host_index = np.unique(groups, return_inverse=True)
        same_host = host_index[event_pairs.src] == host_index[event_pairs.dst]
        if not (is_violated & same_host).any() and len(np.unique(host_index)) < n_ranks:
            unit, clock_of = "host", host_index.astype(np.int64)
    n = int(clock_of.max(initial=0)) + 1
    drift = np.zeros(n)
    offset = _offsets(event_pairs, clock_of, n, resolution_ps)
    if offset is None:
        offset, drift = _fit_drifts(event_pairs, clock_of, n, middle)
        partly_corrected = _correct_constraints(
            event_pairs, offset[clock_of], drift[clock_of], middle
        )
        residual_offset = _offsets(partly_corrected, clock_of, n, resolution_ps)
        offset = offset + (residual_offset if residual_offset is not None else 0)
    rank_offset, rank_drift = offset[clock_of], drift[clock_of]
    after = _correct_constraints(event_pairs, rank_offset, rank_drift, middle)
    if started_ps is not None and (started_ps >= 0).any() and n <= _MATRIX:
        shift = rank_offset + rank_drift * (started_ps - middle)
        started = np.where(started_ps >= 0, started_ps + shift, np.nan)
        rank_offset = rank_offset + _shifts_to_common_start(after, clock_of, n, started)[clock_of]
        after = _correct_constraints(event_pairs, rank_offset, rank_drift, middle)
    remaining_slack = after.slack_ps
    return Clocks(
        unit,
        rank_offset,
        rank_drift,
        middle,
        _bounds(after, clock_of, n),
        violated,
        largest,
        int((remaining_slack < -resolution_ps).sum()),
        int(max(-remaining_slack.min(initial=0) - resolution_ps, 0)),
    )


def _correct_constraints(
    event_pairs: ClockConstraints, offset: Floats, drift: Floats, middle: int
) -> ClockConstraints:
    def at(rank: Ints, time: Ints) -> Ints:
        shift = offset[rank] + drift[rank] * (time - middle)
        return time + np.rint(shift).astype(np.int64)

    return ClockConstraints(
        event_pairs.src,
        event_pairs.dst,
        at(event_pairs.src, event_pairs.sent_ps),
        at(event_pairs.dst, event_pairs.received_ps),
        event_pairs.least_ps,
    )


def _least_slack(event_pairs: ClockConstraints, clock_of: Ints, n: int) -> tuple[Ints, Ints, Ints]:
    """Pairs of clocks with constraints (second, first) and the minimum slack of each pair."""
    src, dst = clock_of[event_pairs.src], clock_of[event_pairs.dst]
    apart = src != dst
    pair, slack = dst[apart] * n + src[apart], event_pairs.slack_ps[apart]
    keys, place = dense(pair)
    least = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(least, place, slack)
    return keys // n, keys % n, least


def _paths(event_pairs: ClockConstraints, clock_of: Ints, n: int, floor: float | None) -> Floats:
    """Upper bounds ``[a, b]`` on the offset of clock b relative to clock a, shape (n, n).

    Raises:
        NegativeCycleError: The constraints are inconsistent; impossible with a ``floor`` of 0, the
            minimum of each slack.
    """
    follows, leads, slack = _least_slack(event_pairs, clock_of, n)
    # Offset of the first event's clock minus that of the second is at most the slack.
    matrix = np.full((n, n), np.inf)
    values = slack.astype(np.float64)
    matrix[follows, leads] = values if floor is None else np.maximum(values, floor)
    np.fill_diagonal(matrix, 0.0)
    return np.asarray(floyd_warshall(matrix, directed=True))


def _bounds(event_pairs: ClockConstraints, clock_of: Ints, n: int) -> OffsetBounds:
    """Bounds on clock differences.

    Remaining violations count as zero slack, because they are repaired later.
    """
    if n <= _MATRIX:
        return OffsetBounds(clock_of, _paths(event_pairs, clock_of, n, 0.0), True)
    follows, leads, slack = _least_slack(event_pairs, clock_of, n)
    # In a sparse graph a weight of 0 means no edge.
    weight = np.maximum(slack, 1).astype(np.float64)
    one_way = []
    for ends in ((leads, follows), (follows, leads)):
        graph = coo_array((weight, ends), shape=(n, n)).tocsr()
        # scipy's stubs do not know that it takes sparse matrices.
        one_way.append(dijkstra(graph, indices=0))  # type: ignore[call-overload]
    return OffsetBounds(clock_of, np.stack(one_way, axis=1), False)


def _offsets(
    event_pairs: ClockConstraints, clock_of: Ints, n: int, resolution_ps: int
) -> Floats | None:
    """Offset of each clock in the middle of its feasible range; None if that is empty.

    The upper bounds relative to one clock are feasible offsets, and so are the lower ones. The
    feasible set is convex: means of the two, over all reference clocks, are feasible too.
    """
    if n > _MATRIX:
        return _offsets_from_first(event_pairs, clock_of, n)
    relaxed = ClockConstraints(
        event_pairs.src,
        event_pairs.dst,
        event_pairs.sent_ps,
        event_pairs.received_ps,
        event_pairs.least_ps - resolution_ps,
    )
    try:
        upper = _paths(relaxed, clock_of, n, None)
    except NegativeCycleError:
        return None
    offset = np.zeros(n)
    _, component = connected_components(np.isfinite(upper), directed=True, connection="strong")
    for number in range(int(component.max(initial=0)) + 1):
        members = np.flatnonzero(component == number)
        bounds = upper[np.ix_(members, members)]
        middle = (bounds - bounds.T) / 2
        offset[members] = (middle - middle[:, :1]).mean(axis=0)
    return _align_components(upper, component, offset)


_PASSES = 100
"""Maximum number of passes over the clocks that bring the starts of their ranks together."""


def _shifts_to_common_start(
    event_pairs: ClockConstraints, clock_of: Ints, n: int, started_ps: Floats
) -> Floats:
    """Shift of each clock that brings the starts of the ranks together, shape (n,).

    Each is as large as the bounds allow with the others where they are, again and again.

    Args:
        event_pairs: Constraints after the correction.
        clock_of: Clock of each rank.
        n: Number of clocks.
        started_ps: Corrected start of each rank, NaN where unknown.
    """
    later = _paths(event_pairs, clock_of, n, 0.0)
    np.fill_diagonal(later, np.inf)
    start = np.full(n, np.nan)
    for clock in np.unique(clock_of[~np.isnan(started_ps)]).tolist():
        start[clock] = np.nanmedian(started_ps[clock_of == clock])
    target = np.nan_to_num(np.nanmedian(start) - start)
    shift = np.zeros(n)
    for _ in range(_PASSES):
        before = shift.copy()
        for clock in range(n):
            low = float((shift - later[clock]).max())
            high = float((shift + later[:, clock]).min())
            shift[clock] = min(max(target[clock], low), high)
        if np.abs(shift - before).max() < 1.0:
            break
    return shift


def _offsets_from_first(event_pairs: ClockConstraints, clock_of: Ints, n: int) -> Floats | None:
    """As :func:`_offsets`, relative to clock 0 only; None also if a clock lacks a bound."""
    follows, leads, slack = _least_slack(event_pairs, clock_of, n)
    weight = slack.astype(np.float64)
    bounds = []
    for ends in ((follows, leads), (leads, follows)):
        graph = coo_array((weight, ends), shape=(n, n)).tocsr()
        try:
            bounds.append(bellman_ford(graph, indices=0))  # type: ignore[call-overload]
        except NegativeCycleError:
            return None
    middle = (bounds[0] - bounds[1]) / 2
    return middle if np.isfinite(middle).all() else None


def _align_components(upper: Floats, component: NDArray[np.int32], offset: Floats) -> Floats:
    """Shift components of clocks that are constrained in one direction by the minimum amount."""
    n_components = int(component.max(initial=0)) + 1
    if n_components == 1:
        return offset
    for _ in range(n_components):
        # Offset b may exceed offset a by at most upper[a, b]; otherwise a is increased.
        excess = offset[None, :] - offset[:, None] - upper
        required = np.zeros(n_components)
        np.maximum.at(required, component, excess.max(axis=1))
        if (required <= 0).all():
            break
        offset = offset + required[component]
    return offset


def _fit_drifts(
    event_pairs: ClockConstraints, clock_of: Ints, n: int, middle: int
) -> tuple[Floats, Floats]:
    """Offsets and drifts that minimise the sum of violations, by linear programming."""
    rows = _tightest_rows(event_pairs, clock_of, n)
    src, dst = clock_of[event_pairs.src[rows]], clock_of[event_pairs.dst[rows]]
    apart = src != dst
    rows, src, dst = rows[apart], src[apart], dst[apart]
    span = float(max(int(np.ptp(event_pairs.sent_ps)), 1))
    unit = float(np.abs(event_pairs.slack_ps[rows]).max(initial=1))
    at_src = (event_pairs.sent_ps[rows] - middle) / span
    at_dst = (event_pairs.received_ps[rows] - middle) / span
    k, m = np.arange(len(rows)), len(rows)
    # Columns: offsets, drifts over the whole span, violation of each row, common margin.
    ones = np.ones(m)
    row = np.concatenate([k, k, k, k, k, k])
    column = np.concatenate([src, dst, n + src, n + dst, 2 * n + k, np.full(m, 2 * n + m)])
    value = np.concatenate([ones, -ones, at_src, -at_dst, -ones, ones])
    matrix = coo_array((value, (row, column)), shape=(m, 2 * n + m + 1)).tocsr()
    cost = np.concatenate([np.zeros(2 * n), ones, [-0.5]])
    bounds = [(0.0, 0.0), *[(None, None)] * (n - 1)] * 2 + [(0.0, None)] * m + [(0.0, 1.0)]
    limit = event_pairs.slack_ps[rows] / unit
    from scipy.optimize import linprog  # takes half a second to import: only where it is needed

    # scipy's stubs do not know that it takes sparse matrices.
    solved = linprog(cost, A_ub=matrix, b_ub=limit, bounds=bounds)  # type: ignore[call-overload]
    if solved.x is None:
        return np.zeros(n), np.zeros(n)
    return solved.x[:n] * unit, solved.x[n : 2 * n] * unit / span


def _tightest_rows(event_pairs: ClockConstraints, clock_of: Ints, n: int) -> Ints:
    """For each pair of clocks the constraint with the smallest slack in each time bin."""
    pair = clock_of[event_pairs.dst] * n + clock_of[event_pairs.src]
    n_pairs = max(len(np.unique(pair)), 1)
    n_bins = int(np.clip(_LP_ROWS // n_pairs, 2, 64))
    start, width = int(event_pairs.sent_ps.min()), max(int(np.ptp(event_pairs.sent_ps)), 1)
    time_bin = np.minimum((event_pairs.sent_ps - start) * n_bins // (width + 1), n_bins - 1)
    order = np.lexsort((event_pairs.slack_ps, time_bin, pair))
    _, first = np.unique(pair[order] * n_bins + time_bin[order], return_index=True)
    return order[first]
