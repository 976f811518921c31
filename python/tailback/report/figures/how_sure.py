"""How sure: the samples behind each number, and the estimate against the known truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import MIN_SAMPLES, FigureCase, FigureData
from tailback.report.figure_specs import sample_columns, truth_points
from tailback.report.scales import FAINT, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RED = "#b3261e"


@figure("how_sure")
def how_sure(case: FigureCase, options: Options) -> Figure | None:
    """May I trust it: samples a link, and estimates against the truth with 95 % intervals."""
    evidence = options.evidence(case)
    columns = sample_columns(evidence)
    if columns is None:
        return None
    drawn = canvas(9.2, 3.7)
    left, right = drawn.subplots(1, 2)
    _draw_histogram(left, columns)
    points = truth_points(evidence)
    if points is None:
        right.set_axis_off()
        right.text(
            0.02,
            0.9,
            "Measured run: the truth is not known.\nThe intervals come from the samples alone.",
            va="top",
            color=MUTED,
        )
    else:
        _draw_scatter(right, points, evidence)
    return drawn


def _draw_histogram(axes: Axes, columns: dict[str, Any]) -> None:
    edges = columns["edges"]
    bottom = np.zeros(len(edges) - 1)
    for series in columns["series"]:
        axes.bar(
            np.arange(len(bottom)) + 0.5,
            series["values"],
            0.94,
            bottom=bottom,
            linewidth=0,
            color=series["colour"],
            label=series["name"],
        )
        bottom += series["values"]
    # Bins double.
    axes.axvline(np.log2(MIN_SAMPLES), color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.text(
        np.log2(MIN_SAMPLES) + 0.08,
        1.0,
        f"{MIN_SAMPLES} samples",
        fontsize=8,
        transform=axes.get_xaxis_transform(),
        va="top",
    )
    step = max(1, len(bottom) // 8)
    axes.set_xticks(np.arange(0, len(edges), step), edges[::step])
    axes.set_title(columns["title"], fontsize=9)
    axes.set_xlabel(f"{columns['x']} (doubling bins)")
    axes.set_ylabel(columns["y"])
    axes.set_ylim(0, max(bottom.max(), 1) * 1.1)
    axes.grid(axis="y", color=FAINT)
    axes.legend(loc="upper left")


def _draw_scatter(axes: Axes, points: dict[str, Any], evidence: FigureData) -> None:
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, zorder=1)
    link = np.array(points["link"], np.int64)
    true, at, low, high = (np.array(points[name]) for name in ("x", "y", "low", "high"))
    for tier in sorted(set(evidence.tier[link].tolist())):
        mine = evidence.tier[link] == tier
        colour = points["colours"][tier % len(points["colours"])]
        # Noise of hashed samples may put the estimate outside its interval, which is within 0-1.
        arms = np.maximum([at[mine] - low[mine], high[mine] - at[mine]], 0.0)
        axes.errorbar(
            true[mine],
            at[mine],
            yerr=arms,
            fmt="o",
            markersize=2.4,
            color=colour,
            ecolor=colour,
            elinewidth=0.4,
            alpha=0.75,
            zorder=2,
            markeredgewidth=0,
        )
    axes.set_title(points["title"], fontsize=7.5, color=RED if points["short"] else INK, wrap=True)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.set_xlabel("true congested fraction (0–1)")
    axes.set_ylabel("estimated, with 95 % interval")
    axes.grid(color=FAINT)
