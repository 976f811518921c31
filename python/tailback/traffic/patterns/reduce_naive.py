"""A reduction without a tree: every rank sends to the root."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from tailback.errors import ScenarioError
from tailback.scenario.quantities import SizeBytes
from tailback.traffic.patterns.columns import refuse_if_huge
from tailback.traffic.patterns.pattern import PATTERNS, FreeSizePattern
from tailback.traffic.patterns.streams import TAG, Post, stream_program
from tailback.traffic.program import Label, Program


def check_root(root: int, n_ranks: int) -> None:
    """Raise ScenarioError when the root is not one of the ranks."""
    if root >= n_ranks:
        raise ScenarioError(
            f"root {root} of {n_ranks} ranks",
            place="[job.pattern] root",
            remedy=f"give a rank from 0 to {n_ranks - 1}",
        )


@PATTERNS.register("reduce-naive")
class ReduceNaive(FreeSizePattern):
    """All ranks send all their arrays to the root: congestion that no placement can remove.

    Taffet (2019), section 4.3: 1024 ranks, 50 arrays of 4 KiB. The root posts all its receives
    first.
    """

    size: SizeBytes = Field(default=4096, description="bytes of one array")
    arrays: int = Field(default=50, ge=1)
    root: int = Field(default=0, ge=0)
    post: Post = "sequence"

    def program(self, n_ranks: int, seed: int) -> Program:
        """Nothing is random."""
        check_root(self.root, n_ranks)
        senders = np.delete(np.arange(n_ranks), self.root)
        refuse_if_huge(3 * n_ranks * self.arrays)
        # Array after array, so that the root's receives are in order of arrival.
        source = np.tile(senders, self.arrays)
        label = Label("reduce", "MPI_Send", TAG)
        destination = np.full(len(source), self.root)
        return stream_program(
            "reduce-naive", n_ranks, source, destination, self.size, self.post, label
        )
