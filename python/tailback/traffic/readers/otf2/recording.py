"""Times of the recorded run that are not in the program compiled from it.

A program keeps the time between calls; the time inside calls is for the simulation to find. The
recorded time of the calls is kept here for comparison, together with a sign of oversubscribed
cores. Clocks of different ranks are never compared: EZTrace starts them up to about 60 ms apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import RecordedTimes
from tailback.traffic.readers.otf2.columns import Trace
from tailback.traffic.readers.otf2.links import COLLECTIVE
from tailback.traffic.readers.otf2.names import communicates, is_synchronising, moves_data
from tailback.traffic.readers.posts import among, dense

SMALL_BYTES = 1024
"""Bytes of a rank up to which a collective is latency-bound."""

STAGE_PS = 10_000_000
"""Limit per stage (of log2(ranks)) of a small collective, beyond which ranks were not running:
networks of supercomputers take 1 to 2 µs, including software."""

MIN_COLLECTIVES = 3
"""Minimum number of small collectives of all ranks for a verdict."""

_MIN_RANKS = 8
"""Minimum number of ranks: among fewer, a late rank does not indicate oversubscription."""


class RegionCalls(NamedTuple):
    """The calls of one region: how many, with a message record, and ticks in all together."""

    number: int
    recorded: int
    ticks: int


def calls_by_region(trace: Trace) -> dict[int, RegionCalls]:
    """The calls of each region, in ascending order of regions."""
    calls = trace.calls
    has_record = np.zeros(len(calls.rank), np.bool_)
    has_record[trace.messages.call[trace.messages.call >= 0]] = True
    regions, place = dense(calls.region)
    n = len(regions)
    number = np.bincount(place, minlength=n)
    recorded = np.bincount(place[has_record], minlength=n)
    ticks = np.zeros(n, np.int64)
    np.add.at(ticks, place, calls.leave - calls.enter)
    rows = zip(number.tolist(), recorded.tolist(), ticks.tolist(), strict=True)
    return {region: RegionCalls(*row) for region, row in zip(regions.tolist(), rows, strict=True)}


def unrecorded_calls(trace: Trace, calls: Mapping[int, RegionCalls]) -> dict[str, RegionCalls]:
    """Calls that move data but of which no message is recorded, by name.

    Recordings of Tailback lack none: calls with MPI_PROC_NULL move nothing.
    """
    if trace.creator.startswith("Tailback"):
        return {}
    total: dict[str, RegionCalls] = {}
    for region, made in calls.items():
        name = trace.regions[region]
        if moves_data(name):
            # EZTrace defines a call's region once for each process.
            before = total.get(name, (0, 0, 0))
            total[name] = RegionCalls(*(a + b for a, b in zip(before, made, strict=True)))
    return {name: total[name] for name in sorted(total) if not total[name].recorded}


def call_order(rank: NDArray[np.int64], position: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of calls in the order of their ranks and positions, shape like ``rank``."""
    before, after = slice(None, -1), slice(1, None)
    later = (rank[after] > rank[before]) | (
        (rank[after] == rank[before]) & (position[after] >= position[before])
    )
    return np.arange(len(rank)) if later.all() else np.lexsort((position, rank))


def recording(trace: Trace, calls: Mapping[int, RegionCalls], between_ps: int) -> RecordedTimes:
    """Sum up the calls of a trace.

    Args:
        trace: The columns; of calls, those that synchronise ranks suffice.
        calls: All calls by region.
        between_ps: Time between calls that the program keeps, all ranks together.
    """
    ps_per_tick = 1e12 / trace.ticks_per_second
    inside = sum(
        made.ticks for region, made in calls.items() if communicates(trace.regions[region])
    )
    ranks = max(trace.n_ranks, 1)
    unrecorded = unrecorded_calls(trace, calls)
    return RecordedTimes(
        calls_ps=round(float(inside * ps_per_tick) / ranks),
        between_ps=round(between_ps / ranks),
        unrecorded_ps=round(sum(made.ticks for made in unrecorded.values()) * ps_per_tick / ranks),
        unrecorded=", ".join(f"{made.number} of {name}" for name, made in unrecorded.items()),
        oversubscribed_ps=oversubscribed_ps(_shortest_stays(trace) * ps_per_tick, trace.n_ranks),
        processor_time=trace.processor_times,
    )


def oversubscribed_ps(shortest_ps: NDArray[Any], n_ranks: int) -> int:
    """Time of the last rank to enter in small collectives, 0 if it is plausible.

    No rank leaves an MPI_Barrier or MPI_Allreduce before all have entered it, so the last to enter
    has the shortest stay: only the latency. If that is far longer than any network's latency, ranks
    waited for a processor when their message arrived.

    Args:
        shortest_ps: Shortest stay of any rank in every small collective of all ranks, shape (I,).
        n_ranks: Number of ranks.
    """
    if n_ranks < _MIN_RANKS or len(shortest_ps) < MIN_COLLECTIVES:
        return 0
    usual = float(np.median(shortest_ps))
    return round(usual) if usual > STAGE_PS * np.log2(n_ranks) else 0


def shortest_stays(
    instance: NDArray[np.int64], stay: NDArray[np.int64], counts: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Shortest stay in each collective all of whose members count, in order of their numbers.

    Args:
        instance: Number of the collective, shape (M,).
        stay: Time of the rank in it, shape (M,).
        counts: Whether it is small, of all ranks, and synchronises them, shape (M,).
    """
    n = int(instance.max(initial=-1)) + 1
    shortest = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(shortest, instance, stay)
    wanted = np.bincount(instance, minlength=n) > 0
    wanted[instance[~counts]] = False
    return shortest[wanted]


def _shortest_stays(trace: Trace) -> NDArray[np.int64]:
    """Shortest stay of any rank in every small collective of all ranks, ticks."""
    if trace.n_ranks < _MIN_RANKS:
        return np.zeros(0, np.int64)
    calls, m = trace.calls, trace.messages
    regions = dense(calls.region)[0].tolist()
    wanted = among(calls.region, [r for r in regions if is_synchronising(trace.regions[r])])
    of_all = {n for n, comm in trace.communicators.items() if len(comm.members) == trace.n_ranks}
    records = (m.kind == COLLECTIVE) & (m.call >= 0)
    rows = np.flatnonzero(records)
    small = np.maximum(m.bytes[rows], m.received[rows]) <= SMALL_BYTES
    wanted[m.call[rows[~(small & among(m.comm[rows], of_all))]]] = False
    rank = calls.rank[wanted]
    order = call_order(rank, calls.enter_position[wanted])
    rank, stay = rank[order], (calls.leave - calls.enter)[wanted][order]
    count = np.bincount(rank, minlength=trace.n_ranks)
    if not len(rank) or count.min() != count.max():
        return np.zeros(0, np.int64)
    # All ranks take part in every collective, so the n-th calls of all ranks belong together.
    return np.asarray(stay.reshape(trace.n_ranks, -1).min(axis=0), np.int64)
