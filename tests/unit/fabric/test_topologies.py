"""Every topology: ports symmetric, connected, counts by formula; its rules do not deadlock."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tailback import _core
from tailback.errors import FabricError, ScenarioError
from tailback.fabric.builders import network_of, require_deadlock_free
from tailback.fabric.model import Fabric
from tailback.fabric.topologies import TOPOLOGIES, build, parse
from tests.factories.repository import ROOT

CASES: dict[str, dict[str, Any]] = {
    "torus-2d": {"kind": "torus", "dims": [5, 4], "nodes_per_switch": 2},
    "torus-5d": {"kind": "torus", "dims": [2, 3, 2, 2, 4], "cables": [1, 2, 1, 1, 1]},
    "torus-half-wrapped": {"kind": "torus", "dims": [4, 4], "wrap": [True, False]},
    "mesh": {"kind": "mesh", "dims": [3, 4, 2], "tie": "parity"},
    "blue-waters-small": {"kind": "blue-waters", "dims": [4, 3, 8]},
    "hyperx": {"kind": "hyperx", "dims": [4, 3], "cables": [1, 2], "nodes_per_switch": 2},
    "full-mesh": {"kind": "hyperx", "dims": [7]},
    "dragonfly": {
        "kind": "dragonfly",
        "nodes_per_router": 2,
        "routers": 4,
        "global_ports": 2,
        "groups": 9,
    },
    "dragonfly-few-groups": {
        "kind": "dragonfly",
        "nodes_per_router": 1,
        "routers": 4,
        "global_ports": 3,
        "groups": 4,
        "global_cables": "consecutive",
    },
    "dragonfly-plus": {
        "kind": "dragonfly-plus",
        "nodes_per_leaf": 2,
        "leaves": 3,
        "spines": 2,
        "global_ports": 2,
        "groups": 5,
    },
    "k-ary-n-tree": {"kind": "k-ary-n-tree", "k": 3, "n": 3},
    "modified-k-ary-n-tree": {"kind": "modified-k-ary-n-tree", "k": 3, "n": 3, "width": 2},
    "modified-tree-of-width-0": {"kind": "modified-k-ary-n-tree", "k": 2, "n": 2, "width": 0},
    "xgft-tapered": {"kind": "pgft", "children": [6, 3, 4], "parents": [1, 3, 2]},
    "pgft": {"kind": "pgft", "children": [4, 4], "parents": [1, 2], "cables": [1, 2]},
    "two-rails-one-leaf": {"kind": "pgft", "children": [4, 4], "parents": [1, 4], "rails": 2},
    "four-rails-own-leaves": {
        "kind": "pgft",
        "children": [3, 8],
        "parents": [1, 3],
        "rails": 4,
        "rail_leaf": "own",
    },
    "two-planes": {"kind": "k-ary-n-tree", "k": 4, "n": 2, "planes": 2},
    "yellowstone-small": {
        "kind": "yellowstone",
        "hosts_per_tor": 2,
        "tors_per_group": 3,
        "groups": 2,
        "directors": 2,
        "leaves": 5,
        "spines": 3,
        "servers_per_leaf": 2,
    },
}


def conforms(fabric: Fabric, counts: tuple[int, int, int]) -> None:
    """Ports symmetric and used once, everything connected (by hosts too), counts by formula."""
    assert (fabric.n_nodes, fabric.n_switches, fabric.n_links // 2) == counts
    back = fabric.link_reverse
    np.testing.assert_array_equal(fabric.link_dst_port, fabric.link_src_port[back])
    np.testing.assert_array_equal(fabric.link_gbps, fabric.link_gbps[back])
    np.testing.assert_array_equal(fabric.link_delay_ps, fabric.link_delay_ps[back])
    assert len(set(zip(fabric.link_src, fabric.link_src_port, strict=True))) == fabric.n_links
    assert not (fabric.link_src == fabric.link_dst).any()
    for names in (fabric.node_name, fabric.host_name, fabric.switch_name):
        assert len(set(names)) == len(names)
    assert sorted(set(fabric.node_host.tolist())) == list(range(fabric.n_hosts))
    near: list[list[int]] = [[] for _ in range(fabric.n_nodes + fabric.n_switches)]
    for src, dst in zip(fabric.link_src.tolist(), fabric.link_dst.tolist(), strict=True):
        near[src].append(dst)
    # Planes hang together by their hosts alone.
    for nodes in fabric.host_nodes():
        for a, b in pairwise(nodes):
            near[a].append(b)
            near[b].append(a)
    seen, open_ = {0}, [0]
    while open_:
        fresh = [v for v in near[open_.pop()] if v not in seen]
        seen.update(fresh)
        open_.extend(fresh)
    assert len(seen) == len(near)


@pytest.mark.parametrize("name", CASES)
def test_topology_conforms(name: str) -> None:
    topology = parse(CASES[name])
    conforms(topology.fabric(), topology.counts())


@pytest.mark.parametrize("name", CASES)
def test_rules_deliver_and_do_not_deadlock(name: str) -> None:
    topology = parse(CASES[name])
    fabric = topology.fabric()
    network = network_of(fabric)
    per_plane = fabric.n_nodes // getattr(topology, "planes", 1)
    for rule in topology.rules():
        routing = topology.routing(network, rule)
        require_deadlock_free(fabric, routing)
        for source, node in [(0, per_plane - 1), (per_plane - 1, 0), (1, per_plane // 2)]:
            for via in {0, max(routing.detours - 1, 0), 2**32 - 1}:
                path = routing.path(source, node, via, 1)
                at = fabric.n_nodes + int(fabric.node_switch[source])
                for link, lane in path:
                    assert fabric.link_src[link] == at
                    assert lane < routing.lanes
                    at = int(fabric.link_dst[link])
                assert at == fabric.n_nodes + int(fabric.node_switch[node])


def test_every_topology_has_a_case() -> None:
    assert {case["kind"] for case in CASES.values()} == set(TOPOLOGIES.names())


def test_blue_waters_has_its_counts_and_rates() -> None:
    fabric = build({"kind": "blue-waters"})
    assert (fabric.n_nodes, fabric.n_switches) == (27648, 13824)
    gigabytes, links = np.unique(fabric.link_gbps / 8, return_counts=True)
    np.testing.assert_allclose(gigabytes, [4.7, 9.4, 10.4, 15])
    # Each of three dimensions has 13,824 cables; an eighth of Z has the rate of X.
    assert links.tolist() == [27648, 27648 + 27648 // 8, 55296, 27648 * 7 // 8]
    assert (fabric.switch_tier == 0).all()


def test_yellowstone_has_the_shape_of_figure_2() -> None:
    fabric = build({"kind": "yellowstone"})
    assert fabric.n_nodes == 14 * 18 * 18 + 20
    assert np.bincount(fabric.switch_tier).tolist() == [252 + 4, 9 * 29 + 6, 9 * 18]
    tor = fabric.n_nodes + fabric.switch_name.index("tor019")
    up = fabric.link_dst[(fabric.link_src == tor) & (fabric.link_dst >= fabric.n_nodes)]
    names = [fabric.switch_name[v - fabric.n_nodes] for v in up]
    # "ToR19 to ToR36 … to Leaf 3 and Leaf 4 of ORCA 1, Leaf 32 and Leaf 33 of ORCA 2"
    assert names[:4] == [
        "director1-leaf003",
        "director1-leaf004",
        "director2-leaf032",
        "director2-leaf033",
    ]
    assert np.bincount(fabric.link_src).max() == 36


def test_rails_share_a_leaf_or_have_their_own() -> None:
    same = build({"kind": "pgft", "children": [4, 4], "parents": [1, 4], "rails": 2})
    separate = build(
        {"kind": "pgft", "children": [4, 4], "parents": [1, 4], "rails": 2, "rail_leaf": "own"}
    )
    for fabric, leaves in ((same, 1), (separate, 2)):
        assert fabric.n_hosts == 8
        for nodes in fabric.host_nodes():
            assert len(nodes) == 2
            assert len(set(fabric.node_switch[nodes].tolist())) == leaves


def test_planes_have_no_cable_between_them() -> None:
    fabric = build({"kind": "k-ary-n-tree", "k": 2, "n": 2, "planes": 3})
    network = network_of(fabric)
    routing = _core.NetworkRouting.of_network(network)
    assert fabric.host_nodes()[1] == [1, 5, 9]
    assert len(routing.path(0, 3, 0, 0)) == 2
    with pytest.raises(ValueError, match="not connected"):
        routing.path(0, 4, 0, 0)


def test_a_ring_without_datelines_is_refused() -> None:
    fabric = build({"kind": "torus", "dims": [4]})
    network = network_of(fabric)
    routing = _core.NetworkRouting.dimension_order(network, [4], "positive", False, False)
    with pytest.raises(FabricError) as error:
        require_deadlock_free(fabric, routing)
    text = str(error.value)
    assert "can deadlock: r0[" in text
    assert all(f"→ r{switch}[" in text and "(lane 0)" in text for switch in range(4))
    dateline = _core.NetworkRouting.dimension_order(network, [4], "positive", True, False)
    require_deadlock_free(fabric, dateline)


def test_up_down_prefers_descending_to_shorter_climbs() -> None:
    # In a ring of five "up" is towards higher numbers: 3 → 4 → 0 is allowed, 3 → 2 → 1 → 0 taken.
    fabric = build({"kind": "torus", "dims": [5]})
    routing = _core.NetworkRouting.of_network(network_of(fabric))
    ends = [int(fabric.link_dst[link]) - fabric.n_nodes for link, _ in routing.path(3, 0, 0, 0)]
    assert ends == [2, 1, 0]
    routing = _core.NetworkRouting.of_network(
        network_of(build({"kind": "k-ary-n-tree", "k": 2, "n": 3}))
    )
    assert [len(routing.path(0, node, 0, 0)) for node in (1, 2, 7)] == [0, 2, 4]


def test_few_dragonfly_pairs_need_an_extra_hop() -> None:
    # Against all up/down paths of the breadth-first order.
    fabric = build(
        {"kind": "dragonfly", "nodes_per_router": 1, "routers": 4, "global_ports": 2, "groups": 9}
    )
    routing = _core.NetworkRouting.of_network(network_of(fabric))
    near: list[list[int]] = [[] for _ in range(36)]
    for src, dst in zip(fabric.link_src.tolist(), fabric.link_dst.tolist(), strict=True):
        if src >= 36 and dst >= 36:
            near[src - 36].append(dst - 36)
    depth, queue = {0: 0}, [0]
    for here in queue:
        fresh = [there for there in near[here] if there not in depth]
        depth |= dict.fromkeys(fresh, depth[here] + 1)
        queue.extend(fresh)
    longer: list[int] = []
    for start in range(36):
        steps, places = {(start, False): 0}, [(start, False)]
        for here, down in places:
            for there in near[here]:
                falls = (-depth[there], there) < (-depth[here], here)
                if (falls or not down) and (there, falls) not in steps:
                    steps[there, falls] = steps[here, down] + 1
                    places.append((there, falls))
        for goal in set(range(36)) - {start}:
            least = min(steps.get((goal, falls), 99) for falls in (False, True))
            longer.append(len(routing.path(start, goal, 0, 0)) - least)
    assert (len(longer), longer.count(0), longer.count(1)) == (1260, 1253, 7)


def test_next_gives_links_state_and_lane() -> None:
    topology = parse({"kind": "torus", "dims": [5], "tie": "positive"})
    fabric = topology.fabric()
    routing = topology.routing(network_of(fabric), "dimension-order")
    # From 3 up over the end to 0: lane 0 until the wrap-around link is taken.
    links, state, lane = routing.next(3, 0, 0, 0)
    assert [fabric.link_name(link) for link in links] == ["r3[3] → r4[2]"]
    assert (state, lane) == (0, 0)
    assert routing.next(1, 3, 0, 0)[2] == 1
    with pytest.raises(ValueError, match="arrived"):
        routing.next(0, 0, 0, 0)


def test_one_lane_rules_become_tables() -> None:
    topology = parse({"kind": "mesh", "dims": [3, 3]})
    network = network_of(topology.fabric())
    table = _core.NetworkRouting.of_network(
        topology.routing(network, "dimension-order").as_network()
    )
    plan = topology.routing(network, "dimension-order")
    for source in range(9):
        for node in range(9):
            assert table.path(source, node, 0, 0) == plan.path(source, node, 2**32 - 1, 0)
    torus = parse({"kind": "torus", "dims": [4, 4]})
    with pytest.raises(ValueError, match="2 virtual lanes"):
        torus.routing(network_of(torus.fabric()), "dimension-order").as_network()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "kind is None"),
        ({"kind": "tours"}, "did you mean 'torus'"),
        ({"kind": "torus"}, "key is missing"),
        ({"kind": "torus", "dim": [3]}, "did you mean 'dims'"),
        ({"kind": "torus", "dims": [0]}, "greater than or equal to 1"),
        ({"kind": "torus", "dims": [3, 3, 3], "rates": ["1 Gb/s", "2 Gb/s"]}, "2 entries for 3"),
        ({"kind": "torus", "dims": [3], "rates": ["fast"]}, "not a rate"),
        ({"kind": "torus", "dims": [3], "rates": [["0 Gb/s"]]}, "rates"),
        (
            {"kind": "torus", "dims": [4], "rates": [[]]},
            "rates: dimension 0 has an empty list of rates",
        ),
        (
            {
                "kind": "dragonfly",
                "nodes_per_router": 1,
                "routers": 1,
                "global_ports": 0,
                "groups": 2,
            },
            "0 global ports, enough for at most 1 group",
        ),
        (
            {
                "kind": "dragonfly",
                "nodes_per_router": 1,
                "routers": 1,
                "global_ports": 1,
                "groups": 3,
            },
            "1 global port, enough for at most 2 groups",
        ),
        ({"kind": "torus", "dims": [3], "host_rate": "0 Gb/s"}, "host_rate: '0 Gb/s': Input"),
        ({"kind": "torus", "dims": [65535, 65535]}, "is available"),
        (
            {
                "kind": "dragonfly",
                "nodes_per_router": 1,
                "routers": 2,
                "global_ports": 1,
                "groups": 9,
            },
            "groups = 9",
        ),
        ({"kind": "pgft", "children": [2, 2], "parents": [2, 2]}, "begins with 2"),
        ({"kind": "pgft", "children": [3, 2], "parents": [1, 2], "rails": 2}, "rails = 2"),
        ({"kind": "yellowstone", "leaves": 28}, "leaves = 28"),
        ({"kind": "k-ary-n-tree", "k": 2**32 - 1, "n": 2}, "the engine's limit is 65,535"),
        ({"kind": "k-ary-n-tree", "k": 2**40, "n": 2}, "k: 1099511627776: Input should be less"),
        (
            {"kind": "pgft", "children": [2**31] * 16, "parents": [1] + [2**31] * 15},
            "the engine's limit is 65,535",
        ),
        ({"kind": "torus", "dims": [1], "cables": [2**32]}, "cables: 4294967296: Input should"),
    ],
)
def test_mistakes_are_explained(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ScenarioError, FabricError)) as error:
        build(options)
    assert says in str(error.value)
    assert "[fabric.topology]" in str(error.value)


def test_an_unknown_rule_names_the_nearest() -> None:
    topology = parse({"kind": "torus", "dims": [3]})
    with pytest.raises(FabricError, match="did you mean 'valiant'"):
        topology.routing(network_of(topology.fabric()), "valient")


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_the_page_names_every_option(name: str) -> None:
    page = ROOT / "docs" / "reference" / "topologies.md"
    text = page.read_text(encoding="utf-8")
    for option in TOPOLOGIES[name].model_fields.keys() - {"kind"}:
        assert f"`{option}`" in text or f"`{option} = " in text, option
