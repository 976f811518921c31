"""A different order of sends for each rank, so that not all begin with the same receiver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.traffic.program import Op, Program
from tailback.traffic.rewrites.edit import messages_of, posts_of_waits, rank_within_key
from tailback.traffic.rewrites.rewrite import (
    MIN_SENDERS,
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
    describe,
)


@REWRITES.register("rotated-order")
def rotated_order(program: Program, focus: Focus) -> Rewritten:
    """Ranks send to others in the same order: each begins with the rank after itself instead.

    Applies where at least four ranks have the same receiver at the same position of their loops,
    and at most half as many do if rank i begins at position i of its list (rank i + 1 where all
    ranks send to all). Sends are reordered only within a stretch in which the rank neither computes
    nor waits for a receive, so dependencies are kept; messages of a pair keep their order.
    """
    messages = messages_of(program, focus)
    stretch = stretches(program)[messages.send]
    order = np.lexsort((messages.send, _turn(stretch, messages.src, messages.dst), stretch))
    concurrent, left = (
        _concurrent_senders(stretch, messages.src, to, program.n_ranks)
        for to in (messages.dst, messages.dst[order])
    )
    if concurrent < MIN_SENDERS:
        raise DoesNotApplyError(
            "ranks do not send to the same receiver at the same position of their loops (at most "
            f"{concurrent} do)"
        )
    if 2 * left > concurrent:
        raise DoesNotApplyError(
            f"another order does not help: {concurrent} ranks send to one receiver at once, and "
            f"{left} would if each began with the rank after itself"
        )
    return Rewritten(
        with_sends_moved(program, messages.send, messages.send[order]),
        f"Have every rank begin {describe(program, focus)} with the rank after itself and wrap "
        "around at the last one (rank + 1, rank + 2, …), instead of beginning with the first rank.",
        "messages",
    )


def with_sends_moved(program: Program, slots: Ints, source: Ints) -> Program:
    """The program with the send ``source[k]`` at the place of the send ``slots[k]``."""

    def moved(column: NDArray[Any]) -> NDArray[Any]:
        out = column.copy()
        out[slots] = column[source]
        return out

    return replace(
        program,
        peer=moved(program.peer),
        amount=moved(program.amount),
        tag=moved(program.tag),
        label=moved(program.label),
    )


def _turn(stretch: Ints, src: Ints, dst: Ints) -> Ints:
    """Position of each message if a rank starts at its own position in its list of receivers."""
    order = np.lexsort((dst, stretch))
    new = np.append(True, (np.diff(stretch[order]) != 0) | (np.diff(dst[order]) != 0))
    place = np.empty(len(dst), np.int64)
    place[order] = np.cumsum(new) - 1
    first = np.searchsorted(stretch, stretch)
    last = np.searchsorted(stretch, stretch, side="right") - 1
    low = np.minimum.reduceat(place, np.unique(first))[np.unique(first, return_inverse=True)[1]]
    high = np.maximum.reduceat(place, np.unique(first))[np.unique(last, return_inverse=True)[1]]
    return np.asarray((place - low - src) % (high - low + 1))


def stretches(program: Program) -> Ints:
    """Number of the stretch of each operation, without dependencies inside, shape (M,)."""
    target = posts_of_waits(program)
    ends = (program.kind == Op.COMPUTE) | (program.kind == Op.WAITALL)
    ends |= (target >= 0) & (program.kind[target] == Op.IRECV)
    first = np.zeros(len(program.kind) + 1, np.int64)
    first[program.rank_start.astype(np.int64)] = 1
    return np.asarray(np.cumsum(first[:-1] + np.append(0, ends[:-1])))


def _concurrent_senders(stretch: Ints, src: Ints, dst: Ints, n_ranks: int) -> int:
    """Maximum number of ranks with the same receiver at the same position of the same stretch."""
    place = rank_within_key(stretch)
    # Only stretches in which a rank sends are counted.
    new = np.append(True, stretch[1:] != stretch[:-1])
    number = np.cumsum(new) - 1
    first = np.searchsorted(src, src)
    turn = number - number[first]
    _, count = np.unique(np.stack([turn, place, dst]), axis=1, return_counts=True)
    return int(count.max())
