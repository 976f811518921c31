"""A fat tree from its spines down to its hosts: the stall of every link, each in its own cell."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from tailback.names.display import shorten
from tailback.port_counters.analysis.figures.style import MUTED, canvas, figure
from tailback.port_counters.analysis.study import Study


@figure("tier_stalls")
def tier_stalls(study: Study) -> Figure | None:
    """Stall of every link of a tree by tier: one column per switch, one row per cable."""
    table = study.tables.get("tier_stalls")
    if table is None or table["percent"].count() == 0:
        return None
    panels = table.partition_by("order", maintain_order=True)
    heights = [int(panel["row"].max()) + 1 for panel in panels]  # type: ignore[arg-type]
    most = max(float(np.nanmax(table["percent"].to_numpy())), 1.0)
    drawn = canvas(8.0, min(1.6 + 0.55 * len(panels) + 0.016 * sum(heights), 11.0))
    rows = drawn.subplots(
        len(panels), 1, squeeze=False, height_ratios=[max(h, 8) for h in heights]
    )[:, 0]
    for axes, panel, height in zip(rows, panels, heights, strict=True):
        cells = np.full((height, int(panel["column"].max()) + 1), np.nan)  # type: ignore[arg-type]
        percent = panel["percent"].to_numpy()
        cells[panel["row"].to_numpy(), panel["column"].to_numpy()] = percent
        image = axes.imshow(
            cells, cmap="Purples", norm=Normalize(0, most), aspect="auto", interpolation="nearest"
        )
        stalled = int((percent > 0).sum())
        axes.set_title(
            f"{shorten(panel['panel'][0], 60)}: {stalled} of {panel.height} links stalled, "
            f"mean {np.nanmean(percent) if panel['percent'].count() else 0.0:.2g} %",
            fontsize=8,
            fontweight="normal",
            pad=2,
        )
        axes.set_yticks([])
        axes.set_xticks([])
        axes.set_facecolor("#eef0f2")
    rows[-1].set_xlabel("switches of the tier, pod after pod", color=MUTED, fontsize=8)
    drawn.colorbar(image, ax=list(rows), pad=0.01, label="mean time stalled (%)")
    return drawn
