"""The fabric raster of two runs as a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailback.report.difference import compared, link_change
from tailback.report.figure import Options, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figures.fabric_raster import draw_raster
from tailback.report.scales import CHANGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("change_fabric_raster", per_phase=True)
def change_fabric_raster(case: FigureCase, options: Options) -> Figure | None:
    """Change of the congested fraction of every directed link: one pixel a port."""
    both = compared(case)
    if both is None:
        return None
    value = link_change(*both, options.phase).value
    label = "change of the congested fraction, after − before (−1 to 1)"
    return draw_raster(both[0], value, CHANGE, label)
