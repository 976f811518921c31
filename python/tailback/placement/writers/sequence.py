"""One host per rank for Open MPI's sequential mapper."""

from __future__ import annotations

import shlex

from tailback.placement.writers.model import WRITERS, Binding, RankAssignment, RankFile


@WRITERS.register("openmpi-seq")
def render(assignment: RankAssignment, file: str) -> RankFile:
    """Open MPI host sequence: one host per line in rank order, for --map-by seq."""
    binding = assignment.binding or Binding()
    # Without an option, Open MPI binds each rank to a core or to a socket.
    bound = f"seq:PE={binding.cores}" if binding.cores else "seq"
    options = f"--map-by {bound} --bind-to {'core' if binding.cores else 'none'}"
    if binding.threads:
        options += f" -x OMP_NUM_THREADS={binding.threads}"
    command = f"mpirun -np {assignment.n_ranks} {options} --hostfile "
    lines = [f"# {command}{shlex.quote(file)} ./app", *assignment.host]
    return RankFile("openmpi-seq", file, "\n".join(lines) + "\n", command, " ./app")
