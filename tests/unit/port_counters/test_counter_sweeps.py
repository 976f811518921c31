"""Ports that are read at instants of their own: one step of the evolution graph all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from polars.testing import assert_frame_equal

from tailback.fabric.builders import fat_tree
from tailback.port_counters.analysis import classes, evolution, study
from tailback.port_counters.analysis.sweeps import Sweeps
from tailback.port_counters.readers import read_counters
from tailback.port_counters.schema import INTERVALS, conform
from tailback.report.evolution import values_at
from tailback.scenario.model import FatTree

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
    # The study keeps a part of the rows, in any order.
    found = study.torus(rows.sort("node_name").lazy(), where)
    assert found.evolution is not None and found.slices is not None
    assert_frame_equal(found.evolution.features.drop("time_ns"), graph.features.drop("time_ns"))
    assert found.evolution.edges.equals(graph.edges)
    # and every router is in the worst step
    step = at_once.filter(pl.col("stall_fraction") == pl.col("stall_fraction").max())["time_ns"][0]
    worst = at_once.filter(pl.col("time_ns") == step)["stall_fraction"] * 100
    assert found.slices["percent"].to_list() == worst.to_list()
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
        found = study.sweep(rows, classes.classify(fabric), fabric).evolution
        assert found is not None and found.edges.equals(graphs[-1].edges)
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


@pytest.mark.parametrize("rest", [1, 29, 30, 31, 59])
def test_a_truncated_last_interval_is_a_step(rest: int) -> None:
    rows = pl.DataFrame({"time_ns": [60, 120, 120 + rest], "interval_ns": [60, 60, rest]})
    sweeps = Sweeps.of(rows)
    assert np.diff(sweeps.number).tolist() == [1, 1]
    assert sweeps.at(rows).tolist() == [0, 1, 2]
    assert sweeps.time_ns.tolist() == [60, 120, 120 + rest]


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
    found = study.torus(counters.all_intervals().lazy(), counters.coordinates).evolution
    assert found is not None
    assert found.features["extent"].to_list() == [2] * 5
    assert found.features["evolution"].n_unique() == 1
