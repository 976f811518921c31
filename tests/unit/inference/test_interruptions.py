"""Interruptions that every computation contains are told apart by how computations vary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tailback.inference.hypotheses import FAULT, UNUSUAL
from tailback.inference.interruptions import Interruptions
from tailback.traffic.patterns.columns import Operations, assemble
from tailback.traffic.program import Label, Op, Program

RANKS, ROUNDS = 24, 30
MS = 10**9


def program(amount: np.ndarray) -> Program:
    """Ranks that compute ``amount[rank, round]`` and then send to the next rank of a ring."""
    rows = []
    for rank in range(RANKS):
        for computed in amount[rank]:
            rows += [
                (rank, Op.COMPUTE, -1, int(computed)),
                (rank, Op.IRECV, (rank - 1) % RANKS, 64),
                (rank, Op.ISEND, (rank + 1) % RANKS, 64),
                (rank, Op.WAITALL, -1, 0),
            ]
    ranks, kind, peer, size = (np.array(column) for column in zip(*rows, strict=True))
    zero = np.zeros(len(rows), np.int64)
    operations = Operations(
        rank=ranks,
        kind=kind.astype(np.uint8),
        peer=peer.astype(np.int32),
        amount=size.astype(np.uint64),
        tag=zero,
        label=zero.astype(np.uint32),
    )
    return assemble("made", RANKS, operations, [Label("halo", "MPI_Isend", 1)])


def fault(amount: np.ndarray) -> float:
    """Probability that interruptions are a fault."""
    elapsed = int(amount.sum(axis=1).mean() / 0.8)
    interruptions = Interruptions.of(program(amount), elapsed)
    return float(interruptions.probability[interruptions.share >= FAULT].sum())


def vary_computations(mean_ms: float, deviation: float) -> np.ndarray:
    """Computations that vary by themselves, by normal errors."""
    rng = np.random.default_rng(5)
    varied = mean_ms * MS * (1.0 + deviation * rng.standard_normal((RANKS, ROUNDS)))
    return np.asarray(varied, np.float64)


def interrupted(mean_ms: float, share: float, length_us: float) -> np.ndarray:
    """Steady computations with interruptions that take such a share of the time."""
    rng = np.random.default_rng(6)
    number = rng.poisson(share * mean_ms * 1000.0 / length_us, (RANKS, ROUNDS))
    stolen = [[rng.exponential(length_us * 1e6, n).sum() for n in row] for row in number]
    return vary_computations(mean_ms, 0.001) + np.array(stolen)


def test_steady_computations_contain_no_interruptions() -> None:
    assert fault(vary_computations(1.0, 0.002)) < 0.002
    assert fault(vary_computations(200.0, 0.001)) < 0.002


def test_long_computations_that_vary_may_contain_interruptions() -> None:
    """They could be the program's own: a probability, not a finding."""
    unsteady, hidden = fault(vary_computations(200.0, 0.02)), fault(interrupted(200.0, 0.2, 300.0))
    assert 0.01 < unsteady < hidden < 0.5
    assert hidden > UNUSUAL


def weighed(amount: np.ndarray) -> Interruptions:
    return Interruptions.of(program(amount), int(amount.sum(axis=1).mean() / 0.8))


def test_only_suitable_variation_may_be_interruptions() -> None:
    # Twice 200 ms: too steady for interruptions that are a fault, and as unsteady as with them.
    assert not weighed(vary_computations(200.0, 0.002)).may_be_fault
    assert weighed(interrupted(200.0, 0.2, 300.0)).may_be_fault
    # Interruptions would vary a computation of 1 ms far more.
    assert not weighed(vary_computations(1.0, 0.02)).may_be_fault
    # Most repetitions of 27 ms have none of the rare, long ones.
    assert not weighed(interrupted(27.0, 0.03, 5000.0)).may_be_fault


def test_undisturbed_repetitions_bound_interruptions() -> None:
    """Most computations have none of the rare, long interruptions, which take 3 %."""
    assert fault(interrupted(27.0, 0.03, 5000.0)) < 0.05


def test_rare_interruptions_cost_what_they_take() -> None:
    amount = interrupted(1.0, 0.1, 400.0)
    interruptions = Interruptions.of(program(amount), int(amount.sum(axis=1).mean()))
    mean = float((interruptions.share * interruptions.probability).sum())
    assert interruptions.probability.sum() > 0.9 and 0.04 < mean < 0.2


def test_work_that_all_ranks_share_is_no_interruption() -> None:
    steps = np.random.default_rng(7).exponential(0.1, ROUNDS)
    assert fault(vary_computations(50.0, 0.001) * (1.0 + steps[None, :])) < 0.01


def test_a_few_repetitions_show_nothing() -> None:
    interruptions = Interruptions.of(program(vary_computations(1.0, 0.1)[:, :3]), MS)
    assert not len(interruptions.share)
    rng = np.random.default_rng(1)
    assert not interruptions.draw(rng, 10).any() and interruptions.likely_share() == 0.0


def test_accelerators_are_not_interrupted() -> None:
    made = program(interrupted(50.0, 0.12, 2000.0))
    assert Interruptions.of(made, 60 * ROUNDS * MS).share.size
    accelerated = replace(made, recompile=lambda _: made)
    assert not Interruptions.of(accelerated, 60 * ROUNDS * MS).share.size
