"""A simulated torus as the studies analyse it: by direction."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from tailback.fabric.topologies import parse
from tailback.fabric.topologies.torus import Grid, grid_coordinates
from tailback.port_counters.schema import CounterError
from tailback.run.run import Run

AXES: Final = "XYZ"


def is_torus(run: Run) -> bool:
    """Whether the switches of a run form a torus or mesh of two or three dimensions."""
    return 2 <= len(_dimensions(run)) <= len(AXES)


def _dimensions(run: Run) -> list[int]:
    """Switches along each dimension of the run's grid; empty of other topologies."""
    topology = run.scenario.fabric.topology
    shape = parse(topology) if topology else None
    return list(shape.dims) if isinstance(shape, Grid) else []


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
    place = grid_coordinates(_dimensions(run))
    flat = np.zeros((len(place), len(AXES) - place.shape[1]), np.int64)
    x, y, z = np.hstack([place, flat]).T
    return run.tables["switches"].select(
        node_name="name", x=pl.Series(x), y=pl.Series(y), z=pl.Series(z)
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
