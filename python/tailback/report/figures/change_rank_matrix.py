"""Which pairs of ranks moved nearer to each other, and how much further bytes travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailback.report.difference import compared, pair_changes
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figure_specs import distance_change_columns
from tailback.report.figures.rank_matrix import lines
from tailback.report.rank_pairs import MAX_HOP_CHANGE, moved, order_of
from tailback.report.scales import CHANGE, FAINT, INK, colormap

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("change_rank_matrix")
def change_rank_matrix(case: FigureCase, options: Options) -> Figure | None:
    """Pairs of ranks that moved nearer (blue) or further apart (brown), and bytes by distance."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    both = compared(case)
    pairs = pair_changes(*both) if both else None
    if both is None or pairs is None or pairs.height == 0:
        return None
    order = order_of(both[0])
    drawn = canvas(9.6, 5.0)
    left, right = drawn.subplots(1, 2, width_ratios=[1.15, 1])
    count = len(order.rank)
    ends = Normalize(-MAX_HOP_CHANGE, MAX_HOP_CHANGE)
    left.imshow(
        np.ma.masked_invalid(moved(pairs, order)),
        cmap=colormap(CHANGE),
        norm=ends,
        interpolation="nearest",
        extent=(0, count, count, 0),
        zorder=2,
    )
    lines(left, order)
    left.set_ylabel("sending rank, in order of its host before")
    left.set_xlabel("receiving rank")
    bar = drawn.colorbar(
        ScalarMappable(ends, colormap(CHANGE)),
        ax=left,
        location="bottom",
        fraction=0.04,
        pad=0.02,
        aspect=40,
        shrink=0.8,
    )
    bar.outline.set_visible(False)
    bar.set_label("change of switches visited, mean over bytes (white: none)")
    columns = distance_change_columns(pairs)
    change = np.array(columns["series"][0]["values"])
    colours = [tuple(c) for c in colormap(CHANGE)(np.where(change < 0, 0.15, 0.85))]
    bars = right.bar(range(len(change)), change, color=colours, linewidth=0)
    right.bar_label(bars, fmt="%+.0f", fontsize=8, padding=1.5)
    right.axhline(0, color=INK, linewidth=0.7)
    right.set_xticks(range(len(change)), columns["labels"])
    right.set_xlabel(f"{columns['x']} (rounded mean of a pair)")
    right.set_ylabel(columns["y"])
    right.margins(y=0.12)
    right.grid(axis="y", color=FAINT)
    return drawn
