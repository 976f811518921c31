"""Detects the steps that a program repeats, by comparing the operations of each rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import Op, Program
from tailback.traffic.steps import StepProgram, count_within, posted_as

FEWEST_STEPS = 24
"""Minimum repetitions of a loop: of fewer, most would be simulated anyway."""

CANDIDATES = 12
"""Number of operations whose recurrence distances are tried as the length of a step."""

OCCURRENCES = 16
"""Most often that an operation may occur in a step for the distance to its recurrence in the next
step to be tried."""


@dataclass(frozen=True)
class Loop:
    """A repeating sequence of one rank's operations, without computations.

    Attributes:
        begin: First operation.
        period: Operations per step.
        count: Number of complete steps.
    """

    begin: int
    period: int
    count: int


def find_steps(program: Program) -> StepProgram | None:
    """The steps of a program with loops; None if no loop is found.

    All properties of operations are compared except durations of computations and tags of
    collectives. There is no loop if ranks differ in their number of loops, or if a message crosses
    the boundary of a step.
    """
    start = program.rank_start.astype(np.int64)
    if program.n_ranks == 0 or np.diff(start).max() < FEWEST_STEPS:
        return None
    kept = np.flatnonzero(program.kind != Op.COMPUTE)
    digest = _digests(program, kept)
    first = np.searchsorted(kept, start)
    # Start with the rank that has the most operations: if it has no loop, skip the others.
    longest = int(np.diff(first).argmax())
    hints: list[int] = []
    loops_of: dict[int, list[Loop]] = {}
    for rank in [longest, *(r for r in range(program.n_ranks) if r != longest)]:
        sequence = digest[first[rank] : first[rank + 1]]
        loops_of[rank] = find_loops(sequence, hints)
        expected = len(loops_of[longest])
        if expected == 0 or (len(sequence) and len(loops_of[rank]) != expected):
            return None
    loops = _equalise_counts([loops_of[rank] for rank in range(program.n_ranks)])
    steps = _cut_steps(program, loops, kept, first)
    return steps if _are_closed(steps) else None


def _digests(program: Program, kept: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash of each of the operations ``kept``, none of which is a computation."""
    before = count_within(program.posts, program.rank_start.astype(np.int64))
    kind = program.kind[kept]
    amount = np.where(program.posts[kept], program.amount[kept], np.uint64(0))
    tag = _comparable_tags(program, before)[kept]
    columns = [program.peer[kept], amount, tag, program.label[kept]]
    if (kind == Op.WAIT).any():
        columns.append((before - posted_as(program, before))[kept])
    out = kind.astype(np.uint64)
    for column in columns:
        # Multiplication by an odd constant and a shift mix all bits (Steele et al., 2014).
        out ^= column.astype(np.int64).view(np.uint64)
        out *= np.uint64(0xBF58476D1CE4E5B9)
        out ^= out >> np.uint64(29)
    return out


def _mixed(digest: NDArray[np.uint64], column: NDArray[Any]) -> NDArray[np.uint64]:
    """A digest that depends on a column, too."""
    # Multiplication by an odd constant and a shift mix all bits (Steele et al., 2014).
    out = (digest ^ column.astype(np.int64).view(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
    out ^= out >> np.uint64(29)
    return out


def _comparable_tags(program: Program, before: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tags that are equal in equal steps.

    The messages of each collective have a tag of their own. Where the label of sends names no tag,
    their tag is replaced by the number of posts since the rank's last one with that tag; the first
    one follows the last one, as if the program began again.
    """
    tag = program.tag.copy()
    unnamed = np.array([label.tag < 0 for label in program.labels], np.bool_)
    if not unnamed.any():
        return tag
    # Receives need not have the label of what they receive.
    chosen = np.unique(tag[program.sends & unnamed[program.label]])
    unnamed_posts = np.flatnonzero(program.posts & np.isin(tag, chosen))
    if not len(unnamed_posts):
        return tag
    rank = program.op_rank[unnamed_posts]
    order = np.lexsort((unnamed_posts, tag[unnamed_posts], rank))
    ordered = unnamed_posts[order]
    first = np.ones(len(ordered), np.bool_)
    first[1:] = (np.diff(rank[order]) != 0) | (np.diff(tag[ordered]) != 0)
    begin = np.flatnonzero(first)
    last = np.append(begin[1:], len(ordered)) - 1
    distance = np.diff(before[ordered], prepend=0)
    in_rank = np.bincount(program.op_rank, program.posts, program.n_ranks).astype(np.int64)
    distance[begin] = before[ordered[begin]] - before[ordered[last]] + in_rank[rank[order][begin]]
    tag[ordered] = -1 - distance
    return tag


def find_loops(sequence: NDArray[np.uint64], hints: list[int]) -> list[Loop]:
    """Loops in program order; of overlapping ones the longest is kept.

    Args:
        sequence: Digests of the operations or calls of a rank: equal ones are alike, shape (n,).
        hints: Periods of the loops of other ranks, which are tried first; extended.
    """
    if len(sequence) < FEWEST_STEPS:
        return []
    best = _longest(sequence, hints) if hints else None
    if best is None or best.period * best.count < len(sequence) // 2:
        best = _longest(sequence, _periods(sequence)) or best
    if best is None:
        return []
    best = _shortest_step(sequence, best)
    if best.period not in hints:
        hints.append(best.period)
    end = best.begin + best.period * best.count
    later = [
        Loop(end + loop.begin, loop.period, loop.count)
        for loop in find_loops(sequence[end:], hints)
    ]
    return [*find_loops(sequence[: best.begin], hints), best, *later]


def _periods(sequence: NDArray[np.uint64]) -> list[int]:
    """Likely lengths of a step: the most frequent distances between equal operations."""
    _, place, count = np.unique(sequence, return_inverse=True, return_counts=True)
    often = np.flatnonzero(count >= FEWEST_STEPS)
    # The rarest operations of a step occur once per step; those of other loops may be rarer.
    often = often[np.argsort(count[often], kind="stable")]
    some = (
        often[np.unique(np.linspace(0, len(often) - 1, CANDIDATES).astype(int))]
        if len(often)
        else often
    )
    periods = set()
    for value in some.tolist():
        at = np.flatnonzero(place == value)
        values, counts = np.unique(np.diff(at), return_counts=True)
        periods |= set(values[np.argsort(-counts, kind="stable")[:2]].tolist())
        periods.add(_recurrence(at))
    return sorted(periods)


def _recurrence(at: NDArray[np.int64]) -> int:
    """Distance of an operation from the one that it is in the next step.

    It may occur several times in a step: the distance to the k-th next occurrence is then always
    the same for one k, and for smaller k it is not.
    """
    best, share = 0, 0.0
    for k in range(1, min(OCCURRENCES, len(at) // 2) + 1):
        values, counts = np.unique(at[k:] - at[:-k], return_counts=True)
        most = int(counts.argmax())
        if counts[most] / len(at) > share + 0.05:
            best, share = int(values[most]), float(counts[most] / len(at))
    return best


def _longest(sequence: NDArray[np.uint64], periods: list[int]) -> Loop | None:
    """The longest loop with one of the periods; of equally long ones the shortest period."""
    best: Loop | None = None
    for period in sorted(periods):
        if period * FEWEST_STEPS > len(sequence):
            continue
        differs = np.flatnonzero(sequence[period:] != sequence[:-period])
        edges = np.concatenate([[-1], differs, [len(sequence) - period]])
        run = int(np.diff(edges).argmax())
        length = int(edges[run + 1] - edges[run] - 1) + period
        loop = Loop(int(edges[run]) + 1, period, length // period)
        if loop.count >= FEWEST_STEPS and (
            best is None or period * loop.count > best.period * best.count + best.period
        ):
            best = loop
    return best


def _shortest_step(sequence: NDArray[np.uint64], loop: Loop) -> Loop:
    """The same loop in its shortest steps; a detected step may contain several."""
    operations = sequence[loop.begin : loop.begin + loop.period * loop.count]
    period, factor = loop.period, 2
    while factor <= period:
        shorter = period // factor
        if period % factor:
            factor += 1
        elif (operations[shorter:] == operations[:-shorter]).all():
            period = shorter
        else:
            factor += 1
    return Loop(loop.begin, period, loop.count * (loop.period // period))


def _equalise_counts(loops: list[list[Loop]]) -> list[list[Loop]]:
    """The loops of each rank, with equal numbers of steps on all ranks.

    If some ranks do something in every seventh round only, a step has seven rounds on all ranks.
    """
    out = [list(rank_loops) for rank_loops in loops]
    for i in range(max(len(rank_loops) for rank_loops in loops)):
        counts = [rank_loops[i].count for rank_loops in loops if rank_loops]
        fewest = min(counts)
        for rank_loops in out:
            if rank_loops:
                loop = rank_loops[i]
                # Rounded: of one rank the first or last step may be left over.
                several = max(round(loop.count / fewest), 1)
                rank_loops[i] = Loop(loop.begin, loop.period * several, loop.count // several)
    return out


def _cut_steps(
    program: Program, loops: list[list[Loop]], kept: NDArray[np.int64], first: NDArray[np.int64]
) -> StepProgram:
    """Cut the program at the steps of its loops; the parts around the loops are steps too."""
    start = program.rank_start.astype(np.int64)
    full = max(loops, key=len)
    counts = [min(rank[i].count for rank in loops if rank) for i in range(len(full))]
    n_steps = sum(counts) + len(counts) + 1
    bounds = np.empty((program.n_ranks, n_steps + 1), np.int64)
    for rank, rank_loops in enumerate(loops):
        cuts = [np.zeros(1, np.int64)]
        for count, loop in zip(counts, rank_loops, strict=False):
            cuts.append(loop.begin + loop.period * np.arange(count + 1))
        if not rank_loops:
            cuts.append(np.zeros(n_steps - 1, np.int64))
        at = first[rank] + np.concatenate(cuts)
        # Computation before a step's first operation belongs to the step.
        bounds[rank, :-1] = np.where(at > first[rank], kept[at - 1] + 1, start[rank])
        bounds[rank, -1] = start[rank + 1]
    kind = np.concatenate(
        [[0], *([2 * i + 1] * count + [2 * i + 2] for i, count in enumerate(counts))]
    )
    return StepProgram(program, bounds, np.arange(n_steps), kind)


def _are_closed(steps: StepProgram) -> bool:
    """Whether every message of a repeated step has both its send and its receive in it."""
    program = steps.program
    sends, receives = program.sends, program.kind == Op.IRECV
    rank, peer = program.op_rank.astype(np.int64), program.peer.astype(np.int64)
    digest = np.zeros(len(program.kind), np.uint64)
    for column in (
        np.where(sends, rank, peer),
        np.where(sends, peer, rank),
        program.amount,
        program.tag,
    ):
        digest = _mixed(digest, column)
    # Sums of digests are equal if the messages are: those of sends less those of receives.
    digest[receives] = ~digest[receives] + np.uint64(1)
    digest[~(sends | receives)] = 0
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(digest)])
    of_step = np.diff(total[steps.bounds], axis=1).sum(axis=0)
    return not of_step[steps.kind % 2 == 1].any()
