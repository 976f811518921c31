"""The congested-fraction plot of two runs as a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailback.names.display import shorten
from tailback.report.difference import compared, link_change
from tailback.report.figure import Options, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figures.congested_fraction import Shading, draw_fabric
from tailback.report.scales import CHANGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("change_congested_fraction", per_phase=True)
def change_congested_fraction(case: FigureCase, options: Options) -> Figure | None:
    """Where packets meet more (brown) or less (blue, dashed) congestion than before."""
    both = compared(case)
    if both is None:
        return None
    change = link_change(*both, options.phase)
    total_weight = link_change(*both).weight[both[0].layout.halves]
    what = "whole runs" if options.phase is None else f"phase {shorten(options.phase, 40)}"
    shading = Shading(
        change.value,
        np.nan_to_num(change.weight),
        float(total_weight.max(initial=0)),
        CHANGE,
        "change of the congested fraction, after − before (−1 to 1)",
        f"{what}.  Dashed: less than before.",
    )
    return draw_fabric(both[0], shading, options.compact)
