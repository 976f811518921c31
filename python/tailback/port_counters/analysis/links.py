"""Stall and bandwidth of links: definitions 2.1 to 2.3, distributions, correlations, comparisons.

Jha et al., *Characterizing Supercomputer Traffic Networks Through Link-Level Analysis* (HPCMASPA
2018). Works on any number of intervals: everything is a pass over pieces
(:mod:`tailback.port_counters.analysis.passes`); distributions are counted in bins of 0.01 percent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
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
            "n": n,
            "x": of_none.then(mean_x + x / n),
            "y": of_none.then(mean_y + y / n),
            **{
                key: pl.when(n > 0).then(pl.col(f"{name}_{key}") - one * other / n).otherwise(0.0)
                for key, one, other in (("xx", x, x), ("yy", y, y), ("xy", x, y))
            },
            **{
                f"{part}{end}": pl.col(f"{name}_{part}{end}") + pl.col(f"{name}_mean_{part}")
                for part in "xy"
                for end in "01"
            },
        }
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
            "n": n.sum(),
            "x": mean_x,
            "y": mean_y,
            "xx": xx.sum() + (weight * dx * dx).sum(),
            "yy": yy.sum() + (weight * dy * dy).sum(),
            "xy": xy.sum() + (weight * dx * dy).sum(),
            "x0": x0.min(),
            "x1": x1.max(),
            "y0": y0.min(),
            "y1": y1.max(),
        }
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


SHUFFLES: Final = 9999
"""Random groups of a test: a probability of 0.05 is then known to 0.2 percentage points."""

LEVEL: Final = 0.05
"""Probability below which a difference is called one; 1 − LEVEL is the confidence of intervals."""

POWER: Final = 0.8
"""Share of cases in which the stated smallest difference is found: the usual choice."""

_POWER_DRAWS: Final = 200
_POWER_SHUFFLES: Final = 999
"""The smallest difference is a quantile of draws: 200 locate it to 3 percentage points."""

_LARGEST_RATIO: Final = 1e4
"""Ratios of means beyond this, or below its inverse, are not told apart from no bound."""


@dataclass(frozen=True)
class GroupTest:
    """Comparison of the links of some nodes with those of all others.

    Attributes:
        p_value: Probability that a random group of as many nodes differs as much in its mean.
        group_mean: Mean of the group's links, percent.
        other_mean: Mean of all other links, percent.
        low: Lower end of the 95 % interval of the ratio of these means.
        high: Upper end of it; infinite if the data give none.
        detectable: Smallest ratio that would have been found in ``POWER`` of all cases; infinite if
            none would.
    """

    p_value: float
    group_mean: float
    other_mean: float
    low: float
    high: float
    detectable: float

    @property
    def ratio(self) -> float:
        """Mean of the group over that of the others; NaN if both are 0."""
        if self.other_mean == 0:
            return float("inf") if self.group_mean > 0 else float("nan")
        return self.group_mean / self.other_mean

    def verdict(self) -> str:
        """The result in one sentence."""
        means = f"mean {self.group_mean:.3g} % against {self.other_mean:.3g} %"
        known = 0 < self.ratio < float("inf")
        high = "any number of" if self.high == float("inf") else f"{self.high:.2g}"
        times = f", {self.ratio:.2g} times (95 %: {self.low:.2g} to {high} times)" if known else ""
        if self.p_value < LEVEL:
            word = "more" if self.group_mean > self.other_mean else "less"
            return f"these links stall {word}: {means}{times}; p = {self.p_value:.2g}"
        found = (
            "these counters could not show any difference"
            if self.detectable == float("inf")
            else f"{self.detectable:.2g} times the stall would have been found in {POWER:.0%} of "
            "cases"
        )
        return f"no difference found: {means}{times}; p = {self.p_value:.2g}; {found}"

    def to_dict(self) -> dict[str, float | str | None]:
        """The result as plain values; null where there is no finite number."""
        values = {**asdict(self), "ratio": self.ratio}
        return {
            "verdict": self.verdict(),
            **{name: value if np.isfinite(value) else None for name, value in values.items()},
        }


def compare_groups(
    intervals: pl.LazyFrame | Archive,
    members: Iterable[str],
    *,
    measure: str = "credit",
    seed: int = 1,
) -> GroupTest:
    """Do the links of some nodes stall like those of others (section V-B: I/O nodes)?

    A permutation test on the mean: how often does a random group of as many nodes differ from the
    others by as much? Most links never stall, so a test on distributions mostly compares zeros; the
    mean is what the stall costs. Groups are drawn by node, because the links of a node are not
    independent, and neither are the minutes of a link. The test is exact if nodes are
    exchangeable; nodes that are near to each other and share congestion are not quite.

    The interval of the ratio contains every factor by which the group's values can be divided
    without the test finding a difference. It assumes that the groups differ by a factor.

    Args:
        intervals: Rows of ``counter_intervals``.
        members: Names of the nodes of the group.
        measure: ``credit``, ``inq`` or ``bandwidth``.
        seed: Seed of the draws.

    Raises:
        CounterError: A group without links, or no others.
    """
    return comparison(_total(intervals, means_pass(measure)), members, seed=seed)


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


def comparison(sums: pl.DataFrame, members: Iterable[str], *, seed: int = 1) -> GroupTest:
    """The result of :func:`compare_groups` from the total of :func:`means_pass`.

    Raises:
        CounterError: A group without links, or no others.
    """
    nodes = (
        sums.filter(pl.col("n") > 0)
        .group_by("node_name")
        .agg(total=(100.0 * pl.col("total") / pl.col("n")).sum(), links=pl.len())
        .sort("node_name")
    )
    inside = nodes["node_name"].is_in(list(set(members))).to_numpy()
    total, links = (nodes[name].to_numpy().astype(np.float64) for name in ("total", "links"))
    if not inside.any() or inside.all():
        raise CounterError(
            f"{links[inside].sum():.0f} links in the group and {links[~inside].sum():.0f} others",
            remedy="name some, but not all, of the nodes the counters are of",
        )
    random = np.random.default_rng([seed, 0x6B73])
    mine, others = np.where(inside, total, 0.0), np.where(inside, 0.0, total)
    size = int(inside.sum())
    drawn = _sums_of_random_groups(random, SHUFFLES, size, np.column_stack([mine, others, links]))
    test = _ScaledTest(drawn, mine.sum(), others.sum(), links[inside].sum(), links.sum())
    group_mean = float(mine.sum() / links[inside].sum())
    other_mean = float(others.sum() / links[~inside].sum())
    p_value = test.p_value(1.0)
    if group_mean == 0 or other_mean == 0:
        # A factor changes nothing: either the zeros are chance or no factor explains them.
        only = np.inf if group_mean else 0.0
        limits = (0.0, np.inf) if p_value >= LEVEL else (only, only)
        pool = total
    else:
        limits = test.interval(group_mean / other_mean)
        pool = total / np.where(inside, group_mean / other_mean, 1.0)
    detectable = _detectable(random, pool, links, size)
    return GroupTest(p_value, group_mean, other_mean, limits[0], limits[1], detectable)


Floats = NDArray[np.float64]


def _random_groups(
    random: np.random.Generator, size: int, of: int, groups: int
) -> Iterator[Floats]:
    """Random groups of nodes as rows of 0 and 1, in blocks: ``groups`` of them altogether."""
    block = max(1, _BLOCK_VALUES // of)
    for start in range(0, groups, block):
        draw = random.random((min(block, groups - start), of))
        yield (draw <= np.partition(draw, size - 1, axis=1)[:, size - 1 : size]).astype(np.float64)


_BLOCK_VALUES: Final = 4_000_000
"""Random numbers at a time: 32 MB."""


def _sums_of_random_groups(
    random: np.random.Generator, groups: int, size: int, values: Floats
) -> Floats:
    """Sums of each column of ``values`` over random groups of rows, shape (groups, columns)."""
    blocks = _random_groups(random, size, len(values), groups)
    return np.concatenate([block @ values for block in blocks])


@dataclass(frozen=True)
class _ScaledTest:
    """The test of a group whose values are divided by a factor.

    Attributes:
        drawn: Of each random group, the sum of the values that are the tested group's own, of those
            of the others, and of the links, shape (draws, 3).
        own: Sum of the values of the tested group.
        other: Sum of the values of all others.
        own_links: Links of the tested group.
        links: All links.
    """

    drawn: Floats
    own: float
    other: float
    own_links: float
    links: float

    def p_value(self, factor: float) -> float:
        """Probability of a difference as large, the group's values divided by ``factor``."""
        own, other, links = self.drawn.T
        inside = own / factor + other
        total = self.own / factor + self.other
        differences = inside / links - (total - inside) / (self.links - links)
        seen = self.own / factor / self.own_links - self.other / (self.links - self.own_links)
        as_large = np.abs(differences) >= abs(seen) * (1 - ROUNDING)
        return float((1 + np.count_nonzero(as_large)) / (1 + len(differences)))

    def interval(self, ratio: float) -> tuple[float, float]:
        """The factors around ``ratio`` at which no difference is found."""
        return self._end(ratio, 1 / _END_STEP, 0.0), self._end(ratio, _END_STEP, np.inf)

    def smallest_found(self) -> float:
        """The smallest factor by which the group's values are multiplied that the test finds."""
        if self.p_value(1.0) < LEVEL:
            return 1.0
        end = self._end(1.0, 1 / _END_STEP, 0.0)
        return 1 / end if end else float("inf")

    def _end(self, ratio: float, step: float, nowhere: float) -> float:
        """The last factor from ``ratio`` on at which no difference is found, else ``nowhere``."""
        inside, outside = ratio, ratio * step
        while self.p_value(outside) >= LEVEL:
            inside, outside = outside, outside * step
            if not 1 / _LARGEST_RATIO < outside / ratio < _LARGEST_RATIO:
                return nowhere
        for _ in range(_BISECTIONS):
            middle = float(np.sqrt(inside * outside))
            inside, outside = (
                (middle, outside) if self.p_value(middle) >= LEVEL else (inside, middle)
            )
        return inside


_END_STEP: Final = 1.2
"""Step by which the end of an interval is searched: finer than any interval of such data."""

_BISECTIONS: Final = 8
"""Bisections of a step: an end is then known to 0.1 %."""


def _detectable(random: np.random.Generator, pool: Floats, links: Floats, size: int) -> float:
    """The ratio of means that the test finds in ``POWER`` of random groups of the pool."""
    groups = np.concatenate(list(_random_groups(random, size, len(pool), _POWER_DRAWS)))
    own = (groups * pool).T
    values = np.column_stack([own, pool, links])
    drawn = _sums_of_random_groups(random, _POWER_SHUFFLES, size, values)
    total, drawn_links = drawn[:, -2], drawn[:, -1]
    found = []
    for row, group in enumerate(groups):
        mine = np.column_stack([drawn[:, row], total - drawn[:, row], drawn_links])
        sums = own[:, row].sum(), pool.sum() - own[:, row].sum()
        found.append(_ScaledTest(mine, *sums, group @ links, links.sum()).smallest_found())
    return float(np.quantile(found, POWER, method="higher"))
