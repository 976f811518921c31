"""Predicted and measured gains, compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tailback.arrays import Floats
from tailback.diagnosis.model import Candidate, Diagnosis, Estimate, Remedy
from tailback.evidence.iterations import CallSequence
from tailback.evidence.model import Part
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


def with_parts(run: MeasuredTimes, wait_ms: tuple[int, int, int], **more: object) -> MeasuredTimes:
    """A recording with so much waiting for messages (low, value, high); all else is transfers."""
    computed, total = 10 * MS, run.measured.elapsed_ps
    low, wait, high = (ms * MS for ms in wait_ms)
    in_calls = total - computed
    parts = [
        Part(name=name, ps=ps, low_ps=least, high_ps=most, share=ps / total)
        for name, least, ps, most in (
            ("computation", computed, computed, computed),
            ("late_sender", low, wait, high),
            ("transfer", in_calls - high, in_calls - wait, in_calls - low),
        )
    ]
    update = {"parts": parts, **more}
    return MeasuredTimes(run.measured.model_copy(update=update), run.calls, run.hosts)


def changes(after_wait_ms: tuple[int, int, int], **more: object) -> dict[str, tuple[int, ...]]:
    """Name of each part with its change and the bounds of that, ms: 30 × 10 ms before and 8 after.

    Before, ranks wait 100 ms for messages, up to 20 ms more or less.
    """
    before = with_parts(recording(np.full(30, 10.0)), (80, 100, 120), **more)
    after = with_parts(recording(np.full(30, 8.0), ("b", "a")), after_wait_ms, **more)
    parts = confirm_gain(diagnosis(estimate(0.2, 0.05)), before, [after]).parts
    return {
        part.name: (
            (part.after_ps - part.before_ps) // MS,
            part.change_low_ps // MS,
            part.change_high_ps // MS,
        )
        for part in parts
        if part.before_ps
    }


def test_parts_within_clock_errors_are_one() -> None:
    """Of 60 ms fewer in calls, waits may be any part: the sum is known, and no more."""
    assert changes((50, 90, 130)) == {
        "computation": (0, 0, 0),
        "waits for messages and transfers": (-60, -60, -60),
    }
    # A fall of the waits by 20 to 60 ms is beyond the errors.
    assert changes((60, 60, 60)) == {
        "computation": (0, 0, 0),
        "waits for messages": (-40, -60, -20),
        "transfers": (-20, -40, 0),
    }


def test_durations_tell_no_waits_from_transfers() -> None:
    exact = (60, 60, 60)
    assert list(changes(exact, durations_only=True)) == [
        "computation and waits for it",
        "waits for messages and transfers",
    ]
    assert list(changes(exact, not_recorded="1 of 2 ranks")) == [
        "computation",
        "waits and transfers",
    ]


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
        ("moved", "rank 0 on a before, on b after"),
        ("iterations", "fewer than 24 iterations"),
        ("program", "different programs"),
        ("ranks", "2 and 3 ranks"),
        ("durations", "only some of the recordings"),
        ("missing", "not of the same ranks"),
        ("prediction", "diagnose again"),
        ("same", "BEFORE and AFTER are one and the same recording"),
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
    elif case in ("durations", "missing"):
        update = {"durations_only": True} if case == "durations" else {"not_recorded": "1 of 2"}
        after = MeasuredTimes(after.measured.model_copy(update=update), after.calls, after.hosts)
    elif case == "prediction":
        said = diagnosis(None)
    elif case == "same":
        after = before = with_parts(before, (1, 2, 3))
    elif case == "moved":
        assert said.remedy is not None
        proof = said.remedy.candidates[0].model_copy(update={"name": "repair"})
        update = {"name": "repair", "placement": "", "parts": ("repair",), "candidates": [proof]}
        repair = said.remedy.model_copy(update=update)
        said = said.model_copy(update={"remedy": repair})
    confirmation = confirm_gain(said, before, [after])
    assert confirmation.outcome == "undetermined" and reason in confirmation.reason


@pytest.mark.parametrize(
    ("placed", "outcome"),
    [(("b", "a"), "confirmed"), (("b", "b"), "undetermined"), (("b.net", "b.net"), "confirmed")],
)
def test_only_the_placement_of_the_remedy_confirms(placed: tuple[str, str], outcome: str) -> None:
    """Names of hosts that are written otherwise say nothing."""
    said = diagnosis(estimate(0.2, 0.05))
    before, after = recording(noisy(100, 1)), recording(noisy(80, 1), ("b", "a"))
    confirmation = confirm_gain(said, before, [after], placed)
    assert confirmation.outcome == outcome
    assert ("rank 1 ran on a, not on b" in confirmation.reason) == (outcome == "undetermined")
