"""Slurm's host file for arbitrary distribution."""

from __future__ import annotations

import shlex

from tailback.placement.writers.model import RankAssignment, RankFile


def render(assignment: RankAssignment, file: str) -> RankFile:
    """Slurm SLURM_HOSTFILE: one host per task, for srun --distribution=arbitrary."""
    # No comments in the file: every line is a task.
    command = (
        f"SLURM_HOSTFILE={shlex.quote(file)} "
        f"srun --ntasks={assignment.n_ranks} --distribution=arbitrary ./app"
    )
    return RankFile("slurm", file, "\n".join(assignment.host) + "\n", command)
