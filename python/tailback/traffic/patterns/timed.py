"""Messages at given times: traffic that was measured, or listed message by message."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from tailback.errors import ScenarioError
from tailback.traffic.patterns.columns import Operations, assemble, refuse_if_huge
from tailback.traffic.patterns.pattern import PATTERNS, PLACE, FreeSizePattern
from tailback.traffic.program import Label, Op, Program
from tailback.units import LONGEST_PS

TAG = 101


@PATTERNS.register("timed")
class Timed(FreeSizePattern):
    """Messages that are listed one by one, each posted at its time regardless of the others.

    ``tailback diagnose`` uses it for the traffic of other jobs that it infers from port counters.
    """

    # Not strict, because files have lists and not tuples; their numbers stay strict.
    messages: list[Annotated[tuple[int, int, int, int], Strict(False)]] = Field(
        description="[time in ps, source rank, destination rank, bytes] of each message"
    )

    def program(self, n_ranks: int, seed: int) -> Program:
        """Every message is posted at its time; ranks wait for everything at the end."""
        refuse_if_huge(3 * len(self.messages))
        for number, (when, source, target, size) in enumerate(self.messages, start=1):
            if not (0 <= source < n_ranks and 0 <= target < n_ranks and source != target):
                raise ScenarioError(
                    f"message {number} goes from rank {source} to rank {target} of {n_ranks}",
                    place=f"{PLACE} messages",
                    remedy="name two different ranks of the job",
                )
            if not (0 <= when <= LONGEST_PS and 0 < size < 1 << 40):
                raise ScenarioError(
                    f"message {number} has time {when} ps and {size} bytes",
                    place=f"{PLACE} messages",
                    remedy="give a time and a size above 0",
                )
        columns = np.array(self.messages, np.int64).reshape(-1, 4).T
        return timed_program("timed", n_ranks, *columns)


def timed_program(
    name: str,
    n_ranks: int,
    when: NDArray[np.int64],
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    size: NDArray[np.int64],
) -> Program:
    """Every rank posts all its receives, sends at its times, and waits for everything at the end.

    Args:
        name: What to call the application.
        n_ranks: Number of ranks R.
        when: When each message is posted, picoseconds, shape (K,).
        source: Sending rank, shape (K,).
        target: Receiving rank, shape (K,).
        size: Bytes of each message, shape (K,).
    """
    order = np.lexsort((when, source))
    when, source, target, size = when[order], source[order], target[order], size[order]
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
    amount = np.concatenate([size, gap, size, ranks * 0])
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
    return assemble(name, n_ranks, operations, [Label(name, "MPI_Isend", TAG)])
