"""Two-dimensional Fourier transforms of the planes of a volume, as in pF3D."""

from __future__ import annotations

from math import prod

import numpy as np
from pydantic import Field, field_validator

from tailback.errors import InvalidValueError
from tailback.scenario.quantities import SizeBytes, TimePs
from tailback.traffic.patterns.alltoall import exchange_all
from tailback.traffic.patterns.columns import Slots
from tailback.traffic.patterns.halo import MAX_RANKS
from tailback.traffic.patterns.pattern import PATTERNS, Pattern
from tailback.traffic.program import Program


@PATTERNS.register("fft2d")
class Fft2d(Pattern):
    """2-D Fourier transforms in x-y planes: all-to-all in rows and in columns of each plane.

    A transform gathers the lines along x (MPI_Alltoall within each row of ranks), transforms them,
    and sends the cells back; then the same along y within each column. Planes do not communicate
    with each other. Most of pF3D's communication is of this kind; the SC'19 talk's case has planes
    of 144 ranks.
    """

    plane: list[int] = Field(description="ranks of a plane along x and y: plane = [12, 12]")
    planes: int = Field(default=1, ge=1, description="planes; rank = x + X·(y + Y·plane)")
    size: SizeBytes = Field(description='block for each peer: size = "16 KiB"')
    rounds: int = Field(default=1, ge=1, description="transforms, one after the other")
    compute: TimePs = Field(default=0, description="computation before each all-to-all")

    @field_validator("plane")
    @classmethod
    def _extents(cls, value: list[int]) -> list[int]:
        if len(value) != 2 or any(extent < 1 for extent in value):
            raise InvalidValueError(
                f"{value!r} is not 2 positive extents", "give one number per axis"
            )
        return value

    @field_validator("planes")
    @classmethod
    def _not_too_many(cls, value: int) -> int:
        if value > MAX_RANKS:
            raise InvalidValueError(f"{value} planes are more than {MAX_RANKS}", "give fewer")
        return value

    def own_ranks(self) -> int:
        """Ranks of a plane times planes."""
        return prod(self.plane) * self.planes

    def repetitions(self) -> int:
        """The ``rounds`` option."""
        return self.rounds

    def program(self, n_ranks: int, seed: int) -> Program:
        """Nothing is random."""
        nx, ny = self.plane
        slots = Slots(f"fft2d {nx}x{ny} x {self.planes}", n_ranks, (nx, ny, self.planes))
        rank = np.arange(n_ranks)
        x, y = rank % nx, rank // nx % ny
        axes = (("rows", nx, x, 1), ("columns", ny, y, nx))
        for _ in range(self.rounds):
            for name, members, position, stride in axes:
                for _ in range(2 if members > 1 else 0):  # there and back
                    slots.compute(self.compute)
                    first = rank - position * stride
                    exchange_all(slots, members, position, first, stride, self.size, name)
        return slots.build()
