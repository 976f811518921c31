"""The host file of MPICH's hydra, also of Intel MPI and MVAPICH."""

from __future__ import annotations

import itertools
import shlex

from tailback.placement.writers.model import Assignment, RankFile


def render(assignment: Assignment, file: str) -> RankFile:
    """MPICH hydra host file: host:n in rank order, a host as often as needed."""
    command = f"mpiexec -n {assignment.n_ranks} -f {shlex.quote(file)} ./app"
    lines = [f"# {command}"]
    for host, run in itertools.groupby(assignment.host):
        lines.append(f"{host}:{sum(1 for _ in run)}")
    return RankFile("mpich", file, "\n".join(lines) + "\n", command)
