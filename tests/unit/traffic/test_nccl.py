"""Messages of NCCL's collectives."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.errors import TraceError
from tailback.scenario.model import NcclSection
from tailback.traffic.nccl import CALLS, Choice, Collective, GpuProgram, compile_gpu, messages
from tailback.traffic.nccl.choice import default_choice
from tailback.traffic.nccl.messages import (
    POINT_TO_POINT,
    bus_factor,
    ring_order,
    tree_parents,
)
from tests.factories.blocking import run_blocking

RING, TREE = Choice("ring", "simple", 1), Choice("tree", "simple", 1)
HOSTS = {2: [0, 1], 3: [0, 0, 0], 8: [0, 0, 1, 1, 2, 2, 3, 3], 10: [k // 2 for k in range(10)]}


@pytest.mark.parametrize("n", HOSTS)
@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize(
    ("call", "moved"),
    [("AllReduce", 2), ("AllGather", 1), ("ReduceScatter", 1), ("Broadcast", 1), ("Reduce", 1)],
)
def test_a_ring_moves_the_buffer_around(n: int, channels: int, call: str, moved: int) -> None:
    nbytes = 120 * n * 70_001
    sent = messages(call, HOSTS[n], nbytes, Choice("ring", "simple", channels), root=n - 1)
    assert int(sent.size.sum()) == moved * (n - 1) * nbytes
    assert len(np.unique(sent.src * n + sent.dst)) <= channels * n
    if call not in ("Broadcast", "Reduce"):
        assert (np.diff(np.bincount(sent.src, sent.size)) <= channels).all()


@pytest.mark.parametrize("n", HOSTS)
def test_a_tree_moves_the_buffer_both_ways(n: int) -> None:
    sent = messages("AllReduce", HOSTS[n], 3_000_000, Choice("tree", "simple", 2))
    assert int(sent.size.sum()) == 2 * (n - 1) * 3_000_000


def test_sums_come_down_overlapping_or_in_turn() -> None:
    """On 8 hosts in chunks of 128 KiB: when the last chunk goes up and the first comes down."""
    for in_turn in (False, True):
        choice = Choice("tree", "simple", 1, in_turn=in_turn)
        parent = tree_parents(range(8), 0, 1)
        sent = messages("AllReduce", range(8), 2 << 20, choice)
        up = parent[sent.src] == sent.dst
        assert (sent.step[up].max() < sent.step[~up].min()) == in_turn


def test_the_trees_are_those_of_nccl() -> None:
    """The drawings in NCCL's trees.cc: parents in trees of 14 and 13 hosts."""
    first = [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12]
    assert tree_parents(range(14), 0, 2).tolist() == first
    assert tree_parents(range(14), 1, 2).tolist() == [
        13 - up if up >= 0 else -1 for up in first[::-1]
    ]
    shifted = tree_parents(range(13), 1, 2)
    assert shifted[1] == -1 and shifted[9] == 1 and shifted[0] == 9
    for hosts in (range(12), range(13)):
        inner = [set(tree_parents(hosts, channel, 2).tolist()) - {-1, 0} for channel in (0, 1)]
        # Whoever passes data on in one tree is a leaf of the other (but the roots).
        assert len(inner[0] & inner[1]) <= 1


def test_rings_stay_on_one_rail_between_hosts() -> None:
    hosts = [k // 4 for k in range(16)]
    for channel in range(4):
        order = ring_order(hosts, channel)
        hops = [(a, b) for a, b in zip(order, np.roll(order, -1), strict=True) if a // 4 != b // 4]
        assert len(hops) == 4
        assert all(a % 4 == b % 4 for a, b in hops)
    assert len({tuple(ring_order(hosts, channel)) for channel in range(4)}) == 4


@pytest.mark.parametrize(("protocol", "bytes_"), [("simple", 30), ("ll", 60), ("ll128", 32)])
def test_protocols_add_their_flags(protocol: str, bytes_: int) -> None:
    sent = messages("AllGather", [0, 1], 60, Choice("ring", protocol, 1))  # type: ignore[arg-type]
    assert sent.size.tolist() == [bytes_, bytes_]


def test_chunks_follow_one_another_down_a_chain() -> None:
    """1 MiB in chunks of 512 KiB over three ranks: the second leaves while the first goes on."""
    sent = messages("Broadcast", [0, 1, 2], 1 << 20, RING, root=1)
    rows = sorted(zip(sent.step.tolist(), sent.src.tolist(), sent.dst.tolist(), strict=True))
    assert rows == [(0, 1, 2), (1, 1, 2), (1, 2, 0), (2, 2, 0)]


def test_exchanges_follow_their_counts() -> None:
    counts = np.array([[0, 5, 0], [1, 9, 2], [3, 0, 0]])
    sent = messages("AllToAll", [0, 1, 2], 99, RING, counts=counts)
    bytes_of_pairs = {(int(s), int(d)): int(b) for _, s, d, b in zip(*sent, strict=True)}
    assert bytes_of_pairs == {(0, 1): 5, (1, 0): 1, (1, 2): 2, (2, 0): 3}


def _program(call: str, n: int, choice: Choice | None, beside: int = 0) -> GpuProgram:
    collective = Collective(call, tuple(range(n)), 1_000_000, "p", "c", choice, peer=1)
    timeline = [
        [(0, beside)] if call not in ("SendRecv", "Exchange") or rank < 2 else []
        for rank in range(n)
    ]
    if call in ("SendRecv", "Exchange"):
        collective = Collective(call, (0, 1), 1_000_000, "p", "c", choice, peer=1)
    return GpuProgram("t", [rank // 3 for rank in range(n)], [collective], timeline)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("n", [2, 7, 12])
@pytest.mark.parametrize("choice", [RING, Choice("tree", "ll", 3)])
def test_no_rank_blocks_and_computation_beside_stays(call: str, n: int, choice: Choice) -> None:
    program = compile_gpu(_program(call, n, choice, beside=1_000_003))
    assert run_blocking(program)
    taking_part = 2 if call in ("SendRecv", "Exchange") else n
    assert int(program.amount[program.kind == 0].sum()) == taking_part * 1_000_003


def test_a_program_is_made_again_with_another_algorithm() -> None:
    program = compile_gpu(_program("AllReduce", 12, RING))
    assert program.recompile is not None
    tree = program.recompile(NcclSection(algorithm="tree"))
    again = tree.recompile(NcclSection(algorithm="ring"))  # type: ignore[misc]
    # What was stated before stays where nothing else is.
    assert np.array_equal(tree.recompile(NcclSection()).peer, tree.peer)  # type: ignore[misc]
    assert not np.array_equal(tree.peer, program.peer)
    assert np.array_equal(again.peer, program.peer)
    assert "1 ncclAllReduce: tree, simple, 1 channel" in " ".join(tree.notes)


def test_small_sums_on_many_hosts_prefer_trees() -> None:
    hosts = [k // 8 for k in range(512)]
    assert default_choice("AllReduce", 64 << 10, hosts).algorithm == "tree"
    assert default_choice("AllReduce", 4 << 30, hosts).algorithm == "ring"
    assert default_choice("AllReduce", 4 << 30, hosts).protocol == "simple"
    assert default_choice("AllReduce", 1024, [0, 0]).protocol == "ll"
    assert default_choice("AllReduce", 1024, [0, 0]).channels == 1


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TraceError, match="unknown collective ncclAllReduse"):
        messages("AllReduse", [0, 1], 8, RING)
    with pytest.raises(TraceError, match="root 2 among 2 ranks"):
        messages("Broadcast", [0, 1], 8, RING, root=2)
    with pytest.raises(TraceError, match="a ring of other members"):
        messages("AllReduce", [0, 1], 8, RING, rings=[[0, 2]])
    assert not len(messages("AllReduce", [0], 8, RING).step)
    assert set(POINT_TO_POINT) <= set(CALLS)


@pytest.mark.parametrize(("algorithm", "noted"), [("ring", True), ("tree", False)])
def test_algorithm_against_cost_model_is_noted(algorithm: str, noted: bool) -> None:
    """Small sums on many hosts: a ring of 64 hosts takes 126 steps, a tree 12."""
    choice = Choice(algorithm, "ll", 2)  # type: ignore[arg-type]
    collective = Collective("AllReduce", tuple(range(64)), 8192, "sum", "world", choice, 2)
    program = compile_gpu(GpuProgram("x", list(range(64)), [collective], [[(0, 0)]] * 64))
    text = " ".join(program.notes)
    assert ("cost model expects" in text) == noted
    assert not noted or "with tree, ll than with ring, ll" in text


@pytest.mark.parametrize(
    ("call", "factor"),
    [
        ("AllReduce", 1.5),
        ("AllGather", 0.75),
        ("ReduceScatter", 0.75),
        ("AllToAll", 0.75),
        ("Broadcast", 1.0),
        ("Reduce", 1.0),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(call: str, factor: float) -> None:
    assert bus_factor(call, 4) == factor
