"""The fluid view against closed forms: parking lot, textbook max-min, assignment, rank programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tailback.errors import ScenarioError, TraceError
from tailback.fabric.builders import fat_tree, network_of
from tailback.fluid import (
    FlowPaths,
    RankModel,
    assignment,
    max_min,
    paths_between,
    simulate_flows,
    simulate_program,
)
from tailback.scenario.model import FatTree
from tailback.traffic.program import Label, Program, ProgramBuilder

BYTE_PER_NS = 8.0  # Gb/s
SMALL = FatTree(
    hosts_per_leaf=4,
    leaves=2,
    aggregation=2,
    pods=2,
    cores=4,
    aggregation_uplinks=2,
    host_rate="8 Gb/s",
    leaf_rate="8 Gb/s",
    core_rate="8 Gb/s",
)


def test_parking_lot() -> None:
    """One flow over n links, one on each: all get half, whatever n."""
    n = 7
    paths = FlowPaths.of([list(range(n)), *([link] for link in range(n))])
    assert max_min(np.ones(n), paths) == pytest.approx(np.full(n + 1, 0.5))
    # Weighted: the long flow weighs 3.
    weight = np.r_[3.0, np.ones(n)]
    assert max_min(np.ones(n), paths, weight) == pytest.approx(np.r_[0.75, np.full(n, 0.25)])


def test_max_min_fills_what_others_cannot_use() -> None:
    """Two bottlenecks of different level; the last flow takes what the others leave."""
    paths = FlowPaths.of([[0, 1], [0], [0], [1], [2]])
    rates = max_min([3.0, 10.0, 4.0], paths)
    assert rates == pytest.approx([1.0, 1.0, 1.0, 9.0, 4.0])


def test_the_fuller_link_holds_a_split_flow() -> None:
    """Half of flow 0 on each of two links of 4; flow 1 shares one: x/2 + x = 4."""
    paths = FlowPaths(
        np.array([0, 2, 3], np.uint64), np.array([0, 1, 1], np.uint32), np.array([0.5, 0.5, 1.0])
    )
    assert max_min([4.0, 4.0], paths) == pytest.approx([8 / 3, 8 / 3])


def test_assignment_of_different_sizes() -> None:
    """W is 5 us on link 1; the assignment ends there and not before."""
    paths = FlowPaths.of([[0], [0, 1], [1]])
    rates = assignment([BYTE_PER_NS] * 2, paths, [1000, 2000, 3000])
    assert rates.link_ns == pytest.approx([3000, 5000])
    assert rates.completion_ns == pytest.approx(5000)
    assert rates.rate_gbps == pytest.approx([8 / 3, 16 / 5, 24 / 5])
    times = simulate_flows([BYTE_PER_NS] * 2, paths, [1000, 2000, 3000], rates="assignment")
    assert times.completion_ps == 5_000_000


def test_max_min_lets_short_flows_go_first() -> None:
    """Sizes 2 (links 0, 1), 1 (link 0), 1 (link 1): W = 3 on both links.

    Max-min halves both links until 2, then flow 0 has both for itself: it ends at 3 as well, but
    the short flows need not wait for it.
    """
    paths = FlowPaths.of([[0, 1], [0], [1]])
    size = [2000, 1000, 1000]
    ends = {
        rates: simulate_flows([BYTE_PER_NS] * 2, paths, size, rates=rates).end_ps.tolist()
        for rates in ("max-min", "assignment")
    }
    assert ends["max-min"] == [3_000_000, 2_000_000, 2_000_000]
    assert ends["assignment"] == [3_000_000, 3_000_000, 3_000_000]


def ring(n: int, size: int) -> Program:
    """Every rank sends to the next."""
    builder = ProgramBuilder("ring", n)
    label = builder.label(Label("ring", "MPI_Isend"))
    for rank in range(n):
        builder.irecv(rank, (rank - 1) % n, size, 0, label)
        builder.isend(rank, (rank + 1) % n, size, 0, label)
        builder.waitall(rank)
    return builder.build()


def test_rank_program_takes_software_wire_and_path() -> None:
    """16 ranks in a ring on 16 hosts: nobody shares a link, so every time is known."""
    network = network_of(fat_tree(SMALL))
    model = RankModel(paths="least-flows", eager_bytes=1 << 20, quantum_ps=0)
    times = simulate_program(network, ring(16, 8000), np.arange(16), model=model)
    # 1 us software, 8 us wire at a byte a nanosecond, 60 ns a switch: 1, 3 or 5 of them.
    path_ps = 60_000 * times.messages["switches"].astype(np.int64)
    assert (times.messages["arrival_ps"] == 9_000_000 + path_ps).all()
    assert sorted(set(times.messages["switches"].tolist())) == [1, 3, 5]
    assert times.link_bytes.sum() == 8000 * (times.messages["switches"] + 1).sum()
    assert times.elapsed_ps == 9_300_000


def test_ranks_of_one_host_use_memory() -> None:
    """Both ranks on one host: local rate and latency, no links."""
    network = network_of(fat_tree(SMALL))
    model = RankModel(local_gbps=80.0, local_delay_ps=1000)
    times = simulate_program(network, ring(2, 1000), [3, 3], model=model)
    assert times.elapsed_ps == 1_000_000 + 1000 + 100_000
    assert times.link_bytes.sum() == 0


def test_ports_within_a_host_serve_messages_in_turn() -> None:
    """Three ranks of a host send to the fourth at once: its port receives them in turn."""
    builder = ProgramBuilder("gather", 4)
    label = builder.label(Label("gather", "MPI_Isend"))
    for rank in (1, 2, 3):
        builder.irecv(0, rank, 1000, 0, label)
        builder.isend(rank, 0, 1000, 0, label)
        builder.waitall(rank)
    builder.waitall(0)
    network = network_of(fat_tree(SMALL))
    model = RankModel(local_gbps=80.0, local_delay_ps=1000)
    for ports, turns in ((False, 1), (True, 3)):
        shared = replace(model, local_ports=ports)
        times = simulate_program(network, builder.build(), [3] * 4, model=shared)
        assert times.elapsed_ps == 1_000_000 + 1000 + turns * 100_000


def test_a_quantum_delays_starts_by_at_most_itself() -> None:
    """The same program with and without: never sooner, later by at most one quantum a message."""
    network = network_of(fat_tree(SMALL))
    ends = [
        simulate_program(
            network, ring(16, 50_000), np.arange(16)[::-1].copy(), model=RankModel(quantum_ps=q)
        ).elapsed_ps
        for q in (0, 100_000)
    ]
    assert ends[0] <= ends[1] <= ends[0] + 200_000


@pytest.mark.parametrize("choice", ["deterministic", "random", "least-flows", "split", "spread"])
def test_paths_carry_a_flow_end_to_end(choice: str) -> None:
    """At every switch as much enters as leaves."""
    fabric = fat_tree(SMALL)
    src, dst = np.arange(16), np.arange(16)[::-1]
    paths = paths_between(network_of(fabric), src, dst, choice, 3)  # type: ignore[arg-type]
    share = paths.share if len(paths.share) else np.ones(len(paths.link))
    for flow in range(16):
        part = slice(int(paths.start[flow]), int(paths.start[flow + 1]))
        balance = np.zeros(fabric.n_nodes + fabric.n_switches)
        np.add.at(balance, fabric.link_dst[paths.link[part]], share[part])
        np.add.at(balance, fabric.link_src[paths.link[part]], -share[part])
        want = np.zeros_like(balance)
        want[dst[flow]], want[src[flow]] = 1, -1
        assert balance == pytest.approx(want)


def test_mistakes_are_named() -> None:
    """Errors of the core come out as errors a user can act on."""
    flow = FlowPaths.of([[0]])
    with pytest.raises(ScenarioError, match="flow 0 uses link 0, which does not exist"):
        max_min([], flow)
    with pytest.raises(ScenarioError, match=r"capacity of link 0 is -1; valid: above 0"):
        max_min([-1.0], flow)
    with pytest.raises(ScenarioError, match="bytes of flow 0 is 0"):
        simulate_flows([1.0], flow, [0])
    with pytest.raises(ScenarioError, match="unknown rates"):
        simulate_flows([1.0], flow, [1], rates="fair")  # type: ignore[arg-type]
    network = network_of(fat_tree(SMALL))
    with pytest.raises(ScenarioError, match="rank 1 is placed on node 99"):
        simulate_program(network, ring(2, 8), [0, 99])
    builder = ProgramBuilder("half", 2)
    builder.isend(0, 1, 8, 4, builder.label(Label("x", "MPI_Isend")))
    with pytest.raises(TraceError, match="rank 0 sends 1 messages to rank 1 with tag 4"):
        simulate_program(network, builder.build(), [0, 1])


def test_assigned_phases_end_one_by_one() -> None:
    """Two phases of random flows, a barrier between (Birk and Zdornov, 2009): each takes its W."""
    rng = np.random.default_rng(7)
    capacity = np.full(6, 8.0)
    total_ns, begin = 0.0, 0
    paths, sizes, starts = [], [], []
    for _ in range(2):
        mine = [sorted(rng.choice(6, 3, replace=False).tolist()) for _ in range(12)]
        size = rng.integers(1000, 9000, 12)
        rates = assignment(capacity, FlowPaths.of(mine), size)
        paths += mine
        sizes += size.tolist()
        starts += [begin] * 12
        total_ns += rates.completion_ns
        begin += int(np.ceil(rates.completion_ns * 1000)) + 20
    times = simulate_flows(capacity, FlowPaths.of(paths), sizes, starts, rates="assignment")
    assert times.completion_ps == pytest.approx(total_ns * 1000, abs=100)
    assert int(times.end_ps[:12].max()) <= starts[-1]


def test_least_flows_prefers_the_default_port() -> None:
    """On an idle tree every flow takes its D-mod-k path; the next one there goes elsewhere."""
    network = network_of(fat_tree(SMALL))
    for src, dst in ((0, 15), (0, 14), (3, 8), (12, 1)):
        default = paths_between(network, [src], [dst], "deterministic").link
        both = paths_between(network, [src, src], [dst, dst], "least-flows")
        first, second = np.split(both.link, [int(both.start[1])])
        np.testing.assert_array_equal(first, default)
        assert second[1] != first[1]


@pytest.mark.parametrize("choice", ["least-flows", "random"])
def test_a_start_or_end_costs_its_changes(choice: str) -> None:
    """Flows whose rate is set anew, of those under way: a few, however many there are."""
    shape = FatTree(
        hosts_per_leaf=32, leaves=24, aggregation=16, pods=6, cores=48, aggregation_uplinks=24
    )
    fabric = fat_tree(shape, "tapered")
    n, hosts, rng = 10_000, fabric.n_nodes, np.random.default_rng(1)
    src = rng.integers(0, hosts, n).astype(np.uint32)
    dst = ((src + 1 + rng.integers(0, hosts - 1, n)) % hosts).astype(np.uint32)
    size = rng.integers(1, 2**21, n).astype(np.uint64)
    # A load of 0.4 on every host, and of 0.8 on the tapered links: thousands of flows at a time.
    whole_ps = float(size.sum()) * 8 / (100e9 * hosts * 0.4) * 1e12
    start = np.sort(rng.integers(0, int(whole_ps), n)).astype(np.uint64)
    paths = paths_between(network_of(fabric), src, dst, choice)  # type: ignore[arg-type]
    times = simulate_flows(fabric.link_gbps, paths, size, start)
    assert times.settlements > 19_000
    assert times.rates_set < {"least-flows": 5, "random": 12}[choice] * times.settlements
