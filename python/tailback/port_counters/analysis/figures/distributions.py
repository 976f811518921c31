"""Complementary distributions of stall and bandwidth, by direction."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from tailback.names.display import shorten
from tailback.port_counters.analysis.figures.style import (
    DASHES,
    GROUPS,
    INK,
    MUTED,
    canvas,
    figure,
)
from tailback.port_counters.analysis.links import MEASURES
from tailback.port_counters.analysis.study import Study


@figure("link_distributions")
def link_distributions(study: Study) -> Figure | None:
    """Share of link-intervals above a value, by direction (Jha et al., Figures 4 and 5)."""
    shown = [
        m for m in MEASURES if f"ccdf_{m}" in study.tables and study.tables[f"ccdf_{m}"].height
    ]
    if not shown:
        return None
    drawn = canvas(3.1 * len(shown) + 0.6, 3.1)
    for place, measure in enumerate(shown):
        axes = drawn.add_subplot(1, len(shown), place + 1)
        _curves(axes, study.tables[f"ccdf_{measure}"], measure)
    drawn.axes[0].set_ylabel("share of link-intervals above")
    drawn.axes[0].legend()
    return drawn


@figure("io_links")
def io_links(study: Study) -> Figure | None:
    """I/O links against all links, by kind of stall and direction (Jha et al., Figures 7 and 8)."""
    shown = [
        m for m in ("inq", "credit") if study.tables.get(f"ccdf_{m}_io", pl.DataFrame()).height
    ]
    if not shown or study.comparison is None:
        return None
    groups = sorted({g for m in shown for g in study.tables[f"ccdf_{m}"]["group"].unique()})
    drawn = canvas(2.6 * len(groups) + 0.6, 2.6 * len(shown) + 0.3)
    for row, measure in enumerate(shown):
        for column, group in enumerate(groups):
            axes = drawn.add_subplot(len(shown), len(groups), row * len(groups) + column + 1)
            for suffix, label, colour, dash in (
                ("", "all links", MUTED, "-"),
                ("_io", "I/O links", INK, (0, (4, 2))),
            ):
                table = study.tables[f"ccdf_{measure}{suffix}"].filter(pl.col("group") == group)
                _curve(axes, table, label, colour, dash)
            axes.set_title(f"{shorten(group, 10)}, {measure}", fontsize=8.5, fontweight="normal")
            axes.set_xlabel("percent of time stalled (%)")
    drawn.axes[0].legend()
    drawn.axes[0].set_ylabel("share of link-intervals above")
    drawn.suptitle(study.comparison.verdict(), fontsize=8.5)
    return drawn


def _curves(axes: Axes, table: pl.DataFrame, measure: str) -> None:
    for group in sorted(table["group"].unique().to_list()):
        _curve(
            axes,
            table.filter(pl.col("group") == group),
            shorten(group, 16),
            GROUPS.get(group, INK),
            DASHES.get(group, "-"),
        )
    axes.set_xlabel(MEASURES[measure][1], fontsize=8)


def _curve(axes: Axes, table: pl.DataFrame, label: str, colour: str, dash: object) -> None:
    above = table.filter(pl.col("ccdf") > 0)
    axes.plot(
        [0.0, *above["percent"]],
        [1.0, *above["ccdf"]],
        drawstyle="steps-post",
        label=label,
        color=colour,
        linestyle=dash,
        linewidth=1.4,
    )
    axes.set_yscale("log")
    # Plain numbers: names from files must stay text, so mathematics is switched off in figures.
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    # Set explicit limits from all curves so far: matplotlib keeps them once they are set.
    axes.set_xlim(0, max(axes.dataLim.x1, 0.01) * 1.02)
    axes.grid()
