"""Open MPI's rankfile."""

from __future__ import annotations

import shlex

from tailback.placement.writers.model import RankAssignment, RankFile


def render(assignment: RankAssignment, file: str) -> RankFile:
    """Open MPI 4 and 5 rankfile: host and slot of each rank."""
    name = shlex.quote(file)
    command = f"mpirun -np {assignment.n_ranks} --map-by rankfile:file={name} ./app"
    older = f"mpirun -np {assignment.n_ranks} --rankfile {name} ./app"
    lines = [f"# Open MPI 5: {command}", f"# Open MPI 4: {older}"]
    pairs = zip(assignment.host, assignment.slot.tolist(), strict=True)
    lines += [f"rank {rank}={host} slot={slot}" for rank, (host, slot) in enumerate(pairs)]
    return RankFile("openmpi", file, "\n".join(lines) + "\n", older)
