"""Uniform random traffic."""

from __future__ import annotations

from pydantic import Field

from tailback.traffic.patterns.pattern import PATTERNS
from tailback.traffic.patterns.randomness import other_ranks
from tailback.traffic.patterns.streams import (
    TAG,
    StreamPattern,
    call_of,
    in_order,
    stream_program,
)
from tailback.traffic.program import Label, Program


@PATTERNS.register("uniform")
class Uniform(StreamPattern):
    """Every message goes to another random rank: the usual background traffic.

    Message k of rank r has the same destination whatever the number of messages.
    """

    stream: str = Field(default="uniform", description="name of the random stream")

    def program(self, n_ranks: int, seed: int) -> Program:
        """Destinations follow from ``seed``, ``stream``, rank and message."""
        self.refuse_if_huge(n_ranks)
        source, destination = in_order(other_ranks(seed, self.stream, n_ranks, self.messages))
        label = Label("uniform", call_of(self.post), TAG)
        return stream_program("uniform", n_ranks, source, destination, self.size, self.post, label)
