"""Messages at random times that offer a given load: background traffic, and traffic of storage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tailback.errors import ScenarioError
from tailback.traffic.patterns.columns import Operations, assemble, refuse_if_huge
from tailback.traffic.patterns.pattern import PATTERNS, PLACE, FreeSizePattern
from tailback.traffic.patterns.randomness import entity_generator
from tailback.traffic.program import Label, Op, Program
from tailback.units import RateGbps, SizeBytes, TimePs

TAG = 101


@PATTERNS.register("paced")
class Paced(FreeSizePattern):
    """Messages at random times offer a share of the line rate, to all ranks or to servers.

    The times of a rank are a Poisson process that does not wait for earlier messages: what is
    offered does not fall when the network slows down. With ``servers`` the last ranks are servers
    and all others their clients, as nodes write files and read them.
    """

    size: SizeBytes = Field(gt=0, description='bytes of one message: size = "64 KiB"')
    load: float = Field(gt=0, le=4, description="offered by a rank (a client), of line_rate")
    duration: TimePs = Field(gt=0, description="messages are posted for so long")
    line_rate: RateGbps = Field(default=100.0, gt=0, description="rate that load is a share of")
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
            raise ValueError("reads needs servers; say how many of the last ranks serve files")
        return self

    def program(self, n_ranks: int, seed: int) -> Program:
        """Times, partners and directions follow from ``seed``, ``stream`` and the rank."""
        clients = n_ranks - self.servers
        if clients < 1:
            raise ScenarioError(
                f"{self.servers} servers of {n_ranks} ranks leave no client", place=PLACE,
                remedy="use fewer servers or more ranks",
            )  # fmt: skip
        gap_ps = self.size * 8000.0 / (self.line_rate * self.load)
        expected = self.duration / gap_ps
        refuse_if_huge(int(min(3 * clients * expected, 2**62)))
        times, sources, targets = [], [], []
        for rank in range(clients):
            draw = entity_generator(seed, self.stream, rank)
            # Enough gaps to pass the end but for one rank in a million, then cut there.
            gaps = draw.exponential(gap_ps, int(expected + 5 * np.sqrt(expected) + 8))
            times_ps = np.cumsum(gaps)
            # Cut first: a tiny load makes times that no integer holds.
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
        return _program(
            n_ranks, np.concatenate(times), np.concatenate(sources), np.concatenate(targets),
            self.size,
        )  # fmt: skip


def _program(
    n_ranks: int,
    when: NDArray[np.int64],
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    size: int,
) -> Program:
    """Every rank posts all its receives, sends at its times, and waits for everything at the end.

    Args:
        n_ranks: Number of ranks R.
        when: When each message is posted, picoseconds, shape (K,).
        source: Sending rank, shape (K,).
        target: Receiving rank, shape (K,).
        size: Bytes of each message.
    """
    order = np.lexsort((when, source))
    when, source, target = when[order], source[order], target[order]
    first = np.diff(source, prepend=-1) != 0
    gap = np.where(first, when, np.diff(when, prepend=0))
    count, ranks = len(when), np.arange(n_ranks)
    index = np.arange(count)
    # Receives, then each pause and its send in order of time, then the last wait.
    rank = np.concatenate([target, source, source, ranks])
    stage = np.repeat([0, 1, 1, 2], [count, count, count, n_ranks])
    place = np.concatenate([index, 2 * index, 2 * index + 1, ranks * 0])
    kind = np.repeat([Op.IRECV, Op.COMPUTE, Op.ISEND, Op.WAITALL], [count, count, count, n_ranks])
    none = np.full(count, -1)
    peer = np.concatenate([source, none, target, np.full(n_ranks, -1)])
    amount = np.concatenate([np.full(count, size), gap, np.full(count, size), ranks * 0])
    message = (kind == Op.IRECV) | (kind == Op.ISEND)
    order = np.lexsort((place, stage, rank))
    operations = Operations(
        rank=rank[order],
        kind=kind[order].astype(np.uint8),
        peer=peer[order].astype(np.int32),
        amount=amount[order].astype(np.uint64),
        tag=np.where(message, TAG, 0)[order],
        label=np.zeros(len(order), np.uint32),
    )
    return assemble("paced", n_ranks, operations, [Label("paced", "MPI_Isend", TAG)])
