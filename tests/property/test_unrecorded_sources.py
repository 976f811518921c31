"""Receives without a recorded source: whatever the program, the ranks reach their end."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from tailback.traffic.readers.posts import UNKNOWN, Posts, guess_sources

Group = list[tuple[int, int]]
"""What a rank posts before a wait: 1 for a send, 0 for a receive, and the peer."""


@st.composite
def programs(draw: st.DrawFn) -> list[list[Group]]:
    """Groups of each rank, of rounds in which some ranks send to others; waits may come later."""
    n_ranks = draw(st.integers(2, 6))
    groups: list[list[Group]] = [[[]] for _ in range(n_ranks)]
    for _ in range(draw(st.integers(1, 8))):
        shift = draw(st.integers(1, n_ranks - 1))
        senders = draw(st.lists(st.booleans(), min_size=n_ranks, max_size=n_ranks))
        for rank in range(n_ranks):
            if senders[rank - shift]:
                groups[rank][-1].append((0, (rank - shift) % n_ranks))
            if senders[rank]:
                groups[rank][-1].append((1, (rank + shift) % n_ranks))
            if draw(st.booleans()):
                groups[rank].append([])
    return groups


def posts_of(groups: list[list[Group]]) -> tuple[Posts, np.ndarray]:
    """Posts with the true peers, and the position of the wait for each."""
    rows, ends = [], []
    for rank, groups_of_rank in enumerate(groups):
        position = 0
        for group in groups_of_rank:
            ends += [position + len(group)] * len(group)
            for is_send, peer in group:
                rows.append((rank, position, is_send, peer))
                position += 1
            position += 1
    columns = np.array(rows, np.int64).reshape(len(rows), 4).T.copy()
    zero = np.zeros(len(rows), np.int64)
    posts = Posts(
        rank=columns[0],
        thread=columns[0].copy(),
        position=columns[1],
        step=zero,
        is_send=columns[2] == 1,
        peer=columns[3],
        channel=zero.copy(),
        size=np.arange(len(rows), dtype=np.uint64),
        label=zero,
        wait_position=np.full(len(rows), UNKNOWN, np.int64),
        wait_step=zero,
        collective=zero == 1,
        peer_known=zero == 0,
    )
    return posts, np.array(ends, np.int64)


def blocked(posts: Posts, ends: np.ndarray) -> list[int]:
    """Ranks that never end: each goes on when the messages of its wait have been sent."""
    sent: dict[tuple[int, int], int] = {}
    turn: dict[tuple[int, int, bool], int] = {}
    number = []
    for rank, is_send, peer in zip(posts.rank, posts.is_send, posts.peer, strict=True):
        key = (int(rank), int(peer), bool(is_send))
        number.append(turn.get(key, 0))
        turn[key] = number[-1] + 1
    ranks = np.unique(posts.rank)
    rows = {rank: np.flatnonzero(posts.rank == rank).tolist() for rank in ranks.tolist()}
    waits = {rank: sorted({int(ends[row]) for row in rows[rank]}) for rank in rows}
    progress = True
    while progress:
        progress = False
        for rank, posted in rows.items():
            while waits[rank]:
                until = waits[rank][0]
                for row in [row for row in posted if posts.is_send[row]]:
                    if posts.position[row] <= until:
                        pair = (rank, int(posts.peer[row]))
                        sent[pair] = max(sent.get(pair, 0), number[row] + 1)
                received = [r for r in posted if not posts.is_send[r] and ends[r] == until]
                if any(sent.get((int(posts.peer[r]), rank), 0) <= number[r] for r in received):
                    break
                waits[rank].pop(0)
                progress = True
    return [rank for rank, left in waits.items() if left]


@given(programs())
def test_ranks_end_with_guessed_sources(groups: list[list[Group]]) -> None:
    posts, ends = posts_of(groups)
    assume(not blocked(posts, ends))
    receives = ~posts.is_send
    true = posts.peer[receives]
    posts.peer[receives] = UNKNOWN
    guessed, _ = guess_sources(posts, len(groups), ends)
    assert guessed == len(true)
    assert blocked(posts, ends) == []
    for rank in range(len(groups)):
        mine = posts.rank[receives] == rank
        assert sorted(posts.peer[receives][mine]) == sorted(true[mine])
