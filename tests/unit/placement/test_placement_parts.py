"""Problem, host specifications, metrics, and what single placements promise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tailback.api.rankfiles import rank_files
from tailback.errors import FabricError, PlacementError
from tailback.placement import (
    assign_slots,
    edge_cut,
    hosts_from_spec,
    path_length,
    place,
    problem_for,
    slots_from_spec,
    switch_congestion,
    switches_visited,
)
from tailback.placement.cells import cells_of, group_leaves, slots_in_leaves, spare_congested_leaves
from tailback.placement.graph import Graph
from tailback.placement.incremental import congested_graph, leaf_congestion
from tailback.placement.partition import partition, repair
from tailback.placement.swaps import SearchLimits, SwapSearch
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tests.factories.placement_fabrics import fabric_of, pairs, regular, stencil


def test_slots_use_adapters_in_turn() -> None:
    fabric = fabric_of([(0, 1), (1,), (0, 1)], [0, 0])
    problem = problem_for(fabric, stencil((3, 2)), [2, 0], 3, 1)
    assert problem.slot_node.tolist() == [3, 4, 3, 0, 1, 0]
    assert problem.slot_host.tolist() == [2, 2, 2, 0, 0, 0]
    assert problem.slot_switch.tolist() == [0, 1, 0, 0, 1, 0]
    assert problem.slot_leaf.tolist() == [0] * 6


@pytest.mark.parametrize(
    ("hosts", "message"), [([0, 9], "host 9 is not one of 3"), ([1, 1], "host 1 is named twice")]
)
def test_wrong_hosts(hosts: list[int], message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        problem_for(regular(3, 1, 3), pairs(1, []), hosts, 1, 1)


def test_host_without_a_cable() -> None:
    fabric = regular(2, 1, 2)
    keep = (fabric.link_src != 1) & (fabric.link_dst != 1)
    for name in ("link_src", "link_dst", "link_gbps"):
        setattr(fabric, name, getattr(fabric, name)[keep])
    with pytest.raises(PlacementError, match="'node001' has no adapter"):
        problem_for(fabric, pairs(1, []), [0, 1], 1, 1)


def test_by_switch_sorts_the_hosts_whatever_their_order() -> None:
    fabric = regular(2, 2, 2)
    program = stencil((4, 2))
    problem = problem_for(fabric, program, [3, 0, 2, 1], 2, 1)
    assert fabric.node_host[place("by-switch", problem)].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    # Switches come in the order of their first hosts, and hosts under one switch stay together.
    mixed = fabric_of([(0,), (1,), (0,), (1,)], [0, 0])
    switched = problem_for(mixed, program, [1, 2, 3, 0], 2, 1)
    hosts = mixed.node_host[place("by-switch", switched)]
    assert hosts.tolist() == [0, 0, 2, 2, 1, 1, 3, 3]


def test_round_robin() -> None:
    problem = problem_for(regular(2, 2, 2), stencil((4, 2)), [0, 1, 2, 3], 2, 1)
    assert place("round-robin", problem).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert place("round-robin-leaves", problem).tolist() == [0, 2, 0, 2, 1, 3, 1, 3]
    assert place("block", problem).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_random_depends_on_the_seed_alone() -> None:
    fabric = regular(4, 4, 2)
    first, same, other = (
        place("random", problem_for(fabric, stencil((4, 4)), list(range(16)), 1, seed))
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def test_hosts_from_spec() -> None:
    fabric = regular(4, 10, 2)
    assert hosts_from_spec("all", fabric) == list(range(40))
    assert hosts_from_spec(" 3-5, 1 ", fabric) == [3, 4, 5, 1]
    assert hosts_from_spec("node[008-010,012],node001,20", fabric) == [8, 9, 10, 12, 1, 20]
    even = hosts_from_spec("parity-of-square:even", fabric)
    odd = hosts_from_spec("parity-of-square:odd", fabric)
    assert sorted(even + odd) == list(range(40))
    assert even[:3] == [2, 5, 11]  # 9, 36 and 144 have two 1 bits


def test_slots_from_spec() -> None:
    fabric = regular(4, 10, 2)
    assert slots_from_spec("all", fabric, 3) == (list(range(40)), [3] * 40)
    assert slots_from_spec("all:2", fabric, 3) == (list(range(40)), [2] * 40)
    assert slots_from_spec("4-5:4, node[001-002]:65536,7", fabric, 3) == (
        [4, 5, 1, 2, 7],
        [4, 4, 65536, 65536, 3],
    )
    assert hosts_from_spec("4-5:4,7", fabric) == [4, 5, 7]
    # A host may be called so.
    twins = fabric_of([(0,), (0,)], [0], names=["a", "a:2"])
    assert slots_from_spec("a:2,a", twins, 1) == ([1, 0], [1, 1])
    assert slots_from_spec("a:2:3", twins, 1) == ([1], [3])


def test_a_scenario_says_the_slots_of_its_hosts() -> None:
    data = {
        "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 1}},
        "job": [{"hosts": "0-1:3,5:2,7", "pattern": {"kind": "stencil2d", "dims": [3, 3]}}],
    }
    prepared = prepare(parse(data))
    assert prepared.fabric.node_host[prepared.observed.node].tolist() == [0] * 3 + [1] * 3 + [
        5,
        5,
        7,
    ]
    files = {file.writer: file for file in rank_files(prepared, prepared.observed.node)[0]}
    openmpi = files["openmpi"]
    assert "rank 7=" in openmpi.text and openmpi.text.endswith("slot=0\n")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("0-3:0", "'0' is not a number of slots"),
        ("0-3:65537", "'65537' is not a number of slots"),
        ("0-3:", "'' is not a number of slots"),
        ("0-3:x", "'x' is not a number of slots"),
        ("1:2,1:3", "named twice"),
        ("40", "host 40 is not one of 40 hosts"),
        ("5-3", "runs backwards"),
        ("0-99999999999", "more than the 40 hosts"),
        ("node[1-999999999]", "more than the 40 hosts"),
        ("node[001-0x2]", "not a number"),
        ("1,1", "named twice"),
        ("1,,2", "missing between commas"),
        ("", "missing between commas"),
        ("node[001", "unmatched bracket"),
        ("node00l", "no host 'node00l'"),
        ("parity-of-square:both", "neither even nor odd"),
        ("٣", "no host"),
    ],
)
def test_wrong_host_specs(spec: str, message: str) -> None:
    with pytest.raises(PlacementError, match=message) as caught:
        hosts_from_spec(spec, regular(4, 10, 2))
    assert caught.value.remedy


def test_path_length_counts_switches() -> None:
    fabric = regular(4, 2, 2)
    nodes = np.arange(8)
    program = pairs(8, [(0, 1, 1), (0, 2, 1), (0, 7, 5000)])
    assert path_length(fabric, program, nodes) == pytest.approx(3.0)
    assert path_length(fabric, program, nodes, "bytes") == pytest.approx((1 + 3 + 25000) / 5002)
    assert path_length(fabric, program, nodes, "packets") == pytest.approx((1 + 3 + 10) / 4)
    assert edge_cut(fabric, program, nodes) == pytest.approx(2 / 3)
    assert edge_cut(fabric, program, nodes, "pod") == pytest.approx(1 / 3)
    assert edge_cut(fabric, program, nodes, "host") == 1.0
    assert path_length(fabric, pairs(8, []), nodes) == 0.0


def test_ranks_of_one_host_visit_no_switch() -> None:
    fabric = fabric_of([(0, 1), (0, 1)], [0, 1])
    program = pairs(4, [(0, 1, 1), (0, 2, 1), (0, 3, 1)])
    assert switches_visited(fabric, np.zeros(3, int), np.array([1, 2, 3])).tolist() == [0, 1, 5]
    assert path_length(fabric, program, np.arange(4)) == 2.0
    # Adapters of one host on two leaves, in two pods: what they would say to each other stays in.
    for level in ("host", "leaf", "pod"):
        assert edge_cut(fabric, pairs(2, [(0, 1, 1)]), np.array([0, 1]), level) == 0.0
    assert edge_cut(fabric, pairs(2, [(0, 1, 1)]), np.array([0, 3])) == 1.0


def test_a_valley_is_the_last_resort() -> None:
    fabric = regular(3, 1, 3)  # three leaves under one spine, one core above
    n = fabric.n_nodes
    # Move the cable of leaf 2 from the spine to leaf 1's host side: a chain through leaf 1.
    for ends in (fabric.link_src, fabric.link_dst):
        other = fabric.link_dst if ends is fabric.link_src else fabric.link_src
        ends[(ends == n + 3) & (other == n + 2)] = n + 1
    visited = switches_visited(fabric, np.array([0, 1]), np.array([2, 2]))
    assert visited.tolist() == [4, 2]


def test_valley_free_may_be_longer_than_shortest() -> None:
    # Leaves 0, 1, 2; tier 1: 3 over 0 and 1, 4 over 1 and 2; tier 2: 5 over 3, 6 over 4; top 7.
    # 0-3-1-4-2 is short but dips through leaf 1; up/down routing goes over the top.
    fabric = regular(3, 1, 3)
    n = fabric.n_nodes
    hosts = [(0, n), (1, n + 1), (2, n + 2)]
    between = [(0, 3), (1, 3), (1, 4), (2, 4), (3, 5), (4, 6), (5, 7), (6, 7)]
    up = hosts + [(n + a, n + b) for a, b in between]
    cables = np.array(up, np.uint32)
    fabric.link_src = np.concatenate([cables[:, 0], cables[:, 1]])
    fabric.link_dst = np.concatenate([cables[:, 1], cables[:, 0]])
    fabric.switch_name = [f"s{i}" for i in range(8)]
    fabric.switch_tier = np.array([0, 0, 0, 1, 1, 2, 2, 3], np.int32)
    visited = switches_visited(fabric, np.array([0, 0, 1]), np.array([1, 2, 2]))
    assert visited.tolist() == [3, 7, 3]


def test_no_path_names_the_nodes() -> None:
    fabric = regular(2, 1, 1)
    core = fabric.n_nodes + fabric.n_switches - 1
    keep = (fabric.link_src != core) & (fabric.link_dst != core)
    for name in ("link_src", "link_dst"):
        setattr(fabric, name, getattr(fabric, name)[keep])
    with pytest.raises(FabricError, match="no path from 'node000/0' to 'node001/1'"):
        switches_visited(fabric, np.array([0]), np.array([1]))


def test_metrics_refuse_a_placement_that_does_not_fit() -> None:
    fabric, program = regular(2, 2, 2), pairs(2, [(0, 1, 1)])
    with pytest.raises(PlacementError, match="3 entries for 2 ranks"):
        path_length(fabric, program, np.arange(3))
    with pytest.raises(PlacementError, match="beyond the 4"):
        path_length(fabric, program, np.array([0, 4]))


def test_swaps_keep_sizes_and_never_worsen() -> None:
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 40, (2, 200))
    graph = Graph.from_edges(40, edges[0], edges[1], rng.random(200))
    part = np.repeat(np.arange(5), 8)
    for limits in (SearchLimits(1, 1), SearchLimits()):
        better = SwapSearch(graph, part, 5).run(limits)
        assert np.bincount(better).tolist() == [8] * 5
        assert graph.cut(better) < graph.cut(part)


def test_swaps_stay_within_groups_and_kinds() -> None:
    rng = np.random.default_rng(4)
    edges = rng.integers(0, 40, (2, 300))
    graph = Graph.from_edges(40, edges[0], edges[1], np.ones(300))
    part, group = np.repeat(np.arange(8), 5), np.repeat(np.arange(2), 4)
    better = SwapSearch(graph, part, 8, group=group).run(SearchLimits())
    assert (better != part).any()
    assert np.array_equal(group[better], group[part])
    kind = rng.integers(0, 3, 40)
    better = SwapSearch(graph, part, 8, kind=kind).run(SearchLimits())
    assert (better != part).any()
    for which in range(3):
        assert np.array_equal(
            np.bincount(better[kind == which], minlength=8),
            np.bincount(part[kind == which], minlength=8),
        )


def test_grouping_leaves_respects_their_sizes() -> None:
    sizes = [2, 3, 2, 3, 2, 3]
    fabric = fabric_of(
        [(leaf,) for leaf, n in enumerate(sizes) for _ in range(n)], [0, 0, 1, 1, 2, 2]
    )
    problem = problem_for(fabric, stencil((5, 3)), list(range(15)), 1, 1)
    cells = cells_of(problem)
    scattered = np.random.default_rng(5).permutation(cells.leaf)
    grouped = group_leaves(problem.graph, cells, scattered, SearchLimits())
    assert np.bincount(grouped).tolist() == sizes
    assert cells.cost(problem.graph, grouped) < cells.cost(problem.graph, scattered)
    assert problem.graph.cut(grouped) == problem.graph.cut(scattered)


def test_leaves_of_different_sizes_do_not_change_places() -> None:
    """Two talk that could share a pod only if leaves of two and of three hosts were exchanged."""
    sizes = [2, 3, 2, 3]
    hosts = [(leaf,) for leaf, n in enumerate(sizes) for _ in range(n)]
    problem = problem_for(fabric_of(hosts, [0, 0, 1, 1]), pairs(10, []), list(range(10)), 1, 1)
    cells = cells_of(problem)
    part = np.repeat(np.arange(4), sizes)

    def grouped(first: int, other: int) -> list[int]:
        graph = Graph.from_edges(10, np.array([first]), np.array([other]), np.array([9.0]))
        return group_leaves(graph, cells, part, SearchLimits()).tolist()

    assert grouped(0, 5) == part.tolist()
    # The first of two hosts and the second of three can: the leaves of three are exchanged, or
    # those of two, so that both are in one pod.
    moved = cells.leaf_pod[grouped(0, 8)]
    assert moved[0] == moved[8] and np.bincount(grouped(0, 8)).tolist() == sizes


def test_hosts_are_chosen_within_the_decided_leaf() -> None:
    fabric, program = regular(2, 2, 2), pairs(8, [(0, 4, 9), (1, 5, 9), (2, 3, 1)])
    problem = problem_for(fabric, program, [0, 1, 2, 3], 2, 1)
    leaf = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    slots = slots_in_leaves(problem, cells_of(problem), leaf, SearchLimits())
    assert problem.slot_switch[slots].tolist() == leaf.tolist()
    assert problem.slot_host[slots[2]] == problem.slot_host[slots[3]]


def test_a_graph_counts_each_byte_once() -> None:
    """Two ranks send each other 3 and 4 bytes and one is told without any: 7, and a byte for it."""
    program = pairs(3, [(0, 1, 3), (1, 0, 4), (1, 2, 0)])
    graph = problem_for(regular(1, 3, 1), program, [0, 1, 2], 1, 1).graph
    assert graph.cut(np.array([0, 1, 2])) == 8.0 and graph.cut(np.array([0, 1, 1])) == 7.0
    assert graph.cut(np.array([0, 0, 1])) == 1.0
    between = graph.quotient(np.array([0, 1, 1]), 2)
    assert between.weight.tolist() == [7.0, 7.0]
    assert between.cut(np.array([0, 1])) == 7.0


def test_a_switchs_congestion_is_its_worst_links() -> None:
    fabric = regular(2, 1, 2)
    n = fabric.n_nodes
    links = np.full(fabric.n_links, np.nan)
    links[(fabric.link_src == n) & (fabric.link_dst >= n)] = 0.6
    links[(fabric.link_dst == n) & (fabric.link_src >= n)] = 0.5
    links[fabric.link_src < n] = 0.9  # an adapter that holds a message is busy
    assert switch_congestion(fabric, links).tolist() == [0.6, 0.0, 0.6, 0.0]


def test_swaps_find_the_obvious() -> None:
    program = pairs(4, [(0, 2, 100), (1, 3, 100), (0, 1, 1)])
    problem = problem_for(regular(2, 2, 2), program, [0, 1, 2, 3], 1, 1)
    for name in ("incremental", "metis"):
        nodes = place(name, problem)
        assert edge_cut(regular(2, 2, 2), program, nodes, weight="bytes") == pytest.approx(1 / 201)


def test_partition_is_exact_for_unequal_sizes() -> None:
    graph = problem_for(regular(1, 36, 1), stencil((6, 6)), list(range(36)), 1, 1).graph
    sizes = np.array([5, 11, 1, 7, 12])
    part = partition(graph, sizes, 1)
    assert np.bincount(part).tolist() == sizes.tolist()


def test_repair_moves_the_cheapest_vertex() -> None:
    # A path 0-1-2-3-4 with a heavy first edge: 0, 1, 2 in part 0 which may hold two.
    source = np.arange(4)
    graph = Graph.from_edges(5, source, source + 1, np.array([9.0, 1.0, 5.0, 5.0]))
    part = repair(graph, np.array([0, 0, 0, 1, 1]), np.array([2, 3]))
    assert part.tolist() == [0, 0, 1, 1, 1]


def test_leaves_that_talk_share_a_pod() -> None:
    # Ranks 0,1 | 2,3 | 4,5 | 6,7 fill leaves; leaf groups 0 and 2 talk, as do 1 and 3.
    sends = [(0, 1, 99), (2, 3, 99), (4, 5, 99), (6, 7, 99), (0, 4, 50), (2, 6, 50)]
    fabric, program = regular(4, 2, 2), pairs(8, sends)
    problem = problem_for(fabric, program, list(range(8)), 1, 1)
    for name in ("metis", "incremental"):
        nodes = place(name, problem)
        assert edge_cut(fabric, program, nodes, "pod") == 0.0, name
        assert edge_cut(fabric, program, nodes, "leaf") == pytest.approx(2 / 6), name


def test_ranks_that_talk_share_a_host() -> None:
    fabric, program = regular(2, 2, 2), pairs(8, [(0, 2, 9), (1, 3, 9), (4, 6, 9), (5, 7, 9)])
    problem = problem_for(fabric, program, [0, 1, 2, 3], 2, 1)
    for name in ("metis", "incremental"):
        assert edge_cut(fabric, program, place(name, problem), "host") == 0.0, name


def test_numbering_hardly_matters_to_metis() -> None:
    fabric, grid = regular(8, 4, 2), (8, 8, 8)
    rows, at = stencil(grid), np.random.default_rng(0).permutation(512)
    problem = problem_for(fabric, rows, list(range(32)), 16, 1)
    source, destination, size = problem.traffic
    mixed = dataclasses.replace(problem, traffic=(at[source], at[destination], size), grid=())
    cuts = [
        edge_cut(fabric, rows, nodes, "host")
        for nodes in (place("metis", problem), place("metis", mixed)[at], place("tile", problem))
    ]
    # Boxes of 4 × 2 × 2 ranks on every host.
    assert cuts[0] == pytest.approx(cuts[2])
    assert cuts[1] < 1.05 * cuts[2]


def test_tiles_nest_hosts() -> None:
    fabric, program = regular(2, 4, 2), stencil((8, 4))
    problem = problem_for(fabric, program, list(range(8)), 4, 1)
    nodes = place("tile", problem).reshape(4, 8)
    assert len(set(nodes[:2, :2].ravel().tolist())) == 1
    assert edge_cut(fabric, program, nodes.ravel(), "leaf") == pytest.approx(4 / 52)
    assert edge_cut(fabric, program, nodes.ravel(), "host") == pytest.approx((8 + 12) / 52)


@pytest.mark.parametrize("grid", [(6, 6, 6), (7, 5, 3), (64,), (3, 3, 3, 3)])
def test_tiling_beats_block_in_other_dimensions(grid: tuple[int, ...]) -> None:
    n = int(np.prod(grid))
    fabric, program = regular(-(-n // 8), 8, 4), stencil(grid, periodic=len(grid) == 4)
    problem = problem_for(fabric, program, list(range(fabric.n_hosts)), 1, 1)
    block = path_length(fabric, program, place("block", problem))
    for name in ("tile", "tile2"):
        assert path_length(fabric, program, place(name, problem)) <= block + 1e-12, name


def test_two_levels_make_cubes_of_cubes() -> None:
    fabric, program = regular(64, 8, 8), stencil((8, 8, 8))
    problem = problem_for(fabric, program, list(range(512)), 1, 1)
    nodes = place("tile2", problem)
    pairs_in_all = 3 * 7 * 64
    # 2×2×2 under a leaf: 3 walls a dimension of 64 pairs; 4×4×4 in a pod: one wall.
    assert edge_cut(fabric, program, nodes) == pytest.approx(3 * 3 * 64 / pairs_in_all)
    assert edge_cut(fabric, program, nodes, "pod") == pytest.approx(3 * 64 / pairs_in_all)


def test_heavy_dimension_makes_long_tiles() -> None:
    builder = [(r, r + 1, 1000) for r in range(64) if r % 8 < 7]
    builder += [(r, r + 8, 1) for r in range(56)]
    fabric, program = regular(8, 8, 4), pairs(64, builder)
    problem = problem_for(fabric, program, list(range(64)), 1, 1)
    nodes = place("tile", dataclasses.replace(problem, grid=(8, 8)))
    assert edge_cut(fabric, program, nodes, weight="bytes") == pytest.approx(56 / 56056)


def test_congestion_pulls_the_traffic_that_suffered_together() -> None:
    # Rank 1 talks equally to 0 (its leaf) and to 2 and 3 across; only congestion breaks the tie.
    fabric = regular(2, 2, 2)
    program = pairs(4, [(1, 0, 100), (1, 2, 100)])
    quiet = problem_for(fabric, program, [0, 1, 2, 3], 1, 1)
    assert np.array_equal(assign_slots("incremental", quiet, {}), np.arange(4))
    links = np.zeros(fabric.n_links)
    links[np.flatnonzero(fabric.link_src == fabric.n_nodes)] = 0.8
    congestion = switch_congestion(fabric, links)
    assert congestion[:2].tolist() == [0.8, 0.0]
    hot = dataclasses.replace(quiet, congestion=congestion)
    cells = cells_of(hot)
    graph = congested_graph(hot.graph, cells.leaf, 4.0 * leaf_congestion(hot, cells))
    assert graph.weight.sum() / 2 == pytest.approx(100 + 100 * (1 + 4 * 0.8))
    slots = assign_slots("incremental", hot, {})
    assert slots[1] // 2 == slots[2] // 2


def test_parts_with_most_traffic_leave_congested_leaves() -> None:
    """Pairs under one leaf each; those of ranks 0 to 3 also send to one another, 4 to 7 to none."""
    fabric = regular(4, 2, 4)
    program = pairs(8, [(0, 1, 900), (2, 3, 900), (4, 5, 900), (6, 7, 900), (1, 2, 100)])
    quiet = problem_for(fabric, program, list(range(8)), 1, 1)
    congestion = np.zeros(fabric.n_switches)
    leaf = quiet.slot_leaf
    congestion[leaf[0]] = congestion[leaf[2]] = 0.6
    for problem, leaves in (
        (quiet, [0, 1]),
        (dataclasses.replace(quiet, congestion=congestion), [2, 3]),
    ):
        slots = assign_slots("incremental", problem, {})
        used = {
            list(dict.fromkeys(leaf.tolist())).index(int(leaf[slots[rank]])) for rank in range(4)
        }
        assert sorted(used) == leaves
        # Weight 0 takes no notice of congestion.
        same = assign_slots("incremental", problem, {"congestion_weight": 0})
        assert np.array_equal(same, assign_slots("incremental", quiet, {}))


def test_leaves_swap_within_pods_and_sizes() -> None:
    fabric = regular(4, 4, 2)
    problem = problem_for(fabric, stencil((4, 4)), list(range(16)), 1, 1)
    cells = cells_of(problem)
    drawn = np.random.default_rng(3)
    for _ in range(20):
        part = drawn.permutation(cells.leaf)
        moved = spare_congested_leaves(problem.graph, cells, part, drawn.random(cells.n_leaves))
        assert np.array_equal(cells.leaf_pod[moved], cells.leaf_pod[part])
        assert np.array_equal(np.bincount(moved), np.bincount(part))
        assert cells.cost(problem.graph, moved) == pytest.approx(cells.cost(problem.graph, part))


def test_incremental_starts_where_it_is_told() -> None:
    fabric, program = regular(4, 4, 2), stencil((4, 4))
    problem = problem_for(fabric, program, list(range(16)), 1, 1)
    tiled = assign_slots("tile", problem, {})
    kept = assign_slots("incremental", problem, {"start": tiled.tolist()})
    named = assign_slots("incremental", problem, {"start": "tile"})
    assert np.array_equal(kept, named)
    leaf = problem.slot_switch
    assert np.array_equal(leaf[kept], leaf[tiled])  # 2×2 tiles cannot be bettered
