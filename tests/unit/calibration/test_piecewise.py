"""Lines with change points: what is found, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.calibration.piecewise import fit

SIZES = np.array([0, *(1 << k for k in range(23))], np.float64)


def times(jump_ps: float = 0, slope: float = 80) -> np.ndarray:
    """1 µs and 80 ps a byte; above 16 KiB later, below with another slope."""
    late = SIZES >= 1 << 15
    return 1e6 + SIZES * np.where(late, 80, slope) + jump_ps * late


def noisy(true: np.ndarray, spread: float, seed: int) -> np.ndarray:
    return true * np.exp(spread * np.random.default_rng(seed).standard_normal(len(true)))


def test_a_line_is_found_without_change_points() -> None:
    fits = [fit(SIZES, noisy(times(), 0.005, seed), np.full(24, 1e4)) for seed in range(40)]
    plain = [lines for lines in fits if lines.segments == 1]
    assert len(plain) >= 36
    assert plain[0].coefficients == pytest.approx([1e6, 80], rel=0.01)


def test_a_handshake_is_found_where_it_begins() -> None:
    lines = fit(SIZES, noisy(times(jump_ps=6e5), 0.005, 2), np.full(len(SIZES), 1e4))
    assert lines.segments == 2
    (row,) = lines.model.breaks
    assert lines.size[row - 1 : row + 1].tolist() == [1 << 14, 1 << 15]
    draws = lines.draws(np.random.default_rng(0))
    assert np.quantile(lines.jump(draws, 0), [0.001, 0.999]) == pytest.approx(6e5, rel=0.3)


def test_another_slope_beyond_a_size_is_found() -> None:
    lines = fit(SIZES, noisy(times(slope=240, jump_ps=2e6), 0.003, 3), np.zeros(24))
    draws = lines.draws(np.random.default_rng(0))
    assert lines.slope(draws, 0).mean() == pytest.approx(240, rel=0.05)
    assert lines.byte_time(np.random.default_rng(0))[0] == pytest.approx(80, rel=0.02)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    # Of 400 draws 95 % ± 3 % are 368 to 392; chance adds 4.4 (one standard deviation).
    inside = np.zeros(2)
    for seed in range(400):
        true = noisy(times(jump_ps=3e5), 0.01, seed)
        lines = fit(SIZES, np.round(true / 1e4) * 1e4, np.full(len(SIZES), 1e4))
        rng = np.random.default_rng(seed)
        for i, (found, truth) in enumerate(((lines.least_time, 1e6), (lines.byte_time, 80))):
            low, high = np.quantile(found(rng)[1], [0.025, 0.975])
            inside[i] += low <= truth <= high
    assert ((inside >= 364) & (inside <= 396)).all(), inside


def test_one_outlier_does_not_move_the_line() -> None:
    data = noisy(times(), 0.002, 5)
    data[8] *= 1.5
    lines = fit(SIZES, data, np.full(len(SIZES), 1e4))
    assert lines.least_time(np.random.default_rng(0))[0] == pytest.approx(1e6, rel=0.05)


@pytest.mark.parametrize("points", [1, 2])
def test_one_or_two_sizes_tell_no_slope(points: int) -> None:
    lines = fit(SIZES[:points], times()[:points], np.full(points, 1e4))
    assert not lines.byte_time(np.random.default_rng(0))[1].any()
    assert lines.least_time(np.random.default_rng(0))[1].std() > 0


def test_hundreds_of_sizes_are_fitted_as_well() -> None:
    size = np.arange(1, 600, dtype=np.float64) * 100
    time = noisy_of(1e6 + 80 * size + 5e5 * (size > 30_000))
    lines = fit(size, time, np.zeros(len(size)))
    (row,) = lines.model.breaks
    assert lines.size[row - 1] == pytest.approx(30_000, abs=1_500)


def noisy_of(true: np.ndarray) -> np.ndarray:
    return true * np.exp(0.003 * np.random.default_rng(7).standard_normal(len(true)))
