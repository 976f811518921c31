"""Joins the calls of single ranks to collectives, in a common order that cannot deadlock."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence

import numpy as np

from tailback.io.delimited import NotUsed
from tailback.traffic.nccl.exchanges import with_exchanges
from tailback.traffic.nccl.rank_calls import RankCall, complete_sides, contradictions
from tailback.traffic.nccl.steps import COMPUTE_ONLY, Collective

Timelines = list[list[tuple[int, int]]]


def join_calls(
    calls: Sequence[Sequence[RankCall]],
    after_ps: Sequence[int],
    notes: list[str],
) -> tuple[list[Collective], Timelines]:
    """Join the calls of all ranks.

    Args:
        calls: Calls of each rank in order.
        after_ps: Computation of each rank after its last call.
        notes: Gets a line for everything that is inconsistent or left out.

    Returns:
        The collectives, and the timeline of each rank.
    """
    calls = with_exchanges(calls)
    complete = complete_sides(calls)
    incomplete = len({call.key for rank_calls in calls for call in rank_calls}) - len(complete)
    notes += contradictions(calls)
    if incomplete:
        notes.append(
            NotUsed(
                f"{incomplete} collectives that not all of their ranks recorded alike are left "
                "out; the computation that overlapped with them is kept"
            )
        )
    number = {key: k for k, key in enumerate(complete)}
    collectives = [_join_sides(side) for side in complete.values()]
    queues = [
        [number[call.key] for call in rank_calls if call.key in complete] for rank_calls in calls
    ]
    end = [max(call.end_ns for call in side.values()) for side in complete.values()]
    order, moved = common_order(queues, [c.members for c in collectives], end)
    if moved:
        notes.append(
            f"{moved} collectives run side by side in another order on some ranks; here "
            "all ranks begin them in one order"
        )
    return collectives, _timelines(calls, after_ps, number, order)


def _join_sides(side: dict[int, RankCall]) -> Collective:
    first = next(iter(side.values()))
    rows = [side[rank].row for rank in first.members]
    n = len(first.members)
    counts = np.array(rows, np.int64) if all(len(row) == n for row in rows) else None
    choices = Counter(other.choice for other in side.values() if other.choice is not None)
    return Collective(
        first.call,
        first.members,
        max(other.nbytes for other in side.values()),
        first.communicator,
        first.communicator,
        choices.most_common(1)[0][0] if choices else None,
        max((other.channels or 0 for other in side.values()), default=0) or None,
        first.root,
        first.peer,
        counts,
        first.rings,
        first.trees,
    )


def common_order(
    queues: list[list[int]], members: list[tuple[int, ...]], end: list[int]
) -> tuple[list[int], int]:
    """An order of all collectives that is consistent with each rank's order, if there is one.

    Collectives for whose members nobody waits come first. Where ranks wait for each other in a
    cycle, the collective that the fewest others precede comes next: clocks of hosts differ by
    more than collectives take.

    Args:
        queues: Numbers of each rank's collectives, in order.
        members: Ranks of each collective.
        end: Time by which collectives in a cycle are ordered that equally many others precede.

    Returns:
        The order, and the number of collectives that were moved.
    """
    places = [{k: place for place, k in enumerate(queue)} for queue in queues]
    at = [0] * len(queues)
    waiting = [0] * len(members)
    done = [False] * len(members)
    ready = deque[int]()

    def advance(rank: int) -> None:
        queue = queues[rank]
        while at[rank] < len(queue) and done[queue[at[rank]]]:
            at[rank] += 1
        if at[rank] < len(queue):
            head = queue[at[rank]]
            waiting[head] += 1
            if waiting[head] == len(members[head]):
                ready.append(head)

    def preceding(k: int) -> tuple[int, int, int]:
        return sum(places[rank][k] - at[rank] for rank in members[k]), end[k], k

    def cycle(rank: int) -> list[int]:
        """Collectives that wait for one another, from the one for which a rank waits."""
        heads = dict[int, None]()
        head = queues[rank][at[rank]]
        while head not in heads:
            heads[head] = None
            rank = next(r for r in members[head] if queues[r][at[r]] != head)
            head = queues[rank][at[rank]]
        listed = list(heads)
        return listed[listed.index(head) :]

    for rank in range(len(queues)):
        advance(rank)
    order: list[int] = []
    moved = first = 0
    while len(order) < len(members):
        if ready:
            pick = ready.popleft()
        else:
            while at[first] == len(queues[first]):
                first += 1
            pick = min(cycle(first), key=preceding)
            moved += 1
        done[pick] = True
        order.append(pick)
        for rank in members[pick]:
            if queues[rank][at[rank]] == pick:
                advance(rank)
    return order, moved


def _timelines(
    calls: Sequence[Sequence[RankCall]],
    after_ps: Sequence[int],
    number: dict[Hashable, int],
    order: list[int],
) -> Timelines:
    """Timeline of each rank: computation as recorded, collectives in the common order."""
    place = {k: position for position, k in enumerate(order)}
    out: Timelines = []
    for rank_calls, after in zip(calls, after_ps, strict=True):
        mine = iter(
            sorted((number[c.key] for c in rank_calls if c.key in number), key=place.__getitem__)
        )
        timeline: list[tuple[int, int]] = []
        for call in rank_calls:
            if call.before_ps:
                timeline.append((COMPUTE_ONLY, call.before_ps))
            timeline.append(
                (next(mine) if call.key in number else COMPUTE_ONLY, call.overlapped_ps)
            )
        timeline.append((COMPUTE_ONLY, after))
        out.append(timeline)
    return out
