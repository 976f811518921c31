"""The congestion evolution graph, and the torus at its worst step."""

from __future__ import annotations

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from tailback.port_counters.analysis.dot import BANDS, colour
from tailback.port_counters.analysis.evolution_layout import columns_of, time_unit
from tailback.port_counters.analysis.figures.style import INK, MUTED, canvas, figure
from tailback.port_counters.analysis.study import Study
from tailback.units import counted


@figure("evolution")
def evolution(study: Study) -> Figure | None:
    """Congestion evolution: one dot per feature, time downwards (Jha et al., Figure 9)."""
    graph = study.evolution
    if graph is None or graph.features.is_empty():
        return None
    features = graph.features
    unit, scale = time_unit(graph.steps)
    x = columns_of(graph).astype(np.float64)
    y = (features["time_ns"].to_numpy() - graph.steps[0]) / scale
    span = float(np.ptp(graph.steps)) / scale
    drawn = canvas(min(3.4 + 0.12 * np.ptp(x), 8.0), min(3.0 + 0.03 * len(graph.steps), 11.0))
    axes = drawn.add_subplot()
    source, target = graph.edges["source"].to_numpy(), graph.edges["target"].to_numpy()
    lines = np.stack(
        [np.column_stack([x[source], y[source]]), np.column_stack([x[target], y[target]])], axis=1
    )
    axes.add_collection(LineCollection(list(lines), colors=MUTED, linewidths=0.4, zorder=1))
    size = 6.0 + 4.0 * features["extent"].to_numpy()
    axes.scatter(
        x,
        y,
        s=size,
        c=[colour(v) for v in features["maximum"]],
        edgecolors=INK,
        linewidths=0.3,
        zorder=2,
    )
    for start, shade in BANDS:
        if start + 10 > graph.threshold:
            axes.scatter(
                [],
                [],
                s=30,
                c=shade,
                edgecolors=INK,
                linewidths=0.3,
                label=f"from {max(start, graph.threshold):g} %",
            )
    margin = 0.02 * span + 0.5 * span / max(len(graph.steps) - 1, 1) or 0.5
    axes.set_ylim(span + margin, -margin)
    word = {"min": "minutes"}.get(unit, unit)
    axes.set_ylabel(f"{word} since the first sample")
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_title(
        f"{counted(features.height, 'feature')} from {graph.threshold:g} %, {graph.splits} split, "
        f"{graph.merges} merge; area: links",
        fontsize=8.5,
        fontweight="normal",
    )
    axes.legend(title="largest stall", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawn


@figure("torus_slices")
def torus_slices(study: Study) -> Figure | None:
    """The torus at its worst step, one panel per z plane (Jha et al., Figure 10)."""
    table = study.slices
    if table is None or table.is_empty():
        return None
    size = [int(table[a].max()) + 1 for a in "xyz"]  # type: ignore[arg-type]
    cube = np.full((size[2], size[1], size[0]), np.nan)
    cube[table["z"].to_numpy(), table["y"].to_numpy(), table["x"].to_numpy()] = table["percent"]
    columns = min(size[2], 8)
    rows = -(-size[2] // columns)
    drawn = canvas(1.15 * columns + 0.9, 1.3 * rows + 0.35)
    image = None
    for z in range(size[2]):
        axes = drawn.add_subplot(rows, columns, z + 1)
        image = axes.imshow(
            cube[z],
            origin="lower",
            cmap="Purples",
            norm=Normalize(0, 100),
            interpolation="nearest",
            aspect="equal",
        )
        axes.set_title(f"z = {z}", fontsize=7, fontweight="normal", pad=2)
        axes.set_xticks([])
        axes.set_yticks([])
    drawn.supxlabel("x", fontsize=8)
    drawn.supylabel("y", fontsize=8)
    if image is not None:
        drawn.colorbar(image, ax=drawn.axes, pad=0.01, label="time stalled (%)")
    return drawn
