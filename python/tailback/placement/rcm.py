"""Reverse Cuthill–McKee: ranks that communicate get close numbers (thesis §4.2.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from tailback.placement.assign import PLACEMENTS
from tailback.placement.options import Options, refuse_unknown
from tailback.placement.problem import PlacementProblem


@PLACEMENTS.register("rcm")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Reverse Cuthill–McKee order of the ranks on the slots in allocation order.

    It considers which ranks communicate, but neither how much nor where leaves begin, so it seldom
    helps (Taffet, 2019, section 4.2.1); it is included for comparison.
    """
    refuse_unknown("rcm", options)
    graph = problem.graph
    n = problem.n_ranks
    binary = csr_array(
        (
            np.ones(len(graph.neighbour)),
            graph.neighbour.astype(np.int32),
            graph.start.astype(np.int32),
        ),
        shape=(n, n),
    )
    order = reverse_cuthill_mckee(binary, symmetric_mode=True)
    slots = np.empty(n, np.int64)
    slots[order] = np.arange(n)
    return slots
