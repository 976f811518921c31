"""PortXmitWait within two rounds: rare steps and steady growth."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from tailback.names.display import shorten
from tailback.port_counters.analysis.figures.style import DOWN, canvas, figure
from tailback.port_counters.analysis.study import Study


@figure("wait_buildup")
def wait_buildup(study: Study) -> Figure | None:
    """How PortXmitWait grows within one round of two ports (Alali et al., Figure 4)."""
    if study.readings is None or study.rounds is None:
        return None
    stalled = study.rounds.filter(pl.col("nonzero") > 0).sort("nonzero", "round")
    if stalled.is_empty():
        return None
    # A round with two increases, like the paper's first, and the one with most increases.
    few = stalled.sort((pl.col("nonzero").cast(pl.Int64) - 2).abs(), "round").row(0, named=True)
    many = stalled.sort("nonzero", "round", descending=[True, False]).row(0, named=True)
    numbers = [few["round"], many["round"]]
    rows = study.readings.filter(pl.col("round").is_in(numbers)).collect().sort("round", "time_ns")
    drawn = canvas(7.6, 2.9)
    for place, chosen in enumerate((few, many)):
        axes = drawn.add_subplot(1, 2, place + 1)
        wait = rows.filter(pl.col("round") == chosen["round"])["xmit_wait_ticks"].to_numpy()
        axes.step(np.arange(1, len(wait) + 1), wait / 1e6, where="post", color=DOWN, linewidth=1.2)
        name = shorten(str(chosen.get("node_name") or f"{chosen['node_guid']:#x}"), 24)
        kind = f" ({chosen['category']}, {chosen['port_type']})" if chosen.get("category") else ""
        axes.set_title(f"{name} port {chosen['port']}{kind}", fontsize=8.5, fontweight="normal")
        axes.set_xlabel("query of the round")
        axes.grid(axis="y")
    drawn.axes[0].set_ylabel("PortXmitWait (million ticks)")
    return drawn
