"""Collectives of which only durations are recorded, on a common clock."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import median

from tailback.traffic.nccl.joining import common_order
from tailback.traffic.nccl.rank_calls import RankCall


def synchronised(calls: list[list[RankCall]]) -> tuple[list[list[RankCall]], float]:
    """Calls with durations only on a common clock, as early as possible.

    All members end a call at once, and it takes what the last to begin needs. What a rank usually
    begins later than the first is computation before it, unless it waited so long in a call of
    another group. Irregular delays may be of any cause: they are left out.

    Returns:
        The calls, and the time of irregular delays as a share of that in calls.
    """
    sides: dict[object, dict[int, RankCall]] = defaultdict(dict)
    for rank, rank_calls in enumerate(calls):
        for call in rank_calls:
            sides[call.key][rank] = call
    late: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for side in sides.values():
        longest = max(-call.start_ns for call in side.values())
        for rank, call in side.items():
            late[_kind(rank, call)].append(longest + call.start_ns)
    usual = {kind: round(median(delays)) for kind, delays in late.items()}
    spent = regular = 0
    now = [1] * len(calls)
    out: list[list[RankCall]] = [[] for _ in calls]
    number = {key: k for k, key in enumerate(sides)}
    queues = [[number[call.key] for call in rank_calls] for rank_calls in calls]
    members = list(sides.values())
    order, _ = common_order(queues, [tuple(side) for side in members], [0] * len(members))
    for side in (members[k] for k in order):
        delays = {rank: usual[_kind(rank, call)] for rank, call in side.items()}
        first = min(delays.values())
        # A rank that a call of another group delayed is late for this one without computing.
        start = max(now[rank] - (delays[rank] - first) for rank in side)
        took = min(-call.start_ns for call in side.values())
        end = start + max(delays.values()) - first + took
        spent += max(-call.start_ns for call in side.values())
        regular += end - start
        for rank, call in side.items():
            out[rank].append(replace(call, start_ns=start + delays[rank] - first, end_ns=end))
            now[rank] = end
    return out, max(1.0 - regular / max(spent, 1), 0.0)


def _kind(rank: int, call: RankCall) -> tuple[object, ...]:
    """What calls of a rank have in common that repeat one another."""
    return rank, call.communicator, call.call, call.nbytes, call.members
