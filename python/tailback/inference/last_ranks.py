"""Which ranks begin collectives last, from dumps in which all collectives are complete.

The members of a collective end it together. By the clock of each accelerator the last to begin
takes least, and what another one takes longer it waits. Without these durations the times at which
hosts launched it tell who was last, as far as the clocks of the hosts agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailback.traffic.readers.flight_recorder.dump import Operation, RankDump


@dataclass(frozen=True)
class LastRank:
    """A rank that was the last to begin collectives.

    Attributes:
        rank: The rank.
        collectives: How many it began last.
        waited_ns: Time that the others waited in these, summed over ranks.
    """

    rank: int
    collectives: int
    waited_ns: int


@dataclass(frozen=True)
class Starts:
    """Who begins collectives last.

    Attributes:
        collectives: Collectives of two or more ranks that all have a dump.
        has_durations: Whether the durations of accelerators tell it; else the launches of hosts.
        spent_ns: Time in these collectives, summed over ranks; 0 without durations.
        last: Ranks that were last, by the time that others waited for them.
    """

    collectives: int
    has_durations: bool
    spent_ns: int
    last: tuple[LastRank, ...]


def find_last_ranks(dumps: Mapping[int, RankDump]) -> Starts:
    """Who begins the complete collectives of dumps last.

    Args:
        dumps: The dumps by rank.
    """
    sides = list(_sides(dumps))
    has_durations = bool(sides) and all(
        call.duration_ns for side in sides for call in side.values()
    )
    counts: dict[int, int] = defaultdict(int)
    waited: dict[int, int] = defaultdict(int)
    for side in sides:
        begun = {
            rank: -call.duration_ns if has_durations else call.created_ns
            for rank, call in side.items()
        }
        last = max(begun, key=lambda rank: (begun[rank], -rank))
        counts[last] += 1
        waited[last] += sum(begun[last] - at for at in begun.values())
    ranks = sorted(filter(waited.get, counts), key=lambda rank: (-waited[rank], rank))
    return Starts(
        len(sides),
        has_durations,
        sum(call.duration_ns for side in sides for call in side.values()) if has_durations else 0,
        tuple(LastRank(rank, counts[rank], waited[rank]) for rank in ranks),
    )


def _sides(dumps: Mapping[int, RankDump]) -> Iterable[dict[int, Operation]]:
    """The call of each member, of collectives that all members have completed."""
    groups = {group for dump in dumps.values() for group in dump.groups.values()}
    for group in sorted(groups, key=lambda group: (group.name, group.members)):
        if len(group.members) < 2 or not dumps.keys() >= set(group.members):
            continue
        calls: dict[int, dict[int, Operation]] = defaultdict(dict)
        for rank in group.members:
            for call in dumps[rank].operations:
                if call.group == group.name and not call.is_p2p and call.state == "completed":
                    calls[call.number][rank] = call
        yield from (side for side in calls.values() if len(side) == len(group.members))
