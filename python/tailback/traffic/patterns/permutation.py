"""A random permutation."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from tailback.traffic.patterns.pattern import PATTERNS
from tailback.traffic.patterns.randomness import derangement
from tailback.traffic.patterns.streams import (
    TAG,
    StreamPattern,
    call_of,
    in_order,
    stream_program,
)
from tailback.traffic.program import Label, Program


@PATTERNS.register("permutation")
class Permutation(StreamPattern):
    """Each rank sends to one other and receives from one other, chosen at random.

    No endpoint is contended, so any congestion is inside the network.
    """

    stream: str = Field(default="permutation", description="name of the random stream")

    def program(self, n_ranks: int, seed: int) -> Program:
        """The permutation follows from ``seed`` and ``stream``."""
        self.refuse_if_huge(n_ranks)
        to = derangement(seed, self.stream, n_ranks)
        source, destination = in_order(np.repeat(to[:, None], self.messages, axis=1))
        label = Label("permutation", call_of(self.post), TAG)
        return stream_program(
            "permutation", n_ranks, source, destination, self.size, self.post, label
        )
