"""The congestion evolution graph as a page: one HTML file, nothing fetched, names shown as text.

Jha et al., *Characterizing Supercomputer Traffic Networks Through Link-Level Analysis*, section
VI: time downwards, a circle a feature, sized by its extent, coloured by its largest value (Figure
9). Beside it is the network at the chosen step: slices of a torus (Figure 10) or tiers of a tree.
Above both are the congested links against time, in the order in which congestion reached them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from markupsafe import Markup
from numpy.typing import NDArray

from tailback.port_counters.analysis.evolution import BANDS, Evolution, columns_of, time_unit
from tailback.port_counters.analysis.evolution_tiers import Panel
from tailback.port_counters.schema import counter_is_full
from tailback.report import scales
from tailback.report.packing import Packer, safe_json
from tailback.report.page import asset, content_policy, template, write_page
from tailback.units import counted
from tailback.version import version

MAX_FEATURES: Final = 20_000
MAX_VALUES: Final = 30_000_000
"""Maximum number of features drawn, and of values (steps times links) stored for the network."""

_UNKNOWN = 255
_WORST = 20
_NAME = 200


def write_evolution(
    path: str | Path,
    graph: Evolution,
    panels: Sequence[Panel],
    percent: NDArray[np.float64] | None = None,
    *,
    full: NDArray[np.bool_] | None = None,
    title: str = "",
    report: str = "",
    notes: Sequence[str] = (),
) -> Path:
    """Write the page.

    Args:
        path: The file; an existing one is replaced, whole or not at all.
        graph: The graph. The cells of ``panels`` are numbers of its places.
        panels: The network in panels of places, from ``torus_panels`` or ``tier_panels``.
        percent: Value of each place at each step, NaN where unknown, shape (steps, places); left
            out if there are more than ``MAX_VALUES``, with a note on the page.
        full: Which values are lower bounds because the stall counter is full, same shape.
        title: Source of the counters.
        report: Address of the report of the same run, relative to the page; empty without one.
        notes: Further notes on the counters.

    Returns:
        The path. The same input gives the same bytes.

    Raises:
        RunError: The file cannot be written.
    """
    return write_page(
        path,
        render_evolution(
            graph, panels, percent, full=full, title=title, report=report, notes=notes
        ),
        "page",
    )


def render_evolution(
    graph: Evolution,
    panels: Sequence[Panel],
    percent: NDArray[np.float64] | None = None,
    *,
    full: NDArray[np.bool_] | None = None,
    title: str = "",
    report: str = "",
    notes: Sequence[str] = (),
) -> str:
    """The page as text; arguments as in :func:`write_evolution`."""
    viewer, look = asset("evolution.js"), asset("evolution.css")
    all_features = graph.features.height
    graph = _worst_evolutions(graph)
    warnings = []
    if graph.features.height < all_features:
        warnings.append(f"Only the worst {graph.features.height:,} of {all_features:,} are drawn.")
    if percent is not None and percent.size > MAX_VALUES:
        percent = None
        warnings.append("The network is left out: too many links and steps for a page.")
    unbounded = int(graph.features["at_least"].sum())
    if unbounded:
        warnings.append(
            f"{counted(unbounded, 'feature', ',')} hold links whose stall counter is full: how "
            f"much more they stalled is unknown; they are drawn with {graph.threshold:g} % "
            "and marked ≥."
        )
    unit, scale = time_unit(graph.steps)
    data, arrays = _payload(graph, panels, percent, full, unit, scale)
    return template("evolution.html.j2").render(
        version=version(),
        policy=content_policy(viewer, look),
        # Markup: our own files, and JSON that safe_json escaped for a page.
        viewer=Markup(viewer),
        look=Markup(look),
        data=Markup(safe_json(data)),
        arrays=arrays,
        title=title[:_NAME] or "port counters",
        threshold=f"{graph.threshold:g}",
        features=counted(graph.features.height, "feature", ","),
        evolutions=counted(graph.features["evolution"].n_unique(), "evolution", ","),
        splits=f"{graph.splits:,}",
        merges=f"{graph.merges:,}",
        note=" ".join([*warnings, *(f"{note}." for note in notes)]),
        bands=[(f"{max(b, graph.threshold):g}", c) for b, c in BANDS if b + 10 > graph.threshold],
        worst=_worst_rows(graph, scale),
        spread=_spread_rows(graph, panels, scale),
        report=report,
        unit=unit,
    )


def torus_panels(coordinates: pl.DataFrame, places: Sequence[str]) -> list[Panel]:
    """One panel a plane of z: columns are x, rows y from below (Figure 10 of the paper).

    Args:
        coordinates: ``node_name, x, y, z`` of the routers.
        places: Names of the routers in the order of the graph.
    """
    number = pl.DataFrame({"node_name": list(places)}).with_row_index("place")
    placed = coordinates.unique(maintain_order=True).join(number, on="node_name")
    if placed.is_empty():
        return []
    x, y, z, place = (placed[c].to_numpy().astype(np.int64) for c in ("x", "y", "z", "place"))
    cube = np.full((z.max() + 1, y.max() + 1, x.max() + 1), -1, np.int64)
    cube[z, y, x] = place
    return [Panel(f"z = {plane}", cells[::-1]) for plane, cells in enumerate(cube)]


def values_at(
    graph: Evolution, intervals: pl.DataFrame, place: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Percentages by step and place, NaN where unknown; None when too many for a page.

    Args:
        graph: The graph.
        intervals: The rows it was made of, or more of its steps: n rows of ``counter_intervals``.
            The largest of each place and step is shown.
        place: Place of each, shape (n,).
    """
    if len(graph.steps) * len(graph.places) > MAX_VALUES:
        return None
    out = np.full((len(graph.steps), len(graph.places)), np.nan)
    fraction = intervals["stall_fraction"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    percent = 100.0 * fraction
    if "link" in intervals.columns:
        full = intervals.select(counter_is_full("link")).to_series().to_numpy()
        percent = np.where(full, np.fmax(percent, graph.threshold), percent)
    np.fmax.at(out, (graph.sweeps.at(intervals), place), percent)
    return out


def full_at(
    graph: Evolution, intervals: pl.DataFrame, place: NDArray[np.int64]
) -> NDArray[np.bool_] | None:
    """Which of the percentages of :func:`values_at` are lower bounds; arguments as there."""
    if len(graph.steps) * len(graph.places) > MAX_VALUES or "link" not in intervals.columns:
        return None
    out = np.zeros((len(graph.steps), len(graph.places)), np.bool_)
    full = intervals.select(counter_is_full("link")).to_series().to_numpy()
    out[graph.sweeps.at(intervals)[full], place[full]] = True
    return out


def _payload(
    graph: Evolution,
    panels: Sequence[Panel],
    percent: NDArray[np.float64] | None,
    full: NDArray[np.bool_] | None,
    unit: str,
    scale: float,
) -> tuple[dict[str, Any], str]:
    packer, table = Packer(), graph.features
    members = graph.members.sort("feature", "place")
    start = np.searchsorted(members["feature"].to_numpy(), np.arange(table.height + 1))
    first = int(graph.steps[0]) if len(graph.steps) else 0
    features = {
        name: packer.add(table[name].to_numpy(), kind)
        for name, kind in (
            ("step", "u4"),
            ("extent", "u4"),
            ("maximum", "f4"),
            ("mean", "f4"),
            ("evolution", "u4"),
        )
    }
    features["at_least"] = packer.add(table["at_least"].to_numpy(), "u1")
    features["column"] = packer.add(columns_of(graph), "u4")
    values = bounds = None
    if percent is not None and panels:
        halves = np.where(
            np.isnan(percent), _UNKNOWN, np.round(2 * np.nan_to_num(percent)).clip(0, 200)
        )
        values = packer.add(halves, "u1")
        bounds = None if full is None else packer.add(np.flatnonzero(full), "u4")
    data = {
        "threshold": graph.threshold,
        "bands": [list(band) for band in BANDS],
        "shades": packer.add(scales.table("stall"), "u1"),
        "unit": unit,
        "times": [(int(t) - first) / scale for t in graph.steps],
        "place_word": "link",
        "places": [name[:_NAME] for name in graph.places],
        "features": features,
        "edges": {n: packer.add(graph.edges[n].to_numpy(), "u4") for n in ("source", "target")},
        "members": {
            "start": packer.add(start, "u4"),
            "place": packer.add(members["place"].to_numpy(), "u4"),
        },
        "panels": [
            {
                "title": panel.title,
                "rows": panel.links.shape[0],
                "columns": panel.links.shape[1],
                "cells": packer.add(panel.links, "i4"),
            }
            for panel in panels
        ]
        if values is not None
        else [],
        "values": values,
        "full": bounds,
    }
    return data, packer.base64()


def _worst_evolutions(graph: Evolution) -> Evolution:
    """The graph, or its worst evolutions when it has more features than a page can show."""
    if graph.features.height <= MAX_FEATURES:
        return graph
    ranked = (
        graph.features.group_by("evolution")
        .agg(worst=pl.col("maximum").max(), full=pl.col("at_least").any(), n=pl.len())
        .sort("full", "worst", "evolution", descending=[True, True, False])
    )
    kept = ranked.filter(ranked["n"].cum_sum() <= MAX_FEATURES)["evolution"]
    features = graph.features.filter(pl.col("evolution").is_in(kept.implode()))
    number = features.select(old="feature").with_row_index("new")

    def renumbered(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
        for column in columns:
            frame = (
                frame.join(number, left_on=column, right_on="old", maintain_order="left")
                .with_columns(pl.col("new").alias(column))
                .drop("new")
            )
        return frame

    return Evolution(
        features.with_columns(feature=pl.int_range(pl.len(), dtype=pl.UInt32)),
        renumbered(graph.edges, "source", "target"),
        renumbered(graph.members, "feature"),
        graph.places,
        graph.threshold,
        graph.sweeps,
    )


def _spread_rows(graph: Evolution, panels: Sequence[Panel], scale: float) -> list[tuple[str, ...]]:
    """Parts of the network in the order of their first congestion.

    Returns:
        Title, first time, links ever congested of all, most at once, the time of that, last time.
    """
    part = np.full(len(graph.places), -1)
    for number, panel in enumerate(panels):
        part[panel.links[panel.links >= 0]] = number
    places = pl.DataFrame({"part": part, "place": np.arange(len(part))})
    seen = (
        graph.members.with_columns(pl.col("place").cast(pl.Int64))
        .join(graph.features.select("feature", "step"), on="feature")
        .join(places, on="place")
        .filter(pl.col("part") >= 0)
    )
    ever = seen.group_by("part").agg(
        pl.col("step").min().alias("first"),
        pl.col("step").max().alias("last"),
        pl.col("place").n_unique().alias("links"),
    )
    most = (
        seen.group_by("part", "step")
        .agg(pl.col("place").n_unique().alias("most"))
        .sort("part", "most", "step", descending=[False, True, False])
        .unique("part", keep="first", maintain_order=True)
    )
    at = [f"{(int(time) - int(graph.steps[0])) / scale:.4g}" for time in graph.steps]
    return [
        (
            panels[row["part"]].title,
            at[row["first"]],
            f"{row['links']:,} of {int((panels[row['part']].links >= 0).sum()):,}",
            f"{row['most']:,}",
            at[row["step"]],
            at[row["last"]],
        )
        for row in ever.join(most, on="part").sort("first", "part").iter_rows(named=True)
    ]


def _format_bound(row: dict[str, Any], column: str) -> str:
    """A percentage of a feature, marked where it is a lower bound."""
    return f"{'≥ ' if row['at_least'] else ''}{row[column]:.1f}"


def _worst_rows(graph: Evolution, scale: float) -> list[tuple[str, ...]]:
    if graph.features.is_empty():
        return []
    first_place = graph.members.group_by("feature").agg(pl.col("place").min())
    rows = (
        graph.features.sort(
            "at_least", "maximum", "extent", "feature", descending=[True, True, True, False]
        )
        .head(_WORST)
        .join(first_place, on="feature", how="left", maintain_order="left")
    )
    first = int(graph.steps[0])
    return [
        (
            str(r["feature"]),
            f"{(r['time_ns'] - first) / scale:.4g}",
            str(r["extent"]),
            _format_bound(r, "maximum"),
            _format_bound(r, "mean"),
            graph.places[r["place"]][:_NAME],
        )
        for r in rows.iter_rows(named=True)
    ]
