"""Slurm's host file for arbitrary distribution."""

from __future__ import annotations

from tailback.placement.writers.model import WRITERS, Binding, RankAssignment, RankFile


@WRITERS.register("slurm")
def render(assignment: RankAssignment, file: str) -> RankFile:
    """Slurm SLURM_HOSTFILE: one host per task, for srun --distribution=arbitrary."""
    binding = assignment.binding or Binding()
    # Without an option, the site decides how srun binds tasks.
    cores = "--cpu-bind=none"
    if binding.cores:
        cores = f"--cpus-per-task={binding.cores} --cpu-bind=cores"
    # No comments in the file: every line is a task.
    before = f"{binding.variables}SLURM_HOSTFILE="
    after = f" srun --ntasks={assignment.n_ranks} --distribution=arbitrary {cores} ./app"
    return RankFile("slurm", file, "\n".join(assignment.host) + "\n", before, after)
