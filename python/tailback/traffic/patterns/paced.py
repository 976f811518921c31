"""Messages at random times with a given offered load: background and storage traffic."""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from tailback.errors import InvalidValueError, ScenarioError
from tailback.scenario.quantities import SizeBytes, TimePs
from tailback.traffic.patterns.columns import refuse_if_huge
from tailback.traffic.patterns.pattern import PATTERNS, PLACE, FreeSizePattern, LineRatePattern
from tailback.traffic.patterns.randomness import entity_generator
from tailback.traffic.patterns.timed import timed_program
from tailback.traffic.program import Program


@PATTERNS.register("paced")
class Paced(FreeSizePattern, LineRatePattern):
    """Messages at random times offer a share of the line rate, to all ranks or to servers.

    The times of a rank are a Poisson process that does not wait for earlier messages: the offered
    load does not fall when the network slows down. With ``servers`` the last ranks are servers and
    all others their clients, as nodes write files and read them.
    """

    size: SizeBytes = Field(gt=0, description='bytes of one message: size = "64 KiB"')
    load: float = Field(gt=0, le=4, description="offered by a rank (a client), of line_rate")
    duration: TimePs = Field(gt=0, description="how long messages are posted")
    servers: int = Field(
        default=0,
        ge=0,
        description="the last ranks are servers, the others their clients",
    )
    reads: float = Field(
        default=0.0, ge=0, le=1, description="share of messages from the server to its client"
    )
    stream: str = Field(default="paced", description="name of the random stream")

    @model_validator(mode="after")
    def _reads_need_servers(self) -> Paced:
        if self.reads and not self.servers:
            raise InvalidValueError(
                "reads needs servers", "say how many of the last ranks serve files"
            )
        return self

    def program(self, n_ranks: int, seed: int) -> Program:
        """Times, partners and directions follow from ``seed``, ``stream`` and the rank."""
        clients = n_ranks - self.servers
        if clients < 1:
            raise ScenarioError(
                f"{self.servers} servers of {n_ranks} ranks leave no client",
                place=PLACE,
                remedy="use fewer servers or more ranks",
            )
        gap_ps = self.size * 8000.0 / (self.line_gbps * self.load)
        expected = self.duration / gap_ps
        refuse_if_huge(int(min(3 * clients * expected, 2**62)))
        times, sources, targets = [], [], []
        for rank in range(clients):
            draw = entity_generator(seed, self.stream, rank)
            # Draw enough gaps to reach the end for all but one rank in a million, then cut there.
            gaps = draw.exponential(gap_ps, int(expected + 5 * np.sqrt(expected) + 8))
            times_ps = np.cumsum(gaps)
            # Cut first: a tiny load gives times that overflow an integer.
            when = times_ps[times_ps < self.duration].astype(np.int64)
            if self.servers:
                partner = clients + draw.integers(0, self.servers, len(when))
            else:
                partner = draw.integers(0, n_ranks - 1, len(when))
                partner += partner >= rank
            read = draw.random(len(when)) < self.reads
            times.append(when)
            sources.append(np.where(read, partner, rank))
            targets.append(np.where(read, rank, partner))
        sizes = np.full(sum(map(len, times)), self.size)
        return timed_program(
            "paced",
            n_ranks,
            np.concatenate(times),
            np.concatenate(sources),
            np.concatenate(targets),
            sizes,
        )
