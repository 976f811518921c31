"""A simulated torus as the studies analyse it: by direction."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from tailback.fabric.topologies.torus import grid_coordinates, grid_dims, grid_directions
from tailback.port_counters.schema import CounterError
from tailback.run.run import Run

MOST_DIMENSIONS: Final = 3


def is_torus(run: Run) -> bool:
    """Whether the switches of a run form a torus or mesh of two or three dimensions."""
    return 2 <= len(grid_dims(run.scenario.fabric.topology)) <= MOST_DIMENSIONS


def _dimensions(run: Run) -> list[int]:
    """Switches along each dimension."""
    if not is_torus(run):
        raise CounterError(
            "the run is not of a torus or mesh of two or three dimensions",
            remedy="simulate one, or use the view of any fabric",
        )
    return grid_dims(run.scenario.fabric.topology)


def torus_coordinates(run: Run) -> pl.DataFrame:
    """``node_name, x, y, z`` of the routers of a simulated torus of two or three dimensions.

    Raises:
        CounterError: The run is of another topology.
    """
    place = grid_coordinates(_dimensions(run))
    flat = np.zeros((len(place), MOST_DIMENSIONS - place.shape[1]), np.int64)
    x, y, z = np.hstack([place, flat]).T
    return run.tables["switches"].select(
        node_name="name", x=pl.Series(x), y=pl.Series(y), z=pl.Series(z)
    )


def torus_rows(run: Run, intervals: pl.DataFrame) -> pl.DataFrame:
    """The intervals of the links between routers, ``direction`` being ``X+`` … ``Z-``.

    Args:
        run: A simulated run of a torus.
        intervals: Its intervals, with link numbers.

    Raises:
        CounterError: The run is of another topology.
    """
    links, nodes = run.tables["links"], run.tables["nodes"].height
    src, dst = (links[end].cast(pl.Int64).to_numpy() - nodes for end in ("src", "dst"))
    directions = pl.Series(grid_directions(_dimensions(run), src, dst), dtype=pl.String)
    named = links.select("link", axis=directions).filter(pl.col("axis") != "")
    return intervals.join(named, on="link").with_columns(direction=pl.col("axis")).drop("axis")
