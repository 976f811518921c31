"""The back-pressure flame graph: who waits for whom, from the saturated link to the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailback.names.display import shorten
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figure_specs import time_unit
from tailback.report.flame import Frame, by_kind, prune_frames, title
from tailback.report.scales import FAINT, INK, MUTED, luminance, table
from tailback.units import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOTS = 12
MIN_SHARE = 0.002
WIDE = 10.5
POINTS_A_LETTER = 4.3
FONT_SIZE = 7.5


@figure("back_pressure")
def back_pressure(case: FigureCase, options: Options) -> Figure | None:
    """Who blocks whom: saturated links below, what waits for them above, calls and ranks on top."""
    attribution = case.attribution
    if attribution is None or attribution.flame.value <= 0:
        return None
    unit, scale = (
        ("packets", 1.0) if attribution.unit == "packets" else time_unit(attribution.flame.value)
    )
    kinds = prune_frames(by_kind(attribution.flame), ROOTS, MIN_SHARE * attribution.flame.value)
    places = Frame("all", "all", children=attribution.flame.children[:ROOTS])
    places.value = sum(child.value for child in places.children)
    flames = [kinds, prune_frames(places, ROOTS, MIN_SHARE * places.value)]
    deep = [_depth(flame) - 1 for flame in flames]
    drawn = canvas(WIDE, 1.8 + 0.3 * sum(deep))
    panels = drawn.subplots(2, 1, height_ratios=deep)
    for axes, flame, rows in zip(panels, flames, deep, strict=True):
        left = 0.0
        for child in flame.children:
            _draw_flame(axes, child, left, 0, scale, 72 * 0.94 * WIDE / (flame.value / scale))
            left += child.value
        axes.set_xlim(0, flame.value / scale)
        axes.set_ylim(0, rows)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=FAINT)
    panels[0].set_title("saturated links joined by tier")
    share, count = percent(places.value / attribution.flame.value), len(places.children)
    panels[1].set_title(f"the {count} saturated links with most of it ({share}), one by one")
    what = (
        f"stall, {unit}: time beyond free flow, summed over messages"
        if attribution.unit == "ps"
        else "congested packets (no message log: no times and no ranks)"
    )
    panels[1].set_xlabel(
        f"{what}\nbottom: saturated links; above: links that wait for them, the line of the "
        "program (grey), ranks (light)"
    )
    return drawn


def _depth(frame: Frame) -> int:
    return 1 + max((_depth(child) for child in frame.children), default=0)


def _draw_flame(
    axes: Axes, frame: Frame, left: float, row: int, scale: float, points_a_unit: float
) -> None:
    """Draw a frame at ``left`` (in its unit of value) and everything that waits on it above it."""
    from matplotlib.patches import Rectangle

    colour = _colour(frame, row)
    width = frame.value / scale
    axes.add_patch(
        Rectangle(
            (left / scale, row + 0.04),
            width,
            0.92,
            facecolor=colour,
            edgecolor="white",
            linewidth=0.5,
        )
    )
    letters = int(width * points_a_unit / POINTS_A_LETTER) - 1
    if letters >= 4:
        dark = float(luminance(table("stall", 9)[_shade_colour(row)][None, :])[0]) < 0.35
        axes.text(
            left / scale + 0.4 * POINTS_A_LETTER / points_a_unit,
            row + 0.5,
            shorten(title(frame), letters),
            va="center",
            fontsize=FONT_SIZE,
            clip_on=True,
            color="white" if frame.link >= 0 and dark else INK,
        )
    for child in frame.children:
        _draw_flame(axes, child, left, row + 1, scale, points_a_unit)
        left += child.value


def _shade_colour(row: int) -> int:
    """Saturated links are darkest, and waiting links are lighter the further up they are."""
    return max(6 - row, 3)


def _colour(frame: Frame, row: int) -> str | tuple[float, ...]:
    if frame.link < 0 and frame.kind == "link":
        return MUTED + "55"
    if frame.kind == "link":
        return tuple(table("stall", 9)[_shade_colour(row)] / 255.0)
    return "#c3cad3" if frame.kind == "line" else "#e8ebef"
