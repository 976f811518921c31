"""Transposition of a distributed matrix: all-to-all within the rows of a process grid."""

from __future__ import annotations

from math import prod
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from tailback.errors import InvalidValueError
from tailback.scenario.quantities import SizeBytes, TimePs
from tailback.traffic.patterns.alltoall import exchange_all
from tailback.traffic.patterns.columns import Slots
from tailback.traffic.patterns.halo import MAX_RANKS
from tailback.traffic.patterns.pattern import PATTERNS, Pattern
from tailback.traffic.program import Program


@PATTERNS.register("transpose")
class Transpose(Pattern):
    """MPI_Alltoall within each row of a 2-D process grid, as a parallel FFT transposes."""

    dims: list[int] = Field(description="ranks along x and y: dims = [16, 8]")
    size: SizeBytes = Field(description='block for each peer: size = "16 KiB"')
    axis: Literal["x", "y"] = Field(default="x", description="x: within rows, y: within columns")
    rounds: int = Field(default=1, ge=1)
    compute: TimePs = Field(default=0, description="computation before each round")

    @field_validator("dims")
    @classmethod
    def _extents(cls, value: list[int]) -> list[int]:
        if len(value) != 2 or any(extent < 1 for extent in value):
            raise InvalidValueError(
                f"{value!r} is not 2 positive extents", "give one number per axis"
            )
        if prod(value) > MAX_RANKS:
            raise InvalidValueError(
                f"{value!r} has more than {MAX_RANKS} ranks", "make the grid smaller"
            )
        return value

    def own_ranks(self) -> int:
        """Product of the extents."""
        return prod(self.dims)

    def repetitions(self) -> int:
        """The ``rounds`` option."""
        return self.rounds

    def program(self, n_ranks: int, seed: int) -> Program:
        """Nothing is random."""
        slots = Slots(f"transpose {self.dims[0]}x{self.dims[1]}", n_ranks, tuple(self.dims))
        rank = np.arange(n_ranks)
        x, y = rank % self.dims[0], rank // self.dims[0]
        rows = self.axis == "x"
        members, stride = (self.dims[0], 1) if rows else (self.dims[1], self.dims[0])
        position, first = (x, y * self.dims[0]) if rows else (y, x)
        name = "rows" if rows else "columns"
        for _ in range(self.rounds):
            slots.compute(self.compute)
            exchange_all(slots, members, position, first, stride, self.size, name)
        return slots.build()
