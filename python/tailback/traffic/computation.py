"""Programs with imbalance or noise removed from their computation.

Simulating a recorded program with and without it shows what imbalance or noise costs the whole run,
including the waits of other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import Op, Program

MIN_REPETITIONS = 3
"""Minimum number of repetitions to determine the usual time of a computation."""


def balanced(program: Program) -> Program:
    """The same program with computation spread evenly over its ranks.

    Computations between the same two kinds of call form one part of the program. In each part,
    every rank computes for the mean time of all ranks, or that of the median rank if it is less: a
    few slow ranks would not pass their work on to others. Differences between repetitions stay:
    they are noise.
    """
    compute = program.kind == Op.COMPUTE
    if not compute.any():
        return program
    where = np.flatnonzero(compute)
    amount = program.amount[where].astype(np.float64)
    rank = program.op_rank[where]
    before, behind = (_neighbour(program, where, step)[:2] for step in (-1, 1))
    _, part = np.unique(np.stack([*before, *behind]), axis=1, return_inverse=True)
    part = part.ravel()
    parts = int(part.max()) + 1
    usual = without_noise(program).amount[where].astype(np.float64)
    own = np.bincount(rank * parts + part, usual, program.n_ranks * parts)
    own = own.reshape(program.n_ranks, parts)
    # Ranks without such a part (at the border of a grid) do not get one.
    has = own > 0
    mean = own.sum(axis=0) / np.maximum(has.sum(axis=0), 1)
    middle = np.nan_to_num(np.nanmedian(np.where(has, own, np.nan), axis=0))
    level = np.minimum(mean, middle)
    scale = np.divide(level[None, :], own, out=np.ones_like(own), where=has)
    return _with_compute(program, compute, amount * scale[rank, part])


def without_noise(program: Program) -> Program:
    """The same program with every computation at its undisturbed time.

    Computations of one rank between the same two operations are repetitions of each other; the
    fastest tenth of them gives the undisturbed time, because noise only adds. If a repetition takes
    longer on nearly all ranks, this is work of the program, and stays.
    """
    compute = program.kind == Op.COMPUTE
    if not compute.any():
        return program
    alike = repetitions(program)
    amount, group, turn = alike.amount_ps, alike.group, alike.turn
    count = np.bincount(group)
    quiet = _low(amount, group, len(count))[group]
    ratio = np.divide(amount, quiet, out=np.ones_like(amount), where=quiet > 0)
    compared = np.bincount(turn)[turn] >= MIN_REPETITIONS
    work = np.where(compared, np.maximum(_low(ratio, turn, int(turn.max()) + 1)[turn], 1.0), 1.0)
    known = count[group] >= MIN_REPETITIONS
    cut = np.where(known, np.minimum(amount, quiet * work), amount)
    return _with_compute(program, compute, cut)


@dataclass(frozen=True)
class Repetitions:
    """Computations of a program, grouped by what they repeat.

    Attributes:
        where: Operation of each computation, shape (C,).
        amount_ps: Its length, shape (C,).
        group: Number of its group: the same rank between the same two operations, shape (C,).
        turn: Number of the same repetition of a part of the program on all ranks, shape (C,).
    """

    where: NDArray[np.int64]
    amount_ps: NDArray[np.float64]
    group: NDArray[np.int64]
    turn: NDArray[np.int64]


def repetitions(program: Program) -> Repetitions:
    """Group the computations of a program by what they repeat."""
    where = np.flatnonzero(program.kind == Op.COMPUTE)
    amount = program.amount[where].astype(np.float64)
    sides = [*_neighbour(program, where, -1), *_neighbour(program, where, 1)]
    _, group = np.unique(np.stack([program.op_rank[where], *sides]), axis=1, return_inverse=True)
    group = group.ravel()
    # Peers differ between ranks.
    kinds = np.stack([*(side for i, side in enumerate(sides) if i % 3 != 2), _turn(group)])
    _, turn = np.unique(kinds, axis=1, return_inverse=True)
    return Repetitions(where, amount, group, turn.ravel())


def _neighbour(
    program: Program, where: NDArray[np.int64], step: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Kind, label and peer of the operation before or after, -1 outside the rank's operations."""
    at = np.clip(where + step, 0, len(program.kind) - 1)
    same = (program.op_rank[at] == program.op_rank[where]) & (at != where)
    fields = (program.kind, program.label, program.peer)
    kind, label, peer = (np.where(same, f[at].astype(np.int64), -1) for f in fields)
    return kind, label, peer


def _low(values: NDArray[np.float64], group: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    """Lowest tenth of each group."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=groups)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    return np.asarray(values[order][first + (count - 1) // 10], np.float64)


def _turn(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of each repetition within its group."""
    order = np.argsort(group, kind="stable")
    count = np.bincount(group)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    out = np.empty(len(group), np.int64)
    out[order] = np.arange(len(group)) - np.repeat(first, count)
    return out


def _with_compute(
    program: Program, compute: NDArray[np.bool_], amount: NDArray[np.float64]
) -> Program:
    changed = program.amount.copy()
    changed[compute] = np.rint(amount).astype(np.uint64)
    return replace(program, amount=changed, recompile=None)
