"""Links of a dragonfly: between which groups packets meet congestion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.grids import groups
from tailback.report.scales import FAINT, NO_DATA, colormap, norm

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("dragonfly_groups", per_phase=True, per_run=True)
def dragonfly_groups(case: FigureCase, options: Options) -> Figure | None:
    """Each pair of groups of a dragonfly: its worst global link; on the diagonal, local links."""
    evidence = options.evidence(case)
    grid = groups(evidence)
    if grid is None:
        return None
    cells = grid.worst(evidence.load(options.phase).fraction)
    drawn = canvas(5.6, 5.4)
    axes = drawn.add_subplot()
    axes.set_facecolor(NO_DATA)
    image = axes.imshow(
        np.ma.masked_invalid(cells),
        cmap=colormap("congestion"),
        norm=norm("congestion"),
        interpolation="nearest",
    )
    for edge in range(1, len(cells)):
        axes.axhline(edge - 0.5, color=FAINT, linewidth=0.4)
        axes.axvline(edge - 0.5, color=FAINT, linewidth=0.4)
    axes.set_xlabel(grid.axes[0])
    axes.set_ylabel(grid.axes[1])
    bar = drawn.colorbar(image, ax=axes, location="bottom", fraction=0.04, pad=0.02, aspect=50)
    bar.outline.set_visible(False)
    bar.set_label(
        "congested fraction of the worst link (0–1); diagonal: within the group;\n"
        "grey: no packet sampled"
    )
    return drawn
