"""A program as a sequence of steps, of which some can be left out.

Applications repeat steps. The operations of every rank are divided into the same number of steps;
steps of the same kind differ only in the duration of their computations. Both ends of every message
lie in the same step, so the program without some of its steps is still a valid program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import POSTS, Op, Program


@dataclass(frozen=True, eq=False)
class StepProgram:
    """A program of k steps, of which only the s distinct ones are stored.

    Attributes:
        program: The operations of the s distinct steps, of R ranks.
        bounds: Boundaries of the steps: step i of rank r consists of operations
            ``bounds[r, i]:bounds[r, i + 1]``, shape (R, s + 1).
        order: Index of the distinct step that each of the k steps executes, shape (k,).
        kind: Kind of each of the s distinct steps, shape (s,).
    """

    program: Program
    bounds: NDArray[np.int64]
    order: NDArray[np.int64]
    kind: NDArray[np.int64]

    @property
    def n_steps(self) -> int:
        """Number of steps k."""
        return len(self.order)

    @property
    def kinds(self) -> NDArray[np.int64]:
        """Kind of each step, shape (k,)."""
        return self.kind[self.order]

    @cached_property
    def compute_ps(self) -> NDArray[np.int64]:
        """Computation time of each rank in each of the s distinct steps, shape (s, R)."""
        amount = np.where(self.program.kind == Op.COMPUTE, self.program.amount, np.uint64(0))
        total = np.zeros(len(amount) + 1, np.int64)
        np.cumsum(amount.view(np.int64), out=total[1:])
        return np.diff(total[self.bounds], axis=1).T

    @property
    def is_repetition(self) -> bool:
        """Whether all steps are the same stored one."""
        return bool(self.bounds.shape[1] == 2)

    def operation_bounds(self, kept: NDArray[np.int64]) -> NDArray[np.int64]:
        """``bounds`` of the program of only the steps ``kept``, shape (R, m + 1)."""
        return _bounds(np.diff(self.bounds, axis=1)[:, self.order[kept]])

    def message_bounds(self, kept: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same for the messages that it sends, shape (R, m + 1)."""
        sent = np.concatenate([[0], np.cumsum(self.program.sends)])
        return _bounds(np.diff(sent[self.bounds], axis=1)[:, self.order[kept]])

    def waits_across(self) -> bool:
        """Whether a WAIT refers to a post of an earlier step."""
        program = self.program
        waits = np.flatnonzero(program.kind == Op.WAIT)
        if not len(waits):
            return False
        start = program.rank_start.astype(np.int64)
        before = count_within(program.posts, start)
        post = posted_as(program, before)[waits]
        # First operation of the step of each wait, and the number of posts before it.
        edges = np.unique(self.bounds)
        first = edges[np.searchsorted(edges, waits, side="right") - 1]
        return bool((post < before[first]).any())

    def only(self, kept: NDArray[np.int64]) -> KeptSteps:
        """The program of only the steps ``kept`` (ascending step numbers, shape (m,))."""
        program, chosen = self.program, self.order[kept]
        begin, end = self.bounds[:, chosen], self.bounds[:, chosen + 1]
        length = end - begin
        ends = np.cumsum(length.ravel())
        # The operations of the kept steps, rank after rank.
        index = np.repeat(begin.ravel() - (ends - length.ravel()), length.ravel())
        index += np.arange(len(index))
        bounds = np.concatenate([[0], ends])[
            np.arange(len(begin))[:, None] * len(kept) + np.arange(len(kept) + 1)
        ]
        made = replace(
            program,
            rank_start=np.append(bounds[:, 0], bounds[-1, -1] if len(bounds) else 0).astype(
                np.uint64
            ),
            kind=program.kind[index],
            peer=program.peer[index],
            amount=program.amount[index],
            tag=program.tag[index],
            request=self._requests(index, bounds),
            label=program.label[index],
            recompile=None,
        )
        return KeptSteps(made, index, bounds)

    def _requests(self, index: NDArray[np.int64], bounds: NDArray[np.int64]) -> NDArray[np.int32]:
        """Requests renumbered in the order of their posts.

        A WAIT refers to the post the same number of posts back as in the whole program. That post
        may be in the previous step, whose place an equal step has taken.
        """
        now = self.program.posts[index]
        count = count_within(now, np.append(bounds[:, 0], len(index)))
        request = np.where(now, count, -1)
        waits = self.program.kind[index] == Op.WAIT
        if waits.any():
            before = count_within(self.program.posts, self.program.rank_start.astype(np.int64))
            back = before - posted_as(self.program, before)
            request[waits] = (count - back[index])[waits]
        return request.astype(np.int32)


@dataclass(frozen=True, eq=False)
class KeptSteps:
    """The program of a subset of the steps of another program.

    Attributes:
        program: The program.
        source: Index in the original program of each of its operations, shape (M,).
        bounds: As in :class:`StepProgram`, of the kept steps, shape (R, m + 1).
    """

    program: Program
    source: NDArray[np.int64]
    bounds: NDArray[np.int64]

    def messages_before(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of messages of the program that are sent before each of some operations."""
        return np.asarray(np.concatenate([[0], np.cumsum(self.program.sends)])[bounds])

    def of_operations(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Expand a value per step, shape (m,), to one per operation, shape (M,)."""
        length = np.diff(self.bounds, axis=1)
        return np.repeat(np.tile(number, len(length)), length.ravel())


def _bounds(length: NDArray[np.int64]) -> NDArray[np.int64]:
    """First index of each step of each rank, and the end of the last, from lengths (R, m)."""
    ends = np.cumsum(length, axis=1)
    first = np.cumsum(ends[:, -1:], axis=0) - ends[:, -1:]
    return np.asarray(first + np.pad(ends, ((0, 0), (1, 0))))


def repeated(program: Program, times: int) -> StepProgram:
    """A program repeated ``times`` times, each repetition a step; it is stored once."""
    start = program.rank_start.astype(np.int64)
    return StepProgram(
        program,
        np.stack([start[:-1], start[1:]], axis=1),
        np.zeros(times, np.int64),
        np.zeros(1, np.int64),
    )


def count_within(true: NDArray[np.bool_], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of true elements before each element within its rank; ranks begin at ``start``."""
    total = np.concatenate([[0], np.cumsum(true)])
    return np.asarray(total[:-1] - np.repeat(total[start[:-1]], np.diff(start)))


def posted_as(program: Program, before: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index within its rank of the post that each WAIT waits for; a post has its own index."""
    post_of = before.copy()
    if not (program.kind == Op.WAIT).any():
        return post_of
    involved = np.flatnonzero(np.isin(program.kind, (*POSTS, Op.WAIT)))
    key = np.lexsort((involved, program.request[involved], program.op_rank[involved]))
    ordered = involved[key]
    # The latest preceding post of the request: posts and waits of a request are adjacent here.
    post = program.kind[ordered] != Op.WAIT
    last = np.maximum.accumulate(np.where(post, np.arange(len(ordered)), 0))
    post_of[ordered] = before[ordered[last]] if len(ordered) else post_of[ordered]
    return post_of
