"""Node ranks of hosts for torchrun, as PyTorch and Megatron-LM start training."""

from __future__ import annotations

import itertools
import shlex

from tailback.errors import PlacementError
from tailback.placement.writers.model import WRITERS, RankAssignment, RankFile


@WRITERS.register("torchrun")
def render(assignment: RankAssignment, file: str) -> RankFile:
    """Node ranks for torchrun: host and node rank per line, for --node-rank on each host.

    Raises:
        PlacementError: A host does not have consecutive ranks, as many as the others, in the order
            of its accelerators: torchrun numbers ranks so.
    """
    runs = [(host, len(list(ranks))) for host, ranks in itertools.groupby(assignment.host)]
    each = runs[0][1]
    is_numbered = len({host for host, _ in runs}) == len(runs) and all(
        count == each for _, count in runs
    )
    if not is_numbered or any(
        slot != rank % each for rank, slot in enumerate(assignment.slot.tolist())
    ):
        raise PlacementError(
            "torchrun gives each host consecutive ranks, in the order of its accelerators",
            remedy="use a placement that moves whole hosts, such as by-switch",
        )
    lines = [f"{host} {node}" for node, (host, _) in enumerate(runs)]
    before = (
        f"torchrun --nnodes={len(runs)} --nproc-per-node={each} "
        f"--master-addr={shlex.quote(runs[0][0])} "
        """--node-rank=$(awk -v h="$(hostname -s)" '$1 == h { print $2 }' """
    )
    return RankFile("torchrun", file, "\n".join(lines) + "\n", before, ") train.py")
