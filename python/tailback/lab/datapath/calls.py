"""The MPI calls that receivers tell apart: where a process is when a packet arrives for it."""

from __future__ import annotations

from typing import Final

CALLS: Final = (
    "MPI_Send",
    "MPI_Recv",
    "MPI_Sendrecv",
    "MPI_Isend",
    "MPI_Irecv",
    "MPI_Wait",
    "MPI_Waitall",
    "MPI_Waitany",
    "MPI_Waitsome",
    "MPI_Test",
    "MPI_Testall",
    "MPI_Probe",
    "MPI_Iprobe",
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Reduce",
    "MPI_Allreduce",
    "MPI_Gather",
    "MPI_Gatherv",
    "MPI_Scatter",
    "MPI_Scatterv",
    "MPI_Allgather",
    "MPI_Allgatherv",
    "MPI_Alltoall",
    "MPI_Alltoallv",
    "MPI_Reduce_scatter",
    "MPI_Scan",
)
"""Their numbers count from 1; 0 is outside of them."""


def defines() -> list[str]:
    """Preprocessor options for ``calls.c``."""
    numbered = (f"CALL({number},{name})" for number, name in enumerate(CALLS, 1))
    return [f"-DCALLS={' '.join(numbered)}"]
