"""All-to-all exchange, of all ranks or of the rows of a grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tailback.scenario.quantities import SizeBytes, TimePs
from tailback.traffic.collectives import schedule
from tailback.traffic.patterns.columns import Slots
from tailback.traffic.patterns.pattern import PATTERNS, FreeSizePattern
from tailback.traffic.program import Label, Program

CALL = "MPI_Alltoall"


def exchange_all(
    slots: Slots,
    members: int,
    position: NDArray[np.int64],
    first: NDArray[np.int64],
    stride: int,
    block: int,
    communicator: str,
) -> None:
    """Add one MPI_Alltoall of every communicator at once.

    Every algorithm of it is symmetric under a shift of the ranks, so the schedule of rank 0 gives
    that of all.

    Args:
        slots: The program to add to.
        members: Ranks of each communicator.
        position: Local rank of each rank in its communicator, shape (R,).
        first: World rank of member 0 of each rank's communicator, shape (R,).
        stride: Difference in world rank between neighbouring members.
        block: Bytes for each peer.
        communicator: Name of the communicators.
    """
    label = slots.label(Label(CALL, CALL, communicator=communicator))
    for step in schedule(CALL, members, 0, 0, block, block):
        for offset, size in step.receives:
            slots.irecv(first + (position + offset) % members * stride, size, 0, label)
        for offset, size in step.sends:
            slots.isend(first + (position + offset) % members * stride, size, 0, label)
        slots.waitall()


@PATTERNS.register("alltoall")
class Alltoall(FreeSizePattern):
    """Every rank exchanges a block with every other, as MPI_Alltoall does for that size."""

    size: SizeBytes = Field(description='block for each peer: size = "16 KiB"')
    rounds: int = Field(default=1, ge=1)
    compute: TimePs = Field(default=0, description="computation before each round")

    def repetitions(self) -> int:
        """The ``rounds`` option."""
        return self.rounds

    def program(self, n_ranks: int, seed: int) -> Program:
        """Nothing is random."""
        slots = Slots("alltoall", n_ranks)
        rank = np.arange(n_ranks)
        for _ in range(self.rounds):
            slots.compute(self.compute)
            exchange_all(slots, n_ranks, rank, rank * 0, 1, self.size, "MPI_COMM_WORLD")
        return slots.build()
