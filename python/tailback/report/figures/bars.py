"""Figures of bars and columns, drawn from the specifications that the viewer draws, too."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tailback.names.display import shorten_names
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase
from tailback.report.figure_specs import (
    before_after_bars,
    changed_line_bars,
    distance_columns,
    time_unit,
    waterfall_bars,
)
from tailback.report.scales import FAINT, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@figure("waterfall")
def waterfall(case: FigureCase, options: Options) -> Figure | None:
    """Where the time goes: from the ideal time to that of the run, one cause after the other."""
    return _bars(waterfall_bars(case))


@figure("before_after")
def before_after(case: FigureCase, options: Options) -> Figure | None:
    """Time of the job as it is and with every candidate that was re-simulated."""
    return _bars(before_after_bars(case))


@figure("change_back_pressure")
def change_back_pressure(case: FigureCase, options: Options) -> Figure | None:
    """Which lines of the program wait less (blue) or more (brown) than before."""
    return _bars(changed_line_bars(case), ends=True)


def _bars(spec: dict[str, Any] | None, *, ends: bool = False) -> Figure | None:
    """Horizontal bars; ``ends`` marks where each begins and ends."""
    if spec is None:
        return None
    rows = spec["rows"]
    drawn = canvas(7.6, 0.8 + 0.36 * len(rows))
    axes = drawn.add_subplot()
    longest = max(max(row["from"], row["to"], row["high"] or 0) for row in rows)
    unit, scale = time_unit(longest) if spec["unit"] == "ps" else ("packets", 1.0)
    for at, row in enumerate(rows):
        _bar(axes, at, row, scale, longest, ends=ends)
    for at, (row, below) in enumerate(pairwise(rows)):
        if row["to"] in (below["from"], below["to"]):
            axes.plot([row["to"] / scale] * 2, [at + 0.31, at + 0.69], color=MUTED, lw=0.7)
    if spec["line"] is not None:
        axes.axvline(spec["line"] / scale, color=MUTED, linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(rows)), shorten_names((row["name"] for row in rows), 44))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.24 * longest / scale)
    note = f"\n{spec['note']}" if spec["note"] else ""
    axes.set_xlabel(f"{spec['axis']}, {unit}{note}", wrap=True)
    axes.grid(axis="x", color=FAINT)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return drawn


def _bar(
    axes: Axes, at: int, row: dict[str, Any], scale: float, longest: float, *, ends: bool
) -> None:
    start, end = row["from"] / scale, row["to"] / scale
    axes.barh(at, end - start, left=start, height=0.62, color=row["colour"], linewidth=0)
    right = max(start, end)
    if row["low"] is not None:
        low, high = row["low"] / scale, row["high"] / scale
        error = [[max(end - low, 0)], [max(high - end, 0)]]
        axes.errorbar(end, at, xerr=error, color=INK, linewidth=1.1, capsize=3, capthick=1.1)
        right = max(right, high)
    if ends:
        axes.plot([start, start], [at - 0.36, at + 0.36], color=MUTED, linewidth=1.4)
        axes.plot([end], [at], marker="o", markersize=5, color=INK, linestyle="none")
    axes.text(
        right + 0.012 * longest / scale,
        at,
        row["text"],
        va="center",
        fontsize=8.8,
        zorder=5,
        fontweight="bold" if row["strong"] else "normal",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )


@figure("distance_histogram")
def distance_histogram(case: FigureCase, options: Options) -> Figure | None:
    """How far the bytes travel: switches visited, as it is and with the remedy."""
    spec = distance_columns(case)
    if spec is None:
        return None
    drawn = canvas(5.2, 3.2)
    axes = drawn.add_subplot()
    at, series = np.arange(len(spec["labels"])), spec["series"]
    width = 0.8 / len(series)
    names = shorten_names((part["name"] for part in series), 60)
    for index, (part, name) in enumerate(zip(series, names, strict=True)):
        columns = axes.bar(
            at + (index - (len(series) - 1) / 2) * width,
            part["values"],
            width * 0.92,
            color=part["colour"],
            linewidth=0,
            label=name,
        )
        axes.bar_label(columns, fmt="%.0f", fontsize=8, padding=1.5)
    axes.set_xticks(at, spec["labels"])
    axes.set_xlabel(spec["x"])
    axes.set_ylabel(spec["y"])
    axes.set_ylim(0, 1.14 * max(max(part["values"]) for part in series))
    axes.grid(axis="y", color=FAINT)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)
    return drawn
