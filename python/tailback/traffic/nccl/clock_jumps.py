"""Clocks that are set while accelerators are recorded.

The members of a collective in which each waits for all are in it at the same time, so their times
bound how far their clocks are apart. Bounds of two collectives that exclude each other show that a
clock was set between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from tailback.traffic.nccl.rank_calls import RankCall
from tailback.units import format_time

_MEETING: Final = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll")
"""Calls in which each member waits for all others."""

_MOST_DRIFT: Final = 1e-3
"""How far clocks that nobody sets may drift apart: oscillators of hosts differ by 10^-4 at most."""


def clock_jumps(
    sides: Mapping[Hashable, Mapping[int, RankCall]], hosts: Sequence[str]
) -> list[str]:
    """The note on clocks that were set; empty without any.

    Args:
        sides: The call of each member of the complete collectives.
        hosts: Host of each rank; empty where unknown.
    """
    bounds: dict[tuple[int, int], tuple[int, int, int]] = {}
    jumps: Counter[int] = Counter()
    largest_ns = 0
    for side in sorted(sides.values(), key=_begin):
        first = min(side)
        here = side[first]
        if here.call not in _MEETING or not here.end_ns:
            continue
        jumped, compared = [], 0
        for rank, call in side.items():
            if rank == first or (hosts[rank] and hosts[rank] == hosts[first]):
                continue
            low, high = call.start_ns - here.end_ns, call.end_ns - here.start_ns
            before = bounds.get((first, rank), (low, high, here.start_ns))
            drift = round(_MOST_DRIFT * abs(here.start_ns - before[2]))
            by = max(low - before[1], before[0] - high) - drift
            if by > 0:
                jumped.append(rank)
                largest_ns = max(largest_ns, by)
            compared += 1
            bounds[first, rank] = low, high, here.start_ns
        # Where all others moved alike, the first did.
        jumps.update([first] if 1 < compared == len(jumped) else jumped)
    if not jumps:
        return []
    rank = max(jumps, key=lambda rank: (jumps[rank], -rank))
    host = f" ({hosts[rank]})" if hosts[rank] else ""
    jump = format_time(largest_ns * 1000)
    return [
        f"the clock of rank {rank}{host} was set during the run, by {jump} or more: waits about "
        "that time are unsure"
    ]


def _begin(side: Mapping[int, RankCall]) -> int:
    return side[min(side)].start_ns
