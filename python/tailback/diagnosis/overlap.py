"""Communication that is hidden behind computation.

Communication is *exposed* while ranks are blocked in it, and *hidden* while a rank computes and one
of its messages is in flight. Only what is exposed costs time.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from tailback.arrays import Ints
from tailback.run.run import Run
from tailback.traffic.program import SENDS, Op, Program


def may_overlap(program: Program) -> bool:
    """Whether a rank posts a message, or waits for one of several, right before it computes.

    A rank that waits for everything before it computes hides nothing, and need not be simulated
    again to find out.
    """
    before, after = program.kind[:-1], program.kind[1:]
    same_rank = program.op_rank[:-1] == program.op_rank[1:]
    posts = np.isin(before, [*SENDS, Op.IRECV, Op.WAIT])
    return bool((same_rank & posts & (after == Op.COMPUTE)).any())


def hidden_fraction(run: Run, program: Program, times: int = 1) -> float | None:
    """Share of rank time in which a rank computes while a message of its own is in flight.

    Args:
        run: A run of the observed job alone that recorded its computations.
        program: The program of that job, R ranks.
        times: Number of times that the job repeats the program.

    Returns:
        The share, 0–1; None if the run's computations are not those of the program, as those of
        skipped steps were not simulated.
    """
    compute = program.kind == Op.COMPUTE
    began = run.computations
    rank = np.tile(program.op_rank[compute], times)
    # Computations are in the order of ranks; each rank repeats its own.
    by_rank = np.argsort(rank, kind="stable")
    rank = rank[by_rank]
    if began is None or not np.array_equal(began["rank"].to_numpy(), rank):
        return None
    amount = np.tile(program.amount[compute], times)[by_rank].astype(np.int64)
    ranks = run.tables["ranks"]
    # One axis of time for all ranks, one after another.
    finish = ranks["finish_ps"].to_numpy().astype(np.int64)
    span = int(finish.max(initial=0)) + int(amount.max(initial=0)) + 1
    start = began["start_ps"].to_numpy().astype(np.int64) + span * rank
    end = start + amount
    log = run.tables["messages"].filter(pl.col("arrival_ps") > pl.col("start_ps"))
    ends = [log[end].to_numpy().astype(np.int64) for end in ("src_rank", "dst_rank")]
    at = span * np.concatenate(ends)
    low = np.tile(log["start_ps"].to_numpy().astype(np.int64), 2) + at
    high = np.tile(log["arrival_ps"].to_numpy().astype(np.int64), 2) + at
    hidden = (_covered(low, high, end) - _covered(low, high, start)).sum()
    total = int(finish.sum()) - run.scenario.job[0].start * ranks.height
    return float(hidden) / total if total > 0 else None


def _covered(low: Ints, high: Ints, until: Ints) -> Ints:
    """Length of the union of the intervals before each point in time, shape of ``until``."""
    if not len(low):
        return np.zeros_like(until)
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    # What each interval adds to the union of those before it.
    before = np.concatenate([[low[0]], reach[:-1]])
    begin = np.maximum(low, before)
    added = np.maximum(reach - begin, 0)
    sums = np.concatenate([[0], np.cumsum(added)])
    last = np.searchsorted(low, until, side="right")
    beyond = np.where(last > 0, np.maximum(reach[last - 1] - until, 0), 0)
    return np.asarray(sums[last] - beyond, np.int64)
