"""Calls of single ranks, and the collectives whose members recorded them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tailback.io.delimited import NotUsed
from tailback.traffic.nccl.choice import Choice
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
