"""Links against time in two runs as a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailback.report.difference import compared
from tailback.report.figure import Options, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figures.link_time import draw_band, raster_axes
from tailback.report.scales import CHANGE, colormap, norm
from tailback.report.timeline import Timeline, TimelineBand

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("change_link_time")
def change_link_time(case: FigureCase, options: Options) -> Figure | None:
    """When links are more or less congested than before, at equal shares of each run's time."""
    from matplotlib.cm import ScalarMappable

    both = compared(case)
    if both is None:
        return None
    pairs = band_changes(*aligned(*(Timeline(evidence) for evidence in both)))
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


def aligned(before: Timeline, after: Timeline) -> tuple[Timeline, Timeline]:
    """The same courses in equally many frames, so that frames are equal shares of their time."""
    frames = min(before.frames, after.frames)
    return tuple(  # type: ignore[return-value]
        timeline if timeline.frames == frames else Timeline(timeline.evidence, frames)
        for timeline in (before, after)
    )


def band_changes(before: Timeline, after: Timeline) -> list[TimelineBand]:
    """Bands of two aligned courses with the change of their cells.

    A row that one run does not use in a frame counts as 0 there. It is NaN where neither run uses
    it, or where one has too few samples.
    """
    out = []
    for earlier, other in zip(before.bands, after.bands, strict=True):
        cells = [np.where(band.used, band.cells, 0.0) for band in (earlier, other)]
        used = earlier.used | other.used
        change = np.where(used, cells[1] - cells[0], np.nan)
        out.append(
            TimelineBand(earlier.tier, earlier.direction, change, earlier.links, earlier.row, used)
        )
    return out
