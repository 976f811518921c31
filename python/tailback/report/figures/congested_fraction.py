"""The congested-fraction plot (Taffet, 2019, section 3.4), with both directions of every cable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailback.names.display import shorten
from tailback.report.figure import Options, bare, canvas, figure
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.layout import FabricLayout, switch_tier_name
from tailback.report.scales import (
    CHANGE,
    FAINT,
    INK,
    MUTED,
    NO_DATA,
    NO_DATA_HATCH,
    colormap,
    norm,
    table,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIER_HEIGHT = 9.0
HOST_HEIGHT = 0.34
HOST_TOP = 1.1
LINE_WIDTH = (0.15, 2.6)
SHADES = 64
THICKNESSES = 12


@dataclass(frozen=True, eq=False)
class Shading:
    """Values and colours of the links in a drawing of the fabric.

    Attributes:
        value: Shade of each link, shape (L,), NaN for no data.
        weight: Packets through each link, shape (L,): the width.
        most: Packets of the widest line.
        quantity: Scale of the values.
        label: Label of the scale, with its unit.
        words: Subject of the drawing, written before the legend.
    """

    value: NDArray[np.float64]
    weight: NDArray[np.float64]
    most: float
    quantity: str
    label: str
    words: str


@figure("congested_fraction", per_phase=True, per_run=True)
def congested_fraction(case: FigureCase, options: Options) -> Figure | None:
    """Where packets met congestion: tiers in rows, pods in columns, hosts under their leaf."""
    evidence = options.evidence(case)
    weight = case.observed.load().weight
    most = float(weight[case.observed.layout.halves].max(initial=0))
    return draw_fabric(evidence, shading_of(evidence, options.phase, most), options.compact)


def shading_of(evidence: FigureData, phase: str | None, most: float = 0.0) -> Shading:
    """The congested fraction of links, in one phase or (None) the whole run.

    Args:
        evidence: The run.
        phase: The phase.
        most: Packets of the widest line, at least; for drawings to be comparable.
    """
    load = evidence.load(phase)
    label = "congested fraction: packets that met congestion there ÷ packets through it (0–1)"
    what = "whole run" if phase is None else f"phase {shorten(phase, 40)}"
    most = max(most, float(load.weight[evidence.layout.halves].max(initial=0)))
    return Shading(load.fraction, load.weight, most, "congestion", label, f"{what}.")


def draw_fabric(evidence: FigureData, shading: Shading, compact: bool) -> Figure:
    """Draw the fabric, its links and hosts shaded."""
    layout = evidence.layout
    tall = (layout.tiers - 1) * TIER_HEIGHT + HOST_TOP + layout.node_rows * HOST_HEIGHT
    wide = min(max(7.6, 0.1 * layout.width), 15.0)
    drawn = canvas(wide, min(max(0.24 * tall, 3.2), 7.5))
    axes = drawn.add_subplot()
    draw_links(axes, evidence, shading, compact)
    _draw_legend(drawn, axes, shading)
    return drawn


def draw_congestion(
    axes: Axes,
    evidence: FigureData,
    phase: str | None = None,
    *,
    most: float = 0.0,
    tiers: int | None = None,
) -> None:
    """Draw the congested fraction of links into a panel of a figure of your own.

    Args:
        axes: The panel.
        evidence: The run.
        phase: The phase, None for the whole run.
        most: Packets of the widest line, at least; for panels to be comparable.
        tiers: Show only so many tiers of switches from below; all when None.
    """
    draw_links(axes, evidence, shading_of(evidence, phase, most), compact=True)
    if tiers is not None:
        axes.set_ylim(top=(tiers - 1) * TIER_HEIGHT * 1.15)


def draw_links(axes: Axes, evidence: FigureData, shading: Shading, compact: bool) -> None:
    """Draw the links, hosts and switches on separate axes, without a legend."""
    layout = evidence.layout
    bare(axes)
    _draw_links(axes, layout, shading)
    _draw_hosts(axes, evidence, shading, compact)
    _draw_switches(axes, layout)
    axes.set_xlim(-0.9, layout.width + 0.9)
    axes.set_ylim(
        -HOST_TOP - layout.node_rows * HOST_HEIGHT - 1.6, (layout.tiers - 1) * TIER_HEIGHT + 1.0
    )


def line_widths(weight: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """Line widths in points: the square root of traffic, so that light links stay visible."""
    low, high = LINE_WIDTH
    return np.asarray(low + (high - low) * np.sqrt(np.clip(weight / max(most, 1.0), 0, 1)))


def _draw_links(axes: Axes, layout: FabricLayout, shading: Shading) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    value, weight = shading.value[layout.halves], shading.weight[layout.halves]
    segments = layout.segments * np.array([1, TIER_HEIGHT, 1, TIER_HEIGHT])
    shown = np.flatnonzero(~np.isnan(value))
    width = line_widths(weight[shown], shading.most)
    # Lines of one shade and width are one path: a network of 50,000 links stays a small file.
    ends = norm(shading.quantity)
    shade = np.round(np.asarray(ends(value[shown])) * (SHADES - 1)).astype(np.int64)
    thickness = np.round(width / LINE_WIDTH[1] * THICKNESSES).astype(np.int64)
    colours = table(shading.quantity, SHADES) / 255.0
    # Strongest last: they lie on top. Of differences these are both ends of the scale.
    keys = np.unique(shade * 100 + thickness)
    middle = (SHADES - 1) / 2 if shading.quantity == CHANGE else 0.0
    for key in sorted(keys.tolist(), key=lambda key: (abs(key // 100 - middle), key)):
        mine = shown[(shade * 100 + thickness) == key]
        codes = np.tile([Path.MOVETO, Path.LINETO], len(mine))
        less = shading.quantity == CHANGE and key // 100 < middle - 1
        axes.add_patch(
            PathPatch(
                Path(segments[mine].reshape(-1, 2), codes),
                fill=False,
                capstyle="butt",
                zorder=2,
                edgecolor=tuple(colours[key // 100]),
                linestyle=(0, (3, 1)) if less else "-",
                linewidth=max(key % 100, 0.6) * LINE_WIDTH[1] / THICKNESSES,
            )
        )


def _draw_hosts(axes: Axes, evidence: FigureData, shading: Shading, compact: bool) -> None:
    """Boxes shaded by the ejection link of their node; hatched where it was never sampled."""
    from matplotlib.collections import PolyCollection

    layout, links = evidence.layout, evidence.links
    shade = np.full(len(layout.node_x), np.nan)
    ejection = np.flatnonzero(links["to_node"].to_numpy())
    shade[links["dst"].to_numpy()[ejection]] = shading.value[ejection]
    placed = np.flatnonzero(~np.isnan(layout.node_x))
    left, top = layout.node_x[placed], -HOST_TOP - layout.node_row[placed] * HOST_HEIGHT
    right, bottom = left + 0.92 * layout.node_width, top - 0.86 * HOST_HEIGHT
    boxes = np.stack([left, bottom, right, bottom, right, top, left, top], axis=1).reshape(-1, 4, 2)
    has_estimate = ~np.isnan(shade[placed])
    axes.add_collection(
        PolyCollection(
            list(boxes[has_estimate]),
            array=shade[placed][has_estimate],
            cmap=colormap(shading.quantity),
            norm=norm(shading.quantity),
            edgecolors="none",
            rasterized=compact,
        ),
        autolim=False,
    )
    axes.add_collection(
        PolyCollection(
            list(boxes[~has_estimate]),
            facecolors=NO_DATA,
            edgecolors=NO_DATA_HATCH,
            linewidths=0.25,
            rasterized=compact,
        ),
        autolim=False,
    )


def _draw_switches(axes: Axes, layout: FabricLayout) -> None:
    size = float(np.clip(1100 / max(layout.width, 1), 7, 46))
    axes.scatter(
        layout.switch_x,
        layout.switch_y * TIER_HEIGHT,
        s=size,
        facecolors="white",
        edgecolors=MUTED,
        linewidths=0.7,
        zorder=3,
    )
    bottom = -HOST_TOP - layout.node_rows * HOST_HEIGHT
    crowd = len(layout.pods)
    for number, left, right in layout.pods:
        if number >= 0:
            axes.plot([left + 0.1, right - 0.1], [bottom - 0.3] * 2, color=MUTED, linewidth=0.8)
            name = f"pod {number}" if crowd < 16 else str(number)
            axes.text(
                (left + right) / 2,
                bottom - 0.55,
                name,
                ha="center",
                va="top",
                fontsize=8.5,
                color=INK,
            )
    if crowd >= 16:
        axes.text(-0.9, bottom - 0.55, "pod ", ha="right", va="top", fontsize=8.5)
    for height in range(layout.tiers):
        name = switch_tier_name(height)
        axes.text(-0.9, height * TIER_HEIGHT, name + " ", ha="right", va="center", fontsize=8.5)
    axes.text(-0.9, (bottom - HOST_TOP) / 2, "hosts ", ha="right", va="center", fontsize=8.5)


def _draw_legend(drawn: Figure, axes: Axes, shading: Shading) -> None:
    from matplotlib.cm import ScalarMappable

    bar = drawn.colorbar(
        ScalarMappable(norm(shading.quantity), colormap(shading.quantity)),
        ax=axes,
        location="bottom",
        fraction=0.035,
        pad=0.02,
        aspect=60,
        shrink=0.42,
        anchor=(0.0, 0.5),
    )
    bar.outline.set_visible(False)
    bar.set_label(shading.label, loc="left")
    bar.ax.text(
        1.04,
        0.5,
        f"{shading.words}  Upper half of an edge: the up link; lower half: the down link.\n"
        "Width: packets through the link (square root).  Box: the host's ejection link.\n"
        "No line, or a grey framed box: no packet was sampled there (no data, not zero).",
        transform=bar.ax.transAxes,
        va="center",
        fontsize=8,
        color=MUTED,
        linespacing=1.35,
    )
    bar.ax.tick_params(color=FAINT)
