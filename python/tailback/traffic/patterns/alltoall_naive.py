"""An all-to-all in which every rank begins with rank 0."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from tailback.scenario.quantities import SizeBytes
from tailback.traffic.patterns.columns import refuse_if_huge
from tailback.traffic.patterns.pattern import PATTERNS, FreeSizePattern
from tailback.traffic.patterns.streams import TAG, Post, call_of, stream_program
from tailback.traffic.program import Label, Program


@PATTERNS.register("alltoall-naive")
class AlltoallNaive(FreeSizePattern):
    """Every rank sends a block to rank 0, 1, 2 … in a loop: all send to one receiver at a time.

    Receives are posted first, in the same order.
    """

    size: SizeBytes = Field(description='block for each peer: size = "16 KiB"')
    post: Post = "sequence"

    def program(self, n_ranks: int, seed: int) -> Program:
        """Nothing is random."""
        refuse_if_huge(3 * n_ranks * n_ranks)
        source, destination = (grid.ravel() for grid in np.indices((n_ranks, n_ranks)))
        other = source != destination
        call = "MPI_Send" if self.post == "sequence" else call_of(self.post)
        label = Label("exchange", call, TAG)
        return stream_program(
            "alltoall-naive",
            n_ranks,
            source[other],
            destination[other],
            self.size,
            self.post,
            label,
        )
