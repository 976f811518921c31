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
    filled = np.bincount(at, minlength=len(position))
    full = assignment.n_ranks // assignment.ranks_per_host
    expected = np.minimum(
        np.maximum(assignment.n_ranks - np.arange(len(filled)) * assignment.ranks_per_host, 0),
        assignment.ranks_per_host,
    )
    wrong = np.flatnonzero(filled != expected)
    if len(wrong):
        host = assignment.allocation[int(wrong[0])]
        raise PlacementError(
            f"a Cray rank order fills nodes one after the other, but host {host!r} has "
            f"{filled[wrong[0]]} ranks instead of {expected[wrong[0]]}",
            remedy=f"use as many hosts as the ranks fill ({full} full ones), or another rank file",
        )
    order = np.lexsort((assignment.slot, at)).tolist()
    command = (
        f"srun --ntasks={assignment.n_ranks} --ntasks-per-node={assignment.ranks_per_host} ./app"
    )
    copy = "" if file == "MPICH_RANK_ORDER" else f"cp {shlex.quote(file)} MPICH_RANK_ORDER && "
    command = f"{copy}MPICH_RANK_REORDER_METHOD=3 {command}"
    lines = [f"# {command}"]
    for start in range(0, len(order), _PER_LINE):
        lines.append(",".join(str(rank) for rank in order[start : start + _PER_LINE]))
    return RankFile("cray", file, "\n".join(lines) + "\n", command)
