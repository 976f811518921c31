"""Collective schedules of all ranks together: no deadlock, right bytes, data reaches everyone."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailback.traffic.collectives import CALLS, ROOTED, CollectiveStep, schedule

VECTOR = {"MPI_Gatherv", "MPI_Scatterv", "MPI_Allgatherv", "MPI_Alltoallv", "MPI_Alltoallw"}
BYTES = st.one_of(
    st.integers(0, 3000),
    st.sampled_from([199, 200, 2999, 3000, 6001, 9999, 10_000, 12_288, 92_161, 300_000, 600_000]),
)


class Outcome:
    """What every rank knows and moved after all steps ran with synchronous sends."""

    def __init__(self, schedules: list[list[CollectiveStep]]) -> None:
        self.schedules = schedules
        size = len(schedules)
        self.knows = [{rank} for rank in range(size)]
        self.received = [0] * size
        self.sent = [0] * size
        self.mismatched = 0
        self._at = [-1] * size
        self._open = [0] * size
        self._sends: dict[tuple[int, int], deque[tuple[int, frozenset[int]]]] = defaultdict(deque)
        self._receives: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        self._gained: list[set[int]] = [set() for _ in range(size)]
        self.run()

    def run(self) -> None:
        ready = deque(range(len(self.schedules)))
        while ready:
            rank = ready.popleft()
            while self._open[rank] == 0 and self._at[rank] < len(self.schedules[rank]):
                self.knows[rank] |= self._gained[rank]
                self._gained[rank] = set()
                self._at[rank] += 1
                if self._at[rank] == len(self.schedules[rank]):
                    break
                ready.extend(self._post(rank, self.schedules[rank][self._at[rank]]))

    def _post(self, rank: int, step: CollectiveStep) -> list[int]:
        """Post one step, match what can be matched; returns ranks that may go on."""
        self._open[rank] = len(step.sends) + len(step.receives)
        woken = []
        for peer, size in step.receives:
            self._receives[peer, rank].append(size)
            woken += self._match(peer, rank)
        for peer, size in step.sends:
            self._sends[rank, peer].append((size, frozenset(self.knows[rank])))
            woken += self._match(rank, peer)
        return woken

    def _match(self, src: int, dst: int) -> list[int]:
        sends, receives = self._sends[src, dst], self._receives[src, dst]
        if not (sends and receives):
            return []
        size, data = sends.popleft()
        self.mismatched += size != receives.popleft()
        self.sent[src] += size
        self.received[dst] += size
        self._gained[dst] |= data
        self._open[src] -= 1
        self._open[dst] -= 1
        return [rank for rank in (src, dst) if self._open[rank] == 0]

    @property
    def finished(self) -> bool:
        left = any(self._sends.values()) or any(self._receives.values())
        done = all(at == len(s) for at, s in zip(self._at, self.schedules, strict=True))
        return done and not left


def play(call: str, size: int, root: int, nbytes: int) -> Outcome:
    outcome = Outcome([schedule(call, size, me, root, nbytes, nbytes) for me in range(size)])
    assert outcome.finished, "a rank is blocked for ever or a message has no receive"
    assert call in VECTOR or outcome.mismatched == 0
    return outcome


cases = given(size=st.integers(1, 70), pick=st.integers(0, 10**6), nbytes=BYTES)


@pytest.mark.parametrize("call", sorted(CALLS))
@cases
def test_a_collective_ends_and_informs_its_ranks(
    call: str, size: int, pick: int, nbytes: int
) -> None:
    root = pick % size
    outcome = play(call, size, root, nbytes)
    everyone = set(range(size))
    for rank in range(size):
        if call in ("MPI_Bcast", "MPI_Scatter", "MPI_Scatterv"):
            assert root in outcome.knows[rank]
        elif call in ROOTED:
            assert rank != root or outcome.knows[rank] == everyone
        elif call in ("MPI_Scan", "MPI_Exscan"):
            assert outcome.knows[rank] >= set(range(rank + 1))
        else:
            assert outcome.knows[rank] == everyone


@cases
def test_every_rank_gets_the_bytes_of_its_call(size: int, pick: int, nbytes: int) -> None:
    root = pick % size
    others = size - 1
    for call in ("MPI_Allgather", "MPI_Bcast", "MPI_Reduce"):
        received = play(call, size, root, nbytes).received
        for rank in range(size):
            if call == "MPI_Allgather":
                assert received[rank] == others * nbytes
            elif call == "MPI_Bcast":
                assert received[rank] >= (nbytes if rank != root else 0)
            elif rank == root:
                assert received[rank] >= (nbytes if size > 1 else 0)
    gathered = play("MPI_Gather", size, root, nbytes)
    assert gathered.received[root] == others * nbytes
    scattered = play("MPI_Scatter", size, root, nbytes)
    assert scattered.sent[root] == others * nbytes
    assert sum(play("MPI_Reduce", size, root, nbytes).sent) == others * nbytes


@given(size=st.integers(3, 60), nbytes=st.integers(3000, 10**5))
def test_large_algorithms_move_the_least_possible(size: int, nbytes: int) -> None:
    others = size - 1
    assert set(play("MPI_Alltoall", size, 0, nbytes).sent) == {others * nbytes}
    ring = play("MPI_Allreduce", size, 0, max(nbytes, 10_000))
    assert sum(ring.sent) == 2 * others * max(nbytes, 10_000)
    big = 512 * 1024
    assert sum(play("MPI_Reduce_scatter", size, 0, big).sent) == others * big


@given(size=st.integers(2, 40), data=st.data())
def test_vector_calls_fit_together_whatever_each_rank_brings(
    size: int, data: st.DataObject
) -> None:
    own_bytes = data.draw(st.lists(st.integers(0, 10**5), min_size=size, max_size=size))
    for call in sorted(VECTOR):
        total = sum(own_bytes)
        pairs = {
            "MPI_Gatherv": lambda me, total=total: (own_bytes[me], total if me == 0 else 0),
            "MPI_Scatterv": lambda me, total=total: (total if me == 0 else 0, own_bytes[me]),
            "MPI_Allgatherv": lambda me, total=total: (own_bytes[me], total),
        }
        give = pairs.get(call, lambda me: (own_bytes[me], own_bytes[-me]))
        outcome = Outcome([schedule(call, size, me, 0, *give(me)) for me in range(size)])
        assert outcome.finished
    spread = Outcome([schedule("MPI_Alltoallv", size, me, 0, 997, 997) for me in range(size)])
    assert spread.mismatched == 0


def test_this_check_notices_deadlocks_and_lost_messages() -> None:
    crossed = CollectiveStep((), ((1, 8),)), CollectiveStep(((1, 8),), ())
    mirror = CollectiveStep((), ((0, 8),)), CollectiveStep(((0, 8),), ())
    assert not Outcome([list(crossed), list(mirror)]).finished
    assert not Outcome([[CollectiveStep(((1, 8),), ())], []]).finished
