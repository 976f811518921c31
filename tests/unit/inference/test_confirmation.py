"""Predicted and measured gains, compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tailback.arrays import Floats
from tailback.diagnosis.model import Candidate, Diagnosis, Estimate, Remedy
from tailback.evidence.iterations import CallSequence
from tailback.inference.confirmation import (
    Confirmation,
    MeasuredTimes,
    block_length,
    confirm_gain,
)
from tests.factories.measured_times import measured
from tests.factories.report_data import make_diagnosis, make_run

BASE = make_diagnosis(make_run())
MS = 10**9


def recording(iterations_ms: Floats, hosts: Sequence[str] = ("a", "b")) -> MeasuredTimes:
    """Two ranks whose loop has one call an iteration, of these times."""
    ends = np.cumsum(iterations_ms) * MS
    of_rank = np.concatenate([[0], ends]).astype(np.int64)
    n = len(of_rank)
    digest = np.ones(n, np.uint64)
    digest[0] = 2
    calls = CallSequence(
        np.tile(digest, 2),
        np.array([0, n, 2 * n]),
        np.tile(of_rank - 1, 2),
        np.tile(of_rank, 2),
    )
    elapsed = int(of_rank[-1])
    update = {"elapsed_ps": elapsed, "n_ranks": 2, "low_ps": elapsed, "high_ps": elapsed}
    return MeasuredTimes(measured(1).model_copy(update=update), calls, hosts)


def diagnosis(predicted: Estimate | None) -> Diagnosis:
    """A diagnosis whose remedy is a placement with this predicted gain."""
    candidate = Candidate(name="tile", elapsed_ps=80)
    remedy = Remedy(
        actions=("Use placement tile.",),
        name="tile",
        parts=("tile",),
        placement="tile",
        before_ps=100,
        after_ps=80,
        gain=0.2,
        predicted_gain=predicted,
        candidates=[candidate],
        files={},
        commands=[],
    )
    return BASE.model_copy(update={"remedy": remedy, "waterfall": []})


def estimate(value: float, half: float) -> Estimate:
    return Estimate(value=value, standard_error=half / 1.96, low=value - half, high=value + half)


def noisy(mean_ms: float, error_ms: float, n: int = 60, seed: int = 1) -> Floats:
    return mean_ms + error_ms * np.random.default_rng(seed).standard_normal(n)


def compared(
    after_ms: float, predicted: Estimate | None = None, error_ms: float = 2.0
) -> Confirmation:
    """100 ms an iteration before, and others after on other hosts."""
    after = recording(noisy(after_ms, error_ms, seed=2), ("b", "a"))
    said = diagnosis(predicted or estimate(0.2, 0.05))
    return confirm_gain(said, recording(noisy(100, error_ms)), [after])


@pytest.mark.parametrize(
    ("after_ms", "outcome"),
    [(80, "confirmed"), (84, "confirmed"), (95, "refuted"), (60, "refuted"), (110, "refuted")],
)
def test_outcome_follows_the_difference(after_ms: float, outcome: str) -> None:
    confirmation = compared(after_ms)
    assert confirmation.outcome == outcome and not confirmation.reason
    assert confirmation.measured is not None and confirmation.difference is not None
    assert confirmation.measured.value == pytest.approx(1 - after_ms / 100, abs=0.01)
    assert confirmation.harms == (after_ms > 100)
    contains = confirmation.difference.low <= 0 <= confirmation.difference.high
    assert contains == (outcome == "confirmed")


def test_slower_run_refutes_wide_prediction() -> None:
    confirmation = compared(110, estimate(0.05, 0.5))
    assert confirmation.difference is not None and confirmation.difference.low < 0
    assert confirmation.harms and confirmation.outcome == "refuted"


def test_noise_leaves_gain_undetermined() -> None:
    confirmation = compared(85, estimate(0.1, 0.05), error_ms=60)
    assert confirmation.outcome == "undetermined" and "may be none" in confirmation.reason


def test_intervals_have_their_coverage() -> None:
    """Of pairs of runs with correlated iterations, 95 % of the intervals have the true gain."""
    covered = 0
    runs = 200
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        series = []
        for mean in (100.0, 85.0):
            shock, now = rng.standard_normal(200), 0.0
            times = []
            for value in shock:
                now = 0.5 * now + 5 * value
                times.append(mean + now)
            series.append(np.array(times))
        after = recording(series[1], ("b", "a"))
        gain = confirm_gain(diagnosis(estimate(0.15, 0.1)), recording(series[0]), [after]).measured
        assert gain is not None
        covered += gain.low <= 0.15 <= gain.high
    # Blocks of a finite run understate the correlation somewhat.
    assert 0.88 * runs <= covered <= 0.99 * runs


def test_blocks_grow_with_correlation() -> None:
    independent = noisy(100, 5, 400)
    assert block_length([independent, independent]) <= 4
    walk = np.cumsum(independent - 100) + 1000
    assert block_length([independent, walk]) == 400 // 5
    assert block_length([np.full(30, 7.0)]) == 1


def test_differing_runs_widen_the_interval() -> None:
    before = recording(noisy(100, 1))
    said = diagnosis(estimate(0.2, 0.05))
    steady = [recording(noisy(80, 1, seed=seed), ("b", "a")) for seed in (3, 4, 5)]
    varied = [
        recording(noisy(mean, 1, seed=seed), ("b", "a"))
        for seed, mean in ((3, 75), (4, 80), (5, 85))
    ]
    narrow, wide = (confirm_gain(said, before, runs).measured for runs in (steady, varied))
    assert narrow is not None and wide is not None
    assert narrow.value == pytest.approx(wide.value, abs=0.01)
    # Student's quantile for 2 degrees of freedom, and a spread of 5 of 80 ms in each run.
    half = 4.303 * 5 / 80 * math.sqrt(1 + 1 / 3) * (1 - wide.value)
    assert (wide.high - wide.low) / 2 == pytest.approx(half, rel=0.1)
    assert narrow.high - narrow.low < 0.03


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("hosts", "was not applied"),
        ("iterations", "fewer than 24 iterations"),
        ("program", "different programs"),
        ("ranks", "2 and 3 ranks"),
        ("prediction", "diagnose again"),
    ],
)
def test_incomparable_runs_are_undetermined(case: str, reason: str) -> None:
    before, said = recording(noisy(100, 1)), diagnosis(estimate(0.2, 0.05))
    after = recording(noisy(80, 1), ("a", "b") if case == "hosts" else ("b", "a"))
    if case == "iterations":
        before, after = recording(noisy(100, 1, 23)), recording(noisy(80, 1, 23), ("b", "a"))
    elif case == "program":
        after = recording(noisy(80, 1, 61), ("b", "a"))
    elif case == "ranks":
        more = after.measured.model_copy(update={"n_ranks": 3})
        after = MeasuredTimes(more, after.calls, after.hosts)
    elif case == "prediction":
        said = diagnosis(None)
    confirmation = confirm_gain(said, before, [after])
    assert confirmation.outcome == "undetermined" and reason in confirmation.reason
