"""Programs with imbalance or noise removed from their computation.

Simulating a recorded program with and without it shows what imbalance or noise costs the whole run,
including the waits of other ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import IS_POST, Op, Program

MIN_REPETITIONS = 3
"""Minimum number of repetitions to determine the usual time of a computation."""


REPEATED = 4
"""Repetitions from which a part of a program tells differences between ranks from its noise."""


def balanced(program: Program) -> Program:
    """The same program with computation spread evenly over its ranks.

    Computations between the same two kinds of call form one part of the program, or several if a
    rank makes them after different messages. In each part, every rank computes for the mean time of
    all ranks, or for the median if it is shorter: a few slow ranks would not pass their work on to
    others. Differences between repetitions are noise and stay.

    Where ranks shared cores, what occurs once stays, if other parts are repeated: it may be
    processor time of the start, such as that of first touching memory, which no balance saves.
    """
    compute = program.kind == Op.COMPUTE
    if not compute.any():
        return program
    where = np.flatnonzero(compute)
    amount = program.amount[where].astype(np.float64)
    rank = program.op_rank[where]
    part = _parts_of_program(program, where)
    parts = int(part.max()) + 1
    usual = without_noise(program).amount[where].astype(np.float64)
    cell, cells = rank * parts + part, program.n_ranks * parts
    count = np.bincount(cell, minlength=cells).reshape(program.n_ranks, parts)
    # Per repetition, because ranks at the border of a grid take part less often.
    cell_mean = np.bincount(cell, usual, cells).reshape(count.shape) / np.maximum(count, 1)
    # Ranks without such a part do not get one.
    has = cell_mean > 0
    mean = cell_mean.sum(axis=0) / np.maximum(has.sum(axis=0), 1)
    middle, anywhere = np.zeros(parts), has.any(axis=0)
    middle[anywhere] = np.nanmedian(np.where(has, cell_mean, np.nan)[:, anywhere], axis=0)
    level = np.minimum(mean, middle)
    scale = np.divide(level[None, :], cell_mean, out=np.ones_like(cell_mean), where=has)
    most = count.max(axis=0)
    if program.recording is not None and program.recording.processor_time:
        scale[:, (most <= 1) & (most.max() >= REPEATED)] = 1.0
    return _replace_compute(program, compute, amount * scale[rank, part])


def with_equal_totals(program: Program) -> Program:
    """The same program with every rank's computation scaled to the same total.

    What balancing single parts saves beyond this is due to their order: ranks that compute as much
    in all, but at other times, wait for one another.
    """
    compute = program.kind == Op.COMPUTE
    rank = program.op_rank[compute]
    amount = program.amount[compute].astype(np.float64)
    total = np.bincount(rank, amount, program.n_ranks)
    works = total > 0
    if not works.any():
        return program
    level = min(float(total[works].mean()), float(np.median(total[works])))
    scale = np.divide(level, total, out=np.ones_like(total), where=works)
    return _replace_compute(program, compute, amount * scale[rank])


def _parts_of_program(program: Program, where: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the part of the program that each computation belongs to, shape (C,).

    Computations between the same two kinds of call are told apart by whether a send or a receive
    was posted last, and by which one if that differs within a rank. If only the latter differs
    between ranks, they are at the border of a grid.
    """
    rank = program.op_rank[where].astype(np.int64)
    label = _labels_without_numbers(program)
    sides = (_neighbour(program, where, -1, label), _neighbour(program, where, 1, label))
    posted = _last_posts(program, where, label)
    kinds = np.stack([*(field for side in sides for field in side[:2]), posted[0]])
    coarse, post = _numbered(kinds), _numbered(np.stack(posted))
    distinct = np.unique(np.stack([coarse, rank, post]), axis=1)[:2]
    cells, posts = np.unique(distinct, axis=1, return_counts=True)
    differ = np.zeros(int(coarse.max()) + 1, np.bool_)
    differ[cells[0][posts > 1]] = True
    return _numbered(np.stack([coarse, np.where(differ[coarse], post, -1)]))


def without_noise(program: Program) -> Program:
    """The same program with every computation at its undisturbed time.

    Computations of one rank between the same two operations are repetitions of each other; the
    fastest tenth of them gives the undisturbed time, because noise only adds. If a repetition takes
    longer on nearly all ranks, this is work of the program, and stays. Where interruptions cannot
    explain the differences between repetitions, each repetition takes their mean.
    """
    compute = program.kind == Op.COMPUTE
    if not compute.any():
        return program
    alike = repetitions(program)
    amount, group, turn = alike.amount_ps, alike.group, alike.turn
    few = np.bincount(group)[group] < MIN_REPETITIONS
    quiet = np.where(
        few,
        _low_quantile(amount, alike.coarse, int(alike.coarse.max()) + 1)[alike.coarse],
        _low_quantile(amount, group, int(group.max()) + 1)[group],
    )
    steady = _steady_work(alike)
    if steady is not None:
        return _replace_compute(program, compute, steady)
    ratio = np.divide(amount, quiet, out=np.ones_like(amount), where=quiet > 0)
    compared = np.bincount(turn)[turn] >= MIN_REPETITIONS
    work = np.where(
        compared, np.maximum(_low_quantile(ratio, turn, int(turn.max()) + 1)[turn], 1.0), 1.0
    )
    comparable = ~few | (np.bincount(alike.coarse)[alike.coarse] >= MIN_REPETITIONS)
    cut = np.where(comparable, np.minimum(amount, quiet * work), amount)
    return _replace_compute(program, compute, cut)


def _steady_work(alike: Repetitions) -> NDArray[np.float64] | None:
    """Mean of the repetitions of each computation; None if noise may explain their differences.

    Random interruptions (a compound Poisson process) take on average at least the squared variance
    divided by the third central moment, by the Cauchy–Schwarz inequality. If this bound exceeds the
    excess of the mean over the fastest repetitions, the work itself differs.
    """
    amount, group, turn = alike.amount_ps, alike.group, alike.turn
    count = np.bincount(group)
    mean = (np.bincount(group, amount) / count)[group]
    ratio = np.divide(amount, mean, out=np.ones_like(amount), where=mean > 0)
    # A change that all ranks share in a repetition is work of the program.
    turns = int(turn.max()) + 1
    lower, upper = _low_quantile(ratio, turn, turns, 0.5), -_low_quantile(-ratio, turn, turns, 0.5)
    shared = ((lower + upper) / 2.0)[turn]
    shared = np.where(np.bincount(turn)[turn] >= MIN_REPETITIONS, shared, 1.0)
    level = mean * shared
    comparable = (count[group] >= MIN_REPETITIONS) & (level > 0)
    if not comparable.any():
        return None
    relative = np.divide(amount, level, out=np.ones_like(amount), where=comparable)
    fastest = _low_quantile(relative, group, len(count))[group]
    weight = np.where(comparable, level, 0.0) / level[comparable].sum()
    off = relative - (np.bincount(group, relative) / count)[group]
    excess = float((weight * (relative - fastest)).sum())
    variance, third = (float((weight * off**power).sum()) for power in (2, 3))
    error = math.sqrt(float((weight**2 * (off**3 - third) ** 2).sum()))
    if variance**2 <= excess * (third + 2.0 * error):
        return None
    return np.where(comparable, level, amount)


@dataclass(frozen=True)
class Repetitions:
    """Computations of a program, grouped by what they repeat.

    Attributes:
        where: Operation of each computation, shape (C,).
        amount_ps: Its length, shape (C,).
        group: Number of its group: the same rank between the same two operations, shape (C,).
        turn: Number of the same repetition of a part of the program on all ranks, shape (C,).
        coarse: Group whatever was posted before, for those of ``group`` with too few repetitions,
            shape (C,).
    """

    where: NDArray[np.int64]
    amount_ps: NDArray[np.float64]
    group: NDArray[np.int64]
    turn: NDArray[np.int64]
    coarse: NDArray[np.int64]


def repetitions(program: Program) -> Repetitions:
    """Group the computations of a program by what they repeat."""
    where = np.flatnonzero(program.kind == Op.COMPUTE)
    amount = program.amount[where].astype(np.float64)
    label = _labels_without_numbers(program)
    sides = [*_neighbour(program, where, -1, label), *_neighbour(program, where, 1, label)]
    key = np.stack([program.op_rank[where], *sides])
    coarse = _numbered(key)
    # A call that completes operations does not say what was completed, the last post does: at the
    # border of a grid, the end of a step and the time between two receives look alike otherwise.
    # Groups that would fall into too few repetitions stay whole.
    posted = np.stack(_last_posts(program, where, label))
    finer = _numbered(np.concatenate([key, posted]))
    pairs = np.unique(np.stack([coarse, finer]), axis=1)
    split = np.bincount(pairs[0])[coarse] * MIN_REPETITIONS <= np.bincount(coarse)[coarse]
    posted = np.where(split, posted, -1)
    group = _numbered(np.concatenate([key, posted]))
    # Peers differ between ranks.
    alike = [*(side for i, side in enumerate(sides) if i % 3 != 2), *posted]
    turn = _numbered(np.stack([*alike, _turn(group)]))
    longer = _longer_turns(amount, _numbered(np.stack(alike)), turn)
    if longer.any():
        group, coarse = (_numbered(np.stack([number, longer])) for number in (group, coarse))
        turn = _numbered(np.stack([*alike, longer, _turn(group)]))
    return Repetitions(where, amount, group, turn, coarse)


ANOTHER_PART = 10.0
"""Factor between times of computations, on all ranks alike, that are different parts of a program:
a step computes once, and exchanges with the same calls many times."""


def _longer_turns(
    amount: NDArray[np.float64], family: NDArray[np.int64], turn: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Whether each computation is of a longer part than others between the same calls, shape (C,).

    Judged by the median of the ranks: interruptions of single ranks are none.

    Args:
        amount: Length of each computation, shape (C,).
        family: Number of the kind of computation, whatever its rank and repetition, shape (C,).
        turn: Number of the repetition on all ranks, shape (C,).
    """
    order = np.lexsort((amount, turn))
    first = np.flatnonzero(np.diff(turn[order], prepend=-1))
    count = np.diff(np.append(first, len(order)))
    median = np.maximum(amount[order[first + count // 2]], 1.0)
    of_turn = family[order[first]]
    compared = count >= MIN_REPETITIONS
    families = int(family.max()) + 1
    least, most = np.full(families, np.inf), np.zeros(families)
    np.minimum.at(least, of_turn[compared], median[compared])
    np.maximum.at(most, of_turn[compared], median[compared])
    apart = most > ANOTHER_PART * least
    with np.errstate(invalid="ignore"):
        longer = compared & apart[of_turn] & (median > np.sqrt(least * most)[of_turn])
    repeated = np.bincount(of_turn[longer], minlength=families) >= MIN_REPETITIONS
    return np.asarray((longer & repeated[of_turn])[turn], np.int64)


def _numbered(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of each distinct column in lexicographic order, shape (C,)."""
    number = np.zeros(keys.shape[1], np.int64)
    # Row after row: np.unique of whole columns takes many times as long.
    for row in keys:
        values, place = np.unique(row, return_inverse=True)
        number = np.unique(number * len(values) + place, return_inverse=True)[1]
    return np.asarray(number, np.int64)


MIN_NUMBERED = 10
"""Minimum number of tags of a call that are numbers of its messages: a tenth of them is one."""


def _labels_without_numbers(program: Program) -> NDArray[np.int64]:
    """Label of each operation, shape (M,), the same for tags that number messages of a call.

    Programs may give each iteration a tag of its own. No rank then uses a label often enough to
    repeat a computation beside it.
    """
    labels = len(program.labels)
    label = program.label.astype(np.int64)
    posts = IS_POST[program.kind]
    pairs, uses = np.unique(program.op_rank[posts] * labels + label[posts], return_counts=True)
    most = np.zeros(labels, np.int64)
    np.maximum.at(most, pairs % max(labels, 1), uses)
    numbered: dict[tuple[str, str, str], list[int]] = {}
    for number in np.flatnonzero((most > 0) & (most < MIN_REPETITIONS)).tolist():
        name = program.labels[number]
        if name.tag >= 0:
            numbered.setdefault((name.call, name.communicator, name.path), []).append(number)
    same = np.arange(max(labels, 1))
    for numbers in numbered.values():
        if len(numbers) >= MIN_NUMBERED:
            same[numbers] = numbers[0]
    return np.asarray(same[label], np.int64)


def _neighbour(
    program: Program, where: NDArray[np.int64], step: int, label: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Kind, label and peer of the operation before or after, -1 outside the rank's operations."""
    at = np.clip(where + step, 0, len(program.kind) - 1)
    same = (program.op_rank[at] == program.op_rank[where]) & (at != where)
    fields = (program.kind, label, program.peer)
    kind, name, peer = (np.where(same, f[at].astype(np.int64), -1) for f in fields)
    return kind, name, peer


def _last_posts(
    program: Program, where: NDArray[np.int64], label: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Kind and label of the last operation before that is neither a wait nor computation."""
    idle = np.isin(program.kind, (Op.WAIT, Op.WAITALL, Op.COMPUTE))
    last = np.maximum.accumulate(np.where(idle, -1, np.arange(len(program.kind))))[where]
    same = (last >= 0) & (program.op_rank[last] == program.op_rank[where])
    kind, name = (
        np.where(same, field[last].astype(np.int64), -1) for field in (program.kind, label)
    )
    return kind, name


def _low_quantile(
    values: NDArray[np.float64], group: NDArray[np.int64], groups: int, quantile: float = 0.1
) -> NDArray[np.float64]:
    """Lowest tenth of each group, or another quantile."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=groups)
    first = np.cumsum(count) - count
    return np.asarray(values[order][first + ((count - 1) * quantile).astype(np.int64)], np.float64)


def _turn(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of each repetition within its group."""
    order = np.argsort(group, kind="stable")
    count = np.bincount(group)
    first = np.cumsum(count) - count
    out = np.empty(len(group), np.int64)
    out[order] = np.arange(len(group)) - np.repeat(first, count)
    return out


def with_computation(program: Program, factor: float) -> Program:
    """The same program with computation that takes ``factor`` times as long."""
    if factor == 1.0:
        return program
    compute = program.kind == Op.COMPUTE
    return _replace_compute(program, compute, program.amount[compute] * factor)


def _replace_compute(
    program: Program, compute: NDArray[np.bool_], amount: NDArray[np.float64]
) -> Program:
    changed = program.amount.copy()
    changed[compute] = np.rint(amount).astype(np.uint64)
    if np.array_equal(changed, program.amount):
        return program
    return replace(program, amount=changed, recompile=None)
