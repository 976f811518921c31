"""Stall and bandwidth of links: definitions 2.1 to 2.3, distributions, correlations, comparisons.

Jha et al., *Characterizing Supercomputer Traffic Networks Through Link-Level Analysis* (HPCMASPA
2018). Works on any number of intervals: everything is a pass over pieces
(:mod:`tailback.port_counters.analysis.passes`); distributions are counted in bins of 0.01 percent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.port_counters.analysis.classes import axis_of
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Aggregate, Archive, Piece
from tailback.port_counters.schema import ROUNDING, CounterError

BINS_A_PERCENT: Final = 100

MEASURES: Final = {
    "credit": ("stall_fraction", "percent of time stalled for credit (%)"),
    "inq": ("internal_stall_fraction", "percent of time stalled inside the router (%)"),
    "bandwidth": ("utilization", "bandwidth used (%)"),
}
"""Name of a measure: its column of ``counter_intervals`` and its axis label."""


def _measure(name: str) -> pl.Expr:
    if name not in MEASURES:
        raise CounterError(f"no measure {name!r}", remedy="one of " + ", ".join(MEASURES))
    return pl.col(MEASURES[name][0])


def _group(by: str) -> pl.Expr:
    if by == "axis":
        return axis_of(pl.col("direction")).fill_null("unknown").alias("group")
    return pl.col(by).cast(pl.String).fill_null("unknown").alias("group")


def _key(by: str) -> str:
    """The column whose values :func:`_group` sorts into groups."""
    return "direction" if by == "axis" else by


def _bins(piece: Piece, measure: str, by: str) -> pl.LazyFrame:
    # A value on the border of a bin is in the lower bin; one just above 0 is not counted as 0.
    bins = _measure(measure) * (100 * BINS_A_PERCENT * (1 - ROUNDING))
    return (
        piece.rows.select(_key(by), bin=bins.ceil().clip(0, 2**31 - 2).cast(pl.Int32))
        .filter(pl.col("bin").is_not_null())
        .group_by(_key(by), "bin")
        .agg(n=pl.len().cast(pl.Int64))
    )


def _add_bins(parts: pl.LazyFrame, by: str) -> pl.LazyFrame:
    return parts.group_by(_key(by), "bin").agg(pl.col("n").sum())


def ccdf_pass(measure: str, by: str = "axis", members: tuple[str, ...] | None = None) -> Aggregate:
    """Pass of :func:`ccdf`; ``members`` restricts it to the links of some nodes."""
    _measure(measure)
    columns = (_key(by), MEASURES[measure][0])
    return Aggregate(
        partial(_bins_of, measure=measure, by=by, members=members),
        partial(_add_bins, by=by),
        (*columns, "node_name") if members is not None else columns,
    )


def _bins_of(piece: Piece, measure: str, by: str, members: tuple[str, ...] | None) -> pl.LazyFrame:
    if members is not None:
        piece = Piece(piece.rows.filter(pl.col("node_name").is_in(members)), piece.carried)
    return _bins(piece, measure, by)


def ccdf_table(counts: pl.DataFrame, by: str = "axis") -> pl.DataFrame:
    """The distribution of :func:`ccdf` from the total of :func:`ccdf_pass`."""
    total = pl.col("n").sum().over("group")
    above = total - pl.col("n").cum_sum().over("group")
    return (
        counts.select(_group(by), "bin", "n")
        .group_by("group", "bin")
        .agg(pl.col("n").sum())
        .sort("group", "bin")
        .select("group", percent=pl.col("bin") / BINS_A_PERCENT, ccdf=above / total, rows=total)
    )


def ccdf(intervals: pl.LazyFrame | Archive, measure: str, by: str = "axis") -> pl.DataFrame:
    """Complementary cumulative distribution of a measure for each direction (Figures 4, 5, 7, 8).

    Args:
        intervals: Rows of ``counter_intervals``.
        measure: ``credit``, ``inq`` or ``bandwidth``.
        by: ``axis`` (X, Y, Z of a torus; up, down, flat of a tree) or a column.

    Returns:
        ``group, percent, ccdf, rows``: the share of link-intervals whose value is *above*
        ``percent``, at each value that occurs, rounded up to 0.01 percentage points.
    """
    return ccdf_table(_total(intervals, ccdf_pass(measure, by)), by)


def _total(intervals: pl.LazyFrame | Archive, one: Aggregate) -> pl.DataFrame:
    return LOCAL_ENGINE.add_up(Archive.of(intervals).pieces(), [one])[0]


_STALLS: Final = {"credit": "stall_fraction", "inq": "internal_stall_fraction"}


def correlation_pass(by: str = "axis") -> Aggregate:
    """Pass of :func:`correlations`: moments about means, which can be merged exactly."""
    columns = (_key(by), "utilization", *_STALLS.values())
    return Aggregate(partial(_moments, by=by), partial(_add_moments, by=by), columns)


def _moments(piece: Piece, by: str) -> pl.LazyFrame:
    """Count, means, and sums of squares and products about the means, for each group."""
    used = pl.col("utilization")
    about: list[pl.Expr] = []
    sums: list[pl.Expr] = [pl.len().cast(pl.Int64).alias("rows")]
    out: list[pl.Expr] = [pl.col("rows")]
    for name, column in _STALLS.items():
        x, y, n, mean_x, mean_y = (
            pl.col(f"{name}_{s}") for s in ("x", "y", "n", "mean_x", "mean_y")
        )
        both = used.is_not_null() & pl.col(column).is_not_null()
        # Centred on the means of the piece first: sums about 0 would lose precision where values
        # vary little.
        for own, part in ((used, "x"), (pl.col(column), "y")):
            about.append(pl.when(both).then(own - own.mean()).alias(f"{name}_{part}"))
            about.append(own.mean().alias(f"{name}_mean_{part}"))
        sums.append(x.count().cast(pl.Int64).alias(f"{name}_n"))
        for part, value in (("x", x), ("y", y)):
            sums.append(pl.col(f"{name}_mean_{part}").first())
            sums.append(value.min().alias(f"{name}_{part}0"))
            sums.append(value.max().alias(f"{name}_{part}1"))
            sums.append(value.sum().alias(f"{name}_{part}"))
        for part, value in (("xx", x * x), ("yy", y * y), ("xy", x * y)):
            sums.append(value.sum().alias(f"{name}_{part}"))
        of_none = pl.when(n > 0)
        values = {
            "n": n, "x": of_none.then(mean_x + x / n), "y": of_none.then(mean_y + y / n),
            **{
                key: pl.when(n > 0).then(pl.col(f"{name}_{key}") - one * other / n).otherwise(0.0)
                for key, one, other in (("xx", x, x), ("yy", y, y), ("xy", x, y))
            },
            **{
                f"{part}{end}": pl.col(f"{name}_{part}{end}") + pl.col(f"{name}_mean_{part}")
                for part in "xy" for end in "01"
            },
        }  # fmt: skip
        out += [value.alias(f"{name}_{key}") for key, value in values.items()]
    return piece.rows.select(_key(by), *about).group_by(_key(by)).agg(sums).select(_key(by), *out)


def _add_moments(parts: pl.LazyFrame, by: str) -> pl.LazyFrame:
    """Merge the moments of parts about their means (Chan, Golub, LeVeque, 1979)."""
    return parts.group_by(_key(by)).agg(_whole())


def _whole() -> list[pl.Expr]:
    out: list[pl.Expr] = [pl.col("rows").sum()]
    for name in _STALLS:
        n, x, y, xx, yy, xy, x0, x1, y0, y1 = (
            pl.col(f"{name}_{s}") for s in ("n", "x", "y", "xx", "yy", "xy", "x0", "x1", "y0", "y1")
        )
        weight = n.cast(pl.Float64)
        # A part without rows has no mean and adds nothing.
        mean_x, mean_y = ((weight * v).sum() / weight.sum() for v in (x, y))
        dx, dy = x - mean_x, y - mean_y
        values = {
            "n": n.sum(), "x": mean_x, "y": mean_y,
            "xx": xx.sum() + (weight * dx * dx).sum(),
            "yy": yy.sum() + (weight * dy * dy).sum(),
            "xy": xy.sum() + (weight * dx * dy).sum(),
            "x0": x0.min(), "x1": x1.max(), "y0": y0.min(), "y1": y1.max(),
        }  # fmt: skip
        out += [value.alias(f"{name}_{key}") for key, value in values.items()]
    return out


def correlation_table(moments: pl.DataFrame, by: str = "axis") -> pl.DataFrame:
    """The table of :func:`correlations` from the total of :func:`correlation_pass`."""
    table = moments.with_columns(_group(by)).group_by("group").agg(_whole()).sort("group")
    return table.select("group", _pearson("credit"), _pearson("inq"), "rows")


def correlations(intervals: pl.LazyFrame | Archive, by: str = "axis") -> pl.DataFrame:
    """Table I: Pearson correlation of link utilization with each kind of stall.

    Args:
        intervals: Rows of ``counter_intervals``.
        by: ``axis`` or a column.

    Returns:
        ``group, credit, inq, rows``; null where a group has fewer than 3 rows with both values or
        no variation.
    """
    return correlation_table(_total(intervals, correlation_pass(by)), by)


def _pearson(name: str) -> pl.Expr:
    n, xx, yy, xy, x0, x1, y0, y1 = (
        pl.col(f"{name}_{s}") for s in ("n", "xx", "yy", "xy", "x0", "x1", "y0", "y1")
    )
    varied = (n >= 3) & (x0 < x1) & (y0 < y1)
    value = xy / (xx * yy).sqrt()
    return pl.when(varied).then(value.clip(-1.0, 1.0)).fill_nan(None).alias(name)


@dataclass(frozen=True)
class GroupTest:
    """Comparison of a group of links with random groups of the others.

    Attributes:
        statistics: Kolmogorov–Smirnov distance of each draw, shape (draws,).
        p_values: Probability of at least that distance if both groups had the same distribution,
            shape (draws,).
        group_mean: Mean of the group, percent.
        other_mean: Mean of all others, percent.
    """

    statistics: NDArray[np.float64]
    p_values: NDArray[np.float64]
    group_mean: float
    other_mean: float

    @property
    def p_value(self) -> float:
        """Median over the draws, which is robust to a single unusual draw."""
        return float(np.median(self.p_values))

    def verdict(self, level: float = 0.05) -> str:
        """The result in one sentence."""
        means = f"{self.group_mean:.3g} % against {self.other_mean:.3g} %"
        if self.p_value >= level:
            return (
                f"no difference found (median p = {self.p_value:.2g}; mean {means}); the test "
                "says little about the tails"
            )
        word = "more" if self.group_mean > self.other_mean else "less"
        return f"these links stall {word} (median p = {self.p_value:.2g}; mean {means})"


def compare_groups(
    intervals: pl.LazyFrame | Archive,
    members: Iterable[str],
    *,
    measure: str = "credit",
    draws: int = 30,
    seed: int = 1,
) -> GroupTest:
    """Do the links of some nodes stall like those of others (section V-B: I/O nodes)?

    As many nodes as there are members are drawn at random from the rest, ``draws`` times, and the
    means of their links are compared by a two-sample Kolmogorov–Smirnov test. The unit is a link,
    not a link-minute: the minutes of a link are not independent, and a test that assumes so finds
    differences everywhere.

    Args:
        intervals: Rows of ``counter_intervals``.
        members: Names of the nodes of the group.
        measure: ``credit``, ``inq`` or ``bandwidth``.
        draws: Number of random groups.
        seed: Seed of the draws.

    Raises:
        CounterError: A group without links, or no others.
    """
    return comparison(_total(intervals, means_pass(measure)), members, draws=draws, seed=seed)


def means_pass(measure: str = "credit") -> Aggregate:
    """Pass of :func:`compare_groups`: sum and number of the values of each link."""
    _measure(measure)
    columns = ("node_guid", "node_name", "port", MEASURES[measure][0])
    return Aggregate(partial(_sums, measure=measure), _add_sums, columns)


_LINK: Final = ("node_guid", "node_name", "port")


def _sums(piece: Piece, measure: str) -> pl.LazyFrame:
    value = _measure(measure)
    return piece.rows.group_by(_LINK).agg(total=value.sum(), n=value.count().cast(pl.Int64))


def _add_sums(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts.group_by(_LINK).agg(pl.col("total", "n").sum())


def comparison(
    sums: pl.DataFrame, members: Iterable[str], *, draws: int = 30, seed: int = 1
) -> GroupTest:
    """The result of :func:`compare_groups` from the total of :func:`means_pass`.

    Raises:
        CounterError: A group without links, or no others.
    """
    links = (
        sums.filter(pl.col("n") > 0)
        .select(*_LINK, value=100.0 * pl.col("total") / pl.col("n"))
        .sort("node_name", "node_guid", "port")
    )
    names = set(members)
    inside = pl.col("node_name").is_in(list(names))
    mine, others = links.filter(inside)["value"].to_numpy(), links.filter(~inside)
    if len(mine) == 0 or others.height == 0:
        raise CounterError(
            f"{len(mine)} links in the group and {others.height} others",
            remedy="name some, but not all, of the nodes the counters are of",
        )
    from scipy import stats

    code = others["node_name"].rank("dense").to_numpy().astype(np.int64) - 1
    values, population = others["value"].to_numpy(), int(code.max()) + 1
    size = min(links.filter(inside)["node_name"].n_unique(), population)
    random = np.random.default_rng([seed, 0x6B73])
    distance, p_value = np.zeros(draws), np.zeros(draws)
    for draw in range(draws):
        chosen = np.zeros(population, bool)
        chosen[random.choice(population, size, replace=False)] = True
        test = stats.ks_2samp(mine, values[chosen[code]])
        distance[draw], p_value[draw] = float(test.statistic), float(test.pvalue)
    return GroupTest(distance, p_value, float(mine.mean()), float(values.mean()))
