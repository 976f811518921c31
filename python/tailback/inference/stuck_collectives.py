"""Who holds up collectives that do not complete, from dumps that show how far each rank came.

A rank that has not entered a collective holds up its members, unless it waits in another collective
itself: then that one is followed. What is found is a rank that waits for nobody, ranks that wait
for each other in a circle, ranks that enter different collectives under one number, or a collective
that all ranks have entered, which the network or the accelerators hold up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tailback.traffic.readers.flight_recorder.dump import Operation, ProcessGroup, RankDump

Stop = Literal["not-entered", "no-dump", "different-calls", "circle", "not-started", "within"]
"""Why it does not complete.

- ``not-entered``: ranks that wait for nobody have not entered it;
- ``no-dump``: the only members that are not in it left no dump;
- ``different-calls``: members enter different collectives under its number;
- ``circle``: its members wait in it for others, which wait for them in another one;
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
        """Ranks that launched another call than most under this number, or of another size."""
        kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for rank, call in self.calls.items():
            kinds[_kind(call)].append(rank)
        usual = max(kinds.values(), key=lambda ranks: (len(ranks), -ranks[0]))
        return sorted(set(self.calls) - set(usual))


@dataclass(frozen=True)
class Hang:
    """The collective that holds up the others.

    Attributes:
        stop: Why it does not complete.
        collective: The collective.
        ranks: Ranks that hold it up: who has not entered, left no dump, launched something else, or
            has not begun; those in the circle; all members if all are in it.
        others: Number of other collectives that are not complete.
        last: Last operation that each of these ranks launched, where there is one.
    """

    stop: Stop
    collective: OpenCollective
    ranks: tuple[int, ...]
    others: int
    last: dict[int, Operation]


def find_hang(dumps: Mapping[int, RankDump]) -> Hang | None:
    """Who holds up the collectives that dumps show as not completed; None if all are complete.

    Args:
        dumps: The dumps by rank.
    """
    stuck = sorted(_open(dumps), key=lambda each: (each.since_ns, each.group.label, each.number))
    if not stuck:
        return None
    waits_in = {rank for each in stuck for rank in each.waiting}
    stop, first, ranks = _holds_up(stuck, waits_in)
    last = {rank: dumps[rank].operations[-1] for rank in ranks if _has_operations(dumps, rank)}
    return Hang(stop, first, tuple(ranks), len(stuck) - 1, last)


def _has_operations(dumps: Mapping[int, RankDump], rank: int) -> bool:
    return rank in dumps and bool(dumps[rank].operations)


def _holds_up(
    stuck: list[OpenCollective], waits: set[int]
) -> tuple[Stop, OpenCollective, list[int]]:
    """Why, which collective, and which ranks: what explains the others comes first."""
    for each in stuck:
        if differing := each.differing():
            return "different-calls", each, differing
    for each in stuck:
        if idle := sorted(set(each.missing) - waits):
            return "not-entered", each, idle
    for each in stuck:
        if each.unknown:
            return "no-dump", each, list(each.unknown)
    for each in stuck:
        if not each.missing:
            begun = [rank for rank in each.waiting if each.calls[rank].state == "started"]
            late = sorted(set(each.waiting) - set(begun))
            if begun and late:
                return "not-started", each, late
            return "within", each, sorted(each.calls)
    return "circle", stuck[0], sorted(waits)


def _open(dumps: Mapping[int, RankDump]) -> Iterable[OpenCollective]:
    """The first incomplete collective of each group, and send or receive of each pair."""
    groups = {
        (group.name, group.members): group
        for dump in dumps.values()
        for group in dump.groups.values()
    }
    for group in groups.values():
        calls = _by_number(dumps, group)
        entered = _entered(dumps, group, calls)
        incomplete = [
            number
            for number, of_rank in calls.items()
            if any(call.state != "completed" for call in of_rank.values())
        ]
        if incomplete:
            number = min(incomplete)
            recorded = [rank for rank in group.members if rank in dumps]
            yield OpenCollective(
                group,
                number,
                False,
                calls[number],
                tuple(rank for rank in recorded if entered[rank] < number),
                tuple(rank for rank in group.members if rank not in dumps),
            )
        yield from _open_pairs(dumps, group)


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


def _open_pairs(dumps: Mapping[int, RankDump], group: ProcessGroup) -> Iterable[OpenCollective]:
    """The first send or receive between each two ranks that is not complete."""
    sides: dict[tuple[int, int], dict[int, list[Operation]]] = defaultdict(dict)
    for rank, dump in dumps.items():
        if dump.groups.get(group.name) != group:
            continue
        for call in dump.operations:
            if call.group == group.name and call.ends and max(call.ends) < len(group.members):
                ends = group.members[call.ends[0]], group.members[call.ends[1]]
                sides[ends].setdefault(rank, []).append(call)
    for (src, dst), of_rank in sides.items():
        turns = {
            rank: next((k for k, call in enumerate(calls) if call.state != "completed"), None)
            for rank, calls in of_rank.items()
        }
        first = min((turn for turn in turns.values() if turn is not None), default=None)
        if first is None:
            continue
        stuck = {rank: calls[first] for rank, calls in of_rank.items() if len(calls) > first}
        other = {src, dst} - stuck.keys()
        yield OpenCollective(
            ProcessGroup(group.name, group.label, (src, dst)),
            next(iter(stuck.values())).number,
            True,
            stuck,
            tuple(sorted(other & dumps.keys())),
            tuple(sorted(other - dumps.keys())),
        )


def _kind(call: Operation) -> tuple[object, ...]:
    """What all members launch alike; parts of exchanges may have any sizes."""
    if call.is_p2p or call.name == "coalesced" or "all_to_all" in call.name:
        return (call.name if not call.is_p2p else "",)
    return call.name, call.element_bytes, call.into if "reduce" in call.name else call.out
