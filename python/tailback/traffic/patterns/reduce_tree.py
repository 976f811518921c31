"""A reduction by MPI_Reduce."""

from __future__ import annotations

from pydantic import Field

from tailback.scenario.quantities import SizeBytes
from tailback.traffic.collectives import schedule
from tailback.traffic.patterns.columns import refuse_if_huge
from tailback.traffic.patterns.pattern import PATTERNS, FreeSizePattern
from tailback.traffic.patterns.reduce_naive import check_root
from tailback.traffic.program import Label, Program, ProgramBuilder

CALL = "MPI_Reduce"


@PATTERNS.register("reduce-tree")
class ReduceTree(FreeSizePattern):
    """One MPI_Reduce after the other over a binomial tree: the remedy for reduce-naive."""

    size: SizeBytes = Field(default=4096, description="bytes of one array")
    arrays: int = Field(default=50, ge=1)
    root: int = Field(default=0, ge=0)

    def program(self, n_ranks: int, seed: int) -> Program:
        """Nothing is random."""
        check_root(self.root, n_ranks)
        refuse_if_huge(4 * n_ranks * self.arrays)
        builder = ProgramBuilder("reduce-tree", n_ranks)
        label = builder.label(Label(CALL, CALL))
        for rank in range(n_ranks):
            steps = schedule(CALL, n_ranks, rank, self.root, self.size, self.size)
            for _ in range(self.arrays):
                for step in steps:
                    for peer, size in step.receives:
                        builder.irecv(rank, peer, size, 0, label)
                    for peer, size in step.sends:
                        builder.isend(rank, peer, size, 0, label)
                    builder.waitall(rank)
        return builder.build()
