"""A program as a sequence of steps, of which some can be left out.

Applications repeat steps. Each rank's operations are cut at the same number of places; steps of one
kind are equal but for the lengths of computations. Whole steps can be left out of the program: of
such a step every message has both its ends in it, so what is left is a program too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import POSTS, Op, Program


@dataclass(frozen=True, eq=False)
class StepProgram:
    """A program of k steps, of which s different ones are held.

    Attributes:
        program: The operations of the s steps, of R ranks.
        bounds: Where steps begin and end: step i of rank r is operations
            ``bounds[r, i]:bounds[r, i + 1]``, shape (R, s + 1).
        order: Which of the s steps each of the k steps is, shape (k,).
        kind: Number of the kind of each of the s steps, shape (s,).
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

    def compute_ps(self) -> NDArray[np.int64]:
        """How long each rank computes in each of the s different steps, shape (s, R)."""
        amount = np.where(self.program.kind == Op.COMPUTE, self.program.amount, 0)
        total = np.concatenate([[0], np.cumsum(amount.astype(np.int64))])
        return np.diff(total[self.bounds], axis=1).T

    def only(self, kept: NDArray[np.int64]) -> KeptSteps:
        """The program of the steps with the numbers ``kept``, in order, shape (m,)."""
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
        """Requests numbered anew as they are posted.

        A WAIT waits for what was posted as many posts before as in the whole program: that may be
        in the step before, in the place of which there now is an equal one.
        """
        posted = np.isin(self.program.kind, POSTS)
        start = self.program.rank_start.astype(np.int64)
        before = count_within(posted, start)
        back = before - posted_as(self.program, before)
        now = posted[index]
        rank_start = np.append(bounds[:, 0], len(index))
        count = count_within(now, rank_start)
        request = np.where(now, count, -1)
        waits = self.program.kind[index] == Op.WAIT
        request[waits] = (count - back[index])[waits]
        return request.astype(np.int32)


@dataclass(frozen=True, eq=False)
class KeptSteps:
    """The program of some steps of another.

    Attributes:
        program: The program.
        source: Operation of the whole program that each of its operations is, shape (M,).
        bounds: As in :class:`StepProgram`, of the kept steps, shape (R, m + 1).
    """

    program: Program
    source: NDArray[np.int64]
    bounds: NDArray[np.int64]

    def of_operations(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """``number`` of each step, shape (m,), for each of its operations, shape (M,)."""
        length = np.diff(self.bounds, axis=1)
        return np.repeat(np.tile(number, len(length)), length.ravel())


def repeated(program: Program, times: int) -> StepProgram:
    """The program ``times`` times over, each time a step; it is held once."""
    start = program.rank_start.astype(np.int64)
    return StepProgram(
        program,
        np.stack([start[:-1], start[1:]], axis=1),
        np.zeros(times, np.int64),
        np.zeros(1, np.int64),
    )


def count_within(true: NDArray[np.bool_], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many are true before each element of its rank; ranks begin at ``start``."""
    total = np.concatenate([[0], np.cumsum(true)])
    return np.asarray(total[:-1] - np.repeat(total[start[:-1]], np.diff(start)))


def posted_as(program: Program, before: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the post that each WAIT waits for, counted within its rank; of posts their own."""
    found = before.copy()
    involved = np.flatnonzero(np.isin(program.kind, (*POSTS, Op.WAIT)))
    key = np.lexsort((involved, program.request[involved], program.op_rank[involved]))
    ordered = involved[key]
    # The last post of that request before it: posts and waits of a request are neighbours here.
    post = program.kind[ordered] != Op.WAIT
    last = np.maximum.accumulate(np.where(post, np.arange(len(ordered)), 0))
    found[ordered] = before[ordered[last]] if len(ordered) else found[ordered]
    return found
