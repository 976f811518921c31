"""Figures of both counter studies: no frame, units on every axis, legible in greyscale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from studies.production_networks.counter_tables import MEASURES, GroupTest
from tailback.port_counters.analysis import BANDS, Evolution, colour, columns_of, time_unit
from tailback.report import FAINT, INK, MUTED, canvas
from tailback.units import counted

DOWN: Final = "#8a4fa3"
UP: Final = "#d9b3dd"
_STEPS: Final = ("#3d1a5b", "#b96cc4", "#7f8893")
_STROKES: Final = ("-", (0, (5, 2)), (0, (1.2, 1.6)))
_KINDS: Final = (("X", "Y", "Z"), ("down", "up", "flat"))
GROUPS: Final = {name: step for kind in _KINDS for name, step in zip(kind, _STEPS, strict=True)}
"""Colours of directions. They differ in lightness and dash, so they are legible in greyscale."""
DASHES: Final = {name: dash for kind in _KINDS for name, dash in zip(kind, _STROKES, strict=True)}


def class_labels(categories: list[str], types: list[str]) -> list[str]:
    """Labels of classes: category over port type."""
    return [f"{c}\n{t}" for c, t in zip(categories, types, strict=True)]


def class_boxes(table: pl.DataFrame, label: str) -> Figure:
    """Box plots of the stall of each class, without outliers (Alali et al., Figures 6 and 7)."""
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


def zero_shares(table: pl.DataFrame) -> Figure:
    """Share of intervals with and without a stall, of each class (Alali et al., Figure 5)."""
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


def link_distributions(tables: Mapping[str, pl.DataFrame]) -> Figure:
    """Share of link-intervals above a value, by direction (Jha et al., Figures 4 and 5).

    Args:
        tables: Distribution of each measure that is shown.
    """
    shown = list(tables)
    drawn = canvas(3.1 * len(shown) + 0.6, 3.1)
    for place, measure in enumerate(shown):
        axes = drawn.add_subplot(1, len(shown), place + 1)
        _curves(axes, tables[measure], measure)
    drawn.axes[0].set_ylabel("share of link-intervals above")
    drawn.axes[0].legend()
    return drawn


def io_links(everywhere: pl.DataFrame, io: pl.DataFrame, comparison: GroupTest) -> Figure:
    """Credit stall of I/O links against all links, by direction (Jha et al., Figure 8)."""
    groups = everywhere["group"].unique().sort().to_list()
    drawn = canvas(2.6 * len(groups) + 0.6, 2.9)
    for column, group in enumerate(groups):
        axes = drawn.add_subplot(1, len(groups), column + 1)
        for table, label, shade, dash in (
            (everywhere, "all links", MUTED, "-"),
            (io, "I/O links", INK, (0, (4, 2))),
        ):
            _curve(axes, table.filter(pl.col("group") == group), label, shade, dash)
        axes.set_title(f"{group}, credit", fontsize=8.5, fontweight="normal")
        axes.set_xlabel("percent of time stalled (%)")
    drawn.axes[0].legend()
    drawn.axes[0].set_ylabel("share of link-intervals above")
    drawn.suptitle(comparison.verdict(), fontsize=8.5)
    return drawn


def _curves(axes: Axes, table: pl.DataFrame, measure: str) -> None:
    for group in sorted(table["group"].unique().to_list()):
        _curve(
            axes,
            table.filter(pl.col("group") == group),
            group,
            GROUPS.get(group, INK),
            DASHES.get(group, "-"),
        )
    axes.set_xlabel(MEASURES[measure][1], fontsize=8)


def _curve(axes: Axes, table: pl.DataFrame, label: str, shade: str, dash: object) -> None:
    above = table.filter(pl.col("ccdf") > 0)
    axes.plot(
        [0.0, *above["percent"]],
        [1.0, *above["ccdf"]],
        drawstyle="steps-post",
        label=label,
        color=shade,
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


def evolution(graph: Evolution) -> Figure:
    """Congestion evolution: one dot per feature, time downwards (Jha et al., Figure 9)."""
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


def torus_slices(table: pl.DataFrame) -> Figure:
    """The torus at its worst step, one panel per z plane (Jha et al., Figure 10)."""
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


def tier_stalls(table: pl.DataFrame) -> Figure:
    """Stall of every link of a tree by tier: one column per switch, one row per cable."""
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
            f"{panel['panel'][0]}: {stalled} of {panel.height} links stalled, "
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
