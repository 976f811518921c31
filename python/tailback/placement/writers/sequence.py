"""One host per rank for Open MPI's sequential mapper."""

from __future__ import annotations

import shlex

from tailback.placement.writers.model import RankAssignment, RankFile


def render(assignment: RankAssignment, file: str) -> RankFile:
    """Open MPI host sequence: one host per line in rank order, for --map-by seq."""
    command = f"mpirun -np {assignment.n_ranks} --map-by seq --hostfile {shlex.quote(file)} ./app"
    lines = [f"# {command}", *assignment.host]
    return RankFile("openmpi-seq", file, "\n".join(lines) + "\n", command)
