"""Calls that take longer in one part of a run than the expected run explains."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tailback.evidence import call_profile
from tailback.evidence.call_profile import CallProfile
from tailback.inference.changes_over_time import ChangeOverTime
from tailback.inference.decision import Alternative, Ensemble, decide
from tailback.inference.error_model import ErrorModel
from tailback.inference.measured_wording import changed, slower_part

RANKS, STEPS, COMPUTE = 4, 40, 50.0

Floats = NDArray[np.float64]


def profile(stretches: Floats, site: NDArray[np.int64] | None = None) -> CallProfile:
    """Every rank has a stretch in each step, by default all of one site; shape (R, STEPS)."""
    of_rank = np.repeat(np.arange(RANKS), STEPS)
    site = of_rank if site is None else site.reshape(-1)
    sites = int(site.max()) + 1
    rank = np.zeros(sites, np.int64)
    rank[site] = of_rank
    return CallProfile(
        rank,
        np.bincount(site, minlength=sites).astype(np.float64),
        np.zeros((sites, 1)),
        ["MPI_Waitall"] * sites,
        site,
        np.full(RANKS, STEPS),
        stretches.reshape(-1),
        np.ones(RANKS, np.bool_),
    )


def detect(
    monkeypatch: pytest.MonkeyPatch,
    stretches: Floats,
    simulated: Floats | None = None,
    site: NDArray[np.int64] | None = None,
) -> ChangeOverTime | None:
    expected = np.full((RANKS, STEPS), 100.0) if simulated is None else simulated
    monkeypatch.setattr(
        call_profile,
        "times_between_computations",
        lambda *_: (expected.reshape(-1), np.full(RANKS, STEPS)),
    )
    computations = RANKS * (STEPS - 1)
    program: Any = SimpleNamespace(
        separate_computations=np.ones(computations, np.bool_),
        op_rank=np.repeat(np.arange(RANKS), STEPS - 1),
        amount=np.full(computations, COMPUTE),
    )
    run: Any = None
    elapsed = float(stretches.sum(axis=1).max()) + COMPUTE * (STEPS - 1)
    return ChangeOverTime.of(profile(stretches, site), run, program, round(elapsed))


def noisy(mean: Floats, seed: int = 1) -> Floats:
    noise = np.random.default_rng(seed).normal(1.0, 0.03, (RANKS, STEPS))
    return np.asarray(mean * noise, np.float64)


STEP = np.where(np.arange(STEPS) < 25, 100.0, 180.0)
ELAPSED = 25 * 100.0 + 15 * 180.0 + COMPUTE * (STEPS - 1)


def test_a_step_is_found_with_place_and_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    change = detect(monkeypatch, noisy(STEP))
    assert change is not None and change.is_fault and change.probability > 0.99
    assert change.factor == pytest.approx(1.8, rel=0.1)
    assert change.share == pytest.approx(15 * 80.0 / ELAPSED, abs=0.03)
    assert change.end_ps is None and change.start_ps == pytest.approx(25 * 150.0, abs=400.0)
    # From the start until then, and in the middle.
    first = detect(monkeypatch, noisy(STEP[::-1]))
    assert first is not None and first.is_fault
    assert first.start_ps is None and first.end_ps is not None
    middle = detect(monkeypatch, noisy(np.roll(STEP, -12)))
    assert middle is not None and middle.is_fault
    assert middle.start_ps is not None and middle.end_ps is not None


def test_a_uniformly_slower_machine_does_not_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(8):
        change = detect(monkeypatch, noisy(np.full(STEPS, 170.0), seed))
        assert change is None or not change.is_fault


def test_what_the_expected_run_shows_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    change = detect(monkeypatch, noisy(STEP * 1.2), np.broadcast_to(STEP, (RANKS, STEPS)).copy())
    assert change is None or not change.is_fault


def test_a_misjudged_phase_is_no_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only repetitions of the same calls are compared."""
    phase = (np.arange(STEPS) >= 25).astype(np.int64)
    site = 2 * np.arange(RANKS)[:, None] + phase[None, :]
    change = detect(monkeypatch, noisy(STEP), site=site)
    assert change is None or not change.is_fault


def test_a_change_that_settings_explain_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = detect(monkeypatch, noisy(STEP))
    assert change is not None
    assert change.beside([None, None]).is_fault
    assert not change.beside([change, change]).is_fault


def test_an_unexplained_change_leaves_the_cause_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model explains the time, as with adapters of another kind, but not its course."""
    change = detect(monkeypatch, noisy(STEP))
    assert change is not None
    model = ErrorModel(1000, {})
    ensemble = Ensemble.of([Alternative(0.0, 1000)], model, 1000)
    assert decide([], ensemble).cause == "healthy"
    decision = decide([], ensemble, change=change)
    assert decision.cause == "undetermined" and decision.chances["unexplained"] > 0.9
    assert decide([], ensemble, change=change.beside([change, change])).cause == "healthy"
    text = changed(change, 1000)
    assert "1.7 times as long" in text and text.startswith("From about ")
    assert "until about" in slower_part(ChangeOverTime(0.1, 0.01, 1.0, 1.5, None, 1e9))
