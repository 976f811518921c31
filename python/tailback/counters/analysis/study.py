"""The two studies from one call each: every table and figure, on screen and on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from tailback.counters.analysis import classes as port_classes
from tailback.counters.analysis import links, rounds, tables_002
from tailback.counters.analysis.evolution import Evolution, from_fabric, from_torus
from tailback.counters.analysis.links import Comparison
from tailback.fabric.model import Fabric
from tailback.run import fresh_directory


@dataclass
class Study:
    """What the figures draw; anything may be missing.

    Attributes:
        tables: Tables by name, as the papers number them.
        readings: The archive, for the examples of Figure 4 of the InfiniBand study.
        rounds: Its summary, with the classes of the ports.
        evolution: Congestion evolution graph.
        comparison: I/O links against others.
        slices: Router values of one instant: ``x, y, z, percent``.
        title: What the counters are of.
        notes: What was odd and tolerated.
    """

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    readings: pl.LazyFrame | None = None
    rounds: pl.DataFrame | None = None
    evolution: Evolution | None = None
    comparison: Comparison | None = None
    slices: pl.DataFrame | None = None
    title: str = ""
    notes: list[str] = field(default_factory=list)


def infiniband(
    readings: pl.LazyFrame,
    classes: pl.DataFrame,
    *,
    tick_ns: float = rounds.FDR_TICK_NS,
    title: str = "",
) -> Study:
    """The study of Alali et al.: Tables I to III and what Figures 4 to 7 need.

    Args:
        readings: Rows of ``counter_readings`` in rounds, from ``rounds.scan``.
        classes: From ``classes.classify``.
        tick_ns: Length of a tick where the readings do not say it, nanoseconds.
        title: What the counters are of.
    """
    summary = rounds.summarise(readings, tick_ns)
    summary, notes = port_classes.attach(summary, classes)
    tables = {
        "table_i": tables_002.table_i(summary),
        "table_ii": tables_002.table_ii(summary),
        "table_iii": tables_002.table_iii(readings, summary, tick_ns),
        "figure_5": tables_002.zero_shares(summary),
        "figure_6": tables_002.boxes(summary, "maximum"),
        "figure_7": tables_002.boxes(summary, "average"),
    }
    left_out = int(summary["left_out"].sum())
    if left_out:
        notes.append(f"{left_out} intervals with a counter that was reset or latched were left out")
    return Study(tables, readings, summary, title=title, notes=notes)


def sweep(
    intervals: pl.DataFrame,
    classes: pl.DataFrame,
    fabric: Fabric | None = None,
    *,
    threshold: float = 40.0,
    title: str = "",
) -> Study:
    """Both studies' views of a sweep or a simulation: every port is one round.

    Args:
        intervals: Rows of ``counter_intervals`` with names or links of the fabric.
        classes: From ``classes.classify``.
        fabric: For the congestion evolution graph; without it there is none.
        threshold: From which percentage of time stalled a link counts there.
        title: What the counters are of.
    """
    summary, notes = port_classes.attach(rounds.summarise_intervals(intervals), classes)
    known, _ = port_classes.attach(intervals, classes)
    known = known.with_columns(direction=pl.coalesce("direction", "port_type"))
    tables = {
        "table_i": tables_002.table_i(summary),
        "table_ii": tables_002.table_ii(summary),
        "figure_5": tables_002.zero_shares(summary),
        "figure_6": tables_002.boxes(summary, "maximum"),
        "figure_7": tables_002.boxes(summary, "average"),
        "correlations": links.correlations(known.lazy(), "category"),
    }
    for measure in links.MEASURES:
        tables[f"ccdf_{measure}"] = links.ccdf(known.lazy(), measure)
    graph = None if fabric is None else from_fabric(known, fabric, threshold=threshold)
    return Study(tables, None, summary, graph, title=title, notes=notes)


def torus(
    intervals: pl.LazyFrame,
    coordinates: pl.DataFrame,
    *,
    io_nodes: Iterable[str] = (),
    direction: str = "X+",
    threshold: float = 40.0,
    seed: int = 1,
    title: str = "",
) -> Study:
    """The study of Jha et al.: distributions, Table I, I/O links, evolution graph, one slice.

    Args:
        intervals: Rows of ``counter_intervals`` with directions.
        coordinates: ``node_name, x, y, z`` of the routers; without rows no graph is made.
        io_nodes: Names of routers with I/O nodes; without any no comparison is made.
        direction: Direction of the evolution graph.
        threshold: From which percentage of time stalled a link counts there.
        seed: Seed of the random draws.
        title: What the counters are of.
    """
    out = Study(title=title)
    for measure in links.MEASURES:
        out.tables[f"ccdf_{measure}"] = links.ccdf(intervals, measure)
    out.tables["table_i"] = links.correlations(intervals)
    members = list(io_nodes)
    if members:
        out.comparison = links.compare_groups(intervals, members, seed=seed)
        inside = pl.col("node_name").is_in(members)
        for measure in ("credit", "inq"):
            out.tables[f"ccdf_{measure}_io"] = links.ccdf(intervals.filter(inside), measure)
    if coordinates.height:
        wanted = intervals.filter(pl.col("direction") == direction).select(
            "time_ns", "node_name", "direction", "stall_fraction"
        )
        rows = wanted.collect(engine="streaming")
        out.evolution = from_torus(rows, coordinates, direction, threshold=threshold)
        out.slices = worst_instant(rows, coordinates)
    return out


def worst_instant(rows: pl.DataFrame, coordinates: pl.DataFrame) -> pl.DataFrame | None:
    """Every router at the instant of the largest stall: ``time_ns, x, y, z, percent``."""
    known = rows.filter(pl.col("stall_fraction").is_not_null())
    if known.is_empty():
        return None
    when = known.sort("stall_fraction", descending=True)["time_ns"][0]
    return (
        known.filter(pl.col("time_ns") == when)
        .join(coordinates, on="node_name", how="inner")
        .select("time_ns", "x", "y", "z", percent=100 * pl.col("stall_fraction"))
        .sort("z", "y", "x")
    )


def summary_json(study: Study) -> dict[str, Any]:
    """All tables (the distributions only by their length) and verdicts as plain values."""
    out: dict[str, Any] = {
        "title": study.title,
        "notes": study.notes,
        "tables": {
            name: frame.to_dicts() if not name.startswith("ccdf") else {"rows": frame.height}
            for name, frame in study.tables.items()
        },
    }
    if study.comparison is not None:
        out["io_links"] = {
            "median_p": study.comparison.p_value, "verdict": study.comparison.verdict(),
        }  # fmt: skip
    if study.evolution is not None:
        graph = study.evolution
        out["evolution"] = {
            "threshold_percent": graph.threshold, "features": graph.features.height,
            "evolutions": graph.features["evolution"].n_unique(), "splits": graph.splits,
            "merges": graph.merges,
        }  # fmt: skip
    return out


def write(study: Study, path: Path, *, form: str = "svg", force: bool = False) -> list[Path]:
    """Write every table as Parquet, every figure, the graph as dot and ``counters.json``.

    Args:
        study: What to write.
        path: A folder; it appears whole or not at all.
        form: ``svg``, ``pdf`` or ``png``.
        force: Replace what stands there.

    Returns:
        The files.

    Raises:
        RunError: The folder exists or cannot be written.
    """
    # Figures read the tables of a study, so they stand above it.
    from tailback.counters.analysis.dot import dot_text
    from tailback.counters.analysis.figures import COUNTER_FIGURES, draw, render

    with fresh_directory(path, force=force) as folder:
        for name, frame in study.tables.items():
            frame.write_parquet(folder / f"{name}.parquet")
        for entry in COUNTER_FIGURES:
            drawn = draw(entry.name, study)
            if drawn is not None:
                (folder / f"{entry.name}.{form}").write_bytes(render(drawn, form))
        if study.evolution is not None:
            (folder / "evolution.dot").write_text(dot_text(study.evolution), encoding="utf-8")
        text = json.dumps(summary_json(study), indent=2, sort_keys=True)
        (folder / "counters.json").write_text(text + "\n", encoding="utf-8")
    return sorted(path.iterdir())
