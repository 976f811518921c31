"""Calls that synchronise one-sided communication: which waits a trace tells, and which not.

A fence completes after every rank of its window has entered it, except for the first one and with
assertions: its wait is that of a barrier (Scalasca's *wait at fence*), never longer than the call.
A trace does not record the window of a call. Fences of different ranks are matched by their number
if all one-sided operations are on windows of one communicator and all ranks that call a fence call
equally many. In other calls (MPI_Win_wait, unlocks, flushes …) waits and transfers cannot be told
apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailback.evidence.recorded import RecordedCollectives, RecordedRun
from tailback.traffic.readers.otf2_names import OPERATIONS, is_one_sided, normalised_call

Ints = NDArray[np.int64]

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
        -1 for all calls if fences cannot be matched.
    """
    out = np.full(len(name), -1, np.int64)
    fence = np.array([normalised_call(one) == _FENCE for one in names], np.bool_)
    operation = np.array([is_one_sided(one) for one in names], np.bool_)
    rows = np.flatnonzero(fence[name]) if len(names) else np.zeros(0, np.int64)
    if not len(rows):
        return out
    windows = comm[operation[name] & (comm >= 0)]
    ranks, count = np.unique(rank[rows], return_counts=True)
    if len(ranks) < 2 or len(np.unique(windows)) != 1 or len(np.unique(count)) != 1:
        return out
    out[rows] = np.tile(np.arange(count[0]), len(ranks))
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
        comm=none, rank=recorded.calls.rank[rows], root=none, start_call=rows, call=rows,
        sent_bytes=zero, received_bytes=zero,
    )  # fmt: skip
    joined = {
        name: np.concatenate([getattr(c, name), getattr(fences, name)])
        for name in c.__dataclass_fields__
    }
    return replace(recorded, collectives=RecordedCollectives(**joined))
