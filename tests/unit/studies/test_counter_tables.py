"""Tables and figures of the counter studies: definitions, distributions, tests of groups."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from studies.production_networks import counter_figures as figures
from studies.production_networks import counter_tables as links
from studies.production_networks import definitions
from tailback.port_counters import INTERVALS, CounterError, conform
from tailback.port_counters.analysis.evolution import from_torus
from tailback.report import render, style


def test_equation_3_gives_the_example_of_table_iii() -> None:
    """Its times are printed to ten digits only, so the interval is put in as it is printed."""
    answers = np.array([18350267, 24841529])
    start, interval = 1456409893470000000, 124199424
    query = np.array([start, start + interval - (answers[1] - answers[0]) // 2])
    fraction = definitions.forced_idle_fraction(np.array([2426695474, 2433352285]), query, answers)
    assert fraction[0] == pytest.approx(1.179, abs=5e-4)


def test_definitions() -> None:
    stalled, observed = np.array([30.0, 0.0, 30.0, 0.0]), np.full(4, 60.0)
    assert definitions.percent_time_stalled(stalled, observed) == 25.0
    # 4 tiles of 9.4/8 GB/s for a minute carry 282 GB: half the 564 GB/min of a whole X link.
    assert definitions.percent_bandwidth_used(0, 141 * 10**9, 60 * 10**9, 9.4, 4) == pytest.approx(
        50.0
    )
    with pytest.raises(CounterError):
        definitions.percent_bandwidth_used(0, 1, 0, 9.4, 4)


def torus(minutes: int = 30, size: int = 6, seed: int = 1) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A small torus where X stalls most and stall goes with utilization."""
    random = np.random.default_rng(seed)
    where = [(x, y, z) for z in range(size) for y in range(size) for x in range(size)]
    names = [f"({x},{y},{z})" for x, y, z in where]
    parts = []
    for direction, level in (("X+", 0.2), ("X-", 0.2), ("Y+", 0.1), ("Z+", 0.05)):
        n = minutes * len(where)
        used = random.random(n) * 0.3
        stall = np.clip(level * used / 0.15 * random.random(n) * 2, 0, 1)
        parts.append(
            pl.DataFrame(
                {
                    "time_ns": np.repeat(np.arange(minutes), len(where)) * 60 * 10**9,
                    "interval_ns": np.full(n, 60 * 10**9),
                    "port": np.full(n, 1),
                    "node_name": names * minutes,
                    "direction": [direction] * n,
                    "stall_fraction": stall,
                    "internal_stall_fraction": stall * 1.2,
                    "utilization": used,
                }
            )
        )
    coordinates = pl.DataFrame(
        {"node_name": names, **{a: [w[i] for w in where] for i, a in enumerate("xyz")}}
    )
    return conform(INTERVALS, pl.concat(parts)), coordinates


def test_ccdf_counts_what_is_above() -> None:
    rows, _ = torus()
    table = links.ccdf(rows, "credit")
    x = rows.filter(pl.col("direction").str.starts_with("X"))["stall_fraction"].to_numpy() * 100
    for percent in (0.0, 5.0, 10.0, 40.0):
        assert definitions.share_above(table, percent)["X"] == pytest.approx((x > percent).mean())
    shares = definitions.share_above(table, 10.0)
    assert shares["X"] > shares["Y"] > shares["Z"]


def test_correlations_against_numpy() -> None:
    rows, _ = torus()
    table = links.correlations(rows)
    z = rows.filter(pl.col("direction") == "Z+")
    expected = np.corrcoef(z["utilization"], z["stall_fraction"])[0, 1]
    assert table.filter(pl.col("group") == "Z")["credit"][0] == pytest.approx(expected)
    flat = rows.with_columns(utilization=pl.lit(0.5))
    assert links.correlations(flat)["credit"].null_count() == 3


def test_run_time_correlation() -> None:
    correlation, p_value = definitions.run_time_correlation(
        np.array([41.0, 50, 55, 70, 44]), np.array([2.0, 6, 8, 11, 3])
    )
    assert correlation > 0.95
    assert p_value < 0.05
    with pytest.raises(CounterError, match="2 runs"):
        definitions.run_time_correlation(np.array([1.0, 2]), np.array([1.0, 2]))


def drawn_means(
    random: np.random.Generator, factor: float, zeros: float
) -> tuple[pl.DataFrame, list[str]]:
    """Sums of links most of which never stall, and a group that stalls ``factor`` times as much."""
    nodes, links_a_node = int(random.integers(40, 150)), int(random.integers(1, 6))
    members = random.choice(nodes, max(8, nodes // 6), replace=False)
    # Links of a node have something in common.
    value = random.lognormal(0, 0.7, (nodes, 1)) * random.gamma(0.7, 1, (nodes, links_a_node))
    value *= random.random(value.shape) >= zeros
    value[members] *= factor
    number = np.repeat(np.arange(nodes), links_a_node)
    sums = pl.DataFrame(
        {
            "node_guid": number,
            "node_name": number.astype(str),
            "port": np.tile(np.arange(links_a_node), nodes),
            "total": value.ravel() / 1e4,
            "n": np.ones(value.size, np.int64),
        }
    )
    return sums, [str(number) for number in members]


@pytest.fixture
def quick_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer random groups: each of many drawn cases is tested."""
    monkeypatch.setattr(links, "SHUFFLES", 499)
    monkeypatch.setattr(links, "_POWER_DRAWS", 20)
    monkeypatch.setattr(links, "_POWER_SHUFFLES", 199)


@pytest.mark.usefixtures("quick_tests")
def test_like_groups_differ_once_in_twenty() -> None:
    random = np.random.default_rng(46)
    cases = [drawn_means(random, 1.0, zeros) for zeros in (0.0, 0.6, 0.9) for _ in range(40)]
    significant = [links.comparison(*case, seed=n).p_value < 0.05 for n, case in enumerate(cases)]
    # Of 120 cases 6 are expected; more than 12 have a probability of 1 %.
    assert sum(significant) <= 12


@pytest.mark.usefixtures("quick_tests")
@pytest.mark.parametrize("zeros", [0.0, 0.6, 0.9])
def test_tenfold_stall_is_found_with_stated_power(zeros: float) -> None:
    random = np.random.default_rng(14)
    n_significant = stated = 0
    for n in range(30):
        test = links.comparison(*drawn_means(random, 10.0, zeros), seed=n)
        if test.detectable <= 10:
            stated += 1
            n_significant += test.p_value < 0.05
    # Of each 30, 24 are expected to be found, with a standard deviation of 2.2.
    assert n_significant >= 0.6 * stated
    assert stated >= (25 if zeros < 0.9 else 1)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_tests")
def test_ratio_interval_covers_nineteen_of_twenty() -> None:
    random = np.random.default_rng(7)
    inside = 0
    for n in range(60):
        factor = float(np.exp(random.uniform(-1, 2.3)))
        test = links.comparison(*drawn_means(random, factor, 0.6), seed=n)
        inside += test.low <= factor <= test.high
    # 57 are expected; fewer than 53 have a probability of 1 %.
    assert inside >= 53


def test_smallest_difference_is_found_four_times_of_five(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "SHUFFLES", 499)
    random = np.random.default_rng(3)
    sums, members = drawn_means(random, 1.0, 0.6)
    factor = links.comparison(sums, members).detectable
    names = sums["node_name"].unique().sort().to_list()
    monkeypatch.setattr(links, "_POWER_DRAWS", 5)
    n_significant = 0
    for n in range(60):
        group = random.choice(names, len(members), replace=False).tolist()
        total = pl.when(pl.col("node_name").is_in(group)).then(factor * pl.col("total"))
        more = sums.with_columns(total=total.otherwise("total"))
        n_significant += links.comparison(more, group, seed=n).p_value < 0.05
    # 48 are expected, with a standard deviation of 3.
    assert 39 <= n_significant <= 57


def test_groups_without_any_stall_have_no_ratio() -> None:
    sums, members = drawn_means(np.random.default_rng(1), 1.0, 0.5)
    none = links.comparison(sums.with_columns(total=0.0), members)
    assert none.p_value == 1.0 and np.isnan(none.ratio) and none.detectable == np.inf
    assert "could not show any difference" in none.verdict()
    inside = pl.col("node_name").is_in(members)
    never = links.comparison(
        sums.with_columns(total=pl.when(inside).then(0.0).otherwise("total")), members
    )
    assert (never.ratio, never.low) == (0.0, 0.0)
    assert "stall less" in never.verdict()


def test_like_groups_and_an_unlike_one() -> None:
    rows, coordinates = torus()
    names = coordinates["node_name"].to_list()
    tests = [links.compare_groups(rows, names[first::7]) for first in range(7)]
    # One in twenty is expected to differ; three of seven have a probability of 0.4 %.
    assert sum(test.p_value < 0.05 for test in tests) <= 2
    alike, members = next(
        (test, names[first::7]) for first, test in enumerate(tests) if test.p_value >= 0.05
    )
    assert "no difference found" in alike.verdict()
    assert alike.low < 1 < alike.high and 1 < alike.detectable < 2
    worse = rows.with_columns(
        stall_fraction=pl.when(pl.col("node_name").is_in(members))
        .then(pl.col("stall_fraction") * 2)
        .otherwise(pl.col("stall_fraction"))
    )
    planted = links.compare_groups(worse, members)
    assert planted.p_value < 0.01
    assert planted.low < 2 < planted.high
    assert "stall more" in planted.verdict()
    again = links.compare_groups(worse, members)
    assert (planted.p_value, planted.detectable) == (again.p_value, again.detectable)
    with pytest.raises(ValueError, match="0 links"):
        links.compare_groups(rows, ["nobody"])


def classed(values: list[float]) -> pl.DataFrame:
    """Ports of one class; each has five intervals, one of them stalled where its value is not 0."""
    columns = {"category": "ToR", "port_type": "up", "intervals": 5, "maximum": values}
    return pl.DataFrame(columns).with_columns(nonzero=(pl.col("maximum") > 0).cast(pl.Int64))


def test_boxes_and_outliers_agree_with_numpy() -> None:
    values = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.2, 1.1]
    row = links.boxes(classed(values), "maximum").row(0, named=True)
    quartiles = np.quantile(values[1:], [0.25, 0.5, 0.75])
    assert (row["q1"], row["median"], row["q3"]) == pytest.approx(tuple(quartiles))
    assert (row["low"], row["high"], row["outliers"]) == (0.01, 0.06, 2)


def test_shares_count_intervals_of_a_class() -> None:
    row = links.zero_shares(classed([0.0, 0.0, 0.3, 0.4])).row(0, named=True)
    assert (row["intervals"], row["nonzero_percent"]) == (20, 10.0)


@pytest.mark.slow
def test_every_figure_draws() -> None:
    rows, where = torus(minutes=3, size=4)
    ports = classed([0.0, 0.1, 0.2, 0.3])
    ccdf = links.ccdf(rows, "credit")
    comparison = links.compare_groups(rows, where["node_name"].to_list()[:8])
    along = rows.filter(pl.col("direction") == "X+")
    columns = {"panel": "a → b", "order": 0, "column": [0, 1], "row": 0, "percent": [10.0, None]}
    with style():
        drawn = [
            figures.zero_shares(links.zero_shares(ports)),
            figures.class_boxes(links.boxes(ports, "maximum"), "stall (%)"),
            figures.link_distributions({"credit": ccdf}),
            figures.io_links(ccdf, ccdf, comparison),
            figures.evolution(from_torus(along, where, "X+", threshold=10.0)),
            figures.torus_slices(links.worst_slices(along, where)),
            figures.tier_stalls(pl.DataFrame(columns)),
        ]
    for figure in drawn:
        assert render(figure, "png", dpi=40).startswith(b"\x89PNG")
