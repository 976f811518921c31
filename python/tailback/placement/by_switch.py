"""Block placement on hosts sorted by leaf switch: consecutive ranks under one switch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.placement.assign import PLACEMENTS
from tailback.placement.options import Options, refuse_unknown
from tailback.placement.problem import PlacementProblem


@PLACEMENTS.register("by-switch")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Rank after rank, the hosts of one leaf switch after those of another.

    Within a leaf, and from leaf to leaf, hosts are in the order of the fabric, which is that of
    their names: ``block`` on a sorted host list, whatever the order of the allocation.
    """
    refuse_unknown("by-switch", options)
    _, leaf = np.unique(problem.slot_leaf, return_inverse=True)
    first = np.full(int(leaf.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, leaf, problem.slot_host)
    order = np.lexsort((np.arange(problem.n_slots), problem.slot_host, first[leaf]))
    return order[: problem.n_ranks]
