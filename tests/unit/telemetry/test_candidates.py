"""Candidates per pair of switches hold every path that the routing allows, on any fabric."""

from __future__ import annotations

import numpy as np
import pytest
from telemetry_traffic import drawn_paths, pair_plan

from tailback import _core
from tailback.errors import FabricError
from tailback.fabric.builders import fat_tree, network_of
from tailback.fabric.model import in_port_order
from tailback.fabric.topologies import build
from tailback.scenario.model import FatTree
from tailback.telemetry.candidates import (
    ForwardingChoices,
    minimal_choices,
    pair_candidates,
    routed_choices,
)
from tailback.telemetry.hashed import HashedSamples, count_links

FABRICS = {
    "torus": {"kind": "torus", "dims": [4, 3], "nodes_per_switch": 2},
    "dragonfly": {
        "kind": "dragonfly",
        "nodes_per_router": 1,
        "routers": 4,
        "global_ports": 2,
        "groups": 9,
    },
}


def drawn(fabric, choices: ForwardingChoices, packets: int, seed: int):
    random = np.random.default_rng(seed)
    ends = random.integers(0, fabric.n_nodes, (2, packets), dtype=np.uint32)
    return ends, *drawn_paths(fabric, choices, ends, random)


@pytest.mark.parametrize("name", sorted(FABRICS))
def test_every_path_is_among_the_candidates(name: str) -> None:
    fabric = in_port_order(build(FABRICS[name]))
    choices = minimal_choices(fabric)
    ends, hops, links = drawn(fabric, choices, 3000, 1)
    pairs = pair_candidates(fabric, choices, ends[0], ends[1])
    assert (pairs.length[pairs.of(ends[0], ends[1])] == hops).all()
    n_hops = np.zeros(3000, int)
    for number, (rows, part) in enumerate(pair_plan(pairs, ends, hops)(np.arange(3000), None)):
        hop = np.full(len(rows), number) if number < len(pairs.hops) else hops[rows] - 1
        n_hops[rows] += 1
        used = [set() for _ in part.sizes]
        for packet, at, group in zip(rows, hop, part.of_packet, strict=True):
            used[group].add(int(links[packet, at]))
        for group, taken in enumerate(used):
            members = part.links[int(part.start[group]) : int(part.start[group + 1])]
            assert taken <= set(members.tolist())
    assert (n_hops == hops).all()


def test_a_trees_routes_give_candidates_by_stage() -> None:
    shape = FatTree(
        hosts_per_leaf=2, leaves=3, aggregation=2, pods=2, cores=2, aggregation_uplinks=2
    )
    fabric = fat_tree(shape)
    network = network_of(fabric)
    rule = _core.NetworkRouting.of_network(network)
    routed = routed_choices(fabric, lambda switch, node: rule.next(switch, node, 0, 0)[0])
    minimal = minimal_choices(fabric)
    leaves = np.unique(fabric.node_switch).tolist()
    for goal in leaves:
        for at in leaves:
            assert sorted(routed.of(at, goal)) == sorted(minimal.of(at, goal))
    assert len(routed.of(leaves[0], leaves[-1])) == 2


def test_paths_of_two_lengths_are_refused() -> None:
    fabric = in_port_order(build({"kind": "torus", "dims": [4], "nodes_per_switch": 1}))
    n = fabric.n_nodes
    inner = np.flatnonzero((fabric.link_src >= n) & (fabric.link_dst >= n))
    links, counts = [], np.zeros((4, 4), np.int64)
    for goal in range(4):
        for at in range(4):
            # Either way round the ring, except at the end.
            next_links = [] if at == goal else inner[fabric.link_src[inner] == n + at].tolist()
            counts[goal, at] = len(next_links)
            links += next_links
    goals = fabric.node_switch.astype(np.int64), np.arange(4)
    both = ForwardingChoices(
        4, *goals, np.concatenate([[0], np.cumsum(counts.ravel())]), np.array(links)
    )
    ends = np.array([[0], [1]], np.uint32)
    with pytest.raises(FabricError, match="of different lengths"):
        pair_candidates(fabric, both, ends[0], ends[1])
    empty = ForwardingChoices(4, *goals, np.zeros(17, np.int64), np.zeros(0, np.int64))
    with pytest.raises(FabricError, match="missing"):
        pair_candidates(fabric, empty, ends[0], ends[1])


def test_counts_and_their_variance_on_a_torus() -> None:
    """A link is a candidate of many classes and several hops; counts stay right."""
    fabric = in_port_order(build(FABRICS["torus"]))
    choices = minimal_choices(fabric)
    ends, hops, links = drawn(fabric, choices, 20_000, 2)
    pairs = pair_candidates(fabric, choices, ends[0], ends[1])
    passed = np.arange(links.shape[1]) < hops[:, None]
    truth = np.bincount(links[passed], minlength=fabric.n_links)
    values = np.arange(1, fabric.n_links + 1, dtype=np.uint32)
    standard = []
    for seed in range(6):
        ids = np.random.default_rng(seed).integers(0, 1 << 24, len(hops), dtype=np.uint32)
        received = _core.run_scheme(
            "coordinated",
            ids,
            hops,
            links + np.uint32(1),
            np.zeros_like(links, np.uint8),
            seed,
            bits=2,
            size=1,
            probability=0.2,
            hash="gf",
            field_bits=24,
        )
        packet = received["packet"]
        samples = HashedSamples(
            ids[packet],
            received["seen"].astype(np.uint8),
            received["weight"].astype(np.uint8),
            2,
            24,
        )
        plan = pair_plan(pairs, ends, hops)(packet, received["hop"])
        counts = count_links(_core, samples, plan, values, True)
        some = counts.variance > 0
        standard.append(
            ((counts.packets - truth) / np.sqrt(np.where(some, counts.variance, 1)))[some]
        )
    off = np.concatenate(standard)
    assert len(off) > 300
    assert abs(off.mean()) < 4 / np.sqrt(len(off))
    assert abs((off**2).mean() - 1) < 0.25
