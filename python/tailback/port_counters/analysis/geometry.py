"""Where the routers of a measured torus are: from the counters themselves, or from a CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from tailback.io.delimited import parse
from tailback.io.input_files import content
from tailback.port_counters.schema import CounterError

ALIASES: Final = {
    "node_name": (
        "node_name",
        "name",
        "node",
        "nid",
        "host",
        "hostname",
        "component_id",
        "router",
        "cname",
    ),
    "x": ("x", "coord_x", "nettopo_mesh_coord_x", "mesh_coord_x"),
    "y": ("y", "coord_y", "nettopo_mesh_coord_y", "mesh_coord_y"),
    "z": ("z", "coord_z", "nettopo_mesh_coord_z", "mesh_coord_z"),
}


def read_geometry(path: Path) -> pl.DataFrame:
    """The coordinates of nodes: a CSV with one line per node or router, like ``nid00064,0,4,0``.

    Args:
        path: The file. Its columns are the name as in the counters, ``x``, ``y`` and ``z``.

    Returns:
        ``node_name, x, y, z``. Nodes of one router have the same coordinates.

    Raises:
        CounterError: A column or a field is missing, a coordinate is not a whole number, or a name
            occurs with two places.
    """
    table = parse(
        content(path, CounterError), ALIASES, tuple(ALIASES), path=path, error_type=CounterError
    )
    axes = {axis: table.number(axis, integer=True) for axis in "xyz"}
    for axis, values in axes.items():
        table.need(axis)
        if values.len() and int(values.max()) > 2**31 - 1:  # type: ignore[arg-type]
            line = int(table.rows["line"][int(values.arg_max() or 0)])
            raise table.error_at(
                axis, line, f"coordinate {values.max()!r} is too large", "start at 0"
            )
    name = table.need("node_name")
    out = pl.DataFrame({"node_name": name, **axes}).with_columns(pl.col(*"xyz").cast(pl.Int32))
    places = out.unique(maintain_order=True)
    twice = places.filter(pl.col("node_name").is_duplicated())
    if twice.height:
        again = twice["node_name"][0]
        line = int(table.rows["line"][int((name == again).arg_true()[-1])])
        raise table.error_at(
            "node_name", line, f"{again!r} has two places", "give each name one line"
        )
    return places


def by_router(rows: pl.DataFrame, geometry: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Intervals under the names of routers, ``(x,y,z)``, each once.

    The nodes of one router report the counters of the same links.

    Args:
        rows: Rows of ``counter_intervals`` with the names of nodes.
        geometry: From :func:`read_geometry`.

    Returns:
        The rows of nodes with a place, and ``node_name, x, y, z`` of the routers.
    """
    named = geometry.with_columns(router=pl.format("({},{},{})", "x", "y", "z"))
    out = (
        rows.join(named.select("node_name", "router"), on="node_name")
        .with_columns(node_name=pl.col("router"))
        .drop("router")
        .unique(["time_ns", "node_name", "direction"], keep="first", maintain_order=True)
    )
    where = named.select(node_name="router", x="x", y="y", z="z").unique(maintain_order=True)
    return out, where
