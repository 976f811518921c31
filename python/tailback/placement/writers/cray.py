"""Cray MPICH's rank order."""

from __future__ import annotations

import shlex

import numpy as np

from tailback.errors import PlacementError
from tailback.placement.writers.model import Assignment, RankFile

_PER_LINE = 16


def render(assignment: Assignment, file: str) -> RankFile:
    """Cray MPICH_RANK_ORDER: ranks in the order in which they fill the nodes."""
    position = {host: i for i, host in enumerate(assignment.allocation)}
    at = np.array([position[host] for host in assignment.host], np.int64)
    each = assignment.ranks_per_host
    filled = np.bincount(at, minlength=len(position))
    nodes = int(np.count_nonzero(filled))
    # srun spreads ranks evenly over its nodes, so only full ones, or a single one, are certain.
    expected = np.where(np.arange(len(filled)) < nodes, each, 0)
    if nodes == 1:
        expected[0] = assignment.n_ranks
    wrong = np.flatnonzero(filled != expected)
    if len(wrong):
        host = assignment.allocation[int(wrong[0])]
        raise PlacementError(
            "a Cray rank order needs full nodes, one after the other, for srun spreads ranks "
            f"evenly over nodes they do not fill, but host {host!r} has {filled[wrong[0]]} ranks "
            f"instead of {expected[wrong[0]]}",
            remedy=f"use a multiple of {each} ranks on as many of the first hosts as they fill, or "
            "another rank file",
        )
    order = np.lexsort((assignment.slot, at)).tolist()
    command = f"srun --nodes={nodes} --ntasks={assignment.n_ranks} --ntasks-per-node={each} ./app"
    copy = "" if file == "MPICH_RANK_ORDER" else f"cp {shlex.quote(file)} MPICH_RANK_ORDER && "
    command = f"{copy}MPICH_RANK_REORDER_METHOD=3 {command}"
    lines = [f"# {command}", "# nodes in this order:"]
    for start in range(0, nodes, _PER_LINE):
        lines.append("# " + " ".join(assignment.allocation[start : start + _PER_LINE]))
    for start in range(0, len(order), _PER_LINE):
        lines.append(",".join(str(rank) for rank in order[start : start + _PER_LINE]))
    return RankFile("cray", file, "\n".join(lines) + "\n", command)
