"""Communicators of SST DUMPI: numbers within each rank, joined over all ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Key = tuple[Any, ...]
"""A communicator: how it was made, alike on all its members; ``("world",)`` is the first."""

_NULL, _WORLD, _SELF = 1, 2, 3
_WORLD_KEY: Key = ("world",)


@dataclass
class Communicators:
    """The communicators that one rank knows, by its own numbers.

    The k-th communicator that the members of one make is the same for all of them, for making one
    is collective.
    """

    rank: int
    n_ranks: int
    joined: dict[Key, list[tuple[int, int, int]]] = field(default_factory=dict)
    _keys: dict[int, Key] = field(default_factory=dict)
    _made: Counter[Key] = field(default_factory=Counter)
    _groups: dict[int, tuple[Key, list[int] | None]] = field(default_factory=dict)
    _grids: dict[Key, list[int]] = field(default_factory=dict)

    @staticmethod
    def world(n_ranks: int) -> Communicators:
        """The communicator of all ranks."""
        return Communicators(0, n_ranks, {_WORLD_KEY: [(0, r, r) for r in range(n_ranks)]})

    def of_rank(self, rank: int) -> Communicators:
        """Those of a rank, which join those of the others."""
        self.joined[("self", rank)] = [(0, 0, rank)]
        keys = {_WORLD: _WORLD_KEY, _SELF: ("self", rank)}
        return Communicators(rank, self.n_ranks, self.joined, keys)

    def key(self, number: int) -> Key:
        """The communicator of this number; raises ValueError for one that was not made."""
        if number not in self._keys:
            raise ValueError(f"communicator {number} was not made before")
        return self._keys[number]

    def members(self) -> dict[Key, list[int]]:
        """World ranks of the members of every communicator, in the order of their ranks."""
        return {key: [world for *_, world in sorted(rows)] for key, rows in self.joined.items()}

    def note(self, name: str, given: dict[str, Any]) -> None:
        """Follow a call that makes or ends a communicator or group; others are ignored."""
        old, new = given.get("oldcomm", given.get("comm")), given.get("newcomm")
        if name == "MPI_Comm_split":
            self._make(old, new, (given["color"],), given["key"])
        elif name == "MPI_Comm_dup":
            self._make(old, new, ())
        elif name == "MPI_Cart_create":
            self._make(old, new, ())
            if new is not None and new != _NULL:
                self._grids[self._keys[new]] = list(given["dims"])
        elif name == "MPI_Cart_sub":
            self._part_of_grid(old, new, given["remain_dims"])
        elif name == "MPI_Comm_create":
            _, ranks = self._groups.get(given["group"], ((), None))
            unknown = ("unknown", self.rank, given["group"])
            self._make(old, new, unknown if ranks is None else (tuple(ranks),), ranks=ranks)
        elif name == "MPI_Comm_group" and old is not None:
            self._groups[given["group"]] = (self.key(old), None)
        elif name in ("MPI_Group_incl", "MPI_Group_excl"):
            self._group(given, name == "MPI_Group_incl")

    def _make(
        self, old: int | None, new: int | None, how: Key, order: int = 0,
        ranks: list[int] | None = None,
    ) -> None:  # fmt: skip
        if old is None or new is None:
            raise ValueError("the communicator is not recorded")
        parent = self.key(old)
        key = (*parent, f"{self._made[parent]}", *(map(str, how)))
        self._made[parent] += 1
        if new == _NULL:
            return
        self._keys[new] = key
        if how[:1] == ("unknown",):
            return
        place = self._within(parent) if ranks is None else ranks.index(self.rank)
        self.joined.setdefault(key, []).append((order, place, self.rank))

    def _within(self, key: Key) -> int:
        """This rank's number in a communicator, or one that grows with it."""
        for _, place, world in self.joined.get(key, ()):
            if world == self.rank:
                return place
        return self.rank

    def _group(self, given: dict[str, Any], included: bool) -> None:
        parent, ranks = self._groups.get(given["group"], ((), None))
        if not parent:
            return
        if ranks is None:
            ranks = list(range(self.n_ranks)) if parent == _WORLD_KEY else None
        if ranks is None:
            return
        named = [ranks[one] for one in given["ranks"]]
        left = named if included else [one for one in ranks if one not in set(named)]
        self._groups[given["newgroup"]] = (parent, left)

    def _part_of_grid(self, old: int | None, new: int | None, remain: list[int]) -> None:
        """Ranks of one line or plane of a grid: those whose other coordinates are alike."""
        dims = self._grids.get(self.key(old or 0), [])
        if len(dims) != len(remain):
            raise ValueError("the grid is not recorded")
        left = self._within(self.key(old or 0))
        coordinates = []
        for extent in reversed(dims):
            coordinates.append(left % max(extent, 1))
            left //= max(extent, 1)
        fixed = [str(c) for c, keep in zip(reversed(coordinates), remain, strict=True) if not keep]
        self._make(old, new, ("-".join(fixed),))
        if new is not None and new != _NULL:
            self._grids[self._keys[new]] = [
                extent for extent, keep in zip(dims, remain, strict=True) if keep
            ]
