"""Who holds up collectives that do not complete, from dumps that show how far each rank came.

A rank that has not entered a collective holds up its members, unless it waits in another collective
itself: then that one is followed. What is found is a rank that waits for nobody, ranks that wait
for each other in a circle or launch collectives in different orders, ranks that enter different
collectives under one number, a rank that alone does not complete a collective, or a collective that
all ranks have entered, which the network or the accelerators hold up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from typing import Literal

from tailback.traffic.readers.flight_recorder.dump import Operation, ProcessGroup, RankDump

Stop = Literal[
    "not-entered",
    "no-dump",
    "different-calls",
    "circle",
    "not-completed",
    "not-started",
    "within",
]
"""Why it does not complete.

- ``not-entered``: ranks that wait for nobody have not entered it;
- ``no-dump``: the only members that are not in it left no dump;
- ``different-calls``: members enter different collectives under its number, or a receive has
  another size than its send;
- ``circle``: its members wait in it for others, which wait for them in another one, or launch both
  in different orders;
- ``not-completed``: some members have completed it, the others have not;
- ``not-started``: all have launched it, and the accelerators of some have not begun it;
- ``within``: all are in it.
"""


@dataclass(frozen=True)
class OpenCollective:
    """A collective, a send or a receive that a rank has launched and not completed.

    Attributes:
        group: Its process group.
        number: Its number in the group.
        is_p2p: Whether it is between two ranks.
        calls: What each rank has launched under this number, by rank.
        missing: Ranks with a dump that have not launched it.
        unknown: Ranks without a dump.
    """

    group: ProcessGroup
    number: int
    is_p2p: bool
    calls: dict[int, Operation]
    missing: tuple[int, ...]
    unknown: tuple[int, ...]

    @property
    def waiting(self) -> list[int]:
        """Ranks that have launched it and not completed it."""
        return sorted(rank for rank, call in self.calls.items() if call.state != "completed")

    @property
    def since_ns(self) -> int:
        """When the first of them launched it, UTC ns."""
        return min(self.calls[rank].created_ns for rank in self.waiting)

    @property
    def first(self) -> Operation:
        """The call of the lowest rank that waits in it."""
        return self.calls[self.waiting[0]]

    def differing(self) -> list[int]:
        """Ranks that launched another call than most under this number, or of another size.

        Both ranks of a message whose sizes differ: neither is right by its number.
        """
        if self.is_p2p:
            sizes = {call.buffer_bytes(2) for call in self.calls.values()} - {0}
            return sorted(self.calls) if len(sizes) > 1 else []
        kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for rank, call in self.calls.items():
            kinds[_kind(call)].append(rank)
        usual = max(kinds.values(), key=lambda ranks: (len(ranks), -ranks[0]))
        return sorted(set(self.calls) - set(usual))


@dataclass(frozen=True)
class LaunchOrder:
    """Two collectives that a rank launched one after the other.

    Attributes:
        rank: The rank.
        first: The one that it launched first.
        second: The other one.
    """

    rank: int
    first: OpenCollective
    second: OpenCollective


@dataclass(frozen=True)
class Hang:
    """The collective that holds up the others.

    Attributes:
        stop: Why it does not complete.
        collective: The collective.
        ranks: Ranks that hold it up: who has not entered, left no dump, launched something else, or
            has not begun; those in the circle; all members if all are in it.
        others: Number of other collectives that are not complete.
        orders: Orders that contradict each other, if they hold it up.
        last: Last operation that each rank launched, where there is one.
    """

    stop: Stop
    collective: OpenCollective
    ranks: tuple[int, ...]
    others: int
    orders: tuple[LaunchOrder, ...]
    last: dict[int, Operation]


def find_hang(dumps: Mapping[int, RankDump]) -> Hang | None:
    """Who holds up the collectives that dumps show as not completed; None if all are complete.

    Args:
        dumps: The dumps by rank.
    """
    queues = [queue for queue in _incomplete(dumps) if queue]
    if not queues:
        return None
    stuck = sorted(
        (queue[0] for queue in queues),
        key=lambda each: (each.since_ns, each.group.label, each.number),
    )
    orders = _contradicting_orders(dumps, [each for queue in queues for each in queue])
    stop, first, ranks = _holds_up(stuck, orders)
    last = {rank: dumps[rank].operations[-1] for rank in dumps if _has_operations(dumps, rank)}
    return Hang(stop, first, tuple(ranks), len(stuck) - 1, orders if stop == "circle" else (), last)


def _has_operations(dumps: Mapping[int, RankDump], rank: int) -> bool:
    return rank in dumps and bool(dumps[rank].operations)


def _holds_up(
    stuck: list[OpenCollective], orders: tuple[LaunchOrder, ...]
) -> tuple[Stop, OpenCollective, list[int]]:
    """Why, which collective, and which ranks: what explains the others comes first."""
    waits = {rank for each in stuck for rank in each.waiting}
    for each in stuck:
        if differing := each.differing():
            return "different-calls", each, differing
    for each in stuck:
        if idle := sorted(set(each.missing) - waits):
            return "not-entered", each, idle
    if orders:
        return "circle", orders[0].first, sorted({order.rank for order in orders})
    for each in stuck:
        if each.unknown:
            return "no-dump", each, list(each.unknown)
    for each in stuck:
        if not each.missing:
            return _within(each)
    return "circle", stuck[0], sorted(waits)


def _within(stuck: OpenCollective) -> tuple[Stop, OpenCollective, list[int]]:
    """Why a collective that all have entered does not complete, and which ranks."""
    waiting = stuck.waiting
    # The root of a broadcast completes before the others: it alone does not accuse them.
    if 2 * len(waiting) <= len(stuck.calls):
        return "not-completed", stuck, waiting
    late = [rank for rank in waiting if stuck.calls[rank].state != "started"]
    if 0 < len(late) < len(waiting):
        return "not-started", stuck, late
    return "within", stuck, sorted(stuck.calls)


def _contradicting_orders(
    dumps: Mapping[int, RankDump], incomplete: list[OpenCollective]
) -> tuple[LaunchOrder, ...]:
    """A circle of collectives that ranks launched in different orders; empty without any.

    An accelerator begins what was launched first, so each waits for the other. What began or
    completed on all of its ranks is not held up by that, and what one launch has (a group of sends
    and receives) has no order.
    """
    held = [
        each
        for each in incomplete
        if not each.missing
        and not each.unknown
        and all(call.state != "completed" for call in each.calls.values())
        and any(call.state == "scheduled" for call in each.calls.values())
    ]
    number = {id(call): k for k, each in enumerate(held) for call in each.calls.values()}
    order = TopologicalSorter[_Node]()
    for rank, dump in dumps.items():
        previous: list[int] = []
        for launch, calls in _launches(dump.operations):
            nodes = [number[id(call)] for call in calls if id(call) in number]
            if nodes:
                order.add((rank, launch), *previous)
                for node in nodes:
                    order.add(node, (rank, launch))
                previous = nodes
    try:
        order.prepare()
    except CycleError as error:
        return _changes_of_rank(error.args[1][:-1], held)
    return ()


def _launches(operations: Sequence[Operation]) -> Iterable[tuple[object, Iterable[Operation]]]:
    """Operations of each launch, with what identifies it: most launches have one."""
    grouped = {call.launch for call in operations if call.name == "coalesced"}
    return groupby(operations, lambda call: call.launch if call.launch in grouped else id(call))


_Node = int | tuple[int, object]
"""Number of a collective, or a rank and what identifies its launch."""


def _changes_of_rank(circle: list[_Node], held: list[OpenCollective]) -> tuple[LaunchOrder, ...]:
    """The orders that make up a circle, each of another rank than the one before.

    Args:
        circle: Collectives and, between each two, the rank that launched them in this order.
        held: The collectives.
    """
    at = next(k for k, node in enumerate(circle) if isinstance(node, int))
    turned = [*circle[at:], *circle[:at]]
    numbers = [node for node in turned if isinstance(node, int)]
    ranks = [node[0] for node in turned if not isinstance(node, int)]
    starts = [k for k in range(len(ranks)) if ranks[k] != ranks[k - 1]]
    return tuple(
        LaunchOrder(ranks[start], held[numbers[start]], held[numbers[end]])
        for start, end in zip(starts, [*starts[1:], starts[0]], strict=True)
    )


def _incomplete(dumps: Mapping[int, RankDump]) -> Iterable[list[OpenCollective]]:
    """The incomplete collectives of each group, and messages of each pair, in their order."""
    groups = {
        (group.name, group.members): group
        for dump in dumps.values()
        for group in dump.groups.values()
    }
    for group in groups.values():
        calls = _by_number(dumps, group)
        entered = _entered(dumps, group, calls)
        recorded = [rank for rank in group.members if rank in dumps]
        unknown = tuple(rank for rank in group.members if rank not in dumps)
        yield [
            OpenCollective(
                group,
                number,
                False,
                calls[number],
                tuple(rank for rank in recorded if entered[rank] < number),
                unknown,
            )
            for number in sorted(calls)
            if any(call.state != "completed" for call in calls[number].values())
        ]
        yield from _incomplete_messages(dumps, group)


def _by_number(
    dumps: Mapping[int, RankDump], group: ProcessGroup
) -> dict[int, dict[int, Operation]]:
    """What each rank launched as a collective under each number; the last of a launch counts."""
    out: dict[int, dict[int, Operation]] = defaultdict(dict)
    for rank, dump in dumps.items():
        if dump.groups.get(group.name) == group:
            for call in dump.operations:
                if call.group == group.name and not call.is_p2p:
                    out[call.number][rank] = call
    return out


def _entered(
    dumps: Mapping[int, RankDump], group: ProcessGroup, calls: Mapping[int, Mapping[int, Operation]]
) -> dict[int, int]:
    """Number of the last collective that each rank has launched; -1 if none is known."""
    out = {rank: dump.enqueued.get(group.name, -1) for rank, dump in dumps.items()}
    for number, of_rank in calls.items():
        for rank in of_rank:
            out[rank] = max(out[rank], number)
    return out


def _incomplete_messages(
    dumps: Mapping[int, RankDump], group: ProcessGroup
) -> Iterable[list[OpenCollective]]:
    """The sends and receives between each two ranks that are not complete."""
    sides: dict[tuple[int, int], dict[int, list[Operation]]] = defaultdict(dict)
    for rank, dump in dumps.items():
        if dump.groups.get(group.name) != group:
            continue
        for call in dump.operations:
            if call.group == group.name and call.ends and max(call.ends) < len(group.members):
                ends = group.members[call.ends[0]], group.members[call.ends[1]]
                sides[ends].setdefault(rank, []).append(call)
    for (src, dst), of_rank in sides.items():
        counts_all = not any(dumps[rank].lost for rank in of_rank)
        turns = {rank: _by_turn(calls, counts_all) for rank, calls in of_rank.items()}
        pair = ProcessGroup(group.name, group.label, (src, dst))
        queue = []
        for turn in sorted({turn for calls in turns.values() for turn in calls}):
            stuck = {rank: calls[turn] for rank, calls in turns.items() if turn in calls}
            if all(call.state == "completed" for call in stuck.values()):
                continue
            absent = {src, dst} - stuck.keys()
            queue.append(
                OpenCollective(
                    pair,
                    next(iter(stuck.values())).number,
                    True,
                    stuck,
                    tuple(sorted(absent & dumps.keys())),
                    tuple(sorted(absent - dumps.keys())),
                )
            )
        yield queue


def _by_turn(calls: Sequence[Operation], counts_all: bool) -> dict[int, Operation]:
    """Sends or receives by a number that both ranks count alike.

    The k-th send meets the k-th receive. Where older ones were overwritten (not ``counts_all``),
    the first that is not complete on each side meet.
    """
    first = 0
    if not counts_all:
        first = next((k for k, call in enumerate(calls) if call.state != "completed"), len(calls))
    return {k - first: call for k, call in enumerate(calls) if k >= first}


def _kind(call: Operation) -> tuple[object, ...]:
    """What all members launch alike; parts of exchanges may have any sizes."""
    if call.name == "coalesced" or "all_to_all" in call.name:
        return (call.name,)
    return call.name, call.element_bytes, call.into if "reduce" in call.name else call.out
