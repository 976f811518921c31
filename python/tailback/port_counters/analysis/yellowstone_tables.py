"""Tables I to III and the numbers behind Figures 5 to 7 of the InfiniBand measurement study.

Alali et al., *A Measurement Study of Congestion in an InfiniBand Network*, section IV. Every
function takes the summary of ``rounds`` with the classes of ``classes.attach``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.port_counters.analysis.rounds import FDR_TICK_NS, intervals
from tailback.port_counters.schema import CounterError

CLASS: Final = ("category", "port_type")

CATEGORY_ORDER: Final = ("Spine", "Leaf", "ToR", "DAVSpine", "DAVLeaf", "GladeSpine", "GladeLeaf")
"""Order of the paper's tables; other categories follow by name."""


TABLE_III: Final[dict[str, type[pl.DataType]]] = {
    "round": pl.Int64,
    "time_query_ns": pl.Int64,
    "turnaround_ns": pl.Int64,
    "xmit_wait_ticks": pl.Int64,
    "increase_ticks": pl.Int64,
    "interval_ns": pl.Int64,
    "fraction": pl.Float64,
    "least_fraction": pl.Float64,
    "most_fraction": pl.Float64,
}
"""Columns of Table III."""


def _ordered(frame: pl.DataFrame) -> pl.DataFrame:
    rank = {name: index for index, name in enumerate(CATEGORY_ORDER)}
    return (
        frame.with_columns(
            _rank=pl.col("category").replace_strict(rank, default=len(rank), return_dtype=pl.Int32)
        )
        .sort("_rank", "category", "port_type")
        .drop("_rank")
    )


def _classed(rounds: pl.DataFrame) -> pl.DataFrame:
    if not {"category", "port_type"} <= set(rounds.columns):
        raise CounterError(
            "rounds without the class of their ports",
            remedy="give the fabric, so that ports are sorted by tier and direction",
        )
    return rounds.with_columns(
        pl.col("category").fill_null("other"), pl.col("port_type").fill_null("any")
    )


def table_i(rounds: pl.DataFrame) -> pl.DataFrame:
    """Table I: ``category, port_type, rounds``: querying rounds of each class."""
    return _ordered(_classed(rounds).group_by(CLASS).agg(rounds=pl.len()))


def zero_shares(rounds: pl.DataFrame) -> pl.DataFrame:
    """Figure 5: percentage of intervals with and without a stall, of each class.

    Returns:
        ``category, port_type, intervals, zero_percent, nonzero_percent``; the percentages are null
        for a class without any interval whose stall is known.
    """
    sums = _classed(rounds).group_by(CLASS).agg(pl.col("intervals", "nonzero").sum())
    share = 100.0 * pl.col("nonzero") / pl.col("intervals")
    known = pl.when(pl.col("intervals") > 0).then(share)
    return _ordered(
        sums.select(*CLASS, "intervals", zero_percent=100.0 - known, nonzero_percent=known)
    )


def nonzero_rounds(rounds: pl.DataFrame) -> pl.DataFrame:
    """Rounds with a stall, with ``average``: the mean over their non-zero fractions (Figure 7)."""
    return rounds.filter(pl.col("nonzero") > 0).with_columns(
        average=pl.col("total_nonzero") / pl.col("nonzero")
    )


def boxes(rounds: pl.DataFrame, value: str = "maximum") -> pl.DataFrame:
    """Box plot of each class: Figure 6 (``maximum``) and Figure 7 (``average``).

    An outlier is a value more than 1.5 interquartile ranges above the 75 % or below the 25 %
    number (IV-D); whiskers end at the last value that is not an outlier.

    Args:
        rounds: Summary with classes.
        value: ``maximum`` or ``average`` over the non-zero rounds.

    Returns:
        ``category, port_type, rounds, q1, median, q3, low, high, outliers, outlier_min,
        outlier_max``; the last two null without outliers.
    """
    if value not in ("maximum", "average"):
        raise CounterError(f"no box plot of {value!r}", remedy="maximum or average")
    x = pl.col(value)
    # Linear interpolation between order statistics, as in NumPy and matplotlib's box plots.
    q1 = x.quantile(0.25, interpolation="linear").over(CLASS)
    q3 = x.quantile(0.75, interpolation="linear").over(CLASS)
    marked = (
        nonzero_rounds(_classed(rounds))
        .with_columns(q1=q1, q3=q3)
        .with_columns(iqr=pl.col("q3") - pl.col("q1"))
        .with_columns(
            out=(x > pl.col("q3") + 1.5 * pl.col("iqr")) | (x < pl.col("q1") - 1.5 * pl.col("iqr"))
        )
    )
    inside, outside = x.filter(~pl.col("out")), x.filter(pl.col("out"))
    return _ordered(
        marked.group_by(CLASS).agg(
            rounds=pl.len(),
            q1=pl.col("q1").first(),
            median=x.median(),
            q3=pl.col("q3").first(),
            low=inside.min(),
            high=inside.max(),
            outliers=pl.col("out").sum(),
            outlier_min=outside.min(),
            outlier_max=outside.max(),
        )
    )


def table_ii(rounds: pl.DataFrame) -> pl.DataFrame:
    """Table II: the outliers left out of the box plots of Figures 6 and 7.

    Returns:
        ``category, port_type, min, max`` (of the outlying maxima), ``nonzero_rounds, outliers,
        at_least_one`` (fractions of 1 or more, as the maximum of a round), ``unexplained`` (single
        fractions above 1 that the turn-around times do not explain).
    """
    box = boxes(rounds).select(
        *CLASS, min="outlier_min", max="outlier_max", nonzero_rounds="rounds", outliers="outliers"
    )
    high = (
        _classed(rounds)
        .group_by(CLASS)
        .agg(at_least_one=(pl.col("maximum") >= 1).sum(), unexplained=pl.col("unexplained").sum())
    )
    table = high.join(box, on=list(CLASS), how="left").select(*box.columns, *high.columns[2:])
    return _ordered(table.with_columns(pl.col("nonzero_rounds", "outliers").fill_null(0)))


def table_iii(
    readings: pl.LazyFrame, rounds: pl.DataFrame, tick_ns: float = FDR_TICK_NS
) -> pl.DataFrame:
    """Table III: the two consecutive records behind the largest fraction, and what explains it.

    Args:
        readings: The archive.
        rounds: Its summary, by the same ``tick_ns``.
        tick_ns: Length of a tick where the readings do not say it, nanoseconds.

    Returns:
        Two rows of ``TABLE_III``. A counter was read somewhere
        between its query and its answer, so the fraction lies between the last two; where
        ``least_fraction`` is at most 1 and ``fraction`` above 1, the port was stalled all the time.
        Intervals that the summary leaves out are left out here too; if all are, there are no rows.
    """
    if rounds.is_empty():
        raise CounterError("no rounds", remedy="give an archive with rounds")
    worst = rounds.sort("maximum", descending=True, nulls_last=True).row(0, named=True)
    rows = readings.filter(pl.col("round") == worst["round"]).collect().sort("time_ns")
    between = intervals(rows.lazy(), tick_ns).collect()
    at = between["fraction"].arg_max()
    if at is None:
        return pl.DataFrame(schema=TABLE_III)
    two, step = rows.slice(at - 1, 2), between.row(at, named=True)
    answer = pl.Series([0, 0])
    if "turnaround_ns" in rows.columns:
        answer = two["turnaround_ns"].fill_null(0).cast(pl.Int64)
    wait = two["xmit_wait_ticks"].cast(pl.Int64)
    one = np.array([step["fraction"]]), np.array([int(step["length"])])
    least, most = explain(*one, answer[:1].to_numpy(), answer[1:].to_numpy())
    return pl.DataFrame(
        {
            "round": two["round"],
            "time_query_ns": two["time_ns"] - answer // 2,
            "turnaround_ns": answer,
            "xmit_wait_ticks": wait,
            "increase_ticks": [wait[1] - wait[0], None],
            "interval_ns": [int(step["length"]), None],
            "fraction": [step["fraction"], None],
            "least_fraction": [float(least[0]), None],
            "most_fraction": [float(most[0]), None],
        },
        schema_overrides=TABLE_III,
    )


def explain(
    fraction: NDArray[np.float64],
    interval_ns: NDArray[np.int64],
    first_turnaround_ns: NDArray[np.int64],
    second_turnaround_ns: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of a fraction, given that the counter was read between query and answer (IV-D).

    The estimated instants are in the middle of the turn-around; the true interval is up to half of
    both turn-arounds longer or shorter.

    Args:
        fraction: Fractions of equation 3, shape (n,).
        interval_ns: Their estimated intervals, nanoseconds, shape (n,).
        first_turnaround_ns: Turn-around of the reading before, nanoseconds, shape (n,).
        second_turnaround_ns: Turn-around of the reading after, nanoseconds, shape (n,).

    Returns:
        Least and most, shape (n,) each; the most is infinite where the two could coincide.
    """
    slack = (first_turnaround_ns + second_turnaround_ns) / 2.0
    stalled = fraction * interval_ns
    least = stalled / (interval_ns + slack)
    shortest = interval_ns - slack
    most = np.where(shortest > 0, stalled / np.where(shortest > 0, shortest, 1.0), np.inf)
    return np.asarray(least, np.float64), np.asarray(most, np.float64)
