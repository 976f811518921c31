"""Random placement, the baseline for the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.placement.assign import PLACEMENTS
from tailback.placement.options import Options, refuse_unknown
from tailback.placement.problem import PlacementProblem


@PLACEMENTS.register("random")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Ranks spread at random over all slots of the chosen hosts (a function of the seed)."""
    refuse_unknown("random", options)
    return problem.random("random").permutation(problem.n_slots)[: problem.n_ranks]
