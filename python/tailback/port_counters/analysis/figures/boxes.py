"""Box plots of the stall fraction of stalled rounds."""

from __future__ import annotations

from matplotlib.figure import Figure

from tailback.port_counters.analysis.figures.style import (
    DOWN,
    INK,
    MUTED,
    UP,
    canvas,
    class_labels,
    figure,
)
from tailback.port_counters.analysis.study import Study


@figure("maximum_boxes")
def maximum_boxes(study: Study) -> Figure | None:
    """Largest stall fraction of each stalled round, without outliers (Alali et al., Figure 6)."""
    return _draw(study, "figure_6", "largest stall fraction of a round (%)")


@figure("average_boxes")
def average_boxes(study: Study) -> Figure | None:
    """Mean stall fraction of the stalled intervals of each round (Alali et al., Figure 7)."""
    return _draw(study, "figure_7", "mean stall fraction of stalled intervals (%)")


def _draw(study: Study, name: str, label: str) -> Figure | None:
    table = study.tables.get(name)
    if table is None or table.is_empty():
        return None
    drawn = canvas(max(5.0, 1.2 + 0.62 * table.height), 3.4)
    axes = drawn.add_subplot()
    numbers = [
        {
            "q1": 100 * row["q1"],
            "med": 100 * row["median"],
            "q3": 100 * row["q3"],
            "whislo": 100 * row["low"],
            "whishi": 100 * row["high"],
            "fliers": [],
        }
        for row in table.iter_rows(named=True)
    ]
    drawn_boxes = axes.bxp(
        numbers,
        positions=range(table.height),
        widths=0.6,
        patch_artist=True,
        showfliers=False,
        medianprops={"color": INK, "linewidth": 1.4},
        boxprops={"linewidth": 0.7},
    )
    for box, kind in zip(drawn_boxes["boxes"], table["port_type"].to_list(), strict=True):
        box.set_facecolor(UP if kind == "up" else DOWN)
        box.set_alpha(0.8)
    for at, row in enumerate(table.iter_rows(named=True)):
        if row["outliers"]:
            axes.text(
                at,
                100 * row["high"],
                f"+{row['outliers']}",
                ha="center",
                va="bottom",
                fontsize=7,
                color=MUTED,
            )
    axes.set_xticks(
        range(table.height),
        class_labels(table["category"].to_list(), table["port_type"].to_list()),
        fontsize=7.5,
    )
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.set_title(
        "+n: outliers beyond 1.5 interquartile ranges, left out (Table II)",
        fontsize=8,
        fontweight="normal",
        color=MUTED,
    )
    return drawn
