"""Placements on random fabrics and random traffic."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailback.errors import PlacementError
from tailback.fabric.model import Fabric
from tailback.placement import (
    PLACEMENTS,
    PlacementProblem,
    assign_slots,
    assignment_for,
    hosts_from_spec,
    infer_grid,
    place,
    write,
)
from tailback.placement.cells import cells_of
from tailback.placement.graph import Graph
from tailback.placement.grid import coordinates
from tailback.placement.partition import partition
from tailback.placement.swaps import SearchLimits, SwapSearch
from tests.factories.placement_swaps import PlainSwaps


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, np.ndarray]:
    """A graph and part sizes that sum to its number of vertices."""
    sizes = np.array(draw(st.lists(st.integers(1, 7), min_size=1, max_size=8)))
    n = int(sizes.sum())
    vertex = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex, st.integers(0, 2**40)), max_size=80))
    columns = np.array(edges, np.int64).reshape(-1, 3)
    weight = columns[:, 2].astype(np.float64)
    return Graph.from_edges(n, columns[:, 0], columns[:, 1], weight), sizes


@st.composite
def problems(draw: st.DrawFn) -> PlacementProblem:
    """Unequal leaves, hosts with several adapters and slots, any traffic or a stencil."""
    leaves = draw(st.integers(1, 5))
    leaf = st.integers(0, leaves - 1)
    hosts = draw(st.lists(st.lists(leaf, min_size=1, max_size=2), min_size=1, max_size=12))
    per_host = draw(st.integers(1, 3))
    pod = np.array(draw(st.lists(st.integers(-1, 2), min_size=leaves, max_size=leaves)))
    first = np.cumsum([0] + [len(h) for h in hosts])
    slots = [
        (first[h] + k % len(at), at[k % len(at)], h)
        for h, at in enumerate(hosts)
        for k in range(per_host)
    ]
    node, switch, host = (np.array(c, np.int64) for c in zip(*slots, strict=True))
    n = draw(st.integers(1, len(slots)))
    rank = st.integers(0, n - 1)
    sends = draw(st.lists(st.tuples(rank, rank, st.integers(0, 2**50)), max_size=40))
    columns = np.array(sends, np.int64).reshape(-1, 3)
    return PlacementProblem(
        n_ranks=n,
        slot_node=node,
        slot_switch=switch,
        slot_pod=pod[switch],
        slot_host=host,
        host_name=tuple(f"h{i}" for i in range(len(hosts))),
        traffic=(columns[:, 0], columns[:, 1], columns[:, 2].astype(np.uint64)),
        grid=draw(st.sampled_from([(n,), (n, 1), (1, n)])),
        seed=draw(st.integers(0, 2**63 - 1)),
    )


@given(problems(), st.sampled_from([n for n in PLACEMENTS.names() if n != "file"]))
def test_every_placement_is_valid(problem: PlacementProblem, name: str) -> None:
    slots = assign_slots(name, problem, {})
    assert len(np.unique(slots)) == problem.n_ranks
    assert np.array_equal(slots, assign_slots(name, problem, {}))


@given(problems())
def test_incremental_never_worsens_the_leaf_cut(problem: PlacementProblem) -> None:
    cells = cells_of(problem)
    home = problem.slot_leaf
    before = problem.graph.cut(cells.leaf)
    after = problem.graph.cut(home[assign_slots("incremental", problem, {})])
    assert after <= before * (1 + 1e-9)


@given(graphs(), st.integers(0, 2**62))
def test_partition_has_exact_sizes(case: tuple[Graph, np.ndarray], seed: int) -> None:
    graph, sizes = case
    part = partition(graph, sizes, seed)
    assert np.bincount(part, minlength=len(sizes)).tolist() == sizes.tolist()


@given(graphs(), st.integers(1, 9), st.integers(1, 9))
def test_swaps_keep_sizes_and_never_worsen(
    case: tuple[Graph, np.ndarray], depth: int, partners: int
) -> None:
    graph, sizes = case
    part = np.repeat(np.arange(len(sizes)), sizes)
    swapper = SwapSearch(graph, part, len(sizes))
    better = swapper.run(SearchLimits(depth, partners))
    assert np.bincount(better, minlength=len(sizes)).tolist() == sizes.tolist()
    assert graph.cut(better) <= graph.cut(part) * (1 + 1e-9)
    if swapper.swaps == 0:
        assert np.array_equal(better, part)


@given(graphs(), st.integers(1, 40), st.integers(1, 9), st.integers(1, 40), st.integers(0, 3))
def test_swaps_are_those_of_the_plain_search(
    case: tuple[Graph, np.ndarray], depth: int, partners: int, rounds: int, restrict: int
) -> None:
    graph, sizes = case
    part = np.repeat(np.arange(len(sizes)), sizes)
    group = np.arange(len(sizes)) % 2 if restrict & 1 else None
    kind = np.arange(len(part)) % 3 if restrict & 2 else None
    limits = SearchLimits(depth, partners, rounds)
    searches = [
        search(graph, part, len(sizes), group=group, kind=kind)
        for search in (SwapSearch, PlainSwaps)
    ]
    compiled, plain = (search.run(limits) for search in searches)
    assert np.array_equal(compiled, plain)
    assert searches[0].swaps == searches[1].swaps


@pytest.mark.parametrize("per_part", [7, 40, 130])
@pytest.mark.parametrize("unit", [1.0, 1e6 / 3])
def test_swaps_in_large_parts_match_plain_search(per_part: int, unit: float) -> None:
    """More vertices in a part than are looked at, and many equal gains."""
    rng = np.random.default_rng(per_part)
    n_parts = 6
    n = per_part * n_parts
    edges = rng.integers(0, n, (2, 8 * n))
    graph = Graph.from_edges(n, edges[0], edges[1], rng.integers(1, 4, 8 * n) * unit)
    part = rng.permutation(np.repeat(np.arange(n_parts), per_part))
    compiled = SwapSearch(graph, part, n_parts)
    plain = PlainSwaps(graph, part, n_parts)
    assert np.array_equal(compiled.run(SearchLimits()), plain.run(SearchLimits()))
    assert compiled.swaps == plain.swaps > 0


@given(graphs(), st.randoms(use_true_random=False))
def test_quotient_has_the_cut(case: tuple[Graph, np.ndarray], random: object) -> None:
    graph, sizes = case
    part = np.repeat(np.arange(len(sizes)), sizes)
    quotient = graph.quotient(part, len(sizes))
    assert np.isclose(quotient.weight.sum() / 2, graph.cut(part))


@given(st.lists(st.integers(3, 7), min_size=1, max_size=3), st.booleans())
def test_grid_is_found(extents: list[int], periodic: bool) -> None:
    grid = tuple(extents)
    n = int(np.prod(grid))
    ranks = np.arange(n)
    at = coordinates(ranks, grid)
    source, destination = [], []
    stride = 1
    for d, extent in enumerate(grid):
        inner = at[:, d] < extent - 1
        source += [ranks[inner], ranks[inner] + stride]
        destination += [ranks[inner] + stride, ranks[inner]]
        if periodic:
            last = at[:, d] == extent - 1
            source.append(ranks[last])
            destination.append(ranks[last] - stride * (extent - 1))
        stride *= extent
    src, dst = np.concatenate(source), np.concatenate(destination)
    assert infer_grid((src, dst, np.full(len(src), 100, np.uint64)), n) == grid


def _flat(n_hosts: int, adapters: int) -> Fabric:
    """Hosts with adapters on one switch."""
    n = n_hosts * adapters
    up = np.arange(n, dtype=np.uint32)
    hub = np.full(n, n, np.uint32)
    zeros = np.zeros(2 * n, np.uint32)
    return Fabric(
        name="flat",
        node_name=[f"n{i}" for i in range(n)],
        node_host=up // adapters,
        host_name=[f"node{i:02d}" for i in range(n_hosts)],
        switch_name=["hub"],
        switch_tier=np.zeros(1, np.int32),
        switch_pod=np.zeros(1, np.int32),
        link_src=np.concatenate([up, hub]),
        link_dst=np.concatenate([hub, up]),
        link_src_port=zeros,
        link_dst_port=zeros,
        link_gbps=np.ones(2 * n),
        link_delay_ps=np.zeros(2 * n, np.uint64),
        link_reverse=np.concatenate([up + n, up]).astype(np.uint32),
    )


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
    st.sampled_from(["openmpi", "openmpi-seq", "slurm", "mpich", "cray"]),
)
def test_rank_files_read_back(
    n_hosts: int, adapters: int, per_host: int, random: object, writer: str
) -> None:
    fabric = _flat(n_hosts, adapters)
    slots = [(h, k) for h in range(n_hosts) for k in range(per_host)]
    random.shuffle(slots)  # type: ignore[attr-defined]
    nodes = np.array([h * adapters + k % adapters for h, k in slots])
    hosts = np.repeat(np.arange(n_hosts), per_host)
    local = np.tile(np.arange(per_host), n_hosts)
    none = np.zeros(0, np.int64)
    problem = PlacementProblem(
        n_ranks=len(slots),
        slot_node=hosts * adapters + local % adapters,
        slot_switch=np.zeros(len(slots), np.int64),
        slot_pod=np.zeros(len(slots), np.int64),
        slot_host=hosts,
        host_name=tuple(fabric.host_name),
        traffic=(none, none, none.astype(np.uint64)),
    )
    assignment = assignment_for(fabric, nodes, list(range(n_hosts)), per_host)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ranks"
        path.write_text(write(writer, assignment).text)
        back = place("file", problem, {"file": str(path)})
    assert np.array_equal(back // adapters, nodes // adapters)
    if writer in ("openmpi", "cray"):
        # The others say which host, not which slot of it.
        assert np.array_equal(back, nodes)


@given(st.text(max_size=40))
def test_host_specs_never_crash(spec: str) -> None:
    try:
        hosts = hosts_from_spec(spec, _flat(4, 1))
    except PlacementError as error:
        assert error.remedy
    else:
        assert len(set(hosts)) == len(hosts) and all(0 <= h < 4 for h in hosts)


@given(st.text(max_size=80))
def test_files_never_crash(text: str) -> None:
    none = np.zeros(0, np.int64)
    problem = PlacementProblem(
        n_ranks=2,
        slot_node=np.arange(2),
        slot_switch=np.zeros(2, np.int64),
        slot_pod=np.zeros(2, np.int64),
        slot_host=np.arange(2),
        host_name=("a", "b"),
        traffic=(none, none, none.astype(np.uint64)),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ranks"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            place("file", problem, {"file": str(path)})
        except PlacementError as error:
            assert error.remedy
