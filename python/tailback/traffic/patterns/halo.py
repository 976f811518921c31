"""Exchange of boundary values with the neighbours of a Cartesian grid, in any dimension."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from tailback.errors import InvalidValueError, ScenarioError
from tailback.scenario.quantities import SizeBytes, TimePs
from tailback.traffic.patterns.columns import Slots
from tailback.traffic.patterns.pattern import PLACE, LineRatePattern
from tailback.traffic.patterns.streams import call_of
from tailback.traffic.program import Label, Program
from tailback.units import transfer_ps

AXES = "xyz"
FIRST_TAG = 101
MAX_RANKS = 2**24


def transfer_time_ps(size: int, gbps: float) -> int:
    """Time of ``size`` bytes at line rate, picoseconds.

    Raises:
        ScenarioError: It exceeds the largest time that can be represented.
    """
    try:
        return transfer_ps(size, gbps)
    except InvalidValueError as error:
        place = f"{PLACE} line_rate"
        raise ScenarioError(error.message, place=place, remedy=error.remedy) from None


class Halo(LineRatePattern):
    """Options of the stencils; ``order`` names directions such as ``"+x"``."""

    N_AXES: ClassVar[int]
    """Number of axes of the grid."""

    dims: list[int] = Field(description="ranks along each axis, x first: dims = [64, 72]")
    size: SizeBytes = Field(default=131072, description="bytes of one message")
    sizes: list[SizeBytes] | None = Field(default=None, description="one size per axis instead")
    rounds: int = Field(default=1, ge=1)
    periodic: bool = Field(default=False, description="the grid closes on itself")
    compute: TimePs = Field(default=0, description="computation before each round")
    boundary: Literal["wait", "skip"] = "wait"
    post: Literal["sequence", "delivered", "acknowledged", "all", "timed"] = Field(
        default="sequence",
        description="sequence: next direction once the last byte has left; delivered: once it has "
        "arrived; acknowledged: once the acknowledgement is back; all: at once; "
        "timed: one direction per transfer time, whether the last send is complete or not",
    )
    order: list[str] = Field(default=[], description="directions in the order they are sent")

    @field_validator("dims")
    @classmethod
    def _extents(cls, value: list[int]) -> list[int]:
        axes = cls.N_AXES
        if len(value) != axes or any(extent < 1 for extent in value):
            raise InvalidValueError(
                f"{value!r} is not {axes} positive extents", "give one number per axis"
            )
        if prod(value) > MAX_RANKS:
            raise InvalidValueError(
                f"{value!r} has more than {MAX_RANKS} ranks", "make the grid smaller"
            )
        return value

    @field_validator("sizes")
    @classmethod
    def _one_size_per_axis(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and len(value) != cls.N_AXES:
            raise InvalidValueError(
                f"{len(value)} sizes for {cls.N_AXES} axes", "give one per axis"
            )
        return value

    @field_validator("order")
    @classmethod
    def _known_directions(cls, value: list[str]) -> list[str]:
        valid = cls.directions()
        for direction in value:
            if direction not in valid:
                raise InvalidValueError(
                    f"unknown direction {direction!r}", f"use {', '.join(valid)}"
                )
        if len(set(value)) != len(value):
            raise InvalidValueError(f"{value!r} names a direction twice", "name each once")
        return value

    @classmethod
    def directions(cls) -> list[str]:
        """All directions in their default order; their tags count up from 101."""
        return [sign + axis for axis in AXES[: cls.N_AXES] for sign in "+-"]

    def own_ranks(self) -> int:
        """Product of the extents."""
        return prod(self.dims)

    def repetitions(self) -> int:
        """The ``rounds`` option."""
        return self.rounds

    def program(self, n_ranks: int, seed: int) -> Program:
        """Rounds of exchanges; nothing is random."""
        name = f"{self.kind} {'x'.join(map(str, self.dims))}"
        slots = Slots(name, n_ranks, tuple(self.dims))
        exchanges = [self._exchange(slots, d) for d in self.order or self.directions()]
        for _ in range(self.rounds):
            slots.compute(self.compute)
            for exchange in exchanges:
                exchange.receive(slots)
            for exchange in exchanges:
                exchange.send(slots, self, last=exchange is exchanges[-1])
            slots.waitall()
        return slots.build()

    def _exchange(self, slots: Slots, direction: str) -> HaloExchange:
        axis = AXES.index(direction[1])
        step = 1 if direction[0] == "+" else -1
        tag = FIRST_TAG + self.directions().index(direction)
        call = call_of(self.post)
        to, sends = self._neighbour(axis, step)
        source, receives = self._neighbour(axis, -step)
        return HaloExchange(
            to,
            sends,
            source,
            receives,
            size=self.sizes[axis] if self.sizes else self.size,
            tag=tag,
            label=slots.label(Label(direction, call, tag)),
        )

    def _neighbour(self, axis: int, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Neighbour of every rank, and whether it has one; an axis of extent 1 has none."""
        extent, stride = self.dims[axis], prod(self.dims[:axis])
        rank = np.arange(prod(self.dims))
        at = rank // stride % extent
        moved = (at + step) % extent
        inside = np.full(len(rank), extent > 1)
        if not self.periodic:
            inside &= moved == at + step
        return rank + (moved - at) * stride, inside


class HaloExchange:
    """One direction: who sends to whom, who receives from whom, and who has no neighbour."""

    def __init__(
        self,
        to: NDArray[np.int64],
        sends: NDArray[np.bool_],
        source: NDArray[np.int64],
        receives: NDArray[np.bool_],
        *,
        size: int,
        tag: int,
        label: int,
    ) -> None:
        self.to, self.sends = to, sends
        self.source, self.receives = source, receives
        self.size, self.tag, self.label = size, tag, label

    def receive(self, slots: Slots) -> None:
        """Post the receives of this direction."""
        slots.irecv(self.source, self.size, self.tag, self.label, self.receives)

    def send(self, slots: Slots, options: Halo, *, last: bool) -> None:
        """Post the sends; ranks at the edge wait for the time of one message, or continue."""
        posts = {"delivered": slots.issend, "acknowledged": slots.acknowledged_send}
        post = posts.get(options.post, slots.isend)
        post(self.to, self.size, self.tag, self.label, self.sends)
        if options.post in ("sequence", "delivered", "acknowledged"):
            slots.wait_last(self.sends)
        waits = ~self.sends
        if options.post == "timed":
            waits = np.full(len(self.sends), not last)
        elif options.boundary == "skip":
            return
        if waits.any():
            slots.compute(transfer_time_ps(self.size, options.line_gbps), waits)
