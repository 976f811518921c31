"""Block placement, the default of most launchers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.placement.assign import PLACEMENTS
from tailback.placement.options import Options, refuse_unknown
from tailback.placement.problem import PlacementProblem


@PLACEMENTS.register("block")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Rank i on slot i: host after host in allocation order (row-major for a grid)."""
    refuse_unknown("block", options)
    return np.arange(problem.n_ranks)
