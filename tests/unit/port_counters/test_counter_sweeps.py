"""Ports that are read at instants of their own: one step of the evolution graph all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from polars.testing import assert_frame_equal

from tailback.fabric.builders import PRESETS, fat_tree
from tailback.port_counters.analysis import evolution
from tailback.port_counters.analysis.sweeps import Sweeps
from tailback.port_counters.readers import read_counters
from tailback.port_counters.schema import INTERVALS, CounterError, conform
from tailback.report.evolution import values_at
from tailback.scenario.model import FatTree
from tests.factories import torus_archive

MINUTE = 60 * 10**9
START = 1_500_000_000 * 10**9


def of_one(time_s: list[float], length_s: list[float], percent: list[float]) -> evolution.Evolution:
    """The graph of a single place."""
    rows = pl.DataFrame(
        {
            "time_ns": [round(t * 1e9) for t in time_s],
            "interval_ns": [round(n * 1e9) for n in length_s],
        }
    )
    return evolution.evolve(
        rows, np.zeros(len(time_s), np.int64), np.array(percent), np.zeros((0, 2), np.int64), ["a"]
    )


def ring_rows(late_ns: NDArray[np.int64], minutes: int = 50) -> tuple[pl.DataFrame, pl.DataFrame]:
    """X+ of a ring of eight whose routers are read late, and where the routers are."""
    n = late_ns.shape[1]
    stall = np.random.default_rng(3).random((minutes, n))
    time = START + MINUTE * np.arange(1, minutes + 1)[:, None] + late_ns
    names = [f"r{x}" for x in range(n)]
    rows = conform(
        INTERVALS,
        pl.DataFrame(
            {
                "time_ns": time.ravel(),
                "interval_ns": MINUTE,
                "node_name": names * minutes,
                "direction": "X+",
                "link": np.tile(np.arange(n), minutes),
                "stall_fraction": stall.ravel(),
                "utilization": stall.ravel(),
            }
        ),
    )
    return rows, pl.DataFrame({"node_name": names, "x": range(n), "y": 0, "z": 0})


def late(kind: str, minutes: int = 50, routers: int = 8) -> NDArray[np.int64]:
    random = np.random.default_rng(5)
    if kind == "clocks":  # a skew of each node, and some noise
        skew = random.integers(-5 * 10**6, 5 * 10**6, routers)
        return skew + random.integers(-(10**6), 10**6, (minutes, routers))
    if kind == "sleeps":  # between two sweeps: by and by a whole minute later, and more
        slept = np.cumsum(random.exponential(0.05 * MINUTE, minutes)).astype(np.int64)
        return slept[:, None] + random.integers(0, 10**9, (minutes, routers))
    if kind == "long sweep":  # one port after another takes most of the minute
        each = np.linspace(0, 0.8 * MINUTE, routers).astype(np.int64)
        return each + random.integers(0, 10**9, (minutes, routers))
    return np.tile(np.arange(routers), (minutes, 1))  # a nanosecond after another


@pytest.mark.parametrize("kind", ["a nanosecond", "clocks", "sleeps", "long sweep"])
def test_the_graph_is_independent_of_reading_times(kind: str) -> None:
    at_once, where = ring_rows(np.zeros((50, 8), np.int64))
    rows, _ = ring_rows(late(kind))
    expected = evolution.from_torus(at_once, where, "X+")
    graph = evolution.from_torus(rows, where, "X+")
    assert expected.edges.height > 20 and graph.edges.equals(expected.edges)
    assert_frame_equal(graph.features.drop("time_ns"), expected.features.drop("time_ns"))
    assert graph.members.equals(expected.members)
    assert len(graph.steps) == 50
    values = values_at(graph, rows, rows["link"].to_numpy().astype(np.int64))
    assert values is not None
    assert np.array_equal(values.ravel(), 100 * at_once["stall_fraction"].to_numpy())


def test_tree_links_are_read_in_order() -> None:
    fabric = fat_tree(
        FatTree(hosts_per_leaf=2, leaves=2, aggregation=2, pods=2, cores=2, aggregation_uplinks=1)
    )
    graphs = []
    for late_ns in (np.zeros((50, fabric.n_links), np.int64), late("clocks", 50, fabric.n_links)):
        rows, _ = ring_rows(late_ns)
        rows = rows.with_columns(direction=pl.lit(None, pl.String))
        graphs.append(evolution.from_fabric(rows, fabric))
    assert graphs[0].edges.height > 20 and graphs[1].edges.equals(graphs[0].edges)


def test_nothing_goes_on_over_a_gap() -> None:
    graph = of_one([60, 3600, 3660], [60, 3540, 60], [80, 80, 80])
    assert graph.features["step"].to_list() == [0, 1, 2]
    assert graph.edges.rows() == [(1, 2)]
    # one reading that is missing is a gap as well
    assert of_one([60, 120, 240.01], [60, 60, 120], [80, 80, 80]).edges.rows() == [(0, 1)]
    # nanoseconds of a century: numbers of steps would overflow
    far = of_one([1e-9, 2e-9, 3e9], [1e-9, 1e-9, 1e-9], [80, 80, 80])
    assert far.edges.rows() == [(0, 1)]


def test_the_largest_counts_within_a_step() -> None:
    rows = pl.DataFrame(
        {
            "time_ns": np.array([60, 120, 121]) * 10**9,
            "interval_ns": MINUTE,
            "stall_fraction": [0.5, None, 0.7],
        }
    )
    place = np.zeros(3, np.int64)
    percent = np.array([50, np.nan, 70])
    graph = evolution.evolve(rows, place, percent, np.zeros((0, 2), np.int64), ["a"])
    assert graph.features["maximum"].to_list() == [50, 70]
    values = values_at(graph, rows, place)
    assert values is not None and values.ravel().tolist() == [50, 70]


@pytest.mark.parametrize("remainder_ns", [1, 29, 30, 31, 59])
def test_a_truncated_last_interval_is_a_step(remainder_ns: int) -> None:
    rows = pl.DataFrame(
        {"time_ns": [60, 120, 120 + remainder_ns], "interval_ns": [60, 60, remainder_ns]}
    )
    sweeps = Sweeps.of(rows)
    assert np.diff(sweeps.number).tolist() == [1, 1]
    assert sweeps.at(rows).tolist() == [0, 1, 2]
    assert sweeps.time_ns.tolist() == [60, 120, 120 + remainder_ns]


def test_without_lengths_every_time_is_a_step() -> None:
    rows = conform(INTERVALS, pl.DataFrame({"time_ns": [7, 3, 7]}))
    sweeps = Sweeps.of(rows)
    assert (sweeps.period_ns, sweeps.time_ns.tolist()) == (0, [3, 7])
    assert sweeps.at(rows).tolist() == [1, 0, 1]
    assert Sweeps.of(rows.clear()).at(rows.clear()).tolist() == []


def test_samplers_whose_clocks_differ(tmp_path: Path) -> None:
    head = "nettopo_mesh_coord_X,nettopo_mesh_coord_Y,nettopo_mesh_coord_Z"
    lines = [f"#Time,Time_usec,CompId,{head},X+_traffic (B),X+_credit_stall (ns)"]
    for minute in range(6):
        for node in range(4):
            stalled = minute * 384 * 10**9 * (node in (1, 2))
            when = 1_500_000_000 + 60 * minute
            lines.append(f"{when},{3000 * node},{node},{node},0,0,{minute * 10**9},{stalled}")
    (tmp_path / "gemini.csv").write_text("\n".join(lines) + "\n")
    counters = read_counters(tmp_path / "gemini.csv")
    assert counters.coordinates is not None
    graph = evolution.from_torus(counters.all_intervals(), counters.coordinates, "X+")
    assert graph.features["extent"].to_list() == [2] * 5
    assert graph.features["evolution"].n_unique() == 1


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
    with pytest.raises(CounterError, match="outside 0 to 100"):
        evolution.evolve(
            every(np.zeros(0, np.int64), 1),
            np.zeros(0, np.int64),
            np.zeros(0),
            np.zeros((0, 2), np.int64),
            [],
            threshold=0,
        )


def test_torus_features_stay_in_their_ring(tmp_path: Path) -> None:
    path = torus_archive.write(tmp_path / "t", 3, shape=(4, 4, 4))
    rows = pl.concat(map(pl.read_parquet, sorted(path.glob("part-*.parquet"))))
    coordinates = torus_archive.coordinates((4, 4, 4))
    graph = evolution.from_torus(rows, coordinates, "X+", threshold=10.0)
    assert 1 < int(graph.features["extent"].max()) <= 4  # type: ignore[arg-type]
    hot = rows.filter((pl.col("direction") == "X+") & (pl.col("stall_fraction") >= 0.1))
    assert graph.features["extent"].sum() == hot.height
    with pytest.raises(CounterError, match="no direction"):
        evolution.from_torus(rows, coordinates, "W+")


def test_links_that_feed_each_other_are_neighbours() -> None:
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
