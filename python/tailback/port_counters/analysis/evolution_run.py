"""A simulated run as the studies look at it: by the directions of a torus."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from tailback.port_counters.schema import CounterError
from tailback.run import Run

AXES: Final = "XYZ"
_PLACE = re.compile(r"r\d+(?:-\d+){1,2}\Z", re.ASCII)


def is_torus(run: Run) -> bool:
    """Whether the switches of a run are named by two or three coordinates, as tori are."""
    topology = run.scenario.fabric.topology or {}
    names = run.tables["switches"]["name"].to_list()
    return (
        topology.get("kind") in ("torus", "mesh", "blue-waters")
        and bool(names)
        and all(_PLACE.match(name) for name in names)
    )


def torus_coordinates(run: Run) -> pl.DataFrame:
    """``node_name, x, y, z`` of the routers of a simulated torus of two or three dimensions.

    Raises:
        CounterError: The run is of another topology.
    """
    if not is_torus(run):
        raise CounterError(
            "the run is not of a torus or mesh of two or three dimensions",
            remedy="simulate one, or use the view of any fabric",
        )
    name = pl.col("name")
    parts = name.str.slice(1).str.split("-")
    return run.tables["switches"].select(
        node_name=name,
        **{
            axis.lower(): parts.list.get(number, null_on_oob=True).cast(pl.Int64).fill_null(0)
            for number, axis in enumerate(AXES)
        },
    )


def torus_rows(run: Run, intervals: pl.DataFrame) -> pl.DataFrame:
    """The intervals of the links between routers, ``direction`` being ``X+`` … ``Z-``.

    Args:
        run: A simulated run of a torus.
        intervals: Its intervals, with link numbers.
    """
    where = torus_coordinates(run)
    size = {axis: int(where[axis.lower()].max()) + 1 for axis in AXES}  # type: ignore[arg-type]
    links = run.tables["links"].filter(~pl.col("from_node") & ~pl.col("to_node"))
    ends = links.join(where, left_on="src_name", right_on="node_name").join(
        where, left_on="dst_name", right_on="node_name", suffix="_to"
    )
    direction = pl.lit(None, pl.String)
    for axis in AXES:
        here, there = pl.col(axis.lower()), pl.col(f"{axis.lower()}_to")
        forward = (here + 1) % size[axis] == there
        direction = (
            pl.when(here != there)
            .then(pl.when(forward).then(pl.lit(f"{axis}+")).otherwise(pl.lit(f"{axis}-")))
            .otherwise(direction)
        )
    named = ends.select("link", axis=direction)
    return intervals.join(named, on="link").with_columns(direction=pl.col("axis")).drop("axis")
