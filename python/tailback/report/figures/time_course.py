"""The course of the run: how much arrived and how much of it met congestion, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figures.link_time import draw_phases, time_edges
from tailback.report.layout import tier_direction_name
from tailback.report.scales import FAINT, INK
from tailback.report.timeline import CELL_SAMPLES, Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TIER_COLOURS = ("#5d6875", "#c2571a", "#2c5c9e", "#7a5ea8", "#2f7f86")
_DIRECTION_LINES = {"up": "-", "down": (0, (4, 1.5)), "flat": (0, (1, 1.2))}


@figure("time_course", per_run=True)
def time_course(case: FigureCase, options: Options) -> Figure | None:
    """What arrived and where it met congestion, window by window."""
    evidence = options.evidence(case)
    if evidence.windows.height < 2 or evidence.samples.height == 0:
        return None
    course = Timeline(evidence, evidence.windows.height)
    edges, unit = time_edges(course)
    strip = 0.3 * min(len(evidence.phases), 8)
    drawn = canvas(9.2, 4.4 + 0.2 * min(len(evidence.phases), 8))
    axes = drawn.subplots(3, 1, sharex=True, height_ratios=[strip, 1.5, 2.2])
    draw_phases(axes[0], course, edges)

    seconds = np.maximum(evidence.windows["length_ps"].to_numpy(), 1) * 1e-12
    rate = course.delivered_bytes() / seconds / 1e9
    rate_unit = "GB/s"
    if rate.max(initial=0) >= 5000:
        rate, rate_unit = rate / 1e3, "TB/s"
    axes[1].stairs(rate, edges, fill=True, color="#9fb3c8", linewidth=0)
    axes[1].stairs(rate, edges, color="#3f5d7d", linewidth=1)
    axes[1].set_ylabel(f"delivered\n(arrival), {rate_unit}")
    axes[1].set_ylim(bottom=0)

    for tier, direction, load in course.tiers():
        # A fraction of a few samples is mostly noise.
        enough = load.samples >= CELL_SAMPLES
        axes[2].stairs(
            np.where(enough, load.fraction, np.nan),
            edges,
            baseline=None,
            linewidth=1.5,
            color=_TIER_COLOURS[tier % len(_TIER_COLOURS)],
            linestyle=_DIRECTION_LINES.get(direction, "-"),
            label=tier_direction_name(tier, direction, evidence.flat),
        )
    axes[2].set_ylabel("congested\nfraction (0–1)")
    axes[2].set_ylim(0, 1)
    axes[2].set_xlabel(
        f"time, {unit} (congestion: {evidence.time_meaning}; fractions from {CELL_SAMPLES} "
        "or more samples in a window)"
    )
    axes[2].legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.28), labelcolor=INK)
    for at in axes[1:]:
        at.grid(axis="y", color=FAINT)
    return drawn
