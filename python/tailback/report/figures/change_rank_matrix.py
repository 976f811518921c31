"""Which pairs of ranks moved nearer to each other, and how much further bytes travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.report.difference import compared, pair_changes
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figures.rank_matrix import RankOrder, lines, order_of
from tailback.report.scales import CHANGE, FAINT, INK, colormap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_HOP_CHANGE = 4.0
"""Switches at the ends of the scale: from within a leaf to across the pods of a fat tree."""


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
    hops, change = distances(pairs)
    colours = [tuple(c) for c in colormap(CHANGE)(np.where(change < 0, 0.15, 0.85))]
    bars = right.bar(range(len(hops)), 100 * change, color=colours, linewidth=0)
    right.bar_label(bars, [f"{100 * c:+.0f}" for c in change], fontsize=8, padding=1.5)
    right.axhline(0, color=INK, linewidth=0.7)
    right.set_xticks(range(len(hops)), [str(h) for h in hops])
    right.set_xlabel("switches visited (rounded mean of a pair)")
    right.set_ylabel("change of the share of bytes, percentage points")
    right.margins(y=0.12)
    right.grid(axis="y", color=FAINT)
    return drawn


def moved(pairs: pl.DataFrame, order: RankOrder) -> NDArray[np.float64]:
    """Mean change of switches visited in each cell of the matrix, NaN where no pair talks."""
    place = pl.DataFrame({"rank": order.rank.astype(np.uint32), "cell": order.cell})
    cells = (
        pairs.join(place, left_on="src_rank", right_on="rank")
        .join(place, left_on="dst_rank", right_on="rank", suffix="_dst")
        .with_columns(weight=pl.col("size_bytes").cast(pl.Float64).clip(lower_bound=1.0))
        .group_by("cell", "cell_dst")
        .agg(
            ((pl.col("after") - pl.col("before")) * pl.col("weight")).sum() / pl.col("weight").sum()
        )
    )
    out = np.full((order.size, order.size), np.nan)
    row, column, value = (cells.to_series(i).to_numpy() for i in range(3))
    out[row, column] = value
    return out


def distances(pairs: pl.DataFrame) -> tuple[list[int], NDArray[np.float64]]:
    """Switches visited, and the change of the share of bytes that visit so many."""
    total = max(float(pairs["size_bytes"].sum()), 1.0)
    shares = [
        dict(
            pairs.group_by(pl.col(name).round().cast(pl.Int64))
            .agg(pl.col("size_bytes").sum() / total)
            .iter_rows()
        )
        for name in ("before", "after")
    ]
    hops = sorted({*shares[0], *shares[1]})
    return hops, np.array([shares[1].get(h, 0.0) - shares[0].get(h, 0.0) for h in hops])
