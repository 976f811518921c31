"""When links are congested: links against time, the phases as a strip on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailback.names.display import shorten_names
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figure_specs import time_unit
from tailback.report.layout import tier_direction_name
from tailback.report.scales import FAINT, INK, MUTED, NO_DATA, NO_DATA_HATCH, colormap
from tailback.report.timeline import CELL_SAMPLES, PHASES_SHOWN, Timeline, TimelineBand

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure


@figure("link_time", per_run=True)
def link_time(case: FigureCase, options: Options) -> Figure | None:
    """When, and in which phase: the most congested links and switches of each tier, over time."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    evidence = options.evidence(case)
    if evidence.windows.height < 2 or evidence.samples.height == 0:
        return None
    course = Timeline(evidence)
    phases = min(len(evidence.phases), PHASES_SHOWN)
    drawn, axes = raster_axes(course.bands, phases)
    edges, unit = time_edges(course)
    draw_phases(axes[0], course, edges)
    for at, band in zip(axes[1:], course.bands, strict=True):
        draw_band(at, band.cells, edges, colormap("congestion"), Normalize(0, 1))
    axes[-1].set_xlabel(f"time, {unit} ({evidence.time_meaning})")
    bar = drawn.colorbar(
        ScalarMappable(Normalize(0, 1), colormap("congestion")),
        ax=list(axes),
        location="bottom",
        fraction=0.03,
        pad=0.02,
        aspect=60,
        shrink=0.6,
    )
    bar.outline.set_visible(False)
    bar.set_label(
        "highest congested fraction in a cell (0–1), of a link or of a switch's links together "
        f"with\n{CELL_SAMPLES} or more hop samples in the window; hatched: fewer samples"
    )
    return drawn


def raster_axes(bands: list[TimelineBand], phases: int) -> tuple[Figure, list[Axes]]:
    """A figure with a strip of ``phases`` and below it a raster for each band, named."""
    drawn = canvas(9.2, 1.9 + 0.34 * phases + 1.05 * len(bands))
    strip = [0.28 * phases] if phases else []
    axes = drawn.subplots(
        len(strip) + len(bands),
        1,
        sharex=True,
        squeeze=False,
        height_ratios=strip + [1.0] * len(bands),
    )[:, 0]
    for at, band in zip(axes[len(strip) :], bands, strict=True):
        name = tier_direction_name(band.tier, band.direction, band.flat).replace(" → ", "\n→ ")
        at.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8.5)
        at.text(
            1.005,
            0.5,
            f"{len(band.links)} links",
            transform=at.transAxes,
            va="center",
            fontsize=7.5,
            color=MUTED,
            rotation=270,
        )
    return drawn, list(axes)


def time_edges(course: Timeline) -> tuple[NDArray[np.float64], str]:
    """Edges of the frames, shape (F + 1,), and their unit."""
    unit, scale = time_unit(float(course.edges_ps[-1]))
    return course.edges_ps / scale, unit


def draw_phases(axes: Axes, course: Timeline, edges: NDArray[np.float64]) -> None:
    """Draw the strip of phases: darkness is the phase's share of the samples of a frame."""
    names, share = course.phase_shares()
    axes.pcolormesh(
        edges, np.arange(len(names) + 1), share, cmap="Greys", vmin=0, vmax=1.25, rasterized=True
    )
    shown = shorten_names(names, 22)
    axes.set_yticks(np.arange(len(names)) + 0.5, shown, fontsize=8)
    axes.invert_yaxis()
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="x", labelbottom=False)
    axes.set_title(
        "phases (darkness: share of the window's samples)",
        fontsize=8.5,
        fontweight="normal",
        color=MUTED,
    )
    for spine in axes.spines.values():
        spine.set_color(FAINT)


def draw_band(
    axes: Axes,
    cells: NDArray[np.float64],
    edges: NDArray[np.float64],
    colours: Colormap,
    norm: Normalize,
) -> None:
    """Draw one band, shape (rows, F); hatched where a cell is NaN."""
    from matplotlib.patches import Rectangle

    rows = cells.shape[0]
    axes.add_patch(
        Rectangle(
            (edges[0], 0),
            edges[-1] - edges[0],
            rows,
            facecolor=NO_DATA,
            zorder=0,
            edgecolor=NO_DATA_HATCH,
            hatch="//////",
            linewidth=0,
        )
    )
    axes.pcolormesh(
        edges,
        np.arange(rows + 1),
        np.ma.masked_invalid(cells),
        cmap=colours,
        norm=norm,
        rasterized=True,
        zorder=2,
    )
    axes.set_ylim(rows, 0)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelcolor=INK)
