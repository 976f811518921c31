"""Who talks to whom, ordered by placement: near the diagonal is near in the network."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tailback.report.evidence import Case, Evidence
from tailback.report.figure import Options, canvas, figure, shorten
from tailback.report.scales import FAINT, MUTED, colormap

BINS = 256
LEAF_LINES = 48


@figure("rank_matrix")
def rank_matrix(case: Case, options: Options) -> Figure | None:
    """Bytes between ranks, ordered by where they run, with lines between leaves and pods."""
    runs = [(f"as it is: {_placement(case.reference)}", case.reference)]
    if case.after is not None:
        remedy = case.diagnosis.remedy if case.diagnosis else None
        name = remedy.placement if remedy and remedy.placement else _placement(case.after)
        runs.append((f"with the remedy: {shorten(name, 28)}", case.after))
    found = [(title, binned(evidence)) for title, evidence in runs]
    panels = [(title, part) for title, part in found if part is not None]
    if not panels:
        return None
    most = max(float(part[0].max()) for _, part in panels)
    smallest, largest = max(most / 1e4, 1.0), max(most, 10.0)
    norm = LogNorm(smallest, largest)
    drawn = canvas(4.7 * len(panels) + 0.2, 5.2)
    axes = drawn.subplots(1, len(panels), squeeze=False)[0]
    for at, (title, part) in zip(axes, panels, strict=True):
        cells, order, leaf, pod = part
        _panel(at, cells, order, leaf, pod, norm)
        at.set_title(title)
    axes[0].set_ylabel("sending rank, in order of its host")
    bar = drawn.colorbar(
        ScalarMappable(norm, colormap("traffic")), ax=list(axes), location="bottom",
        fraction=0.04, pad=0.02, aspect=60, shrink=0.6,
    )  # fmt: skip
    bar.outline.set_visible(False)
    width = max(1, -(-len(panels[0][1][1]) // BINS))
    cell = "a pair of ranks" if width == 1 else f"a cell of {width} × {width} ranks"
    bar.set_label(f"bytes sent in {cell}, B (logarithmic; white: none)")
    low, high = int(np.ceil(np.log10(smallest))), int(np.floor(np.log10(largest)))
    ticks = [10.0**power for power in range(low, high + 1)]
    bar.set_ticks(ticks, labels=[_power(power) for power in range(low, high + 1)])
    bar.minorticks_off()
    return drawn


def binned(
    evidence: Evidence,
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Bytes between observed ranks in order of placement.

    Returns:
        ``(cells, ranks, leaf, pod)``: bytes of each cell, at most BINS × BINS; the ranks in
        order of their place; and the leaf and pod of each. None without a message log.
    """
    tables = evidence.run.tables
    ours = tables["jobs"].filter(pl.col("observed")).select("job")
    where = (
        tables["ranks"]
        .join(ours, on="job", how="semi")
        .join(tables["nodes"].select("node", "switch"), on="node", how="left")
        .join(
            tables["switches"].select(pl.col("switch").cast(pl.Int64), "pod"),
            on="switch", how="left",
        )
        .sort(pl.col("pod").fill_null(-1), "switch", "node", "rank")
    )  # fmt: skip
    pairs = tables["messages"].group_by("src_rank", "dst_rank").agg(pl.col("size_bytes").sum())
    place = where.select("rank").with_row_index("place")
    pairs = pairs.join(place, left_on="src_rank", right_on="rank").join(
        place, left_on="dst_rank", right_on="rank", suffix="_dst"
    )
    if where.height == 0 or pairs.height == 0:
        return None
    width = max(1, -(-where.height // BINS))
    size = -(-where.height // width)
    cells = np.zeros((size, size))
    row = pairs["place"].to_numpy().astype(np.int64) // width
    column = pairs["place_dst"].to_numpy().astype(np.int64) // width
    np.add.at(cells, (row, column), pairs["size_bytes"].to_numpy().astype(np.float64))
    return (
        cells,
        where["rank"].to_numpy().astype(np.int64),
        where["switch"].fill_null(-1).to_numpy().astype(np.int64),
        where["pod"].fill_null(-1).to_numpy().astype(np.int64),
    )


def _panel(
    axes: Axes, cells: NDArray[np.float64], order: NDArray[np.int64], leaf: NDArray[np.int64],
    pod: NDArray[np.int64], norm: LogNorm,
) -> None:  # fmt: skip
    count = len(order)
    axes.imshow(
        np.ma.masked_equal(cells, 0), cmap=colormap("traffic"), norm=norm, interpolation="nearest",
        extent=(0, count, count, 0), zorder=2,
    )  # fmt: skip
    leaves = (np.flatnonzero(np.diff(leaf)) + 1.0).tolist()
    pods = (np.flatnonzero(np.diff(pod)) + 1.0).tolist()
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
    axes.set_xlabel("receiving rank, in order of its host")
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)


def _placement(evidence: Evidence) -> str:
    names = evidence.run.tables["jobs"].filter(pl.col("observed"))["placement"].to_list()
    return shorten(", ".join(dict.fromkeys(names)), 28)


def _power(exponent: int) -> str:
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
