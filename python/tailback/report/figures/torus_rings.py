"""Links of a torus or mesh: rings against positions in each direction, and slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailback.arrays import Floats
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.grids import rings, slices
from tailback.report.scales import MUTED, NO_DATA, colormap, norm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@figure("torus_rings", per_phase=True, per_run=True)
def torus_rings(case: FigureCase, options: Options) -> Figure | None:
    """Each dimension of a torus: every ring against the position along it, both ways; slices."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import MaxNLocator

    evidence = options.evidence(case)
    wide, narrow = rings(evidence), slices(evidence)
    if not wide:
        return None
    value = evidence.load(options.phase).fraction
    lines = len(wide) // 2
    drawn = canvas(10.0, 1.0 + 1.9 * lines + (2.1 if narrow else 0))
    each = max(len(narrow), 1)  # columns of the layout that a raster takes; a slice takes two
    layout = drawn.add_gridspec(lines + bool(narrow), 2 * each)
    every = []
    for place, grid in enumerate(wide):
        line, side = divmod(place, 2)
        axes = drawn.add_subplot(layout[line, side * each : (side + 1) * each])
        every.append(axes)
        _draw_cells(axes, grid.worst(value))
        axes.set_title(grid.name)
        axes.set_xlabel(grid.axes[0])
        axes.set_ylabel(grid.axes[1])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(6, integer=True))
    for place, grid in enumerate(narrow):
        axes = drawn.add_subplot(layout[lines, 2 * place : 2 * place + 2])
        every.append(axes)
        _draw_cells(axes, grid.worst(value))
        axes.set_title(grid.name, fontsize=7.5, fontweight="normal")
        axes.set_xticks([])
        axes.set_yticks([])
    bar = drawn.colorbar(
        ScalarMappable(norm("congestion"), colormap("congestion")),
        ax=every,
        location="bottom",
        fraction=0.03,
        pad=0.02,
        aspect=60,
        shrink=0.6,
    )
    bar.outline.set_visible(False)
    last = "; last row: X–Y slices that met most, the worst link that leaves a switch"
    bar.set_label(
        f"congested fraction of the link that leaves a position (0–1){last * bool(narrow)}"
    )
    return drawn


def _draw_cells(axes: Axes, cells: Floats) -> None:
    axes.set_facecolor(NO_DATA)
    axes.imshow(
        np.ma.masked_invalid(cells),
        cmap=colormap("congestion"),
        norm=norm("congestion"),
        aspect="auto",
        interpolation="nearest",
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    axes.tick_params(color=MUTED, labelsize=7.5)
