"""``tailback evolution``: how congestion evolves in a run or in counters, as a page."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.option_types import FiniteRange, OneOf
from tailback.cli.runs import default_output, skip_lines
from tailback.errors import RunError, TailbackError
from tailback.fabric.degraded import degrade
from tailback.fabric.model import Fabric
from tailback.fabric.readers import read_fabric
from tailback.port_counters.analysis.classes import attach, classify
from tailback.port_counters.analysis.evolution import Evolution, from_fabric, from_torus
from tailback.port_counters.analysis.evolution_run import (
    is_torus,
    torus_coordinates,
    torus_rows,
)
from tailback.port_counters.analysis.evolution_tiers import Panel, tier_panels
from tailback.port_counters.analysis.geometry import by_router, read_geometry
from tailback.port_counters.readers import read_counters
from tailback.port_counters.readers.engine_run import from_run
from tailback.port_counters.schema import ends_with_full_stall_counter
from tailback.report.evolution import full_at, torus_panels, values_at, write_evolution
from tailback.run.run import Run
from tailback.simulation.prepare import load_fabric
from tailback.sources.source import read_base_run as read_run
from tailback.sources.source import report_address

DIRECTIONS = ("X+", "X-", "Y+", "Y-", "Z+", "Z-")


@click.command(cls=GroupedHelp)
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--fabric",
    type=click.Path(path_type=Path),
    help="Fabric of measured counters: a file that ibnetdiscover wrote.",
)
@click.option(
    "--geometry",
    type=click.Path(path_type=Path),
    help="Coordinates of the nodes of a measured torus: a CSV with the columns name, x, "
    "y, z; not needed if the counters contain them.",
)
@click.option(
    "--direction", type=OneOf(DIRECTIONS), help="Direction to show in a torus (default X+)."
)
@click.option(
    "--threshold",
    type=FiniteRange(0, 100, min_open=True),
    default=40.0,
    show_default=True,
    help="Percentage of time stalled from which a link counts.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="The page (default SOURCE-evolution.html)."
)
@click.option("--force", is_flag=True, help="Replace a page that exists.")
def evolution(
    source: Path,
    fabric: Path | None,
    geometry: Path | None,
    direction: str | None,
    threshold: float,
    out: Path | None,
    force: bool,
) -> None:
    """Draw features of congested links through time, and the network at each step.

    SOURCE is a run of 'simulate', a result of 'diagnose', or port counters with --fabric or, of a
    torus, with coordinates.

    \b
    tailback simulate examples/blue-waters/blue-waters.toml --out run
    tailback evolution run --out evolution.html
    tailback evolution gemini.csv --geometry routers.csv
    """
    if not source.exists():
        raise RunError("does not exist", file=source, remedy="check the path")
    out = out or default_output(source, "-evolution.html")
    skipped, lines = list[str](), list[str]()
    if out.exists() and not force:
        raise RunError("already exists", file=out, remedy="choose another --out, or --force")
    if (source / "run.json").is_file() or (source / "diagnosis.json").is_file():
        for option, value in (("--fabric", fabric), ("--geometry", geometry)):
            if value is not None:
                raise _option_error(option, "a run contains its fabric", source)
        run = read_run(source)
        skipped, lines = run.skip_notes, skip_lines(run)
        try:
            graph, panels, values, full, title = _of_run(run, direction, threshold)
        except TailbackError as error:
            raise error.located(source) from None
    else:
        if fabric is not None and geometry is not None:
            raise _option_error("--geometry", "--fabric describes the network", source)
        if fabric is not None and direction is not None:
            raise _option_error("--direction", "only a torus has directions here", source)
        graph, panels, values, full, title = _of_counters(
            source, fabric, geometry, direction, threshold
        )
    write_evolution(
        out,
        graph,
        panels,
        values,
        full=full,
        title=title,
        report=report_address(source, out),
        notes=skipped,
    )
    click.echo(
        f"{graph.features.height:,} features in {graph.features['evolution'].n_unique():,} "
        f"evolutions, {graph.splits:,} split, {graph.merges:,} merge\npage: {out}"
    )
    for line in lines:
        click.echo(line)


def _option_error(option: str, why: str, source: Path) -> TailbackError:
    return RunError(f"{option} has no effect: {why}", file=source, remedy="leave it out")


_Drawn = tuple[Evolution, list[Panel], NDArray[np.float64] | None, NDArray[np.bool_] | None, str]


def _of_run(run: Run, direction: str | None, threshold: float) -> _Drawn:
    rows = from_run(run).all_intervals()
    title = run.scenario.name
    if not is_torus(run):
        if direction is not None:
            raise RunError(
                f"--direction {direction} applies to a torus of two or three dimensions, and this "
                "run is of another network",
                remedy="leave it out",
            )
        return _of_links(rows, _fabric(run), threshold, title)
    direction = direction or DIRECTIONS[0]
    where = torus_coordinates(run)
    return _of_torus(torus_rows(run, rows), where, direction, threshold, title)


def _of_torus(
    rows: pl.DataFrame, where: pl.DataFrame, direction: str, threshold: float, title: str
) -> _Drawn:
    rows = rows.filter(pl.col("direction") == direction)
    graph = from_torus(rows, where, direction, threshold=threshold)
    number = pl.DataFrame({"node_name": graph.places}).with_row_index("place")
    placed = rows.join(number, on="node_name")
    values = values_at(graph, placed, placed["place"].to_numpy().astype(np.int64))
    return graph, torus_panels(where, graph.places), values, None, f"{title}, {direction}"


def _fabric(run: Run) -> Fabric:
    return degrade(load_fabric(run.scenario.fabric), run.scenario.fabric.degraded)


def _of_counters(
    source: Path,
    file: Path | None,
    geometry: Path | None,
    direction: str | None,
    threshold: float,
) -> _Drawn:
    counters = read_counters(source)
    if file is None:
        where = counters.coordinates if geometry is None else read_geometry(geometry)
        if where.is_empty():
            raise RunError(
                "measured counters need their fabric",
                file=source,
                remedy="add --fabric with a file that ibnetdiscover wrote or, of a torus whose "
                "counters contain no coordinates, --geometry with a CSV of name, x, y, z",
            )
        return _of_gemini(
            counters.all_intervals(), where, geometry, direction or DIRECTIONS[0], threshold, source
        )
    fabric = read_fabric(file)
    rows, _ = attach(counters.all_intervals(), classify(fabric))
    with_stall = rows.filter(
        pl.col("stall_fraction").is_not_null() | ends_with_full_stall_counter()
    )
    if not with_stall.height:
        raise RunError(
            f"no port gives its stall as a share of time ({rows.height} intervals between "
            "readings)",
            file=source,
            remedy="give a collection, an LDMS CSV or a run, with two readings of a port or more; "
            "for single files: tailback counters",
        )
    if not with_stall["link"].is_not_null().any():
        raise RunError(
            f"none of its ports is in {file}",
            file=source,
            remedy="give the output of ibnetdiscover of the subnet that was read",
        )
    return _of_links(rows, fabric, threshold, source.name)


def _of_gemini(
    rows: pl.DataFrame,
    where: pl.DataFrame,
    geometry: Path | None,
    direction: str,
    threshold: float,
    source: Path,
) -> _Drawn:
    """Counters of a torus by direction, like those that LDMS records of Cray's Gemini."""
    if geometry is not None and rows.height:
        rows, where = by_router(rows, where)
        if not rows.height:
            raise RunError(
                f"none of its nodes is in {geometry}",
                file=source,
                remedy="name them as in the counters",
            )
    with_stall = rows.filter(pl.col("stall_fraction").is_not_null())
    if direction not in with_stall["direction"].unique():
        raise RunError(
            f"no stall of links in direction {direction}",
            file=source,
            remedy="give counters with two readings or more of the directions X+ to Z-",
        )
    with_stall = with_stall.unique(
        ["time_ns", "node_name", "direction"], keep="first", maintain_order=True
    )
    return _of_torus(with_stall, where, direction, threshold, f"{source.name}, {direction}")


def _of_links(rows: pl.DataFrame, fabric: Fabric, threshold: float, title: str) -> _Drawn:
    linked = rows.filter(pl.col("link").is_not_null())
    graph = from_fabric(linked, fabric, threshold=threshold)
    link = linked["link"].to_numpy().astype(np.int64)
    values, full = values_at(graph, linked, link), full_at(graph, linked, link)
    return graph, tier_panels(fabric), values, full, title
