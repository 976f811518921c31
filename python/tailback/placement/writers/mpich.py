"""Host file of MPICH's hydra, also for Intel MPI and MVAPICH."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence

from tailback.placement.writers.model import WRITERS, Binding, RankAssignment, RankFile


@WRITERS.register("mpich")
def render(assignment: RankAssignment, file: str) -> RankFile:
    """MPICH hydra host file: host:n in rank order; hydra starts again if ranks remain."""
    # MPICH accepts -f as well, but Intel MPI then uses a host once, however often it is listed.
    binding = assignment.binding or Binding()
    options = f"-bind-to core:{binding.cores} " if binding.cores else ""
    if binding.threads:
        options += f"-genv OMP_NUM_THREADS {binding.threads} "
    command = f"mpiexec -n {assignment.n_ranks} {options}-machinefile "
    lines = [f"# {command}{shlex.quote(file)} ./app"]
    hosts = _one_round(assignment.host)
    runs = [(host, sum(1 for _ in run)) for host, run in itertools.groupby(hosts)]
    again = len(runs) - len({host for host, _ in runs})
    if again:
        # Each time a host is listed anew, hydra counts another node; MPICH shares memory by node.
        lines += [
            f"# {again} times a host is listed again later. MPICH treats that as another",
            "# node: ranks of one host then may talk through its adapter, not through memory.",
            "# Under Slurm srun with SLURM_HOSTFILE, one host a rank, avoids it.",
        ]
    lines += [f"{host}:{count}" for host, count in runs]
    return RankFile("mpich", file, "\n".join(lines) + "\n", command, " ./app")


def _one_round(host: Sequence[str]) -> Sequence[str]:
    """One period of the hosts if they repeat to the end; else all of them."""
    left: set[str] = set()
    for rank in range(1, len(host)):
        if host[rank] == host[rank - 1]:
            continue
        left.add(host[rank - 1])
        if host[rank] in left:
            if all(there == host[at % rank] for at, there in enumerate(host)):
                return host[:rank]
            break
    return host
