"""The communication of miniGhost, a 27-point stencil in three dimensions."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from tailback.errors import InvalidValueError
from tailback.scenario.quantities import TimePs
from tailback.traffic.collectives import CollectiveStep, schedule
from tailback.traffic.patterns.columns import Slots
from tailback.traffic.patterns.halo import MAX_RANKS
from tailback.traffic.patterns.pattern import PATTERNS, Pattern
from tailback.traffic.patterns.randomness import stream_key
from tailback.traffic.program import Label, Program

REAL_BYTES = 8
SUM = "MPI_Allreduce"
JITTER_BITS = 6

STAGES = (
    ("y", 1, ((1, 1000), (-1, 2000))),
    ("x", 0, ((1, 3000), (-1, 4000))),
    ("z", 2, ((-1, 5000), (1, 6000))),
)
"""The stages of a boundary exchange: phase, axis, and (step, tag) of each direction in the order
they are sent. North and south first, then east and west, then back and front: a later stage
forwards the ghost cells of the earlier ones, so six messages suffice for a 27-point stencil."""


@PATTERNS.register("minighost")
class MiniGhost(Pattern):
    """Exchange with the six face neighbours as miniGhost's 27-point stencil does it.

    A time step exchanges the y faces, then the x faces, then the z faces; a rank continues with the
    next axis when its own messages are complete, and a rank at the edge of the domain has fewer. A
    face of one variable is (n+2)·(m+2) reals of 8 bytes. ``bspma`` sends the faces of all variables
    as one message; ``svaf`` exchanges and computes one variable after the other. The structure is
    that of the public source (Mantevo miniGhost: DRIVER_BSPMA, DRIVER_SVAF, MG_BSPMA_DIAGS,
    MG_BUFINIT), the names of the two changes are those of the SC'19 talk.
    """

    dims: list[int] = Field(description="ranks along x, y and z: dims = [36, 32, 24]")
    cells: list[int] = Field(default=[100, 100, 100], description="cells of one rank along x, y, z")
    variables: int = Field(default=5, ge=1, le=40)
    method: Literal["bspma", "svaf"] = Field(
        default="bspma", description="all variables in one message, or one variable at a time"
    )
    sums: Literal["variable", "step", "none"] = Field(
        default="variable", description="global sum after each variable, each time step or never"
    )
    order: Literal["yxz", "yzx", "xyz", "xzy", "zxy", "zyx"] = Field(
        default="yxz", description="axes in the order they are exchanged"
    )
    wait: Literal["direction", "axis", "exchange"] = Field(
        default="axis",
        description="wait after each direction, after each axis, or once for the messages of all",
    )
    completion: Literal["local", "delivered"] = Field(
        default="local",
        description="a send is complete when its last byte has left, or has arrived (MPI_Ssend)",
    )
    steps: int = Field(default=1, ge=1, description="time steps")
    compute: TimePs = Field(default=0, description="computation of one variable in one time step")
    imbalance: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="each computation takes up to this share longer, at random",
    )

    @field_validator("dims", "cells")
    @classmethod
    def _extents(cls, value: list[int]) -> list[int]:
        if len(value) != 3 or any(extent < 1 for extent in value):
            raise InvalidValueError(
                f"{value!r} is not 3 positive extents", "give one number per axis"
            )
        if prod(value) > MAX_RANKS:
            raise InvalidValueError(f"{value!r} is more than {MAX_RANKS} in all", "make it smaller")
        return value

    def own_ranks(self) -> int:
        """Product of the extents."""
        return prod(self.dims)

    def repetitions(self) -> int:
        """The ``steps`` option."""
        return self.steps

    def program(self, n_ranks: int, seed: int) -> Program:
        """Time steps of exchanges, computation and sums; only the imbalance is random."""
        slots = Slots(f"minighost {'x'.join(map(str, self.dims))}", n_ranks, tuple(self.dims))
        sums = _Sum(slots) if self.sums != "none" else None
        bits = np.random.Generator(np.random.Philox(key=stream_key(seed, "minighost")))
        groups = 1 if self.method == "bspma" else self.variables
        drawn = list[int | None]()
        for _ in range(groups):
            self._exchange(slots, self.variables // groups)
            for _ in range(self.variables // groups):
                drawn += self._compute(slots, bits)
                if sums is not None and self.sums == "variable":
                    sums.add()
        if sums is not None and self.sums == "step":
            sums.add()
        in_step = slots.count
        # Other steps differ in their random computations only.
        masks = random_bits(bits, (self.steps - 1) * len(drawn), n_ranks)
        for step in range(self.steps - 1):
            first = slots.repeat(in_step)
            for place, mask in zip(drawn, masks[step * len(drawn) :], strict=False):
                if place is not None:
                    slots.restrict(first + place, mask)
        return slots.build()

    def face_bytes(self, axis: int, variables: int) -> int:
        """Bytes of a message along ``axis``: the face with its ghost cells, all ``variables``."""
        sides = [extent + 2 for i, extent in enumerate(self.cells) if i != axis]
        return REAL_BYTES * variables * prod(sides)

    def _exchange(self, slots: Slots, variables: int) -> None:
        """One boundary exchange: three stages, in each receives, sends, and a wait for both."""
        stages = {stage[0]: stage for stage in STAGES}
        send = slots.isend if self.completion == "local" else slots.issend
        for phase, axis, directions in (stages[name] for name in self.order):
            size = self.face_bytes(axis, variables)
            single = self.wait == "direction"
            for together in [[direction] for direction in directions] if single else [directions]:
                for step, tag in together:
                    peer, there = self._neighbour(axis, -step)
                    slots.irecv(peer, size, tag, self._label(slots, phase, tag), there)
                for step, tag in together:
                    peer, there = self._neighbour(axis, step)
                    send(peer, size, tag, self._label(slots, phase, tag), there)
                if self.wait != "exchange":
                    slots.waitall()
        if self.wait == "exchange":
            slots.waitall()

    def _compute(self, slots: Slots, bits: np.random.Generator) -> list[int | None]:
        """Computation of a variable; random binary digits make the excess uniform.

        Returns the slot of each digit, None for those too small to take time.
        """
        slots.compute(self.compute)
        longest = self.compute * self.imbalance
        out = list[int | None]()
        for digit in range(1, JITTER_BITS + 1):
            if longest:
                before = slots.count
                slots.compute(round(longest / 2**digit), random_bits(bits, 1, slots.n_ranks)[0])
                out.append(before if slots.count > before else None)
        return out

    def _neighbour(self, axis: int, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Neighbour of every rank, and whether it has one: the domain ends at its boundary."""
        stride = prod(self.dims[:axis])
        rank = np.arange(prod(self.dims))
        moved = rank // stride % self.dims[axis] + step
        return rank + step * stride, (moved >= 0) & (moved < self.dims[axis])

    @staticmethod
    def _label(slots: Slots, phase: str, tag: int) -> int:
        return slots.label(Label(phase, "MPI_Isend", tag))


def random_bits(bits: np.random.Generator, count: int, n_ranks: int) -> NDArray[np.bool_]:
    """``count`` times a binary digit of every rank, shape (count, R).

    They are the same as of ``count`` calls for one each: the generator cuts words of 32 bits into
    bytes, and a call leaves the rest of its last word unused.
    """
    padded = -(-n_ranks // 4) * 4
    return bits.integers(0, 2, (count, padded), np.int8)[:, :n_ranks].astype(np.bool_)


class _Sum:
    """The global sum of one real over all ranks, built once and added as often as needed."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.label = slots.label(Label("sum", SUM))
        rounds: dict[int, list[tuple[int, CollectiveStep]]] = defaultdict(list)
        for rank in range(slots.n_ranks):
            steps = schedule(SUM, slots.n_ranks, rank, 0, REAL_BYTES, REAL_BYTES)
            for number, step in enumerate(steps):
                rounds[number].append((rank, step))
        self.rounds = [self._columns(rounds[number]) for number in sorted(rounds)]

    def add(self) -> None:
        """Append one sum to every rank's program."""
        for receives, sends in self.rounds:
            for peer, size, present in receives:
                self.slots.irecv(peer, size, 0, self.label, present)
            for peer, size, present in sends:
                self.slots.isend(peer, size, 0, self.label, present)
            self.slots.waitall()

    def _columns(self, ranks: list[tuple[int, CollectiveStep]]) -> tuple[list[_Post], list[_Post]]:
        return self._posts([(r, s.receives) for r, s in ranks]), self._posts(
            [(r, s.sends) for r, s in ranks]
        )

    def _posts(self, ranks: list[tuple[int, tuple[tuple[int, int], ...]]]) -> list[_Post]:
        """The k-th message of every rank that has one, for each k and size."""
        out: dict[tuple[int, int], _Post] = {}
        for rank, messages in ranks:
            for place, (peer, size) in enumerate(messages):
                if (place, size) not in out:
                    empty = np.full(self.slots.n_ranks, -1, np.int64)
                    out[place, size] = (empty, size, np.zeros(self.slots.n_ranks, np.bool_))
                out[place, size][0][rank] = peer
                out[place, size][2][rank] = True
        return [out[key] for key in sorted(out)]


_Post = tuple[NDArray[np.int64], int, NDArray[np.bool_]]
