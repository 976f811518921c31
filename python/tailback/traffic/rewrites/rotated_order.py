"""Sends in an order of each rank's own, so that not all begin with the same receiver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import Op, Program
from tailback.traffic.rewrites.edit import Ints, messages_of, posts_of_waits, rank_within_key
from tailback.traffic.rewrites.rewrite import (
    MIN_SENDERS,
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
    where,
)


@REWRITES.register("rotated-order")
def rotated_order(program: Program, focus: Focus) -> Rewritten:
    """Ranks send to others in the same order: let each begin with the rank after itself.

    Applies where at least four ranks have the same receiver at the same place of their loops, and
    at most half as many do once rank i begins at place i of its list, which is rank i + 1 where
    everybody sends to everybody. Sends change places only within a stretch in which the rank does
    not compute or wait for a receive, so none goes before what it depends on; messages of a pair
    keep their order.
    """
    found = messages_of(program, focus)
    stretch = _stretches(program)[found.send]
    order = np.lexsort((found.send, _turn(stretch, found.src, found.dst), stretch))
    crowd, left = (
        _crowd(stretch, found.src, to, program.n_ranks) for to in (found.dst, found.dst[order])
    )
    if crowd < MIN_SENDERS:
        raise DoesNotApplyError(
            "ranks do not send to the same receiver at the same position of their loops (at most "
            f"{crowd} do)"
        )
    if 2 * left > crowd:
        raise DoesNotApplyError(
            f"another order does not help: {crowd} ranks send to one receiver at once, and {left} "
            "would if each began with the rank after itself"
        )
    slots, source = found.send, found.send[order]

    def moved(column: NDArray[Any]) -> NDArray[Any]:
        out = column.copy()
        out[slots] = column[source]
        return out

    return Rewritten(
        replace(
            program,
            peer=moved(program.peer),
            amount=moved(program.amount),
            tag=moved(program.tag),
            label=moved(program.label),
        ),
        f"Have every rank begin {where(program, focus)} with the rank after itself and wrap around "
        "at the last one (rank + 1, rank + 2, …), instead of beginning with the first rank.",
        "messages",
    )


def _turn(stretch: Ints, src: Ints, dst: Ints) -> Ints:
    """When each message's turn is if a rank starts at its own place of its list of receivers."""
    order = np.lexsort((dst, stretch))
    new = np.append(True, (np.diff(stretch[order]) != 0) | (np.diff(dst[order]) != 0))
    place = np.empty(len(dst), np.int64)
    place[order] = np.cumsum(new) - 1
    first = np.searchsorted(stretch, stretch)
    last = np.searchsorted(stretch, stretch, side="right") - 1
    low = np.minimum.reduceat(place, np.unique(first))[np.unique(first, return_inverse=True)[1]]
    high = np.maximum.reduceat(place, np.unique(first))[np.unique(last, return_inverse=True)[1]]
    return np.asarray((place - low - src) % (high - low + 1))


def _stretches(program: Program) -> Ints:
    """Number of the stretch each operation is in: nothing depends on anything in it, shape (M,)."""
    target = posts_of_waits(program)
    ends = (program.kind == Op.COMPUTE) | (program.kind == Op.WAITALL)
    ends |= (target >= 0) & (program.kind[target] == Op.IRECV)
    first = np.zeros(len(program.kind) + 1, np.int64)
    first[program.rank_start.astype(np.int64)] = 1
    return np.asarray(np.cumsum(first[:-1] + np.append(0, ends[:-1])))


def _crowd(stretch: Ints, src: Ints, dst: Ints, n_ranks: int) -> int:
    """Most ranks that have the same receiver at the same place of the same stretch of theirs."""
    place = rank_within_key(stretch)
    # Stretches of a rank are counted among those in which it sends.
    new = np.append(True, stretch[1:] != stretch[:-1])
    number = np.cumsum(new) - 1
    first = np.searchsorted(src, src)
    turn = number - number[first]
    _, count = np.unique(np.stack([turn, place, dst]), axis=1, return_counts=True)
    return int(count.max())
