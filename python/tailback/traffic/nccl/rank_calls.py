"""Joins the calls of single ranks to collectives, in a common order that cannot deadlock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from tailback.traffic.nccl.choice import Choice
from tailback.traffic.nccl.steps import COMPUTE_ONLY, Collective


@dataclass(frozen=True)
class RankCall:
    """One call as one rank recorded it.

    Attributes:
        key: Identifies the collective for all members: its group and its number within the group.
        call: A name of :data:`tailback.traffic.nccl.messages.CALLS`.
        members: World ranks of the group.
        nbytes: Bytes of the whole buffer.
        communicator: Name of the group.
        before_ps: Computation since the previous call.
        overlapped_ps: Computation that overlapped with it.
        end_ns: When it ended, on a clock common to all ranks; 0 without times.
        root: Member that is the root, or the sender.
        peer: Member that receives.
        row: Bytes for each member in an AllToAll with unequal sizes.
        choice: How it was run, if known from a log.
        channels: Number of channels, if nothing else is known.
        rings: Ring of each channel, if known from a log.
    """

    key: Hashable
    call: str
    members: tuple[int, ...]
    nbytes: int
    communicator: str
    before_ps: int = 0
    overlapped_ps: int = 0
    end_ns: int = 0
    root: int = 0
    peer: int = 0
    row: tuple[int, ...] = ()
    choice: Choice | None = None
    channels: int | None = None
    rings: tuple[tuple[int, ...], ...] = ()


Timelines = list[list[tuple[int, int]]]


def join_calls(
    calls: Sequence[Sequence[RankCall]], after_ps: Sequence[int], notes: list[str]
) -> tuple[list[Collective], Timelines]:
    """Join the calls of all ranks.

    Args:
        calls: Calls of each rank in order.
        after_ps: Computation of each rank after its last call.
        notes: Gets a line for everything that is left out or inconsistent.

    Returns:
        The collectives, and the timeline of each rank.
    """
    sides: dict[Hashable, dict[int, RankCall]] = {}
    for rank, own in enumerate(calls):
        for one in own:
            sides.setdefault(one.key, {})[rank] = one
    whole = {key: found for key, found in sides.items() if _complete(found)}
    if len(whole) < len(sides):
        notes.append(
            f"{len(sides) - len(whole)} collectives that not all of their ranks recorded "
            "alike are left out; the computation that overlapped with them is "
            "kept"
        )
    number = {key: k for k, key in enumerate(whole)}
    collectives = [_collective(found) for found in whole.values()]
    uneven = sum(len({one.nbytes for one in found.values()}) > 1 for found in whole.values())
    if uneven:
        notes.append(f"{uneven} collectives differ in size between ranks: the largest is used")
    queues = [[number[one.key] for one in own if one.key in whole] for own in calls]
    end = [max(one.end_ns for one in found.values()) for found in whole.values()]
    order, moved = _common_order(queues, [c.members for c in collectives], end)
    if moved:
        notes.append(
            f"{moved} collectives run side by side in another order on some ranks; here "
            "all ranks begin them in the order in which they ended"
        )
    return collectives, _timelines(calls, after_ps, number, order)


def _complete(found: dict[int, RankCall]) -> bool:
    """Whether the members of a collective, and no others, recorded it as the same call."""
    one = next(iter(found.values()))
    alike = {(other.call, other.members, other.root, other.peer) for other in found.values()}
    return len(alike) == 1 and sorted(found) == sorted(one.members)


def _collective(found: dict[int, RankCall]) -> Collective:
    one = next(iter(found.values()))
    rows = [found[rank].row for rank in one.members]
    n = len(one.members)
    counts = np.array(rows, np.int64) if all(len(row) == n for row in rows) else None
    choices = Counter(other.choice for other in found.values() if other.choice is not None)
    return Collective(
        one.call,
        one.members,
        max(other.nbytes for other in found.values()),
        one.communicator,
        one.communicator,
        choices.most_common(1)[0][0] if choices else None,
        max((other.channels or 0 for other in found.values()), default=0) or None,
        one.root,
        one.peer,
        counts,
        one.rings,
    )


def _common_order(
    queues: list[list[int]], members: list[tuple[int, ...]], end: list[int]
) -> tuple[list[int], int]:
    """An order of all collectives that is consistent with each rank's order, if there is one.

    Returns:
        The order, and the number of collectives that were moved.
    """
    at = [0] * len(queues)
    waiting = [0] * len(members)
    done = [False] * len(members)
    ready: list[int] = []

    def advance(rank: int) -> None:
        queue = queues[rank]
        while at[rank] < len(queue) and done[queue[at[rank]]]:
            at[rank] += 1
        if at[rank] < len(queue):
            head = queue[at[rank]]
            waiting[head] += 1
            if waiting[head] == len(members[head]):
                ready.append(head)

    for rank in range(len(queues)):
        advance(rank)
    order: list[int] = []
    moved = 0
    by_end = sorted(range(len(members)), key=lambda k: (end[k], k))
    position = 0
    while len(order) < len(members):
        if ready:
            pick = ready.pop(0)
            if done[pick]:
                continue
        else:
            while done[by_end[position]]:
                position += 1
            pick = by_end[position]
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
    for own, after in zip(calls, after_ps, strict=True):
        mine = iter(sorted((number[c.key] for c in own if c.key in number), key=place.__getitem__))
        timeline: list[tuple[int, int]] = []
        for one in own:
            if one.before_ps:
                timeline.append((COMPUTE_ONLY, one.before_ps))
            timeline.append((next(mine) if one.key in number else COMPUTE_ONLY, one.overlapped_ps))
        timeline.append((COMPUTE_ONLY, after))
        out.append(timeline)
    return out
