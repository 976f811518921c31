"""Iterations of a measured run: how long each repetition of its loop took, and what it calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.traffic.readers.otf2.names import normalised_call
from tailback.traffic.step_detection import find_loops

_POLLS = ("mpi_test", "mpi_iprobe", "mpi_improbe")
"""Calls that a waiting rank repeats: how often depends on time, not on the program."""


@dataclass(frozen=True)
class CallSequence:
    """The calls of every rank in order, without polls.

    Attributes:
        digest: Digest of the name and the sent bytes of each call, shape (C,).
        first: First call of each rank, and the number of calls, shape (R + 1,).
        enter_ps: Time at which each call begins, ps, shape (C,).
        leave_ps: Time at which it ends, ps, shape (C,).
    """

    digest: NDArray[np.uint64]
    first: NDArray[np.int64]
    enter_ps: NDArray[np.int64]
    leave_ps: NDArray[np.int64]

    @classmethod
    def of(cls, calls: pl.DataFrame, n_ranks: int) -> CallSequence:
        """The sequence of a measured run.

        Args:
            calls: Its table ``calls``.
            n_ranks: Number of ranks.
        """
        names = calls["name"].unique().to_list()
        polls = [name for name in names if normalised_call(name).startswith(_POLLS)]
        kept = calls.filter(~pl.col("name").is_in(polls)).sort("rank", "call")
        # Both runs are digested in this process, with the same seeds.
        digest = kept.select(pl.struct("name", "sent_bytes").hash()).to_series().to_numpy()
        return cls(
            digest,
            np.searchsorted(kept["rank"].to_numpy(), np.arange(n_ranks + 1)),
            kept["enter_ps"].to_numpy(),
            kept["leave_ps"].to_numpy(),
        )

    def equals(self, other: CallSequence) -> bool:
        """Whether every rank makes the same calls, with the same bytes."""
        return np.array_equal(self.first, other.first) and np.array_equal(self.digest, other.digest)

    def iteration_times(self) -> Floats:
        """Time of each iteration of the longest loop, mean over the ranks, ps, shape (n,).

        Each rank is timed by its own clock, from the end of the last call of an iteration to that
        of the next. Ranks whose loop has another number of iterations than that of most ranks are
        left out. Empty if no rank repeats its calls
        :data:`tailback.traffic.step_detection.FEWEST_STEPS` times.
        """
        hints: list[int] = []
        times: dict[int, list[Floats]] = {}
        for begin, end in zip(self.first[:-1].tolist(), self.first[1:].tolist(), strict=True):
            loops = find_loops(self.digest[begin:end], hints)
            if not loops:
                continue
            loop = max(loops, key=lambda loop: loop.period * loop.count)
            at = begin + loop.begin
            start = self.leave_ps[at - 1] if loop.begin else self.enter_ps[at]
            ends = self.leave_ps[at + loop.period * np.arange(1, loop.count + 1) - 1]
            times.setdefault(loop.count, []).append(np.diff(ends, prepend=start).astype(np.float64))
        if not times:
            return np.empty(0)
        of_most = max(times.values(), key=len)
        return np.asarray(np.mean(of_most, axis=0), np.float64)
