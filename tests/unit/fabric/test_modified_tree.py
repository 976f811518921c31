"""The modified k-ary n-tree in both views: the same fabric, the same ways, no deadlock."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from studies.birk_zdornov2009.permuted_flows import KaryTree, TreeRouting, superpose_permutations
from tailback.errors import FabricError, ScenarioError
from tailback.fabric.builders import network_of, require_deadlock_free
from tailback.fabric.topologies import build, parse
from tailback.run.run import Run
from tailback.scenario.model import parse as scenario
from tailback.simulation import simulate

K, N, WIDTH = 4, 3, 2
TREE = {"kind": "modified-k-ary-n-tree", "k": K, "n": N, "width": WIDTH}
NO_DETOUR = 2**32 - 1


def run(routes: str, **engine: Any) -> Run:
    """A permutation of all 64 nodes."""
    job = {"pattern": {"kind": "permutation", "ranks": K**N, "size": "64 KiB", "messages": 2}}
    return simulate(
        scenario(
            {
                "fabric": {"topology": TREE, "routes": routes},
                "job": [job],
                "engine": {"eager": "1 MiB", **engine},
            }
        )
    )


@pytest.mark.parametrize(
    ("k", "n", "width"), [(2, 2, 1), (2, 5, 1), (3, 3, 3), (5, 2, 2), (4, 3, 0)]
)
def test_no_cycle_of_buffers(k: int, n: int, width: int) -> None:
    topology = parse({"kind": "modified-k-ary-n-tree", "k": k, "n": n, "width": width})
    fabric = topology.fabric()
    routing = topology.routing(network_of(fabric, []), "horizontal")
    assert routing.lanes == 1
    require_deadlock_free(fabric, routing)


def vertices(tree: KaryTree, link: int) -> tuple[int, int]:
    """Source and destination of a link of the fluid view, as vertices of the fabric."""
    k, n, width = tree.shape
    nodes, level = k**n, k ** (n - 1)

    def switch(tier: int, number: int) -> int:
        return nodes + tier * level + number

    def above(tier: int, number: int, port: int) -> int:
        unit = k**tier
        return switch(tier + 1, number - number // unit % k * unit + port * unit)

    if link < 2 * nodes:
        node = link % nodes
        ends = (node, switch(0, node // k))
        return ends if link < nodes else (ends[1], ends[0])
    link -= 2 * nodes
    between = (n - 1) * level * k
    if link < between:
        at, port = divmod(link, k)
        return switch(at // level, at % level), above(at // level, at % level, port)
    link -= between
    if link < between:
        at, port = divmod(link, k)
        tier, number = at // level + 1, at % level
        unit = k ** (tier - 1)
        low = number - number // unit % k * unit + port * unit
        return switch(tier, number), switch(tier - 1, low)
    at = (link - between) // width
    tier, number = at // level + 1, at % level
    return switch(tier, number), switch(tier, number + 1)


@pytest.mark.parametrize("margin", [1, 2])
def test_fluid_flows_take_paths_of_packets(margin: int) -> None:
    """Every step of every flow is among the rule's candidates; some take peer links."""
    tree = KaryTree(K, N, WIDTH)
    topology = parse(TREE)
    fabric = topology.fabric()
    routing = topology.routing(network_of(fabric, []), "horizontal")
    s = superpose_permutations(tree, TreeRouting(margin=margin), copies=4)
    on_peer_links = 0
    for flow in range(s.paths.n_flows):
        links = s.paths.link[int(s.paths.start[flow]) : int(s.paths.start[flow + 1])].tolist()
        steps = [vertices(tree, link) for link in links]
        assert all(a[1] == b[0] for a, b in pairwise(steps))
        node = steps[-1][1]
        for src, dst in steps[1:-1]:
            next_links, state, lane = routing.next(src - fabric.n_nodes, node, NO_DETOUR, 0)
            assert dst in fabric.link_dst[next_links].tolist()
            assert (state, lane) == (0, 0)
            on_peer_links += int(fabric.vertex_tier[src] == fabric.vertex_tier[dst])
    assert on_peer_links > 0


def test_packets_need_local_load_for_peer_links() -> None:
    for routing in ("deterministic", "random"):
        oblivious, plain = run("horizontal", routing=routing), run("up-down", routing=routing)
        assert oblivious.summary["average_path_length"] == pytest.approx(
            plain.summary["average_path_length"]
        )


def test_adaptive_packets_use_lines_and_arrive() -> None:
    result = run("horizontal", routing="adaptive", buffer="4 KiB")
    flat = result.tables["links"].filter(result.tables["links"]["direction"] == "flat")["link"]
    used = result.tables["truth"].filter(result.tables["truth"]["link"].is_in(flat.implode()))
    assert int(used["packets"].sum()) > 0
    # One direction only: towards higher numbers.
    ends = result.tables["links"].filter(
        result.tables["links"]["link"].is_in(used["link"].implode())
    )
    assert (ends["src"] < ends["dst"]).all()


def test_impossible_shapes_are_named() -> None:
    with pytest.raises(ScenarioError, match="greater than or equal to 2"):
        parse({**TREE, "k": 1})
    with pytest.raises(FabricError, match=r"32 bits|is available"):
        build({**TREE, "k": 64, "n": 6})
