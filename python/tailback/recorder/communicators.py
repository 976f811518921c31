"""One number per communicator, from the numbers its members use for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from tailback.recorder.rank_files import RankComm, RankRecord


@dataclass
class RecordedCommunicator:
    """A communicator of the program.

    Attributes:
        label: What the program calls it.
        members: World ranks of its group; of an intercommunicator, of the first one.
        remote: World ranks of the other group of an intercommunicator, else None.
        of_self: Whether it is an MPI_COMM_SELF.
    """

    label: str
    members: list[int]
    remote: list[int] | None = None
    of_self: bool = False


def unite(ranks: list[RankRecord]) -> tuple[list[RecordedCommunicator], list[dict[int, int]], int]:
    """Find which communicators of different ranks are the same.

    Args:
        ranks: What each rank left.

    Returns:
        The communicators, MPI_COMM_WORLD first; the number of each by rank and the rank's own
        number, without those nobody tells the members of; how many of the latter there are.
    """
    world = RecordedCommunicator("MPI_COMM_WORLD", list(range(len(ranks))))
    out = [world]
    numbers: dict[Hashable, int] = {("world",): 0}
    keys: list[dict[int, Hashable]] = []
    of_key: dict[Hashable, RankComm] = {}
    for record in ranks:
        met: Counter[Hashable] = Counter()
        mine: dict[int, Hashable] = {}
        for number, comm in record.comms.items():
            key: Hashable
            if comm.kind == "met":
                groups = tuple(sorted(tuple(group) for group in comm.members))
                key = ("met", groups, met[groups])
                met[groups] += 1
            elif comm.kind == "world":
                key = ("world",)
            elif comm.kind == "self":
                key = ("self",)
            else:
                key = (comm.kind, comm.name)
            mine[number] = key
            if comm.members[0] and key not in of_key:
                of_key[key] = comm
        keys.append(mine)
    unknown = 0
    for key in dict.fromkeys(key for mine in keys for key in mine.values()):
        if key == ("world",):
            continue
        first = of_key.get(key)
        if first is None or any(rank < 0 for group in first.members for rank in group):
            unknown += 1
            continue
        numbers[key] = len(out)
        of_self = key == ("self",)
        label = "MPI_COMM_SELF" if of_self else first.label or f"communicator {len(out)}"
        local, remote = first.members
        out.append(RecordedCommunicator(label, local, remote if first.inter else None, of_self))
    maps = [
        {number: numbers[key] for number, key in mine.items() if key in numbers} for mine in keys
    ]
    return out, maps, unknown
