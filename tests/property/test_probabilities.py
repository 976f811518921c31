"""No probability is NaN or outside 0–1, whatever the times: heavy tails, constant, one rank."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tailback.cli import run as tailback
from tailback.diagnosis.cable_search import Outcome
from tailback.diagnosis.explanation import Cost
from tailback.fabric.degraded import SlowLink
from tailback.inference.changes_over_time import ChangeOverTime, _slowest_part
from tailback.inference.decision import Alternative, Ensemble, decide
from tailback.inference.error_model import MISFIT_ERROR, ErrorModel
from tailback.inference.hypotheses import Hypothesis, Posterior, Prior
from tailback.inference.interruptions import Interruptions
from tailback.log_probability import log_sum, probabilities, probability_of_odds
from tailback.traffic.computation import balanced, without_noise
from tailback.traffic.patterns.columns import Operations, assemble
from tailback.traffic.program import Label, Op, Program
from tests.factories.evidence_traces import WORLD, Script
from tests.factories.otf2_traces import writing

Floats = NDArray[np.float64]

US, S = 10**6, 10**12
KINDS = ("constant", "zero", "checkpoint", "pareto", "lognormal", "two-speeds", "one-long")


def computed_ps(kind: str, n_ranks: int, steps: int, seed: int, mean_ps: float) -> Floats:
    """Times of computations, shape (ranks, steps)."""
    rng = np.random.default_rng(seed)
    shape = (n_ranks, steps)
    out = np.full(shape, mean_ps)
    if kind == "zero":
        out[:] = 0.0
    elif kind == "checkpoint":
        out *= 1.0 + 0.01 * rng.standard_normal(shape)
        out[0, ::500] = 1.0 * S
    elif kind == "one-long":
        out[rng.integers(n_ranks), rng.integers(steps)] = 100.0 * S
    elif kind == "pareto":
        out *= 1.0 + rng.pareto(0.5, shape)
    elif kind == "lognormal":
        out *= rng.lognormal(0.0, 4.0, shape)
    elif kind == "two-speeds":
        out[n_ranks // 2 :] *= 1e6
    return np.asarray(np.clip(out, 0.0, 1e4 * S))


def ring(amount: Floats) -> Program:
    """Ranks that compute ``amount[rank, step]``, then send to the next rank of a ring."""
    n_ranks, steps = amount.shape
    rank = np.repeat(np.arange(n_ranks), 4 * steps)
    kind = np.tile([Op.COMPUTE, Op.IRECV, Op.ISEND, Op.WAITALL], n_ranks * steps)
    peer, size = np.full(len(kind), -1), np.zeros(len(kind))
    size[::4], size[1::4], size[2::4] = amount.ravel(), 64, 64
    peer[1::4], peer[2::4] = (rank[1::4] - 1) % n_ranks, (rank[2::4] + 1) % n_ranks
    zero = np.zeros(len(kind), np.int64)
    operations = Operations(
        rank=rank,
        kind=kind.astype(np.uint8),
        peer=peer.astype(np.int32),
        amount=size.astype(np.uint64),
        tag=zero,
        label=zero.astype(np.uint32),
    )
    return assemble("drawn", n_ranks, operations, [Label("halo", "MPI_Isend", 1)])


def assert_probabilities(values: Any) -> None:
    array = np.asarray(values, np.float64)
    assert np.isfinite(array).all() and (array >= 0).all() and array.sum() <= 1.0 + 1e-9


def assert_sound(amount: Floats) -> Interruptions:
    program, n_steps = ring(amount), amount.shape[1]
    elapsed = max(int(amount.sum(axis=1).max() * 1.25), 1)
    interruptions = Interruptions.of(program, elapsed)
    assert_probabilities(interruptions.probability)
    assert 0.0 <= interruptions.likely_share() <= 1.0
    assert np.isfinite(interruptions.draw(np.random.default_rng(1), 10)).all()
    # A part of the program is scaled at most to that of another rank: nothing overflows.
    positive = amount[amount >= 1]
    largest = max(float(positive.max(initial=64)) ** 2 / positive.min(initial=64), 64.0)
    for changed in (without_noise(program), balanced(program)):
        assert changed.amount.max() <= largest * 1.01 + n_steps
    return interruptions


@pytest.mark.parametrize("kind", KINDS)
@given(
    n_ranks=st.integers(1, 12),
    steps=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    mean_ps=st.sampled_from([1.0, 20.0 * US, 1e3 * US, 10.0 * S]),
)
@settings(max_examples=10)
def test_interruptions_have_probabilities(
    kind: str, n_ranks: int, steps: int, seed: int, mean_ps: float
) -> None:
    assert_sound(computed_ps(kind, n_ranks, steps, seed, mean_ps))


@pytest.mark.slow
def test_a_million_steps_have_probabilities() -> None:
    amount = computed_ps("checkpoint", 4, 250_000, 1, 20.0 * US)
    interruptions = Interruptions.of(ring(amount), int(amount.sum(axis=1).max()))
    assert_probabilities(interruptions.probability)


def test_rare_checkpoints_are_no_interruptions() -> None:
    """A rank that writes for a second says nothing of interruptions of milliseconds."""
    interruptions = assert_sound(computed_ps("checkpoint", 8, 3000, 1, 20.0 * US))
    assert interruptions.probability.sum() < 0.15


log_weights = st.one_of(st.floats(-1e9, 1e9), st.floats(-1e4, 1e4), st.just(-math.inf))


@given(st.lists(log_weights, min_size=1, max_size=9), st.floats(-1e9, 1e9))
def test_probabilities_of_any_logarithms_add_up_to_one(logs: list[float], finite: float) -> None:
    shares = probabilities([*logs, finite])
    assert_probabilities(shares)
    assert shares.sum() == pytest.approx(1.0)
    assert log_sum([*logs, finite]) >= max(*logs, finite)
    assert 0.0 <= probability_of_odds(finite) <= 1.0


def test_sums_of_impossibilities_are_impossible() -> None:
    logs = np.array([[-math.inf, -math.inf], [0.0, 0.0]])
    assert log_sum(logs, axis=1).tolist() == [-math.inf, pytest.approx(math.log(2.0))]


times_ps = st.one_of(st.integers(0, 10**6), st.integers(0, 10**18))
misfits = st.one_of(st.none(), st.floats(0.0, 1e9))


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    kinds = list(MISFIT_ERROR)
    return Outcome(
        draw(times_ps),
        {kind: draw(misfits) for kind in kinds},
        {kind: draw(st.floats(0.0, 1e6)) for kind in kinds if draw(st.booleans())},
        {kind: draw(st.floats(0.0, 1e6)) for kind in kinds if draw(st.booleans())},
    )


@given(st.lists(outcomes(), min_size=1, max_size=5), outcomes(), times_ps, st.booleans())
def test_verdicts_have_probabilities(
    alone: list[Outcome], slowed: Outcome, measured_ps: int, lossy: bool
) -> None:
    model = ErrorModel.of(max(measured_ps, 1), [[outcome] for outcome in alone], lossy=lossy)
    hypotheses = [
        Hypothesis((str(i),), outcome, alone_ps=outcome.elapsed_ps)
        for i, outcome in enumerate(alone)
    ]
    hypotheses.append(Hypothesis(("0",), slowed, (SlowLink(0, 1.0),), alone_ps=alone[0].elapsed_ps))
    posterior = Posterior(hypotheses, model, Prior(3, np.array([1, 0], np.uint32)))
    assert_probabilities([weighed.probability for weighed in posterior.weighed])
    assert 0.0 <= posterior.unexplained <= 1.0 + 1e-9
    assert posterior.best in [weighed.hypothesis for weighed in posterior.weighed]
    alternatives = [
        Alternative(
            weighed.log_weight,
            weighed.hypothesis.outcome.elapsed_ps,
            {"slow-link": 10} if weighed.hypothesis.slow else {},
            weighed.hypothesis.unexplained,
        )
        for weighed in posterior.weighed
        if not weighed.hypothesis.unexplained
    ]
    ensemble = Ensemble.of(alternatives, model, max(measured_ps, 1))
    assert_probabilities(ensemble.probability)
    cost = Cost(
        cause="placement",
        ps=5,
        low_ps=0,
        high_ps=9,
        share=0.2,
        subject="",
        evidence="",
        rests_on=("trace",),
    )
    decision = decide([cost], ensemble)
    assert_probabilities(list(decision.chances.values()))
    assert 0.0 <= decision.confidence <= 1.0


ratios = st.one_of(st.just(1.0), st.floats(0.0, 3.0), st.floats(0.0, 1e9))


@given(st.lists(ratios, min_size=6, max_size=16), st.lists(st.floats(0.0, 1.0), max_size=3))
def test_changes_over_time_have_probabilities(ratio: list[float], usual: list[float]) -> None:
    part = _slowest_part(np.array(ratio), np.ones(len(ratio)))
    if part is None:
        return
    assert 0.0 <= part.probability <= 1.0 and math.isfinite(part.error)
    change = ChangeOverTime(part.more, part.error, part.probability, part.factor, None, None)
    ordinary = [ChangeOverTime(share, 0.0, 0.5, 1.0, None, None) for share in usual]
    assert 0.0 <= change.beside(ordinary).probability <= 1.0


def traced(amount_ns: NDArray[np.int64]) -> list[Script]:
    """Events of ranks that compute and then exchange 64 KiB with both neighbours of a ring."""
    n_ranks, steps = amount_ns.shape
    now = np.full(n_ranks, 1000, np.int64)
    scripts = [
        Script([(0, "enter", "MPI_Init"), (1000, "leave", "MPI_Init")]) for _ in range(n_ranks)
    ]
    for step in range(steps):
        sent = now + amount_ns[:, step]
        done = np.maximum(sent, np.roll(sent, 1)) + 9_000
        for rank in range(n_ranks):
            at, end, number = int(sent[rank]), int(done[rank]), 2 * step
            before, after = (rank - 1) % n_ranks, (rank + 1) % n_ranks
            scripts[rank] += [
                (at, "enter", "MPI_Irecv"),
                (at + 1, "mpi_irecv_request", number),
                (at + 1, "leave", "MPI_Irecv"),
                (at + 1, "enter", "MPI_Isend"),
                (at + 1, "mpi_isend", after, WORLD, 7, 65536, number + 1),
                (at + 2, "leave", "MPI_Isend"),
                (at + 2, "enter", "MPI_Waitall"),
                (end, "mpi_irecv", before, WORLD, 7, 65536, number),
                (end, "mpi_isend_complete", number + 1),
                (end, "leave", "MPI_Waitall"),
            ]
        now = done
    for rank, script in enumerate(scripts):
        end = int(now[rank])
        script += [(end, "enter", "MPI_Finalize"), (end + 9, "leave", "MPI_Finalize")]
    return scripts


@pytest.mark.parametrize(
    ("kind", "n_ranks", "steps"),
    [
        ("zero", 2, 6),
        ("checkpoint", 4, 510),
        ("one-long", 4, 20),
        ("two-speeds", 2, 9),
        ("constant", 1, 5),
        ("pareto", 8, 1),
    ],
)
def test_any_program_is_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, n_ranks: int, steps: int
) -> None:
    amount = computed_ps(kind, n_ranks, steps, 3, 20.0 * US)
    amount = np.minimum(amount, 2.0 * S).astype(np.int64) // 1000
    # Both ends of a lone rank's message are its own.
    hosts = [f"n{rank}" for rank in range(n_ranks)]
    trace = writing(tmp_path)(traced(amount), hosts=hosts)
    net = tmp_path / "net.csv"
    cables = [f"n{i},leaf{i % 2},e{i},100" for i in range(8)]
    net.write_text(
        "\n".join(["src,dst,iface,rate_gbit", *cables, "leaf0,spine,u0,100", "leaf1,spine,u1,100"])
    )
    out = tmp_path / "out"
    code = tailback(
        [
            "diagnose",
            str(trace),
            "--fabric",
            str(net),
            "--out",
            str(out),
            "--seeds",
            "1",
            "--quiet",
            "--method",
            "block",
            "--remedy",
            "placement",
        ]
    )
    assert code in (0, 3), capsys.readouterr().err

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in the diagnosis")

    diagnosis = json.loads((out / "diagnosis.json").read_text(), parse_constant=refuse)
    assert 0.0 <= diagnosis["confidence"] <= 1.0
