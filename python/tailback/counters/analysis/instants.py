"""Instants of a torus: the rows an evolution graph is made of, and every router at the worst one.

Of a direction's rows the graph needs those above the threshold and, for its axis of time, one row
of every step: of months of counters that little comes to one place.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from tailback.counters.analysis.passes import Pass, Piece

_COLUMNS = ("time_ns", "node_name", "direction", "stall_fraction")


def hot_pass(direction: str, threshold: float) -> Pass:
    """Rows of ``direction`` from ``threshold`` percent on, one of each time, and the worst.

    Args:
        direction: ``X+`` … ``Z-``.
        threshold: Percent of time stalled.
    """
    return Pass(partial(_hot, direction=direction, threshold=threshold), _all, _COLUMNS)


def _hot(piece: Piece, direction: str, threshold: float) -> pl.LazyFrame:
    stall = pl.col("stall_fraction")
    rows = piece.rows.filter(pl.col("direction") == direction).select(_COLUMNS)
    return rows.filter(
        (stall * 100 >= threshold).fill_null(False)
        | pl.col("time_ns").is_first_distinct()
        | (stall == stall.max()).fill_null(False)
    )


def hot_links_pass(threshold: float) -> Pass:
    """Rows of known links from ``threshold`` percent on, and one of each time."""
    columns = ("time_ns", "link", "stall_fraction")
    return Pass(partial(_hot_links, threshold=threshold), _all, columns)


def _hot_links(piece: Piece, threshold: float) -> pl.LazyFrame:
    hot = (pl.col("stall_fraction") * 100 >= threshold).fill_null(False)
    return (
        piece.rows.filter(pl.col("link").is_not_null())
        .select("time_ns", "link", "stall_fraction")
        .filter(hot | pl.col("time_ns").is_first_distinct())
    )


def _all(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts


def instant_pass(direction: str, time_ns: int) -> Pass:
    """Every row of ``direction`` at one instant."""
    return Pass(partial(_at, direction=direction, time_ns=time_ns), _all)


def _at(piece: Piece, direction: str, time_ns: int) -> pl.LazyFrame:
    here = (pl.col("time_ns") == time_ns) & (pl.col("direction") == direction)
    return piece.rows.filter(here).select(_COLUMNS)


def worst_time(hot: pl.DataFrame) -> int | None:
    """The instant of the largest stall among the rows of :func:`hot_pass`; the first of several."""
    worst = hot.filter(pl.col("stall_fraction") == pl.col("stall_fraction").max())
    when = worst["time_ns"].min()
    return when if isinstance(when, int) else None


def slices(rows: pl.DataFrame, coordinates: pl.DataFrame) -> pl.DataFrame:
    """Routers with their places: ``time_ns, x, y, z, percent``."""
    return (
        rows.filter(pl.col("stall_fraction").is_not_null())
        .join(coordinates, on="node_name", how="inner")
        .select("time_ns", "x", "y", "z", percent=100 * pl.col("stall_fraction"))
        .sort("z", "y", "x")
    )
