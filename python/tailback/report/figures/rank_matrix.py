"""Who talks to whom, ordered by placement: near the diagonal is near in the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.names.display import shorten, shorten_names
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.rank_pairs import RankOrder, binned, byte_limits
from tailback.report.scales import FAINT, MUTED, colormap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

LEAF_LINES = 48


@figure("rank_matrix")
def rank_matrix(case: FigureCase, options: Options) -> Figure | None:
    """Bytes between ranks, ordered by where they run, with lines between leaves and pods."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    names = shorten_names(case.names, 24)
    runs = [(f"{names[0]}: {_placement(case.reference)}", case.reference)]
    if case.after is not None:
        remedy = case.diagnosis.remedy if case.diagnosis else None
        name = remedy.name if remedy and remedy.name else _placement(case.after)
        runs.append((f"{names[1]}: {shorten(name, 28)}", case.after))
    matrices = [(title, binned(evidence)) for title, evidence in runs]
    panels = [(title, part) for title, part in matrices if part is not None]
    if not panels:
        return None
    smallest, largest = byte_limits(max(float(part[0].max()) for _, part in panels))
    norm = LogNorm(smallest, largest)
    drawn = canvas(4.7 * len(panels) + 0.2, 5.2)
    axes = drawn.subplots(1, len(panels), squeeze=False)[0]
    for at, (title, part) in zip(axes, panels, strict=True):
        _draw_panel(at, *part, norm)
        at.set_title(title)
    axes[0].set_ylabel("sending rank, in order of its host")
    bar = drawn.colorbar(
        ScalarMappable(norm, colormap("traffic")),
        ax=list(axes),
        location="bottom",
        fraction=0.04,
        pad=0.02,
        aspect=60,
        shrink=0.6,
    )
    bar.outline.set_visible(False)
    width = panels[0][1][1].width
    cell = "a pair of ranks" if width == 1 else f"a cell of {width} × {width} ranks"
    bar.set_label(f"bytes sent in {cell}, B (logarithmic; white: none)")
    low, high = int(np.ceil(np.log10(smallest))), int(np.floor(np.log10(largest)))
    ticks = [10.0**power for power in range(low, high + 1)]
    bar.set_ticks(ticks, labels=[_power(power) for power in range(low, high + 1)])
    bar.minorticks_off()
    return drawn


def _draw_panel(axes: Axes, cells: NDArray[np.float64], order: RankOrder, norm: LogNorm) -> None:
    count = len(order.rank)
    axes.imshow(
        np.ma.masked_equal(cells, 0),
        cmap=colormap("traffic"),
        norm=norm,
        interpolation="nearest",
        extent=(0, count, count, 0),
        zorder=2,
    )
    lines(axes, order)
    axes.set_xlabel("receiving rank, in order of its host")


def lines(axes: Axes, order: RankOrder) -> None:
    """Lines between leaves and pods on a matrix of ranks."""
    count = len(order.rank)
    leaves = (np.flatnonzero(np.diff(order.leaf)) + 1.0).tolist()
    pods = (np.flatnonzero(np.diff(order.pod)) + 1.0).tolist()
    if len(leaves) <= LEAF_LINES:
        for edge in leaves:
            axes.axhline(edge, color=FAINT, linewidth=0.5, zorder=1)
            axes.axvline(edge, color=FAINT, linewidth=0.5, zorder=1)
    else:  # too many to draw across: ticks along the edges show the leaves
        axes.vlines(leaves, -0.018 * count, 0, color=MUTED, linewidth=0.25, clip_on=False)
        axes.hlines(leaves, -0.018 * count, 0, color=MUTED, linewidth=0.25, clip_on=False)
    for edge in pods:
        axes.axhline(edge, color=MUTED, linewidth=0.7, zorder=3)
        axes.axvline(edge, color=MUTED, linewidth=0.7, zorder=3)
    axes.set_xlim(0, count)
    axes.set_ylim(count, 0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)


def _placement(evidence: FigureData) -> str:
    names = evidence.run.tables["jobs"].filter(pl.col("observed"))["placement"].to_list()
    return shorten(", ".join(dict.fromkeys(names)), 28)


def _power(exponent: int) -> str:
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
