"""Topologies other than trees, from the scenario to the verdict."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tailback.errors import FabricError, ScenarioError
from tailback.fabric.topologies import TOPOLOGIES
from tailback.scenario.model import parse
from tailback.simulation import simulate

TORUS = {"kind": "torus", "dims": [4, 4], "delay": "20 ns"}
DRAGONFLY = {
    "kind": "dragonfly",
    "groups": 5,
    "nodes_per_router": 1,
    "routers": 4,
    "global_ports": 1,
}


def run(topology: dict[str, Any], routes: str | None = None, **engine: Any) -> Any:
    """All-to-all among 16 nodes."""
    fabric: dict[str, Any] = {"topology": topology}
    if routes is not None:
        fabric["routes"] = routes
    job = {"pattern": {"kind": "alltoall", "ranks": 16, "size": "32 KiB"}}
    return simulate(parse({"fabric": fabric, "job": [job], "engine": engine}))


@pytest.mark.parametrize(
    ("topology", "routes"),
    [
        (TORUS, None),
        (TORUS, "dimension-order"),
        (TORUS, "valiant"),
        (TORUS, "ugal"),
        (TORUS, "up-down"),
        (DRAGONFLY, None),
        (DRAGONFLY, "minimal"),
        (DRAGONFLY, "valiant"),
        (DRAGONFLY, "ugal"),
        (DRAGONFLY, "up-down"),
    ],
)
def test_everything_arrives_with_one_packet_of_buffer(
    topology: dict[str, Any], routes: str | None
) -> None:
    result = run(topology, routes, buffer="4 KiB")
    assert (result.tables["messages"]["arrival_ps"] > 0).all()


def test_detours_are_longer_than_minimal_ways() -> None:
    minimal, valiant = run(TORUS, "dimension-order"), run(TORUS, "valiant")
    shortest = minimal.summary["average_path_length"]
    # All-to-all on a 4 x 4 torus: 2 hops on average over others' distance 32/15, plus one switch.
    assert shortest == pytest.approx(1 + 32 / 15)
    assert valiant.summary["average_path_length"] > 1.4 * shortest


@pytest.mark.parametrize("leaf", ["same", "own"])
@pytest.mark.parametrize(("ranks_per_host", "idle"), [(1, 0.5), (2, 0.0)])
def test_rails_without_ranks_leave_links_idle(leaf: str, ranks_per_host: int, idle: float) -> None:
    """D-mod-k goes by node number and uses every second one."""
    tree = {"kind": "k-ary-n-tree", "k": 4, "n": 2, "rails": 2, "rail_leaf": leaf}
    job = {
        "ranks_per_host": ranks_per_host,
        "pattern": {"kind": "alltoall", "ranks": 8 * ranks_per_host, "size": "4 KiB"},
    }
    made = {"fabric": {"topology": tree}, "engine": {"routing": "deterministic"}, "job": [job]}
    tables = simulate(parse(made)).tables
    up = tables["links"].filter((pl.col("direction") == "up") & ~pl.col("from_node"))["link"]
    used = tables["truth"].filter(pl.col("bytes") > 0)["link"].unique()
    assert 1 - up.is_in(used.implode()).mean() == pytest.approx(idle)


def test_mistakes_are_explained() -> None:
    with pytest.raises(FabricError, match="no routing rule 'dimension-ordr'") as caught:
        run(TORUS, "dimension-ordr")
    assert "dimension-order" in str(caught.value.remedy)
    assert caught.value.place == "[fabric] routes"
    # UGAL is a rule of every topology with detours, and named as it was written where it is not.
    with pytest.raises(FabricError, match="no routing rule 'horizontal'") as caught:
        run(TORUS, "horizontal")
    assert str(caught.value.remedy).endswith("dimension-order, ugal, up-down, valiant")
    with pytest.raises(FabricError, match="no routing rule 'ugal'"):
        run({"kind": "k-ary-n-tree", "k": 4, "n": 2}, "ugal")
    with pytest.raises(ScenarioError, match="'ugal' makes detours") as caught_vc:
        run(TORUS, "ugal", routing="vc")
    assert caught_vc.value.place == "[fabric] routes"
    with pytest.raises(ScenarioError, match="routes needs a topology"):
        parse(
            {
                "fabric": {"preset": "tapered", "routes": "valiant"},
                "job": [{"pattern": {"kind": "ring"}}],
            }
        )
    with pytest.raises(ScenarioError, match="unknown"):
        run({"kind": "tours", "dims": [4, 4]})


def test_every_topology_is_listed_with_a_summary() -> None:
    assert {"torus", "dragonfly"} <= set(TOPOLOGIES.names())
    assert all(entry.summary for entry in TOPOLOGIES)
