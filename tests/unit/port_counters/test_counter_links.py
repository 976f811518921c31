"""The torus study: definitions, distributions, correlations, comparisons, evolution, figures."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from studies.archives import torus as torus_archive
from studies.archives import yellowstone as archive
from studies.production_networks import definitions
from tailback.fabric.builders import PRESETS, fat_tree
from tailback.port_counters.analysis import evolution, links, study
from tailback.port_counters.analysis.dot import dot_text, quoted
from tailback.port_counters.analysis.figures import COUNTER_FIGURES, draw, render
from tailback.port_counters.analysis.instants import congested_rows_pass
from tailback.port_counters.analysis.passes import Piece
from tailback.port_counters.analysis.study_folder import write_study
from tailback.port_counters.schema import INTERVALS, CounterError, conform


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
    table = links.ccdf(rows.lazy(), "credit")
    x = rows.filter(pl.col("direction").str.starts_with("X"))["stall_fraction"].to_numpy() * 100
    for percent in (0.0, 5.0, 10.0, 40.0):
        assert definitions.share_above(table, percent)["X"] == pytest.approx((x > percent).mean())
    shares = definitions.share_above(table, 10.0)
    assert shares["X"] > shares["Y"] > shares["Z"]
    assert set(table["rows"].unique()) == {len(x), len(x) // 2}
    with pytest.raises(CounterError, match="no measure"):
        links.ccdf(rows.lazy(), "stall")


@pytest.mark.parametrize("millionths", [True, False])
def test_whole_percentages_are_what_they_are(millionths: bool) -> None:
    """LDMS writes percentages as millionths; 100 times such a fraction is not always whole."""
    whole = list(range(101))
    rows = conform(
        INTERVALS,
        pl.DataFrame(
            {
                "node_name": "r",
                "direction": "X+",
                "time_ns": whole,
                "interval_ns": 1,
                "stall_fraction": [t * 1_000_000 * 1e-8 if millionths else t / 100 for t in whole],
            }
        ),
    )
    table = links.ccdf(rows.lazy(), "credit")
    assert table["percent"].to_list() == whole
    where = pl.DataFrame({"node_name": ["r"], "x": [0], "y": [0], "z": [0]})
    for percent in whole[1:]:
        graph = evolution.from_torus(rows, where, "X+", threshold=percent)
        assert graph.features.height == 101 - percent
        # What a study keeps: besides these, one row of the single step that so long intervals make.
        kept = congested_rows_pass("X+", percent).partial(
            Piece(rows.with_columns(interval_ns=10**6).lazy())
        )
        assert kept.collect().height == 101 - percent + 1
    little = rows.head(1).with_columns(stall_fraction=pl.lit(1 / 60e9))
    assert definitions.share_above(links.ccdf(little.lazy(), "credit"), 0.0) == {"X": 1.0}


def test_correlations_against_numpy() -> None:
    rows, _ = torus()
    table = links.correlations(rows.lazy())
    z = rows.filter(pl.col("direction") == "Z+")
    expected = np.corrcoef(z["utilization"], z["stall_fraction"])[0, 1]
    assert table.filter(pl.col("group") == "Z")["credit"][0] == pytest.approx(expected)
    flat = rows.with_columns(utilization=pl.lit(0.5))
    assert links.correlations(flat.lazy())["credit"].null_count() == 3


def test_run_time_correlation() -> None:
    found, p_value = definitions.run_time_correlation(
        np.array([41.0, 50, 55, 70, 44]), np.array([2.0, 6, 8, 11, 3])
    )
    assert found > 0.95
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
def test_like_groups_differ_in_one_case_of_twenty() -> None:
    random = np.random.default_rng(46)
    cases = [drawn_means(random, 1.0, zeros) for zeros in (0.0, 0.6, 0.9) for _ in range(40)]
    found = [links.comparison(*case, seed=n).p_value < 0.05 for n, case in enumerate(cases)]
    # Of 120 cases 6 are expected; more than 12 have a probability of 1 %.
    assert sum(found) <= 12


@pytest.mark.usefixtures("quick_tests")
@pytest.mark.parametrize("zeros", [0.0, 0.6, 0.9])
def test_the_test_finds_tenfold_stall(zeros: float) -> None:
    random = np.random.default_rng(14)
    found = stated = 0
    for n in range(30):
        test = links.comparison(*drawn_means(random, 10.0, zeros), seed=n)
        if test.detectable <= 10:
            stated += 1
            found += test.p_value < 0.05
    # Of each 30, 24 are expected to be found, with a standard deviation of 2.2.
    assert found >= 0.6 * stated
    assert stated >= (25 if zeros < 0.9 else 1)


@pytest.mark.usefixtures("quick_tests")
def test_interval_of_the_ratio_has_95_percent_coverage() -> None:
    random = np.random.default_rng(7)
    inside = 0
    for n in range(60):
        factor = float(np.exp(random.uniform(-1, 2.3)))
        test = links.comparison(*drawn_means(random, factor, 0.6), seed=n)
        inside += test.low <= factor <= test.high
    # 57 are expected; fewer than 53 have a probability of 1 %.
    assert inside >= 53


def test_the_smallest_difference_is_found_as_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "SHUFFLES", 499)
    random = np.random.default_rng(3)
    sums, members = drawn_means(random, 1.0, 0.6)
    factor = links.comparison(sums, members).detectable
    names = sums["node_name"].unique().sort().to_list()
    monkeypatch.setattr(links, "_POWER_DRAWS", 5)
    found = 0
    for n in range(60):
        group = random.choice(names, len(members), replace=False).tolist()
        total = pl.when(pl.col("node_name").is_in(group)).then(factor * pl.col("total"))
        more = sums.with_columns(total=total.otherwise("total"))
        found += links.comparison(more, group, seed=n).p_value < 0.05
    # 48 are expected, with a standard deviation of 3.
    assert 39 <= found <= 57


def test_groups_without_any_stall_have_no_ratio() -> None:
    sums, members = drawn_means(np.random.default_rng(1), 1.0, 0.5)
    none = links.comparison(sums.with_columns(total=0.0), members)
    assert none.p_value == 1.0 and np.isnan(none.ratio) and none.detectable == np.inf
    assert "could not show any difference" in none.verdict()
    assert none.to_dict()["ratio"] is None
    inside = pl.col("node_name").is_in(members)
    never = links.comparison(
        sums.with_columns(total=pl.when(inside).then(0.0).otherwise("total")), members
    )
    assert (never.ratio, never.low) == (0.0, 0.0)
    assert "stall less" in never.verdict()


def test_a_different_group_is_found_among_like_ones() -> None:
    rows, coordinates = torus()
    names = coordinates["node_name"].to_list()
    tests = [links.compare_groups(rows.lazy(), names[first::7]) for first in range(7)]
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
    planted = links.compare_groups(worse.lazy(), members)
    assert planted.p_value < 0.01
    assert planted.low < 2 < planted.high
    assert "stall more" in planted.verdict()
    again = links.compare_groups(worse.lazy(), members)
    assert (planted.p_value, planted.detectable) == (again.p_value, again.detectable)
    with pytest.raises(CounterError, match="0 links"):
        links.compare_groups(rows.lazy(), ["nobody"])


def every(time_ns: NDArray[np.int64], length: int) -> pl.DataFrame:
    """Intervals of one length that end at some times."""
    return pl.DataFrame({"time_ns": time_ns, "interval_ns": np.full(len(time_ns), length)})


def ring(steps: list[list[int]], n: int = 8, wrap: bool = True) -> evolution.Evolution:
    """Hot places of a ring at each step; a place is 50 % + its number."""
    coordinates = np.array([[x, 0, 0] for x in range(n)])
    shape = (n if wrap else 2 * n, 1, 1)
    time = np.repeat(np.arange(len(steps)), n)
    place = np.tile(np.arange(n), len(steps))
    hot = np.concatenate([np.isin(np.arange(n), s) for s in steps])
    value = np.where(hot, 50.0 + place, 1.0)
    pairs = evolution.torus_neighbours(coordinates, shape, 0)
    names = [f"p{p}" for p in range(n)]
    return evolution.evolve(every(time, 1), place, value, pairs, names, threshold=40.0)


def test_features_split_and_merge() -> None:
    graph = ring([[1, 2, 3, 4, 5], [1, 2, 4, 5], [2, 3, 4]])
    assert graph.features["extent"].to_list() == [5, 2, 2, 3]
    assert graph.features["maximum"].to_list() == [55.0, 52.0, 55.0, 54.0]
    assert set(graph.edges.rows()) == {(0, 1), (0, 2), (1, 3), (2, 3)}
    assert (graph.splits, graph.merges) == (1, 1)
    assert graph.features["evolution"].n_unique() == 1
    assert graph.members.filter(pl.col("feature") == 2)["place"].to_list() == [4, 5]


def test_one_link_is_one_link() -> None:
    """Also in what Graphviz shows and in the title of the figure."""
    one, two = ring([[3]]), ring([[3], [4, 5]])
    assert 'tooltip="feature 0: 1 link, at most 53.0 %"' in dot_text(one)
    assert 'tooltip="feature 1: 2 links, at most 55.0 %"' in dot_text(two)
    for graph, said in ((one, "1 feature from 40 %"), (two, "2 features from 40 %")):
        drawn = draw("evolution", study.Study(tables={}, evolution=graph))
        assert drawn is not None
        assert said in drawn.axes[0].get_title("left")


def test_a_ring_wraps_and_a_line_does_not() -> None:
    assert ring([[0, 7]]).features["extent"].to_list() == [2]
    assert ring([[0, 7]], wrap=False).features["extent"].to_list() == [1, 1]


def test_a_pause_ends_an_evolution() -> None:
    graph = ring([[1, 2], [], [1, 2]])
    assert graph.features.height == 2
    assert graph.edges.height == 0
    assert graph.features["evolution"].n_unique() == 2


def test_nothing_hot() -> None:
    graph = ring([[], []])
    assert graph.features.height == 0
    assert (graph.splits, graph.merges) == (0, 0)
    assert "digraph" in dot_text(graph)
    with pytest.raises(CounterError, match="outside 0 to 100"):
        evolution.evolve(
            every(np.zeros(0, np.int64), 1),
            np.zeros(0, np.int64),
            np.zeros(0),
            np.zeros((0, 2), np.int64),
            [],
            threshold=0,
        )


def test_torus_features_stay_in_their_ring() -> None:
    rows, coordinates = torus(minutes=3, size=4)
    graph = evolution.from_torus(rows, coordinates, "X+", threshold=10.0)
    assert 1 < int(graph.features["extent"].max()) <= 4  # type: ignore[arg-type]
    hot = rows.filter((pl.col("direction") == "X+") & (pl.col("stall_fraction") >= 0.1))
    assert graph.features["extent"].sum() == hot.height
    with pytest.raises(CounterError, match="no direction"):
        evolution.from_torus(rows, coordinates, "W+")


def test_tree_links_neighbour_where_one_feeds_another() -> None:
    fabric = fat_tree(next(iter(PRESETS)).part)
    pairs = evolution.fabric_neighbours(fabric)
    assert np.array_equal(fabric.link_dst[pairs[:, 0]], fabric.link_src[pairs[:, 1]])
    assert (fabric.link_reverse[pairs[:, 0]] != pairs[:, 1]).all()
    first = int(pairs[0, 0])
    second = int(pairs[0, 1])
    rows = conform(
        INTERVALS,
        pl.DataFrame(
            {
                "time_ns": [1, 1, 2],
                "link": [first, second, second],
                "stall_fraction": [0.9, 0.5, 0.6],
            }
        ),
    )
    graph = evolution.from_fabric(rows, fabric)
    assert graph.features["extent"].to_list() == [2, 1]
    assert graph.edges.rows() == [(0, 1)]


def test_an_archive_of_a_torus(tmp_path: Path) -> None:
    shape = (6, 5, 4)
    path = torus_archive.write(tmp_path / "t", 25, shape=shape)
    rows = pl.scan_parquet(sorted(path.glob("part-*.parquet")))
    whole = rows.collect()
    assert whole.schema == pl.Schema(INTERVALS.polars_schema)
    assert whole.height == 25 * 6 * 5 * 4 * 6
    assert whole.slice(720 * 11, 720).equals(torus_archive.part(11, 1, shape=shape))
    where = pl.read_parquet(path / "coordinates.parquet")
    found = study.torus(rows, where, io_nodes=where["node_name"].to_list()[::5])
    shares = definitions.share_above(found.tables["ccdf_credit"], 5.0)
    assert shares["X"] > shares["Y"] > shares["Z"] > 0
    assert found.evolution is not None
    assert found.evolution.features.height > 0


def test_dot_text() -> None:
    graph = ring([[1, 2, 3, 4, 5], [1, 2, 4, 5], [2, 3, 4]])
    text = dot_text(graph, 'x"]; evil [label=<<b>y</b>>\n\\')
    assert text.count(" -> f") == 4
    assert "{ rank=same; t1; f1; f2; }" in text
    assert '\\"]; evil' in text
    assert quoted('a"b\\\nc') == '"a\\"b\\\\ c"'
    assert "worst 1 of 4" not in text
    short = dot_text(ring([[1], [], [5]]), most=1)
    assert "worst 1 of 2" in short
    assert "f1 [" in short
    assert "f0 [" not in short
    if shutil.which("dot"):
        done = subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True)
        assert done.returncode == 0, done.stderr


def whole_study() -> study.Study:
    rows, coordinates = torus(minutes=6, size=4)
    members = coordinates["node_name"].to_list()[:8]
    out = study.torus(rows.lazy(), coordinates, io_nodes=members, threshold=30.0)
    other = study.infiniband(archive.part(0, 300, 1).lazy(), archive.classes())
    other.tables = other.tables | {k: v for k, v in out.tables.items() if k.startswith("ccdf")}
    other.tables["tier_stalls"] = pl.DataFrame(
        {
            "panel": ["a → b"] * 2,
            "order": [0, 0],
            "column": [0, 1],
            "row": [0, 0],
            "link": [0, 1],
            "percent": [10.0, None],
        }
    )
    other.evolution, other.comparison, other.slices = out.evolution, out.comparison, out.slices
    return other


@pytest.mark.slow
def test_every_figure_draws_and_is_the_same_twice() -> None:
    full = whole_study()
    assert len(COUNTER_FIGURES.names()) == 9
    for entry in COUNTER_FIGURES:
        drawn = draw(entry.name, full)
        assert drawn is not None, entry.name
        image = render(drawn, "svg")
        assert b"<svg" in image
        again = draw(entry.name, full)
        assert again is not None
        assert render(again, "svg") == image
        assert draw(entry.name, study.Study()) is None
        for axes in drawn.axes:
            if axes.get_ylabel() and axes.get_yscale() != "log":
                assert (
                    "%" in axes.get_ylabel()
                    or "(" in axes.get_ylabel()
                    or "minutes" in (axes.get_ylabel())
                )


def test_names_from_files_stay_text() -> None:
    evil = "<script>alert(1)</script>$\\alpha$\n\x00" + "x" * 20_000
    name = pl.lit(evil).alias("node_name")
    found = study.infiniband(
        archive.part(0, 3, 1).with_columns(name, link=pl.lit(None, pl.UInt32)).lazy(),
        archive.classes().head(40).with_columns(name, category=pl.lit(evil[:60])),
    )
    for figure in ("wait_buildup", "zero_shares"):
        drawn = draw(figure, found)
        assert drawn is not None
        image = render(drawn, "svg")
        assert b"&lt;" in image
        assert b"<script" not in image
        assert len(image) < 200_000
    assert json.dumps(study.summary_json(found))


def test_everything_is_written_or_nothing(tmp_path: Path) -> None:
    files = write_study(whole_study(), tmp_path / "out")
    names = {file.name for file in files}
    assert {"counters.json", "evolution.dot", "table_ii.parquet", "zero_shares.svg"} <= names
    data = json.loads((tmp_path / "out" / "counters.json").read_text())
    assert data["evolution"]["threshold_percent"] == 30.0
    assert "verdict" in data["io_links"]
