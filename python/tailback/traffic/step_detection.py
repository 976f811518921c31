"""Detects the steps that a program repeats, by comparing the operations of each rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.traffic.program import Op, Program
from tailback.traffic.steps import StepProgram, count_within, posted_as

FEWEST_STEPS = 24
"""Minimum repetitions of a loop: of fewer, most would be simulated anyway."""

CANDIDATES = 12
"""Number of operations whose recurrence distances are tried as the length of a step."""


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

    All properties of operations are compared except the duration of computations. There is no loop
    if ranks differ in their number of loops, or if a message crosses the boundary of a step.
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
    found: dict[int, list[Loop]] = {}
    for rank in [longest, *(r for r in range(program.n_ranks) if r != longest)]:
        sequence = digest[first[rank] : first[rank + 1]]
        found[rank] = _loops(sequence, hints)
        expected = len(found[longest])
        if expected == 0 or (len(sequence) and len(found[rank]) != expected):
            return None
    loops = [found[rank] for rank in range(program.n_ranks)]
    steps = _cut(program, loops, kept, first)
    return steps if all(_is_closed(steps, i) for i in _first_of_kind(steps)) else None


def _digests(program: Program, kept: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash of each of the operations ``kept``, none of which is a computation."""
    kind = program.kind[kept]
    amount = np.where(program.posts[kept], program.amount[kept], np.uint64(0))
    columns = [program.peer[kept], amount, program.tag[kept], program.label[kept]]
    if (kind == Op.WAIT).any():
        before = count_within(program.posts, program.rank_start.astype(np.int64))
        columns.append((before - posted_as(program, before))[kept])
    out = kind.astype(np.uint64)
    for column in columns:
        # Multiplication by an odd constant and a shift mix all bits (Steele et al., 2014).
        out ^= column.astype(np.int64).view(np.uint64)
        out *= np.uint64(0xBF58476D1CE4E5B9)
        out ^= out >> np.uint64(29)
    return out


def _loops(sequence: NDArray[np.uint64], hints: list[int]) -> list[Loop]:
    """Loops in program order; of overlapping ones the longest is kept."""
    if len(sequence) < FEWEST_STEPS:
        return []
    best = _longest(sequence, hints) if hints else None
    if best is None or best.period * best.count < len(sequence) // 2:
        best = _longest(sequence, _periods(sequence)) or best
    if best is None:
        return []
    if best.period not in hints:
        hints.append(best.period)
    end = best.begin + best.period * best.count
    later = [Loop(end + loop.begin, loop.period, loop.count)
             for loop in _loops(sequence[end:], hints)]  # fmt: skip
    return [*_loops(sequence[: best.begin], hints), best, *later]


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
        gaps = np.diff(np.flatnonzero(place == value))
        values, counts = np.unique(gaps, return_counts=True)
        periods |= set(values[np.argsort(-counts, kind="stable")[:2]].tolist())
    return sorted(periods)


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


def _cut(
    program: Program, loops: list[list[Loop]], kept: NDArray[np.int64], first: NDArray[np.int64]
) -> StepProgram:
    """Divide the program into the part before its loops, each step, the parts between, the end."""
    start = program.rank_start.astype(np.int64)
    full = max(loops, key=len)
    counts = [min(rank[i].count for rank in loops if rank) for i in range(len(full))]
    n_steps = sum(counts) + len(counts) + 1
    bounds = np.empty((program.n_ranks, n_steps + 1), np.int64)
    for rank, own in enumerate(loops):
        cuts = [np.zeros(1, np.int64)]
        for count, loop in zip(counts, own, strict=False):
            cuts.append(loop.begin + loop.period * np.arange(count + 1))
        if not own:
            cuts.append(np.zeros(n_steps - 1, np.int64))
        at = first[rank] + np.concatenate(cuts)
        # Computation before a step's first operation belongs to the step.
        bounds[rank, :-1] = np.where(at > first[rank], kept[at - 1] + 1, start[rank])
        bounds[rank, -1] = start[rank + 1]
    kind = np.concatenate(
        [[0], *([2 * i + 1] * count + [2 * i + 2] for i, count in enumerate(counts))]
    )
    return StepProgram(program, bounds, np.arange(n_steps), kind)


def _first_of_kind(steps: StepProgram) -> list[int]:
    """One step of each repeated kind."""
    return [int(np.flatnonzero(steps.kind == kind)[1]) for kind in range(1, steps.kind.max(), 2)]


def _is_closed(steps: StepProgram, step: int) -> bool:
    """Whether every message of a step has both its send and its receive in it."""
    kept = steps.only(np.array([step])).program
    rank, sends = kept.op_rank, kept.sends
    receives = kept.kind == Op.IRECV
    columns = (kept.amount, kept.tag)
    sent = np.stack([rank[sends], kept.peer[sends], *(c[sends] for c in columns)])
    received = np.stack([kept.peer[receives], rank[receives], *(c[receives] for c in columns)])
    if sent.shape != received.shape:
        return False
    return bool((sent[:, np.lexsort(sent)] == received[:, np.lexsort(received)]).all())
