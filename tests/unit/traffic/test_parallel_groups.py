"""Dimensions of parallelism recognised from the ranks and calls of communicators."""

from __future__ import annotations

import pytest

from tailback.traffic.nccl.groups import describe, with_dimensions
from tailback.traffic.nccl.rank_calls import RankCall

TP, DP, PP = 4, 2, 2
N = TP * DP * PP


def groups_of(size: int, stride: int) -> list[tuple[int, ...]]:
    """Groups of ranks that are ``stride`` apart, of all ranks."""
    firsts = [r for r in range(N) if r // stride % size == 0]
    return [tuple(first + stride * k for k in range(size)) for first in firsts]


def run(*families: tuple[str, str, int, int, int]) -> list[list[RankCall]]:
    """Calls of each rank: name of the communicators, call, size, stride, and how often."""
    calls: list[list[RankCall]] = [[] for _ in range(N)]
    for name, call, size, stride, times in families:
        for members in groups_of(size, stride):
            ends = members if call != "SendRecv" else members[:2]
            for k in range(times):
                for rank in ends:
                    key = (f"{name}{members}", k)
                    calls[rank].append(RankCall(key, call, ends, 1 << 20, name))
    return calls


MEGATRON = (("a", "AllReduce", TP, 1, 9), ("b", "AllReduce", DP, TP, 2))
PIPELINE = ("c", "SendRecv", PP, TP * DP, 4)


def test_megatron_order_names_dimensions() -> None:
    calls, dimensions = with_dimensions(run(*MEGATRON, PIPELINE), ["h"] * N)
    assert describe(dimensions) == "tensor parallel 4, data parallel 2, pipeline parallel 2"
    assert {c.communicator for c in calls[0]} == {
        "tensor-parallel groups",
        "data-parallel groups",
        "pipeline-parallel groups",
    }
    assert [each.groups for each in dimensions] == [4, 8, 8]


def test_exchange_with_all_is_of_experts() -> None:
    dimensions = with_dimensions(
        run(("a", "AllToAll", 8, 1, 4), ("b", "AllReduce", 2, 8, 2)), [""] * N
    )
    assert describe(dimensions[1]) == "expert parallel 8, data parallel 2"


def test_sum_between_tensor_and_data_is_of_contexts() -> None:
    families = (
        ("a", "AllReduce", 2, 1, 9),
        ("b", "AllGather", 2, 2, 3),
        ("c", "ReduceScatter", 4, 4, 2),
    )
    dimensions = with_dimensions(run(*families), ["h"] * N)[1]
    assert describe(dimensions) == "tensor parallel 2, context parallel 2, data parallel 4"


@pytest.mark.parametrize("name", ["TENSOR_MODEL_PARALLEL_GROUP", "tp"])
def test_names_of_groups_come_first(name: str) -> None:
    families = ((name, "AllReduce", 2, 8, 1), ("mesh_dp", "AllReduce", 8, 1, 9))
    dimensions = with_dimensions(run(*families), [""] * N)[1]
    assert {each.dimension: each.size for each in dimensions} == {"tensor": 2, "data": 8}


def test_one_communicator_keeps_its_name() -> None:
    calls, dimensions = with_dimensions(run(("world", "AllReduce", N, 1, 3)), ["h"] * N)
    assert not dimensions
    assert calls[0][0].communicator == "world"
