"""Links of a dragonfly: between which groups packets meet congestion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.topologies import parse
from tailback.fabric.topologies.dragonfly import Grouped
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.scales import FAINT, NO_DATA, colormap, norm

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("dragonfly_groups", per_phase=True, per_run=True)
def dragonfly_groups(case: FigureCase, options: Options) -> Figure | None:
    """Each pair of groups of a dragonfly: its worst global link; on the diagonal, local links."""
    evidence = options.evidence(case)
    section = evidence.run.scenario.fabric.topology
    if section is None or not isinstance(parse(section), Grouped):
        return None
    cells = between_groups(evidence, evidence.load(options.phase).fraction)
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
    axes.set_xlabel("to group")
    axes.set_ylabel("from group")
    bar = drawn.colorbar(image, ax=axes, location="bottom", fraction=0.04, pad=0.02, aspect=50)
    bar.outline.set_visible(False)
    bar.set_label(
        "congested fraction of the worst link (0–1); diagonal: within the group;\n"
        "grey: no packet sampled"
    )
    return drawn


def between_groups(evidence: FigureData, value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Highest value of the links from each group (row) to each (column), NaN without data."""
    n_nodes = evidence.run.tables["nodes"].height
    group = evidence.run.tables["switches"]["pod"].to_numpy().astype(np.int64)
    src = evidence.links["src"].to_numpy().astype(np.int64) - n_nodes
    dst = evidence.links["dst"].to_numpy().astype(np.int64) - n_nodes
    inner = np.flatnonzero((src >= 0) & (dst >= 0))
    count = int(group.max(initial=0)) + 1
    out = np.full((count, count), np.nan)
    np.fmax.at(out, (group[src[inner]], group[dst[inner]]), value[inner])
    return out
