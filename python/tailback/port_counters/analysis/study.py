"""The two studies from one call each: every table and figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from tailback.fabric.model import Fabric
from tailback.port_counters.analysis import classes as port_classes
from tailback.port_counters.analysis import links, rounds, yellowstone_tables
from tailback.port_counters.analysis.evolution import Evolution, from_fabric, from_torus
from tailback.port_counters.analysis.instants import (
    congested_rows_pass,
    hot_links_pass,
    slices,
    worst_pass,
)
from tailback.port_counters.analysis.links import GroupTest
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Aggregate, Archive, Engine


@dataclass
class Study:
    """Data for the figures; each part may be missing.

    Attributes:
        tables: Tables by name, as the papers number them.
        readings: The archive, for the examples of Figure 4 of the InfiniBand study.
        rounds: Its summary, with the classes of the ports.
        evolution: Congestion evolution graph.
        comparison: I/O links against others.
        slices: Router values of one step: ``x, y, z, percent``.
        title: What the counters are of.
        notes: What was odd and tolerated.
        more: Totals of passes that a caller added.
        distributions: Names of tables that are distributions: long tables meant for plotting.
    """

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    readings: pl.LazyFrame | None = None
    rounds: pl.DataFrame | None = None
    evolution: Evolution | None = None
    comparison: GroupTest | None = None
    slices: pl.DataFrame | None = None
    title: str = ""
    notes: list[str] = field(default_factory=list)
    more: dict[str, pl.DataFrame] = field(default_factory=dict)
    distributions: frozenset[str] = frozenset()


def infiniband(
    readings: pl.LazyFrame | Archive,
    classes: pl.DataFrame,
    *,
    tick_ns: float = rounds.FDR_TICK_NS,
    title: str = "",
    engine: Engine = LOCAL_ENGINE,
) -> Study:
    """The study of Alali et al.: Tables I to III and what Figures 4 to 7 need.

    Args:
        readings: Rows of ``counter_readings`` in rounds, from ``rounds.scan``.
        classes: From ``classes.classify``.
        tick_ns: Length of a tick where the readings do not give it, nanoseconds.
        title: What the counters are of.
        engine: Where the pieces are worked on.
    """
    summary = rounds.summarise(readings, tick_ns, engine)
    readings = Archive.of(readings).rows
    summary, notes = port_classes.attach(summary, classes)
    tables = {
        "table_i": yellowstone_tables.table_i(summary),
        "table_ii": yellowstone_tables.table_ii(summary),
        "table_iii": yellowstone_tables.table_iii(readings, summary, tick_ns),
        "figure_5": yellowstone_tables.zero_shares(summary),
        "figure_6": yellowstone_tables.boxes(summary, "maximum"),
        "figure_7": yellowstone_tables.boxes(summary, "average"),
    }
    left_out = int(summary["left_out"].sum())
    if left_out:
        notes.append(f"{left_out} intervals with a counter that was reset or latched were left out")
    return Study(tables, readings, summary, title=title, notes=notes)


def sweep(
    intervals: pl.DataFrame | Archive,
    classes: pl.DataFrame,
    fabric: Fabric | None = None,
    *,
    threshold: float = 40.0,
    title: str = "",
    engine: Engine = LOCAL_ENGINE,
) -> Study:
    """The tables of both studies for a sweep or a simulation: every port is one round.

    Args:
        intervals: Rows of ``counter_intervals`` with names or links of the fabric.
        classes: From ``classes.classify``.
        fabric: For the congestion evolution graph, which is left out without it.
        threshold: From which percentage of time stalled a link counts there.
        title: What the counters are of.
        engine: Where the pieces are worked on.
    """
    rows = Archive(intervals.lazy()) if isinstance(intervals, pl.DataFrame) else intervals
    known = rows.then(partial(_directed, classes=classes))
    passes = {f"ccdf_{measure}": links.ccdf_pass(measure) for measure in links.MEASURES}
    distributions = tuple(passes)
    passes["correlations"] = links.correlation_pass("category")
    passes["ports"] = rounds.INTERVAL_PASS
    if fabric is not None:
        passes["hot"] = hot_links_pass(threshold)
    totals = dict(zip(passes, engine.add_up(known.pieces(), list(passes.values())), strict=True))
    summary, notes = port_classes.attach(rounds.summary_of_ports(totals["ports"]), classes)
    tables = {
        "table_i": yellowstone_tables.table_i(summary),
        "table_ii": yellowstone_tables.table_ii(summary),
        "figure_5": yellowstone_tables.zero_shares(summary),
        "figure_6": yellowstone_tables.boxes(summary, "maximum"),
        "figure_7": yellowstone_tables.boxes(summary, "average"),
        "correlations": links.correlation_table(totals["correlations"], "category"),
    }
    for name in distributions:
        tables[name] = links.ccdf_table(totals[name])
    graph = None
    if fabric is not None:
        graph = from_fabric(totals["hot"], fabric, threshold=threshold)
    return Study(
        tables,
        None,
        summary,
        graph,
        title=title,
        notes=notes,
        distributions=frozenset(distributions),
    )


def _directed(rows: pl.LazyFrame, classes: pl.DataFrame) -> pl.LazyFrame:
    """Rows with link, category and direction, if the classes have them."""
    return port_classes.placed(rows, classes).with_columns(
        direction=pl.coalesce("direction", "port_type")
    )


def torus(
    intervals: pl.LazyFrame | Archive,
    coordinates: pl.DataFrame,
    *,
    io_nodes: Iterable[str] = (),
    direction: str = "X+",
    threshold: float = 40.0,
    seed: int = 1,
    title: str = "",
    more: Mapping[str, Aggregate] | None = None,
    engine: Engine = LOCAL_ENGINE,
) -> Study:
    """The study of Jha et al.: distributions, Table I, I/O links, evolution graph, one slice.

    Args:
        intervals: Rows of ``counter_intervals`` with directions.
        coordinates: ``node_name, x, y, z`` of the routers; if empty, there is no graph.
        io_nodes: Names of routers with I/O nodes; if empty, there is no comparison.
        direction: Direction of the evolution graph.
        threshold: From which percentage of time stalled a link counts there.
        seed: Seed of the random draws.
        title: What the counters are of.
        more: Other passes over the same rows; their totals go to ``Study.more``.
        engine: Where the pieces are worked on.
    """
    archive = Archive.of(intervals)
    members = tuple(io_nodes)
    passes = {f"ccdf_{m}": links.ccdf_pass(m) for m in links.MEASURES}
    distributions = list(passes)
    passes["table_i"] = links.correlation_pass()
    if members:
        passes["means"] = links.means_pass()
        own = {f"ccdf_{m}_io": links.ccdf_pass(m, members=members) for m in ("credit", "inq")}
        passes |= own
        distributions += own
    if coordinates.height:
        passes["hot"] = congested_rows_pass(direction, threshold)
    passes |= {f"more_{name}": one for name, one in (more or {}).items()}
    pieces = archive.pieces()
    totals = dict(zip(passes, engine.add_up(pieces, list(passes.values())), strict=True))
    out = Study(title=title, more={name: totals[f"more_{name}"] for name in more or {}})
    out.distributions = frozenset(distributions)
    for name in distributions:
        out.tables[name] = links.ccdf_table(totals[name])
    out.tables["table_i"] = links.correlation_table(totals["table_i"])
    if members:
        out.comparison = links.comparison(totals["means"], members, seed=seed)
    if coordinates.height:
        hot = totals["hot"]
        out.evolution = from_torus(hot, coordinates, direction, threshold=threshold)
        worst = worst_pass(direction, hot)
        if worst is not None:
            (rows,) = engine.add_up(pieces, [worst])
            out.slices = slices(rows, coordinates)
    return out


def summary_json(study: Study) -> dict[str, Any]:
    """All tables (the distributions only by their length) and verdicts as plain values."""
    out: dict[str, Any] = {
        "title": study.title,
        "notes": study.notes,
        "tables": {
            name: {"rows": frame.height} if name in study.distributions else frame.to_dicts()
            for name, frame in study.tables.items()
        },
    }
    if study.comparison is not None:
        out["io_links"] = study.comparison.to_dict()
    if study.evolution is not None:
        graph = study.evolution
        out["evolution"] = {
            "threshold_percent": graph.threshold,
            "features": graph.features.height,
            "evolutions": graph.features["evolution"].n_unique(),
            "splits": graph.splits,
            "merges": graph.merges,
        }
    return out
