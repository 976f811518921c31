"""Traces written of simulated runs, as a tracer that is part of the machine would write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tailback.evidence.call_profile import times_between_computations
from tailback.run.run import Run
from tailback.traffic.program import SENDS, Op, Program
from tests.factories.evidence_traces import WORLD, Script

RESOLUTION = 10**12
"""Ticks a second: picoseconds, so that nothing is rounded."""


def scripts_of(program: Program, run: Run) -> list[Script]:
    """Events of each rank in a run that recorded its computations.

    All calls of a stretch follow each other without a gap; what completes requests takes the time.
    """
    simulated = times_between_computations(run, program)
    assert simulated is not None
    durations, counts = simulated
    first = np.concatenate([[0], np.cumsum(counts)])
    out = []
    for rank in range(program.n_ranks):
        lengths = iter(np.rint(durations[first[rank] : first[rank + 1]]).astype(int).tolist())
        low, high = (int(program.rank_start[rank + k]) for k in (0, 1))
        now, script = 1000, Script([(0, "enter", "MPI_Init"), (1000, "leave", "MPI_Init")])
        stretch: list[int] = []
        for at in range(low, high + 1):
            if at < high and program.kind[at] != Op.COMPUTE:
                stretch.append(at)
                continue
            script += _stretch(program, stretch, now, length := next(lengths))
            now += length
            stretch = []
            if at < high:
                now += int(program.amount[at])
        out.append([*script, (now, "enter", "MPI_Finalize"), (now + 9, "leave", "MPI_Finalize")])
    return out


def _stretch(program: Program, operations: list[int], begin: int, length: int) -> Script:
    """Calls of one stretch, one tick each but for the last, which takes the rest."""
    out: list[tuple[Any, ...]] = []
    posted: list[int] = []
    for place, at in enumerate(operations):
        last = place == len(operations) - 1
        enter = begin + place
        leave = begin + length if last else enter + 1
        op, peer, size = Op(int(program.kind[at])), int(program.peer[at]), int(program.amount[at])
        if op == Op.IRECV:
            posted.append(at)
            call, records = "MPI_Irecv", [(leave, "mpi_irecv_request", at)]
        elif op in SENDS:
            posted.append(at)
            call = "MPI_Isend"
            records = [(enter, "mpi_isend", peer, WORLD, 7, size, at)]
        else:
            assert op == Op.WAITALL
            call, records = "MPI_Waitall", [_done(program, request, leave) for request in posted]
            posted = []
        out += [(enter, "enter", call), *records, (leave, "leave", call)]
    return out


def _done(program: Program, at: int, leave: int) -> tuple[Any, ...]:
    if program.kind[at] in SENDS:
        return (leave, "mpi_isend_complete", at)
    return (leave, "mpi_irecv", int(program.peer[at]), WORLD, 7, int(program.amount[at]), at)
