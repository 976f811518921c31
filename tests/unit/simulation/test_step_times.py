"""Extrapolation of step times."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.simulation.repetition.step_times import (
    Computations,
    Extrapolation,
    StepTimes,
    extrapolate,
)

STEPS, SKIPPED = 45, 955


def extrapolated(spans_ps: np.ndarray, apart: float = 0.0) -> Extrapolation:
    """Extrapolation of ``SKIPPED`` steps after steps that take so long on four ranks.

    In each step the standard deviation of the ranks' times grows by ``apart`` of a step.
    """
    begin = np.concatenate([[0], np.cumsum(spans_ps)])
    place = np.array([-1.5, -0.5, 0.5, 1.5])[:, None]
    moved = apart * spans_ps.mean() * np.arange(len(begin)) * place / place.std()
    post = (begin + moved).astype(np.int64) + 1000 * np.arange(4)[:, None]
    m = post.shape[1]
    bounds = np.arange(m + 1) + m * np.arange(4)[:, None]
    # Latencies differ a little, so that no two steps are equal.
    arrival = post.ravel() + 500_000 + np.arange(post.size) % 7
    columns = [post.ravel(), post.ravel(), arrival]
    times = StepTimes(post, np.full(m, 500_000.0), np.ones((3, m), np.int64), bounds, columns)
    return extrapolate(times, SKIPPED, Computations(None, None), alone=True)


@pytest.mark.parametrize("noise", [0.002, 0.012])
def test_the_interval_allows_for_hidden_trends(noise: float) -> None:
    """A trend that is not detected may go on, and grow as much again."""
    number = np.arange(STEPS - 1)
    # Pairs of steps cancel, so means vary by the trend alone.
    noisy = 1e8 * (1 + noise * np.array([1, -1, -1, 1])[number % 4])
    steady = extrapolated(noisy)
    # Between the halves of the steps after a warm-up of two.
    passes = max(0.005, 1.9 * noise * np.sqrt(4 / (STEPS - 3)))
    drift = 2 * passes * (number / (STEPS - 1) - 0.5)
    steps = extrapolated(noisy * (1 + 0.95 * drift))
    assert steps.first == 2 and "trend" not in steps.why_not
    assert abs(steps.shift_ps - steady.shift_ps) < 0.1 * steady.half_ps
    assert steps.half_ps > 2 * 0.95 * passes * steps.shift_ps
    assert not steps.why_not and steps.half_ps < 0.02 * steps.shift_ps


def test_vague_trends_widen_the_interval_only() -> None:
    """Whether steps suffice depends on the interval without trends above ``TREND``."""
    noise = np.random.default_rng(3).normal(0, 0.03, STEPS - 1)
    steps = extrapolated(1e8 * (1 + noise))
    assert not steps.why_not
    assert steps.half_ps > 0.02 * steps.shift_ps


def test_steps_that_vary_too_much_are_simulated() -> None:
    noise = np.random.default_rng(3).normal(0, 0.06, STEPS - 1)
    steps = extrapolated(1e8 * (1 + noise))
    assert "the time of a step is known to" in steps.why_not
    assert steps.wanted > STEPS


def test_ranks_may_move_apart_a_little() -> None:
    """By 2 % of a step between the halves of the steps after a warm-up; 1 % is too strict.

    The shortest part that is looked at are half of the steps, whose halves are 11 steps apart.
    """
    spans = 1e8 * (1 + np.random.default_rng(3).normal(0, 0.002, STEPS - 1))
    assert not extrapolated(spans, apart=0.013 / 11).why_not
    assert extrapolated(spans, apart=0.025 / 11).why_not == "ranks move apart"
