"""Sends and receives that ranks run at the same time, as NCCL runs those of a group."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tailback.traffic.nccl.rank_calls import RankCall, complete_sides

_OVERLAP = 0.5
"""Part of the time of two calls in which both run, if they are of one group: its kernel runs all of
them. A call that waits long beside a shorter one was launched on its own."""


@dataclass(frozen=True)
class _Concurrent:
    """Sends and receives that a rank runs at once: places in its calls ``begin`` to ``end``."""

    rank: int
    begin: int
    end: int


def with_exchanges(calls: Sequence[Sequence[RankCall]]) -> list[list[RankCall]]:
    """Calls of each rank in which concurrent sends and receives are one exchange.

    One after another, those of a ring would take as many times longer as it has ranks. Groups of
    ranks that share a message are one exchange, unless one rank takes part in it with two groups.

    Args:
        calls: Calls of each rank, in the order in which they began.
    """
    complete = complete_sides(calls)
    groups = [
        _Concurrent(rank, begin, end)
        for rank, rank_calls in enumerate(calls)
        for begin, end in _stretches(rank_calls, complete)
    ]
    joined = [list(rank_calls) for rank_calls in calls]
    dropped: list[set[int]] = [set() for _ in calls]
    for exchange in _connected(groups, calls):
        ranks = [group.rank for group in exchange]
        if len(set(ranks)) < len(ranks) or max(group.end - group.begin for group in exchange) < 2:
            continue
        exchange.sort(key=lambda group: group.rank)
        members = tuple(sorted(ranks))
        key = ("exchange", calls[members[0]][exchange[0].begin].key)
        for group in exchange:
            parts = calls[group.rank][group.begin : group.end]
            joined[group.rank][group.begin] = _join(parts, group.rank, members, key)
            dropped[group.rank] |= set(range(group.begin + 1, group.end))
    return [
        [call for place, call in enumerate(rank_calls) if place not in dropped[rank]]
        for rank, rank_calls in enumerate(joined)
    ]


def _stretches(
    rank_calls: Sequence[RankCall], complete: Mapping[Hashable, object]
) -> Iterator[tuple[int, int]]:
    """Places of each group of sends and receives of a rank, also of a group of one."""
    begin, until = -1, 0
    for place, call in enumerate(rank_calls):
        usable = call.call == "SendRecv" and call.end_ns > 0 and call.key in complete
        if usable and begin >= 0:
            time = max(call.end_ns, until) - rank_calls[begin].start_ns
            if min(call.end_ns, until) - call.start_ns > _OVERLAP * time:
                until = max(until, call.end_ns)
                continue
        if begin >= 0:
            yield begin, place
        begin, until = (place, call.end_ns) if usable else (-1, 0)
    if begin >= 0:
        yield begin, len(rank_calls)


def _connected(
    groups: Sequence[_Concurrent], calls: Sequence[Sequence[RankCall]]
) -> list[list[_Concurrent]]:
    """Groups by the messages that connect them."""
    sides: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        for call in calls[group.rank][group.begin : group.end]:
            sides.setdefault(call.key, []).append(number)
    connected: list[list[_Concurrent]] = []
    reached = [False] * len(groups)
    for number in range(len(groups)):
        if reached[number]:
            continue
        reached[number] = True
        pending, members = [number], list[_Concurrent]()
        while pending:
            group = groups[pending.pop()]
            members.append(group)
            for call in calls[group.rank][group.begin : group.end]:
                for neighbour in sides[call.key]:
                    if not reached[neighbour]:
                        reached[neighbour] = True
                        pending.append(neighbour)
        connected.append(members)
    return connected


def _join(
    parts: Sequence[RankCall], rank: int, members: tuple[int, ...], key: Hashable
) -> RankCall:
    """One rank's part of an exchange."""
    row = dict.fromkeys(members, 0)
    for call in parts:
        src, dst = call.members[call.root], call.members[call.peer]
        if src == rank:
            row[dst] += call.nbytes
    return replace(
        parts[0],
        key=key,
        call="Exchange",
        members=members,
        nbytes=max(call.nbytes for call in parts),
        before_ps=sum(call.before_ps for call in parts),
        overlapped_ps=sum(call.overlapped_ps for call in parts),
        start_ns=min(call.start_ns for call in parts),
        end_ns=max(call.end_ns for call in parts),
        unrecorded_before=any(call.unrecorded_before for call in parts),
        launched_ns=min(call.launched_ns for call in parts),
        root=0,
        peer=0,
        row=tuple(row.values()),
    )
