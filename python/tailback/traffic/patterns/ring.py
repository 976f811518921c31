"""The ring exchange."""

from __future__ import annotations

import numpy as np

from tailback.traffic.patterns.pattern import PATTERNS
from tailback.traffic.patterns.streams import (
    TAG,
    StreamPattern,
    call_of,
    in_order,
    stream_program,
)
from tailback.traffic.program import Label, Program


@PATTERNS.register("ring")
class Ring(StreamPattern):
    """Rank i sends to rank i - 1, the first to the last: local, with one sender per receiver.

    The primary application of Taffet (2019), section 4.4, sends three messages.
    """

    def program(self, n_ranks: int, seed: int) -> Program:
        """Nothing is random."""
        self.refuse_if_huge(n_ranks)
        to = (np.arange(n_ranks) - 1) % n_ranks
        source, destination = in_order(np.repeat(to[:, None], self.messages, axis=1))
        label = Label("ring", call_of(self.post), TAG)
        return stream_program("ring", n_ranks, source, destination, self.size, self.post, label)
