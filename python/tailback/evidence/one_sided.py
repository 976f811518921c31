"""Calls that synchronise one-sided communication, and the waits that a trace shows of them.

A fence completes after every rank of its window has entered it, except for the first one and with
assertions: its wait is that of a barrier (Scalasca's *wait at fence*), never longer than the call.
Where a trace records the window of a fence (Score-P and ``tailback record`` do), the n-th fence of
each rank on the windows of one communicator is the same one, if all ranks that call them call
equally many. Where it does not, that holds if all one-sided operations are on windows of one
communicator. In other calls (MPI_Win_wait, unlocks, flushes …) waits and transfers cannot be told
apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tailback.arrays import Ints
from tailback.traffic.readers.otf2.names import OPERATIONS, is_one_sided, normalised_call
from tailback.traffic.readers.recorded_run import RecordedCollectives, RecordedRun

_FENCE = "mpi_win_fence"
_SYNCHRONISE = frozenset(
    f"mpi_win_{name}"
    for name in (
        *("fence", "post", "start", "complete", "wait", "test"),
        *("lock", "lock_all", "unlock", "unlock_all"),
        *("flush", "flush_all", "flush_local", "flush_local_all"),
    )
)


def synchronises(call: str) -> bool:
    """Whether the call opens or closes an epoch of one-sided communication."""
    return normalised_call(call) in _SYNCHRONISE


def fence_numbers(names: list[str], name: Ints, rank: Ints, comm: Ints) -> Ints:
    """Number of the fence that each call takes part in, -1 for other calls, shape (C,).

    Args:
        names: Names of calls.
        name: Name of each call, by its index, ordered by rank and time, shape (C,).
        rank: World rank, shape (C,).
        comm: Number of the communicator of its records, -1 if none, shape (C,).

    Returns:
        -1 also for fences that cannot be matched.
    """
    out = np.full(len(name), -1, np.int64)
    fence = np.array([normalised_call(call) == _FENCE for call in names], np.bool_)
    operation = np.array([is_one_sided(call) for call in names], np.bool_)
    rows = np.flatnonzero(fence[name]) if len(names) else np.zeros(0, np.int64)
    if not len(rows):
        return out
    windows = np.unique(comm[operation[name] & (comm >= 0)])
    of = comm[rows]
    if (of < 0).any():
        if len(windows) != 1:
            # The windows of the other calls are unknown.
            rows, of = rows[of >= 0], of[of >= 0]
        else:
            of = np.where(of < 0, windows[0], of)
    first = 0
    for number in np.unique(of).tolist():
        calls = rows[of == number]
        ranks, count = np.unique(rank[calls], return_counts=True)
        if len(ranks) > 1 and len(np.unique(count)) == 1:
            out[calls] = first + np.tile(np.arange(count[0]), len(ranks))
            first += int(count[0])
    return out


def fences_of(recorded: RecordedRun) -> Ints:
    """Number of the fence that each call of a run takes part in, -1 for others, shape (C,)."""
    calls = recorded.calls
    return fence_numbers(recorded.names, calls.name, calls.rank, calls.comm)


def with_fences(recorded: RecordedRun) -> RecordedRun:
    """The run with its matched fences among the collectives, as barriers.

    Only for the analysis of waits: fences with assertions may let ranks pass, so they bound no
    clocks.
    """
    number = fences_of(recorded)
    rows = np.flatnonzero(number >= 0)
    if not len(rows):
        return recorded
    c, n = recorded.collectives, len(rows)
    none, zero = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    fences = RecordedCollectives(
        instance=number[rows] + int(c.instance.max(initial=-1)) + 1,
        operation=np.full(n, OPERATIONS.index("MPI_Barrier"), np.int64),
        comm=none,
        rank=recorded.calls.rank[rows],
        root=none,
        start_call=rows,
        call=rows,
        sent_bytes=zero,
        received_bytes=zero,
    )
    joined = {
        name: np.concatenate([getattr(c, name), getattr(fences, name)])
        for name in c.__dataclass_fields__
    }
    return replace(recorded, collectives=RecordedCollectives(**joined))
