"""The algorithm each size picks, message by message, and what is refused."""

from __future__ import annotations

import pytest

from tailback.errors import TraceError
from tailback.traffic.collectives import CollectiveStep, call_bytes, schedule


def peers(call: str, size: int, me: int, nbytes: int, root: int = 0) -> list[tuple[int, ...]]:
    """Destinations of each step that sends."""
    steps = schedule(call, size, me, root, nbytes, nbytes)
    return [tuple(peer for peer, _ in step.sends) for step in steps if step.sends]


def test_barrier_doubles_at_powers_of_two_only() -> None:
    assert peers("MPI_Barrier", 8, 3, 0) == [(2,), (1,), (7,)]
    assert peers("MPI_Barrier", 6, 3, 0) == [(4,), (5,), (1,)]


def test_small_broadcast_is_the_binomial_tree() -> None:
    assert peers("MPI_Bcast", 6, 0, 100) == [(4, 2, 1)]
    assert peers("MPI_Bcast", 6, 4, 100) == [(5,)]
    assert peers("MPI_Bcast", 6, 3, 100) == []
    assert peers("MPI_Bcast", 6, 1, 100, root=1) == [(5, 3, 2)]


def test_large_broadcast_scatters_then_collects() -> None:
    steps = schedule("MPI_Bcast", 8, 0, 0, 16_000, 16_000)
    assert steps[0] == CollectiveStep(((4, 8000), (2, 4000), (1, 2000)), ())
    assert steps[1:] == [
        CollectiveStep(((peer, size),), ((peer, size),))
        for peer, size in ((1, 2000), (2, 4000), (4, 8000))
    ]
    assert len(schedule("MPI_Bcast", 8, 0, 0, 2**20, 2**20)) == 1 + 7


def test_reduce_receives_children_nearest_first() -> None:
    assert schedule("MPI_Reduce", 8, 0, 0, 40, 40) == [
        CollectiveStep((), ((child, 40),)) for child in (1, 2, 4)
    ]
    assert schedule("MPI_Reduce", 8, 6, 0, 40, 40) == [
        CollectiveStep((), ((7, 40),)),
        CollectiveStep(((4, 40),), ()),
    ]


def test_allreduce_folds_ranks_beyond_a_power() -> None:
    assert schedule("MPI_Allreduce", 6, 0, 0, 80, 80) == [
        CollectiveStep(((1, 80),), ()),
        CollectiveStep((), ((1, 80),)),
    ]
    assert peers("MPI_Allreduce", 6, 1, 80) == [(3,), (4,), (0,)]
    assert peers("MPI_Allreduce", 8, 5, 80) == [(4,), (7,), (1,)]


def test_allreduce_by_size() -> None:
    assert len(schedule("MPI_Allreduce", 16, 3, 0, 9_999, 9_999)) == 4
    ring = schedule("MPI_Allreduce", 16, 3, 0, 10_000, 10_000)
    assert len(ring) == 30 and all(step.sends[0] == (4, 625) for step in ring)
    # Fewer elements than ranks: reduce to rank 0, then broadcast.
    assert len(schedule("MPI_Allreduce", 4096, 1, 0, 10_000, 10_000)) == 2


def test_alltoall_by_block() -> None:
    bruck = schedule("MPI_Alltoall", 16, 0, 0, 100, 100)
    assert [step.sends for step in bruck] == [((1 << k, 800),) for k in range(4)]
    assert len(schedule("MPI_Alltoall", 16, 0, 0, 200, 200)) == 1
    pairwise = schedule("MPI_Alltoall", 16, 5, 0, 3000, 3000)
    assert [step.sends[0][0] for step in pairwise] == [(5 + k) % 16 for k in range(1, 16)]
    assert [step.receives[0][0] for step in pairwise] == [(5 - k) % 16 for k in range(1, 16)]


def test_allgather_by_size_and_parity() -> None:
    assert [s.sends[0] for s in schedule("MPI_Allgather", 8, 1, 0, 10, 10)] == [
        (0, 10),
        (3, 20),
        (5, 40),
    ]
    assert [s.sends[0] for s in schedule("MPI_Allgather", 6, 1, 0, 10, 10)] == [
        (0, 10),
        (5, 20),
        (3, 20),
    ]
    assert peers("MPI_Allgather", 6, 1, 10_000) == [(0,), (2,), (0,)]
    assert peers("MPI_Allgather", 5, 1, 10_000) == [(2,)] * 4


def test_gather_by_block_and_ranks() -> None:
    assert schedule("MPI_Gather", 8, 0, 0, 500, 500) == [
        CollectiveStep((), tuple((peer, 500) for peer in range(1, 8)))
    ]
    assert [s.receives[0] for s in schedule("MPI_Gather", 16, 0, 0, 500, 500)] == [
        (1, 500),
        (2, 1000),
        (4, 2000),
        (8, 4000),
    ]
    assert schedule("MPI_Gather", 4, 2, 0, 7000, 0) == [
        CollectiveStep((), ((0, 0),)),
        CollectiveStep(((0, 1024), (0, 5976)), ()),
    ]


def test_reduce_scatter_halves_then_rings() -> None:
    assert [s.sends[0] for s in schedule("MPI_Reduce_scatter", 8, 0, 0, 800, 800)] == [
        (4, 400),
        (2, 200),
        (1, 100),
    ]
    assert peers("MPI_Reduce_scatter", 8, 0, 2**20) == [(1,)] * 7
    block = schedule("MPI_Reduce_scatter_block", 8, 0, 0, 0, 100)
    assert block == schedule("MPI_Reduce_scatter", 8, 0, 0, 800, 0)


def test_nonblocking_names_are_the_blocking_ones() -> None:
    assert schedule("MPI_Iallreduce", 8, 0, 0, 8, 8) == schedule("MPI_Allreduce", 8, 0, 0, 8, 8)
    assert schedule("MPI_Ireduce_scatter_block", 8, 0, 0, 8, 8)


def test_one_rank_sends_nothing() -> None:
    assert schedule("MPI_Alltoall", 1, 0, 0, 8, 8) == []
    schedule("MPI_Barrier", 4, 0, 0, 0, 0).clear()
    assert len(schedule("MPI_Barrier", 4, 0, 0, 0, 0)) == 2


def test_summed_tracer_totals_become_call_bytes() -> None:
    # Rank 0 is the root; 10 ranks, blocks of 100 bytes.
    assert call_bytes("MPI_Bcast", 10, 1000, 100) == call_bytes("MPI_Bcast", 10, 0, 100)
    assert call_bytes("MPI_Gather", 10, 100, 1000) == call_bytes("MPI_Gather", 10, 100, 0)
    assert call_bytes("MPI_Alltoall", 10, 1000, 1000) == (0, 100)
    assert call_bytes("MPI_Alltoallv", 10, 950, 1050) == (950, 1050)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("MPI_Alreduce", 4, 0, 0, 8, 8), "MPI_Allreduce"),
        (("MPI_Bcast", 4, 4, 0, 8, 8), "rank 4"),
        (("MPI_Bcast", 4, 0, -1, 8, 8), "root -1"),
        (("MPI_Bcast", 4, 0, 0, -8, 8), "-8"),
    ],
)
def test_mistakes_are_named(args: tuple[str, int, int, int, int, int], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        schedule(*args)


def test_steps_grow_with_the_logarithm_of_ranks() -> None:
    for me in range(256):
        for call in ("MPI_Allreduce", "MPI_Bcast", "MPI_Reduce", "MPI_Barrier"):
            assert len(schedule(call, 4608, me, 0, 8, 8)) <= 2 * 13, "13: log2 of 4608, rounded up"
    assert len(schedule("MPI_Alltoall", 4608, 9, 0, 8192, 8192)) == 4607


@pytest.mark.parametrize("size", [2, 3, 5, 8, 64])
def test_sums_of_a_reduction_become_its_vector(size: int) -> None:
    # What Score-P writes of 5 doubles.
    vector = 40
    everyone, others = size * vector, (size - 1) * vector

    def decoded(call: str, sent: int, received: int) -> list[CollectiveStep]:
        # Of rank 0, which sends in all but rooted reductions.
        return schedule(call, size, 0, 0, *call_bytes(call, size, sent, received))

    allreduce = schedule("MPI_Allreduce", size, 0, 0, vector, vector)
    assert decoded("MPI_Allreduce", everyone, everyone) == allreduce
    steps = schedule("MPI_Reduce_scatter_block", size, 0, 0, 0, vector)
    assert decoded("MPI_Reduce_scatter_block", everyone, everyone) == steps
    for me in range(size):
        scan = schedule("MPI_Scan", size, me, 0, vector, vector)
        for call, kept in (("MPI_Scan", 1), ("MPI_Exscan", 0)):
            sums = (size - me - 1 + kept) * vector, (me + kept) * vector
            assert schedule(call, size, me, 0, *call_bytes(call, size, *sums)) == scan
    # A root in place counts the others only.
    for call in ("MPI_Gather", "MPI_Reduce"):
        assert call_bytes(call, size, 0, others) == call_bytes(call, size, vector, 0)
    assert call_bytes("MPI_Scatter", size, others, 0) == call_bytes("MPI_Scatter", size, 0, vector)


def test_a_sum_of_others_tells_its_elements() -> None:
    for call in ("MPI_Allreduce", "MPI_Allgather", "MPI_Alltoall"):
        for size in (3, 4, 64):
            sums = (size - 1) * 8, (size - 1) * 8
            assert call_bytes(call, size, *sums) == call_bytes(call, size, size * 8, size * 8)
