"""Steps of a torus: the rows that an evolution graph needs, and every router at the worst step.

The graph needs a direction's rows above the threshold and, for its time axis, a few rows of every
step. Only these are gathered from months of counters.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from tailback.port_counters.analysis.passes import Aggregate, Piece
from tailback.port_counters.analysis.sweeps import Sweeps, instant, usual_interval
from tailback.port_counters.schema import ROUNDING, counter_is_full

_COLUMNS = ("time_ns", "interval_ns", "node_name", "direction", "stall_fraction")


def congested_rows_pass(direction: str, threshold: float) -> Aggregate:
    """Rows of ``direction`` at or above ``threshold`` percent, some of each step, and the worst.

    Args:
        direction: ``X+`` … ``Z-``.
        threshold: Percent of time stalled.
    """
    return Aggregate(partial(_hot, direction=direction, threshold=threshold), _all, _COLUMNS)


def _hot(piece: Piece, direction: str, threshold: float) -> pl.LazyFrame:
    stall = pl.col("stall_fraction")
    rows = piece.rows.filter(pl.col("direction") == direction).select(_COLUMNS)
    return rows.filter(
        _reaches(threshold) | _some_of_each_step() | (stall == stall.max()).fill_null(False)
    )


def _reaches(threshold: float) -> pl.Expr:
    return (pl.col("stall_fraction") * 100 >= threshold * (1 - ROUNDING)).fill_null(False)


def _some_of_each_step() -> pl.Expr:
    """One row of each quarter of a period, as a single piece does not show where a step begins."""
    period = usual_interval()
    return (instant(period) // (period // 4).clip(lower_bound=1)).is_first_distinct()


def hot_links_pass(threshold: float) -> Aggregate:
    """Rows of known links from ``threshold`` percent on or with full counters, some of each step.

    The total has an additional column ``full``.
    """
    columns = (
        "time_ns",
        "interval_ns",
        "link",
        "xmit_wait_ticks",
        "stall_fraction",
        "latched_stall_ns",
        "flags",
    )
    return Aggregate(partial(_hot_links, threshold=threshold), _all, columns)


def _hot_links(piece: Piece, threshold: float) -> pl.LazyFrame:
    return (
        piece.rows.filter(pl.col("link").is_not_null())
        .select("time_ns", "interval_ns", "link", "stall_fraction", full=counter_is_full("link"))
        .filter(_reaches(threshold) | pl.col("full") | _some_of_each_step())
    )


def _all(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts


def worst_pass(direction: str, hot: pl.DataFrame) -> Aggregate | None:
    """Every row of ``direction`` in the step of the largest stall (the first such step).

    Args:
        direction: ``X+`` … ``Z-``.
        hot: Total of :func:`congested_rows_pass`.

    Returns:
        The pass; None where no stall is known.
    """
    largest = pl.col("stall_fraction") == pl.col("stall_fraction").max()
    worst = hot.filter(largest).sort("time_ns").head(1)
    if worst.is_empty():
        return None
    sweeps = Sweeps.of(hot)
    step = int(sweeps.at(worst)[0])
    start, after = int(sweeps.start_ns[step]), sweeps.start_ns[step + 1 : step + 2].tolist()
    end = min([start + max(sweeps.period_ns, 1), *after])
    at = partial(_at, direction=direction, start_ns=start, end_ns=end, period_ns=sweeps.period_ns)
    return Aggregate(at, _all, _COLUMNS)


def _at(piece: Piece, direction: str, start_ns: int, end_ns: int, period_ns: int) -> pl.LazyFrame:
    when = instant(pl.lit(period_ns, pl.Int64))
    here = (when >= start_ns) & (when < end_ns) & (pl.col("direction") == direction)
    return piece.rows.filter(here).select(_COLUMNS)


def slices(rows: pl.DataFrame, coordinates: pl.DataFrame) -> pl.DataFrame:
    """Largest stall of each router, with its coordinates: ``time_ns, x, y, z, percent``."""
    return (
        rows.filter(pl.col("stall_fraction").is_not_null())
        .join(coordinates, on="node_name", how="inner")
        .select("time_ns", "x", "y", "z", percent=100 * pl.col("stall_fraction"))
        .sort("z", "y", "x", "percent", "time_ns")
        .unique(["z", "y", "x"], keep="last", maintain_order=True)
    )
