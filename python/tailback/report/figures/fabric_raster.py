"""Every directed link as one pixel: rows are switches by tier and pod, columns their ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.layout import Block, blocks
from tailback.report.scales import INK, MUTED, NO_DATA, NO_DATA_HATCH, colormap, norm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 8
"""Blocks side by side; more continue on the next line."""

LINE_ROOM = 0.46
"""Room for titles and ticks between lines, inches."""


@figure("fabric_raster", per_phase=True, per_run=True)
def fabric_raster(case: FigureCase, options: Options) -> Figure | None:
    """Congested fraction of every directed link: one pixel a port, nothing overdrawn."""
    evidence = options.evidence(case)
    value = evidence.load(options.phase).fraction
    label = "congested fraction of the link that leaves the port (0–1)"
    return draw_raster(evidence, value, "congestion", label)


def draw_raster(
    evidence: FigureData, value: NDArray[np.float64], quantity: str, label: str
) -> Figure:
    """Draw one value of every directed link, shape (L,), NaN for no data.

    Args:
        evidence: The run whose links they are.
        value: The values.
        quantity: Their colour scale.
        label: Label of the scale, with its unit.
    """
    lines = [
        band[start : start + ACROSS]
        for band in blocks(evidence)
        for start in range(0, len(band), ACROSS)
    ]
    across = max(len(line) for line in lines)
    wide = min(max(7.6, 1.2 + 1.95 * across), 13.0)
    tall = [max(0.042 * max(b.cells.shape[0] for b in line), 0.14) for line in lines]
    high = sum(tall) + LINE_ROOM * len(lines) + 0.75
    drawn = canvas(wide, high)
    drawn.set_layout_engine("none")  # places are computed: far quicker for hundreds of blocks
    room, y = wide - 0.95, high - 0.2
    band = ""
    for line, height in zip(lines, tall, strict=True):
        alone = sum(b.band == line[0].band for other in lines for b in other) == 1
        each = room / (1 if alone else across)
        for column, block in enumerate(line):
            share = height * block.cells.shape[0] / max(b.cells.shape[0] for b in line)
            box = (0.8 + column * each, y - share, each - (0.0 if alone else 0.3), share)
            at = drawn.add_axes((box[0] / wide, box[1] / high, box[2] / wide, box[3] / high))
            _draw_block(at, block, value, quantity, column == 0 and block.band != band)
            band = block.band
        y -= height + LINE_ROOM
    _scale(drawn, wide, high, quantity, label)
    return drawn


def _scale(drawn: Figure, wide: float, high: float, quantity: str, label: str) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.patches import Rectangle

    at = drawn.add_axes((0.8 / wide, 0.5 / high, 0.36, 0.12 / high))
    bar = drawn.colorbar(
        ScalarMappable(norm(quantity), colormap(quantity)), cax=at, orientation="horizontal"
    )
    bar.outline.set_visible(False)
    bar.set_label(label, loc="left")
    at.add_patch(
        Rectangle(
            (1.08, 0.0),
            0.06,
            1.0,
            transform=at.transAxes,
            clip_on=False,
            facecolor=NO_DATA,
            edgecolor=NO_DATA_HATCH,
            hatch="//////",
            linewidth=0.4,
        )
    )
    at.text(
        1.16,
        0.5,
        "no packet sampled: no data; white: no cable",
        transform=at.transAxes,
        va="center",
        fontsize=8.5,
        color=MUTED,
    )


def _draw_block(
    axes: Axes, block: Block, value: NDArray[np.float64], quantity: str, first: bool
) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    from matplotlib.ticker import MaxNLocator

    rows, ports = block.cells.shape
    cabled = block.cells >= 0
    shown = np.where(cabled, value[np.maximum(block.cells, 0)], np.nan)
    extent = (block.first_port - 0.5, block.first_port + ports - 0.5, rows - 0.5, -0.5)
    blank = cabled & np.isnan(shown)
    axes.set_xlim(extent[0], extent[1])
    axes.set_ylim(extent[2], extent[3])
    if blank.any():
        corners = [
            (extent[0] + left + x * width, top - 0.5 + y * height)
            for top, height, left, width in _rectangles(blank)
            for x, y in ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))
        ]
        codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * (len(corners) // 5)
        axes.add_patch(
            PathPatch(
                Path(corners, codes),
                facecolor=NO_DATA,
                edgecolor=NO_DATA_HATCH,
                hatch="//////",
                linewidth=0,
            )
        )
    axes.imshow(
        np.ma.masked_invalid(shown),
        cmap=colormap(quantity),
        norm=norm(quantity),
        extent=extent,
        aspect="auto",
        interpolation="nearest",
        zorder=2,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    title = block.band if block.pod < 0 else f"pod {block.pod}"
    axes.set_title(title, fontsize=8.5, fontweight="normal", pad=2.5)
    axes.tick_params(labelsize=7, length=2, pad=1.5)
    axes.set_yticks([0, rows - 1] if rows > 1 else [0])
    axes.set_yticklabels([str(block.switches[0]), str(block.switches[-1])][: min(rows, 2)])
    if first:
        axes.set_ylabel(f"{block.band}\nswitch", fontsize=8, color=INK, loc="top")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("port", fontsize=7.5, labelpad=1)


def _rectangles(mask: NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    """Cover the true cells with few rectangles: (top, height, left, width)."""
    open_runs: dict[tuple[int, int], int] = {}
    out = []
    for row in range(mask.shape[0] + 1):
        line = mask[row] if row < mask.shape[0] else np.zeros(mask.shape[1], bool)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(np.int8), [0]])))
        runs = {(int(a), int(b)) for a, b in edges.reshape(-1, 2)}
        for run in [run for run in open_runs if run not in runs]:
            top = open_runs.pop(run)
            out.append((top, row - top, run[0], run[1] - run[0]))
        for run in runs:
            open_runs.setdefault(run, row)
    return sorted(out)
