"""Stall by line of the program in two runs, as a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailback.names.display import shorten_names
from tailback.report.difference import call_site_changes, compared
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figures.waterfall import time_unit
from tailback.report.scales import CHANGE, FAINT, INK, MUTED, colormap
from tailback.units import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = 14


@figure("change_back_pressure")
def change_back_pressure(case: FigureCase, options: Options) -> Figure | None:
    """Which lines of the program wait less (blue) or more (brown) than before."""
    before, after = case.attribution, case.after_attribution
    if compared(case) is None or before is None or after is None:
        return None
    found = call_site_changes(before, after)[:LINES]
    if not found:
        return None
    most = max(max(line.before, line.after) for line in found)
    unit, scale = ("packets", 1.0) if before.unit == "packets" else time_unit(most)
    drawn = canvas(9.2, 1.0 + 0.36 * len(found))
    axes = drawn.add_subplot()
    colours = colormap(CHANGE)
    for row, line in enumerate(found):
        a, b = line.before / scale, line.after / scale
        axes.barh(row, b - a, left=a, height=0.46, color=colours(0.15 if b < a else 0.85))
        axes.plot([a, a], [row - 0.36, row + 0.36], color=MUTED, linewidth=1.4)
        axes.plot([b], [row], marker="o", markersize=5, color=INK, linestyle="none")
        share = percent(b / a - 1, sign="+").replace("-", "−") if a > 0 else "new"
        axes.text(max(a, b) + 0.012 * most / scale, row, share, va="center", fontsize=8.5)
    names = shorten_names((line.line for line in found), 44)
    axes.set_yticks(range(len(found)), names, fontsize=8.5)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * most / scale)
    what = "stall" if before.unit == "ps" else "congested packets"
    axes.set_xlabel(f"{what}, {unit}; grey tick: before, dot: after")
    axes.grid(axis="x", color=FAINT)
    axes.tick_params(axis="y", length=0)
    return drawn
