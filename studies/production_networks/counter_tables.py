"""Tables of both counter studies: shares and boxes by class, distributions, correlations, tests.

Alali et al., *A Measurement Study of Congestion in an InfiniBand Network* (2017), section IV, and
Jha et al., *Characterizing Supercomputer Traffic Networks Through Link-Level Analysis* (HPCMASPA
2018). Every function takes rows of ``counter_intervals``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.fabric import Fabric
from tailback.port_counters.analysis import tier_panels

ROUNDING: Final = 1e-12
"""Relative rounding error of sums that are equal."""

CLASS: Final = ("category", "port_type")

CATEGORY_ORDER: Final = ("Spine", "Leaf", "ToR", "DAVSpine", "DAVLeaf", "GladeSpine", "GladeLeaf")
"""Order of the tables of Alali et al.; other categories follow by name."""

MEASURES: Final = {
    "credit": ("stall_fraction", "percent of time stalled for credit (%)"),
    "inq": ("internal_stall_fraction", "percent of time stalled inside the router (%)"),
    "bandwidth": ("utilization", "bandwidth used (%)"),
}
"""Name of a measure: its column of ``counter_intervals`` and its axis label."""


def _ordered(frame: pl.DataFrame) -> pl.DataFrame:
    rank = {name: index for index, name in enumerate(CATEGORY_ORDER)}
    return (
        frame.with_columns(
            _rank=pl.col("category").replace_strict(rank, default=len(rank), return_dtype=pl.Int32)
        )
        .sort("_rank", "category", "port_type")
        .drop("_rank")
    )


def zero_shares(ports: pl.DataFrame) -> pl.DataFrame:
    """Figure 5 of Alali et al.: percentage of intervals with a stall, of each class.

    Args:
        ports: A row per port: ``category, port_type, intervals, nonzero``.

    Returns:
        ``category, port_type, intervals, nonzero_percent``; null for a class without intervals.
    """
    sums = ports.group_by(CLASS).agg(pl.col("intervals", "nonzero").sum())
    share = 100.0 * pl.col("nonzero") / pl.col("intervals")
    stalled = pl.when(pl.col("intervals") > 0).then(share)
    return _ordered(sums.select(*CLASS, "intervals", nonzero_percent=stalled))


def boxes(ports: pl.DataFrame, value: str) -> pl.DataFrame:
    """Figures 6 (``maximum``) and 7 (``average``) of Alali et al.: a box plot of each class.

    An outlier is a value more than 1.5 interquartile ranges above the 75 % or below the 25 %
    number (IV-D); whiskers end at the last value that is not an outlier.

    Args:
        ports: A row per port; those without a stall are left out.
        value: The column of values.

    Returns:
        ``category, port_type, q1, median, q3, low, high, outliers``.
    """
    x = pl.col(value)
    # Linear interpolation between order statistics, as in NumPy and matplotlib's box plots.
    marked = (
        ports.filter(pl.col("nonzero") > 0)
        .with_columns(
            q1=x.quantile(0.25, interpolation="linear").over(CLASS),
            q3=x.quantile(0.75, interpolation="linear").over(CLASS),
        )
        .with_columns(reach=1.5 * (pl.col("q3") - pl.col("q1")))
        .with_columns(
            out=(x > pl.col("q3") + pl.col("reach")) | (x < pl.col("q1") - pl.col("reach"))
        )
    )
    inside = x.filter(~pl.col("out"))
    return _ordered(
        marked.group_by(CLASS).agg(
            q1=pl.col("q1").first(),
            median=x.median(),
            q3=pl.col("q3").first(),
            low=inside.min(),
            high=inside.max(),
            outliers=pl.col("out").sum(),
        )
    )


def tier_stalls(rows: pl.DataFrame, fabric: Fabric, names: dict[int, str]) -> pl.DataFrame:
    """Mean stall of every link of a tree, percent, and its position in the panels of its tier.

    Args:
        rows: Intervals with link numbers of the fabric.
        fabric: The fabric.
        names: What to call a tier, by its number.

    Returns:
        ``panel, order, column, row, link, percent``.
    """
    measured = rows.drop_nulls(["link", "stall_ns"])
    means = measured.group_by("link").agg(
        percent=100.0 * pl.col("stall_ns").sum() / pl.col("interval_ns").sum()
    )
    places = []
    for order, panel in enumerate(tier_panels(fabric, names)):
        row, column = np.nonzero(panel.links >= 0)
        links = panel.links[row, column].astype(np.uint32)
        columns = {"column": column, "row": row, "link": links}
        places.append(
            pl.DataFrame(columns).select(
                pl.lit(panel.title).alias("panel"), pl.lit(order).alias("order"), pl.all()
            )
        )
    return pl.concat(places).join(means, on="link", how="left", maintain_order="left")


def _by_axis(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(group=pl.col("direction").str.head(1))


def ccdf(rows: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Complementary cumulative distribution of a measure by axis (Jha et al., Figures 4 to 8).

    Args:
        rows: Intervals with directions.
        measure: ``credit``, ``inq`` or ``bandwidth``.

    Returns:
        ``group, percent, ccdf``: the share of link-intervals whose value is *above* ``percent``,
        at each value that occurs.
    """
    counts = (
        _by_axis(rows)
        .select("group", percent=100 * pl.col(MEASURES[measure][0]))
        .drop_nulls("percent")
        .group_by("group", "percent")
        .len()
        .sort("group", "percent")
    )
    total = pl.col("len").sum().over("group")
    above = total - pl.col("len").cum_sum().over("group")
    return counts.select("group", "percent", ccdf=above / total)


def correlations(rows: pl.DataFrame) -> pl.DataFrame:
    """Table I of Jha et al.: Pearson correlation of utilization with each kind of stall, by axis.

    Returns:
        ``group, credit, inq``; null where a group has fewer than 3 rows with both values or no
        variation.
    """

    def pearson(name: str) -> pl.Expr:
        stall, used = pl.col(MEASURES[name][0]), pl.col("utilization")
        both = stall.is_not_null() & used.is_not_null()
        x, y = used.filter(both), stall.filter(both)
        varied = (both.sum() >= 3) & (x.min() < x.max()) & (y.min() < y.max())
        return pl.when(varied).then(pl.corr(x, y)).fill_nan(None).alias(name)

    return _by_axis(rows).group_by("group").agg(pearson("credit"), pearson("inq")).sort("group")


def worst_slices(rows: pl.DataFrame, coordinates: pl.DataFrame) -> pl.DataFrame:
    """Stall of each router in the interval of the largest stall: ``x, y, z, percent``.

    Args:
        rows: Intervals of one direction that end at the same instants for all links.
        coordinates: ``node_name, x, y, z`` of the routers.
    """
    measured = rows.drop_nulls("stall_fraction")
    worst = measured.sort("stall_fraction", "time_ns", descending=[True, False])["time_ns"].head(1)
    return (
        measured.filter(pl.col("time_ns").is_in(worst.implode()))
        .join(coordinates, on="node_name")
        .select("x", "y", "z", percent=100 * pl.col("stall_fraction"))
    )


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
        finite = 0 < self.ratio < float("inf")
        high = "any number of" if self.high == float("inf") else f"{self.high:.2g}"
        times = f", {self.ratio:.2g} times (95 %: {self.low:.2g} to {high} times)" if finite else ""
        if self.p_value < LEVEL:
            word = "more" if self.group_mean > self.other_mean else "less"
            return f"these links stall {word}: {means}{times}; p = {self.p_value:.2g}"
        sensitivity = (
            "these counters could not show any difference"
            if self.detectable == float("inf")
            else f"{self.detectable:.2g} times the stall would have been found in {POWER:.0%} of "
            "cases"
        )
        return f"no difference found: {means}{times}; p = {self.p_value:.2g}; {sensitivity}"


def compare_groups(
    rows: pl.DataFrame,
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
        rows: The intervals.
        members: Names of the nodes of the group.
        measure: ``credit``, ``inq`` or ``bandwidth``.
        seed: Seed of the draws.

    Raises:
        ValueError: A group without links, or no others.
    """
    value = pl.col(MEASURES[measure][0])
    sums = rows.group_by("node_guid", "node_name", "port").agg(total=value.sum(), n=value.count())
    return comparison(sums, members, seed=seed)


def comparison(sums: pl.DataFrame, members: Iterable[str], *, seed: int = 1) -> GroupTest:
    """The result of :func:`compare_groups` from ``node_name``, sum and number of each link.

    Raises:
        ValueError: A group without links, or no others.
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
        raise ValueError(
            f"{links[inside].sum():.0f} links in the group and {links[~inside].sum():.0f} others"
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
        group: Sum of the values of the tested group.
        other: Sum of the values of all others.
        group_links: Links of the tested group.
        links: All links.
    """

    drawn: Floats
    group: float
    other: float
    group_links: float
    links: float

    def p_value(self, factor: float) -> float:
        """Probability of a difference as large, the group's values divided by ``factor``."""
        group, other, links = self.drawn.T
        inside = group / factor + other
        total = self.group / factor + self.other
        differences = inside / links - (total - inside) / (self.links - links)
        seen = self.group / factor / self.group_links - self.other / (self.links - self.group_links)
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
    group_values = (groups * pool).T
    values = np.column_stack([group_values, pool, links])
    drawn = _sums_of_random_groups(random, _POWER_SHUFFLES, size, values)
    total, drawn_links = drawn[:, -2], drawn[:, -1]
    ratios = []
    for row, group in enumerate(groups):
        mine = np.column_stack([drawn[:, row], total - drawn[:, row], drawn_links])
        sums = group_values[:, row].sum(), pool.sum() - group_values[:, row].sum()
        ratios.append(_ScaledTest(mine, *sums, group @ links, links.sum()).smallest_found())
    return float(np.quantile(ratios, POWER, method="higher"))
