"""When each operation of a rank began and ended in a simulated run.

A run has the times of its messages and of the ends of its ranks, and not those of operations. With
the program of a job they follow: a computation takes the time that it states, posts take none, a
wait for a receive ends when the message has arrived, and the next post or the end of the rank tells
how long a wait for a send took. Where several waits for sends come before the next post, the last
of them takes the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tailback.arrays import Ints
from tailback.errors import RunError
from tailback.run.run import Run
from tailback.traffic.program import Op, Program


@dataclass(frozen=True)
class OperationTimes:
    """Times of the operations of a program.

    Attributes:
        begin_ps: When each operation began, shape (M,).
        end_ps: When it ended, shape (M,).
        start_ps: When each rank began, shape (R,).
        finish_ps: When each rank ended, shape (R,).
    """

    begin_ps: Ints
    end_ps: Ints
    start_ps: Ints
    finish_ps: Ints


def operation_times(run: Run, job: int, program: Program) -> OperationTimes:
    """The times of a job's operations.

    Args:
        run: The run, with its messages.
        job: Number of the job.
        program: Its program.

    Raises:
        RunError: The messages or times of the run are not those of the program, as where steps were
            left out.
    """
    ranks = run.tables["ranks"].filter(pl.col("job") == job).sort("job_rank")
    if ranks.height != program.n_ranks:
        raise RunError(f"the run has {ranks.height} ranks, and its program {program.n_ranks}")
    finish = ranks["finish_ps"].cast(pl.Int64).to_numpy()
    if not finish.all():
        raise RunError("the run was interrupted")
    post, arrival = _message_times(run, ranks, program)
    begin, end = np.zeros(len(program.kind), np.int64), np.zeros(len(program.kind), np.int64)
    # All ranks of a job start together, at the latest with the first post.
    starts = run.scenario.job[job].start if job < len(run.scenario.job) else 0
    for rank in range(program.n_ranks):
        low, high = (int(program.rank_start[rank + k]) for k in (0, 1))
        timeline = _RankClock(program, post, arrival, int(starts))
        timeline.run(low, high, int(finish[rank]))
        begin[low:high], end[low:high] = timeline.begin, timeline.end
    start = np.full(program.n_ranks, int(starts), np.int64)
    return OperationTimes(begin, end, start, finish)


def _message_times(run: Run, ranks: pl.DataFrame, program: Program) -> tuple[Ints, Ints]:
    """When each send was posted, and when the message of each receive arrived, shape (M,) each."""
    numbers = ranks.select(pl.col("rank").alias("src_rank"), pl.col("job_rank").alias("sender"))
    messages = (
        run.tables["messages"]
        .join(numbers, on="src_rank", how="inner")
        .sort("sender", "post_ps", "message")
    )
    sends = np.flatnonzero(program.sends)
    # A rank posts its sends in the order of its program.
    same_bytes = np.array_equal(messages["size_bytes"].to_numpy(), program.amount[sends])
    same_ranks = np.array_equal(messages["sender"].to_numpy(), program.op_rank[sends])
    if len(sends) != messages.height or not (same_bytes and same_ranks):
        raise RunError(
            f"the run has {messages.height:,} messages, and they are not the {len(sends):,} of its "
            "program, as where steps were left out"
        )
    if messages["arrival_ps"].null_count():
        raise RunError("the run was interrupted")
    post = np.full(len(program.kind), -1, np.int64)
    arrival = np.full(len(program.kind), -1, np.int64)
    post[sends] = messages["post_ps"].cast(pl.Int64).to_numpy()
    receives = np.flatnonzero(program.kind == Op.IRECV)
    arrival[receives[_in_channel_order(program, receives)]] = (
        messages["arrival_ps"].cast(pl.Int64).to_numpy()[_in_channel_order(program, sends)]
    )
    return post, arrival


def _in_channel_order(program: Program, operations: Ints) -> Ints:
    """Order of posts by sender, receiver and tag, in which the k-th send meets the k-th receive."""
    rank, peer = program.op_rank[operations], program.peer[operations].astype(np.int64)
    is_send = program.sends[operations]
    source, target = np.where(is_send, rank, peer), np.where(is_send, peer, rank)
    order: Ints = np.lexsort((operations, program.tag[operations], target, source))
    return order


class _RankClock:
    """The operations of one rank, one after the other."""

    def __init__(self, program: Program, post: Ints, arrival: Ints, start_ps: int) -> None:
        self._program, self._post, self._arrival = program, post, arrival
        self._now = start_ps
        self.begin: list[int] = []
        self.end: list[int] = []
        self._open: dict[int, int] = {}
        self._wait_for_send: int | None = None

    def run(self, low: int, high: int, finish_ps: int) -> None:
        """Time the operations from ``low`` to ``high``; RunError if they do not fit the run."""
        program = self._program
        kind, request = program.kind[low:high].tolist(), program.request[low:high].tolist()
        amount = program.amount[low:high].tolist()
        post, arrival = self._post[low:high].tolist(), self._arrival[low:high].tolist()
        for at, operation in enumerate(kind):
            if post[at] >= 0:
                self._reach(post[at])
            self.begin.append(self._now)
            if operation == Op.COMPUTE:
                self._now += amount[at]
            elif operation in (Op.WAIT, Op.WAITALL):
                done = [request[at]] if operation == Op.WAIT else [*self._open]
                self._wait([self._open.pop(each) for each in done if each in self._open])
            else:
                self._open[request[at]] = arrival[at]
            self.end.append(self._now)
        self._reach(finish_ps)

    def _wait(self, arrivals: list[int]) -> None:
        """Wait for receives, with the times at which they arrive, and for sends (-1)."""
        self._now = max([self._now, *arrivals])
        if -1 in arrivals:
            self._wait_for_send = len(self.begin) - 1

    def _reach(self, time_ps: int) -> None:
        """Let the last wait for a send end so that the rank is here at a time of the run."""
        late, self._now = time_ps - self._now, time_ps
        if late:
            at = self._wait_for_send
            if late < 0 or at is None:
                raise RunError("the times of the run are not those of its program")
            self.end[at] += late
            for after in range(at + 1, len(self.end)):
                self.begin[after] += late
                self.end[after] += late
        self._wait_for_send = None
