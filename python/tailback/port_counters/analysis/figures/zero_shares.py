"""How often ports of each class were stalled."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from tailback.port_counters.analysis.figures.style import DOWN, FAINT, canvas, class_labels, figure
from tailback.port_counters.analysis.study import Study


@figure("zero_shares")
def zero_shares(study: Study) -> Figure | None:
    """Share of intervals with and without a stall, of each class (Alali et al., Figure 5)."""
    table = study.tables.get("figure_5")
    if table is None or table.is_empty():
        return None
    drawn = canvas(max(5.0, 1.2 + 0.62 * table.height), 3.2)
    axes = drawn.add_subplot()
    x = np.arange(table.height)
    stalled = table["nonzero_percent"].to_numpy()
    axes.bar(x, stalled, 0.66, color=DOWN, label="stalled at some time")
    axes.bar(x, 100 - stalled, 0.66, bottom=stalled, color=FAINT, label="not stalled")
    for at, value in enumerate(stalled.tolist()):
        axes.text(at, min(value + 2, 93), f"{value:.0f}", ha="center", fontsize=8)
    axes.set_xticks(
        x, class_labels(table["category"].to_list(), table["port_type"].to_list()), fontsize=7.5
    )
    axes.set_ylabel("intervals (%)")
    axes.set_ylim(0, 100)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return drawn
