"""Recorded computation without imbalance, and without noise: each takes only its own away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tailback.traffic.computation import balanced, with_equal_totals, without_noise
from tailback.traffic.patterns.columns import Operations, assemble
from tailback.traffic.program import POSTS, Label, Op, Program, RecordedTimes

RANKS, ROUNDS = 4, 9
USUAL = np.array([900, 1000, 1100, 1400], np.int64)
"""What each rank computes a round."""


def program(amount: np.ndarray, extra: dict[int, int] | None = None) -> Program:
    """Ranks of a ring that compute ``amount[rank, round]`` before they exchange.

    Ranks in ``extra`` compute once more at the end, before a message that only they send.
    """
    rows: list[tuple[int, int, int, int, int, int]] = []
    for rank in range(RANKS):
        right, left = (rank + 1) % RANKS, (rank - 1) % RANKS
        for turn in range(amount.shape[1]):
            rows += [
                (rank, Op.COMPUTE, -1, int(amount[rank, turn]), 0, 0),
                (rank, Op.IRECV, left, 64, 1, 0),
                (rank, Op.ISEND, right, 64, 1, 0),
                (rank, Op.WAITALL, -1, 0, 0, 0),
            ]
        for other in extra or {}:
            peer = (other + 1) % RANKS
            if rank == other:
                rows += [
                    (rank, Op.COMPUTE, -1, (extra or {})[rank], 0, 1),
                    (rank, Op.ISEND, peer, 8, 2, 1),
                    (rank, Op.WAITALL, -1, 0, 0, 1),
                ]
            elif rank == peer:
                rows += [(rank, Op.IRECV, other, 8, 2, 1), (rank, Op.WAITALL, -1, 0, 0, 1)]
    rank, kind, peer, size, tag, label = (np.array(column) for column in zip(*rows, strict=True))
    operations = Operations(
        rank=rank,
        kind=kind.astype(np.uint8),
        peer=peer.astype(np.int32),
        amount=size.astype(np.uint64),
        tag=tag,
        label=label.astype(np.uint32),
    )
    labels = [Label("halo", "MPI_Isend", 1), Label("border", "MPI_Isend", 2)]
    return assemble("made", RANKS, operations, labels)


def computed(made: Program, label: int = 0) -> np.ndarray:
    """Computation of each rank, shape (R, times)."""
    at = (made.kind == Op.COMPUTE) & (made.label == label)
    return np.array([made.amount[at & (made.op_rank == rank)] for rank in range(RANKS)], np.int64)


def noisy() -> np.ndarray:
    """Even rounds are usual; of the odd ones rank 1 is late in the fifth and rank 3 in the 7th."""
    amount = np.repeat(USUAL[:, None], ROUNDS, axis=1)
    amount[1, 5] += 5000
    amount[3, 7] += 3000
    return amount


def test_tags_that_number_messages_hide_no_repetitions() -> None:
    plain = program(np.hstack([noisy(), noisy()]))
    label = plain.label.copy()
    for rank in range(RANKS):
        of_rank = plain.op_rank == rank
        turn = np.cumsum(plain.kind[of_rank] == Op.COMPUTE) - 1
        label[of_rank] = np.where(np.isin(plain.kind[of_rank], POSTS), turn, 0)
    tags = [Label(f"tag {tag}", "MPI_Isend", tag) for tag in range(2 * ROUNDS)]
    numbered = replace(plain, label=label, labels=tags)
    for changed in (balanced, without_noise):
        assert changed(numbered).amount.tolist() == changed(plain).amount.tolist()


def test_balance_takes_imbalance_and_leaves_noise() -> None:
    even = computed(balanced(program(noisy())))
    usual = np.median(even, axis=1)
    # The median of 900, 1000, 1100 and 1400.
    assert usual == pytest.approx(np.full(RANKS, 1050.0), abs=1)
    assert even[1, 5] - usual[1] == pytest.approx(5000 * 1050 / 1000, rel=0.01)
    assert even[3, 7] - usual[3] == pytest.approx(3000 * 1050 / 1400, rel=0.01)


@pytest.mark.parametrize(
    ("ranks", "level"), [((1000, 1000, 1000, 3000), 1000), ((1000, 3000, 3000, 3000), 2500)]
)
def test_a_slow_rank_shares_its_work(ranks: tuple[int, ...], level: int) -> None:
    amount = np.repeat(np.array(ranks, np.int64)[:, None], ROUNDS, axis=1)
    assert computed(balanced(program(amount))) == pytest.approx(level, abs=1)


def test_quiet_takes_noise_and_leaves_imbalance() -> None:
    quiet = computed(without_noise(program(noisy())))
    # First and last computation of a rank have other neighbours: too few to tell what is usual.
    np.testing.assert_array_equal(quiet, np.repeat(USUAL[:, None], ROUNDS, axis=1))


def test_work_slow_on_all_ranks_stays() -> None:
    amount = np.repeat(USUAL[:, None], ROUNDS, axis=1)
    amount[:, 4] *= 3
    amount[2, 6] *= 3
    quiet = computed(without_noise(program(amount)))
    assert (quiet[:, 4] == 3 * USUAL).all()
    assert quiet[2, 6] == USUAL[2]


def test_noise_that_nearly_every_repetition_has_is_noise() -> None:
    """Detours so frequent that the median repetition has some."""
    draw = np.random.default_rng(5)
    rounds = 60
    detours = draw.poisson(1.5, (RANKS, rounds))
    amount = USUAL[:, None] + 100 * detours
    quiet = computed(without_noise(program(amount)))
    taken = (amount - quiet).sum() / (100 * detours.sum())
    # Ranks 0 to 3 share some of it in nearly every round: that much passes for work.
    assert 0.6 < taken <= 1.0 and (quiet >= USUAL[:, None]).all()


def test_short_repetitions_are_never_made_longer() -> None:
    amount = noisy()
    amount[2, 3] = 100
    assert computed(without_noise(program(amount)))[2, 3] == 100


def test_steps_that_compute_once_have_no_noise() -> None:
    """One exchange in six follows the work of a step, which is threefold on one rank."""
    amount = np.full((RANKS, 36), 2, np.int64) + np.arange(RANKS)[:, None]
    amount[:, ::6] = 9000
    amount[2, ::6] *= 3
    made = program(amount)
    assert np.array_equal(computed(without_noise(made)), amount)
    even = computed(balanced(made))
    assert even[2, ::6].max() <= 1.1 * even[0, ::6].min()
    amount[1, 12] += 20_000
    assert computed(without_noise(program(amount)))[1, 12] == 9000


def test_two_repetitions_do_not_tell_what_is_usual() -> None:
    amount = np.repeat(USUAL[:, None], 2, axis=1)
    amount[0, 1] = 9000
    np.testing.assert_array_equal(computed(without_noise(program(amount))), amount)


def test_work_that_varies_evenly_takes_its_mean() -> None:
    """Tasks of a master–worker program: no interruption makes some shorter than usual."""
    draw = np.random.default_rng(3)
    amount = (USUAL[:, None] * draw.uniform(0.7, 1.3, (RANKS, 200))).astype(np.int64)
    steady = computed(without_noise(program(amount)))
    # What all ranks share in a repetition stays, which is some of it with four ranks.
    assert steady.sum() == pytest.approx(amount.sum(), rel=0.03)
    assert steady.std(axis=1).sum() < 0.7 * amount.std(axis=1).sum()
    interrupted = USUAL[:, None] + draw.exponential(300, (RANKS, 200)) * (
        draw.random((RANKS, 200)) < 0.3
    )
    quiet = computed(without_noise(program(interrupted.astype(np.int64))))
    assert quiet.mean(axis=1) == pytest.approx(USUAL, rel=0.02)


def chain(steps: int, work: int, overhead: int) -> Program:
    """Ranks that receive from the one before, compute, and send to the next one, step by step."""
    rows: list[tuple[int, int, int, int, int, int]] = []
    for rank in range(RANKS):
        for _ in range(steps):
            if rank > 0:
                rows += [(rank, Op.IRECV, rank - 1, 64, 1, 0), (rank, Op.WAIT, -1, 0, 0, 0)]
            rows += [(rank, Op.COMPUTE, -1, work, 0, 0)]
            if rank < RANKS - 1:
                rows += [
                    (rank, Op.ISEND, rank + 1, 64, 1, 0),
                    (rank, Op.WAIT, -1, 0, 0, 0),
                    (rank, Op.COMPUTE, -1, overhead, 0, 0),
                ]
    rank, kind, peer, size, tag, label = (np.array(column) for column in zip(*rows, strict=True))
    operations = Operations(
        rank=rank,
        kind=kind.astype(np.uint8),
        peer=peer.astype(np.int32),
        amount=size.astype(np.uint64),
        tag=tag,
        label=label.astype(np.uint32),
    )
    return assemble("chain", RANKS, operations, [Label("sweep", "MPI_Send", 1)])


def test_a_sweeps_border_computes_unchanged() -> None:
    """The last rank computes before a receive, where others have only the time between calls."""
    made = chain(20, 1000, 10)
    np.testing.assert_array_equal(balanced(made).amount, made.amount)
    np.testing.assert_array_equal(without_noise(made).amount, made.amount)


def test_a_part_of_one_rank_is_unchanged() -> None:
    made = program(noisy(), extra={2: 7777})
    even = balanced(made)
    assert int(even.amount[(even.kind == Op.COMPUTE) & (even.label == 1)][0]) == 7777
    # Nobody gets computation that it did not have, and nothing but computation changes.
    other = made.kind != Op.COMPUTE
    np.testing.assert_array_equal(even.amount[other], made.amount[other])
    np.testing.assert_array_equal(even.amount > 0, made.amount > 0)


def test_a_program_without_computation_is_itself() -> None:
    amount = np.zeros((RANKS, 0), np.int64)
    made = program(amount, extra={0: 1})
    made.kind[made.kind == Op.COMPUTE] = Op.WAITALL
    assert balanced(made) is made and without_noise(made) is made


def test_equal_totals_keep_the_order_of_work() -> None:
    """Ranks 0 and 1 compute in other rounds, and rank 3 twice as much in all."""
    amount = np.full((RANKS, ROUNDS - 1), 1000, np.int64)
    amount[0], amount[1] = [500, 1500] * 4, [1500, 500] * 4
    amount[3] *= 2
    after = computed(with_equal_totals(program(amount)))
    assert after[0].tolist() == amount[0].tolist() and after[1].tolist() == amount[1].tolist()
    assert after[3].tolist() == [1000] * (ROUNDS - 1)


def test_the_start_of_ranks_that_share_cores_stays() -> None:
    """It occurs once: how much of it is first touch of memory, no recording tells."""
    amount = np.full((RANKS, ROUNDS), 1000, np.int64)
    amount[2, 0] = 9000
    alone = program(amount)
    shared = replace(alone, recording=RecordedTimes(1, 1, processor_time=True))
    assert computed(balanced(alone))[2, 0] < 9000
    assert computed(balanced(shared)).tolist() == amount.tolist()
