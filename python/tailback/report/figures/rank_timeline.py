"""What each rank did when: computation, waits by kind and transfer of a measured run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailback.evidence.split import PART_NAMES
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figure_specs import time_unit
from tailback.report.scales import KIND_COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("rank_timeline")
def rank_timeline(case: FigureCase, _options: Options) -> Figure | None:
    """What each rank did most in each window of the measured time: compute, wait or transfer."""
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Patch

    timeline = case.ranks
    if timeline is None:
        return None
    rows = len(timeline.hosts)
    drawn = canvas(9.2, 1.5 + min(max(0.09 * rows, 0.9), 5.0))
    axes = drawn.subplots()
    unit, scale = time_unit(float(timeline.edges_ps[-1]))
    colours = ListedColormap([KIND_COLOURS[kind] for kind in timeline.kinds])
    axes.pcolormesh(
        timeline.edges_ps / scale,
        timeline.first_rank,
        np.argmax(timeline.spent_ps, axis=0),
        cmap=colours,
        norm=BoundaryNorm(np.arange(len(timeline.kinds) + 1) - 0.5, len(timeline.kinds)),
        rasterized=True,
    )
    axes.invert_yaxis()
    axes.set_ylabel("rank")
    axes.set_xlabel(f"measured time since the first rank began, {unit}")
    drawn.legend(
        handles=[
            Patch(color=KIND_COLOURS[kind], label=PART_NAMES[kind]) for kind in timeline.kinds
        ],
        loc="outside lower center",
        ncols=4,
        fontsize=8,
    )
    return drawn
