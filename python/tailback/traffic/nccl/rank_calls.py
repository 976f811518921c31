"""Joins the calls of single ranks to collectives, in a common order that cannot deadlock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from tailback.io.delimited import NotUsed
from tailback.traffic.nccl.choice import Choice
from tailback.traffic.nccl.steps import COMPUTE_ONLY, Collective
from tailback.units import counted, format_bytes


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
        start_ns: When it began, by the clock of the rank; 0 without times.
        end_ns: When it ended, by the clock of the rank; 0 without times.
        unrecorded_before: Whether calls before it, since the previous one, are not recorded: then
            the time between them is not all computation.
        launched_ns: When the host launched it, by the clock of the rank; 0 if unknown.
        idle_ps: Part of ``before_ps`` in which the accelerator had nothing to do, because the host
            had launched nothing; -1 if unknown.
        root: Member that is the root, or the sender.
        peer: Member that receives.
        row: Bytes for each member in an AllToAll with unequal sizes.
        choice: How it was run, if known from a log.
        channels: Number of channels, if nothing else is known.
        rings: Ring of each channel, if known.
        trees: Parent of each member in the tree of each channel, if known.
    """

    key: Hashable
    call: str
    members: tuple[int, ...]
    nbytes: int
    communicator: str
    before_ps: int = 0
    overlapped_ps: int = 0
    start_ns: int = 0
    end_ns: int = 0
    unrecorded_before: bool = False
    launched_ns: int = 0
    idle_ps: int = -1
    root: int = 0
    peer: int = 0
    row: tuple[int, ...] = ()
    choice: Choice | None = None
    channels: int | None = None
    rings: tuple[tuple[int, ...], ...] = ()
    trees: tuple[tuple[int, ...], ...] = ()


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
            "all ranks begin them in the order in which they ended"
        )
    return collectives, _timelines(calls, after_ps, number, order)


def complete_sides(
    calls: Sequence[Sequence[RankCall]],
) -> dict[Hashable, dict[int, RankCall]]:
    """The collectives that all of their members recorded alike: the call of each rank, by key."""
    return {key: side for key, side in sides_of(calls).items() if _is_complete(side)}


def sides_of(calls: Sequence[Sequence[RankCall]]) -> dict[Hashable, dict[int, RankCall]]:
    """All collectives: the call of each rank that recorded it, by key."""
    sides: dict[Hashable, dict[int, RankCall]] = {}
    for rank, rank_calls in enumerate(calls):
        for call in rank_calls:
            sides.setdefault(call.key, {})[rank] = call
    return sides


def _is_complete(side: dict[int, RankCall]) -> bool:
    """Whether the members of a collective, and no others, recorded it as the same call."""
    first = next(iter(side.values()))
    return not differing_ranks(side) and sorted(side) == sorted(first.members)


def differing_ranks(side: dict[int, RankCall]) -> tuple[int, ...]:
    """Two ranks that record a collective as different calls; empty if all agree."""
    first = min(side)
    kind = _kind(side[first])
    return next(((first, rank) for rank in sorted(side) if _kind(side[rank]) != kind), ())


def _kind(call: RankCall) -> tuple[object, ...]:
    """What all ranks record alike of a collective; unequal parts may have any sizes."""
    nbytes = -1 if call.row else call.nbytes
    return call.call, call.members, call.root, call.peer, nbytes


def contradictions(calls: Sequence[Sequence[RankCall]]) -> list[str]:
    """The note on collectives of which ranks record different calls or sizes, with the first."""
    differing = [
        (side, ranks) for side in sides_of(calls).values() if (ranks := differing_ranks(side))
    ]
    if not differing:
        return []
    side, ranks = differing[0]
    shown = " and ".join(
        f"{side[rank].call} of {format_bytes(side[rank].nbytes)} on rank {rank}" for rank in ranks
    )
    return [
        NotUsed(
            f"{counted(len(differing), 'collective')} that ranks record differently (the first: "
            f"{shown}): files of several runs, or damaged ones"
        )
    ]


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

    Args:
        queues: Numbers of each rank's collectives, in order.
        members: Ranks of each collective.
        end: Time by which collectives are ordered that ranks have in different orders.

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
