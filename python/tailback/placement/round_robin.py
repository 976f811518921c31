"""Round-robin placements: consecutive ranks on different hosts, or on different leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.placement.assign import PLACEMENTS
from tailback.placement.options import Options, refuse_unknown
from tailback.placement.problem import PlacementProblem, first_appearance


@PLACEMENTS.register("round-robin")
def place_hosts(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """One rank on each host in turn (cyclic), in allocation order."""
    refuse_unknown("round-robin", options)
    return _deal(problem, problem.slot_host)


@PLACEMENTS.register("round-robin-leaves")
def place_leaves(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """One rank under each leaf switch in turn, hosts of a leaf in allocation order."""
    refuse_unknown("round-robin-leaves", options)
    return _deal(problem, problem.slot_leaf)


def _deal(problem: PlacementProblem, key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Slots in turn: the first of every group, then the second of every group, and so on."""
    group = first_appearance(key)
    order = np.argsort(group, kind="stable")
    size = np.bincount(group)
    turn = np.empty(problem.n_slots, np.int64)
    turn[order] = np.arange(problem.n_slots) - np.repeat(np.cumsum(size) - size, size)
    return np.lexsort((group, turn))[: problem.n_ranks]
