"""Open MPI's rankfile."""

from __future__ import annotations

import shlex

from tailback.placement.writers.model import WRITERS, Binding, RankAssignment, RankFile


@WRITERS.register("openmpi")
def render(assignment: RankAssignment, file: str) -> RankFile:
    """Open MPI 4 and 5 rankfile: host and cores of each rank, to which it binds the rank."""
    binding = assignment.binding or Binding()
    name = shlex.quote(file)
    threads = f" -x OMP_NUM_THREADS={binding.threads}" if binding.threads else ""
    start, cores = f"mpirun -np {assignment.n_ranks}", max(binding.cores, 1)
    command = f"{start} --map-by rankfile:file={name}{threads} ./app"
    older = f"{start} --rankfile {name}{threads} ./app"
    lines = [f"# Open MPI 5: {command}", f"# Open MPI 4: {older}"]
    if not binding.cores:
        # Open MPI ignores --bind-to none with a rankfile.
        lines.append("# binds each rank to one core: for ranks with threads use --map-by seq")
    for rank, (host, slot) in enumerate(
        zip(assignment.host, assignment.slot.tolist(), strict=True)
    ):
        first = slot * cores
        span = f"{first}-{first + cores - 1}" if cores > 1 else str(first)
        lines.append(f"rank {rank}={host} slot={span}")
    return RankFile(
        "openmpi", file, "\n".join(lines) + "\n", f"{start} --rankfile ", f"{threads} ./app"
    )
