"""Calls of single accelerators as collectives in a common order."""

from __future__ import annotations

from collections.abc import Hashable

from tailback.traffic.nccl.joining import common_order, join_calls
from tailback.traffic.nccl.rank_calls import RankCall


def _send(src: int, dst: int, begin_us: int, took_us: int = 100) -> RankCall:
    """One side of a message."""
    key: Hashable = (src, dst)
    times = {"start_ns": begin_us * 1000, "end_ns": (begin_us + took_us) * 1000}
    return RankCall(key, "SendRecv", (src, dst), 4096 + src, "pp", root=0, peer=1, **times)


def _ring(n_ranks: int) -> list[list[RankCall]]:
    """Each rank sends to the next and receives from the previous one; clocks are apart."""
    return [
        [
            _send(rank, (rank + 1) % n_ranks, 10_000 * rank),
            _send((rank - 1) % n_ranks, rank, 10_000 * rank + 1),
        ]
        for rank in range(n_ranks)
    ]


def test_concurrent_sends_of_a_ring_are_one_exchange() -> None:
    collectives, timelines = join_calls(_ring(5), [0] * 5, notes := [])
    (exchange,) = collectives
    assert exchange.counts is not None
    assert notes == []
    assert all([number for number, _ in line] == [0, -1] for line in timelines)
    assert {
        (src, dst): int(exchange.counts[src, dst])
        for src in range(5)
        for dst in range(5)
        if exchange.counts[src, dst]
    } == {(rank, (rank + 1) % 5): 4096 + rank for rank in range(5)}


def test_sends_one_after_another_stay_apart() -> None:
    calls = [[_send(0, 1, 0), _send(1, 0, 100)], [_send(0, 1, 0), _send(1, 0, 100)]]
    collectives, _ = join_calls(calls, [0, 0], [])
    assert [each.call for each in collectives] == ["SendRecv", "SendRecv"]


def test_short_send_beside_long_wait_stays_apart() -> None:
    """Rank 1 sends while it waits for rank 0, which is late."""
    calls = [[_send(0, 1, 90, 10)], [_send(0, 1, 0), _send(1, 2, 60, 10)], [_send(1, 2, 60, 10)]]
    collectives, _ = join_calls(calls, [0, 0, 0], [])
    assert [each.call for each in collectives] == ["SendRecv", "SendRecv"]


def test_clocks_do_not_move_calls_before_others() -> None:
    # Ranks 0 and 1 wait for each other. Call 2 ended first by the clock of ranks 2 and 3, which
    # have call 3 before it.
    queues = [[0, 1], [1, 0], [3, 2], [3, 2]]
    order, moved = common_order(queues, [(0, 1), (0, 1), (2, 3), (2, 3)], [50, 40, 10, 30])
    assert moved == 1
    assert order.index(3) < order.index(2)
    assert order.index(1) < order.index(0)


def test_only_calls_in_the_cycle_are_moved() -> None:
    # Call 2 follows both on all ranks, whatever a clock says of its end.
    order, moved = common_order([[0, 1, 2], [1, 0, 2]], [(0, 1)] * 3, [50, 40, 1])
    assert (order, moved) == ([1, 0, 2], 1)
