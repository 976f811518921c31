"""Links against time in two runs as a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailback.report.difference import compared
from tailback.report.figure import Options, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figures.link_time import draw_band, raster_axes
from tailback.report.scales import CHANGE, colormap, norm
from tailback.report.timeline import band_changes, timelines_with_equal_frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("change_link_time")
def change_link_time(case: FigureCase, options: Options) -> Figure | None:
    """When links are more or less congested than before, at equal shares of each run's time."""
    from matplotlib.cm import ScalarMappable

    both = compared(case)
    if both is None:
        return None
    pairs = band_changes(*timelines_with_equal_frames(list(both)))
    if not pairs or pairs[0].cells.shape[1] < 2:
        return None
    drawn, axes = raster_axes(pairs, 0)
    edges = np.linspace(0, 100, pairs[0].cells.shape[1] + 1)
    for at, band in zip(axes, pairs, strict=True):
        draw_band(at, band.cells, edges, colormap(CHANGE), norm(CHANGE))
    axes[-1].set_xlabel(f"time, % of each run's own ({both[0].time_meaning})")
    bar = drawn.colorbar(
        ScalarMappable(norm(CHANGE), colormap(CHANGE)),
        ax=axes,
        location="bottom",
        fraction=0.03,
        pad=0.02,
        aspect=60,
        shrink=0.6,
    )
    bar.outline.set_visible(False)
    bar.set_label(
        "change of the highest congested fraction in a cell, after − before (−1 to 1); hatched: "
        "too few samples"
    )
    return drawn
