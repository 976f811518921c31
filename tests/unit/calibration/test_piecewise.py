"""Lines with change points: what is found, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.calibration.piecewise import fit
from tailback.calibration.piecewise_fit import LineRate

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


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_stated() -> None:
    # Of 400 draws 95 % ± 3 % are 368 to 392; chance adds 4.4 (one standard deviation).
    inside = np.zeros(2)
    for seed in range(400):
        true = noisy(times(jump_ps=3e5), 0.01, seed)
        lines = fit(SIZES, np.round(true / 1e4) * 1e4, np.full(len(SIZES), 1e4))
        rng = np.random.default_rng(seed)
        for i, (quantity, truth) in enumerate(((lines.least_time, 1e6), (lines.byte_time, 80))):
            low, high = np.quantile(quantity(rng)[1], [0.025, 0.975])
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


STREAM = np.array([1 << k for k in range(21)], np.float64)
HEADER, PACKET = 160, 4096
WIRE = STREAM + np.maximum(np.ceil(STREAM / PACKET), 1) * HEADER


def window(seed: int) -> np.ndarray:
    """Time per message of a window at 80 ps a byte: 40 ns, and 40 ns more above 16 KiB."""
    return noisy(40e3 + 40e3 * (STREAM > 1 << 14) + 80 * WIRE, 0.01, seed)


@pytest.mark.slow
def test_a_known_change_point_leaves_the_slope_unbiased() -> None:
    error, inside = [], 0
    for seed in range(150):
        lines = fit(
            STREAM, window(seed), np.zeros(21), change=(1 << 14, 1 << 15), rate=LineRate(80, PACKET)
        )
        value, draws = lines.byte_time(np.random.default_rng(seed))
        truth = 80 * (1 + HEADER / PACKET)
        error.append((value - truth) / np.std(draws))
        low, high = np.quantile(draws, [0.025, 0.975])
        inside += low <= truth <= high
    # Chance: 0.08 (one standard deviation). Without the change point the mean is above 0.4.
    assert abs(np.mean(error)) < 0.25
    assert inside >= 136


def test_headers_of_small_messages_join_the_slope() -> None:
    data = noisy(40e3 + 80 * WIRE, 1e-4, 1)
    value, draws = fit(STREAM, data, np.zeros(21), rate=LineRate(80, PACKET)).byte_time(
        np.random.default_rng(0)
    )
    assert value == pytest.approx(80 * (1 + HEADER / PACKET), rel=1e-4)
    # A line through the sizes alone does not fit small messages, which send a whole header.
    assert fit(STREAM, data, np.zeros(21)).segments > 1
    # An error of the header changes the bytes as well: the slope alone is known more exactly.
    known_header = fit(WIRE, data, np.zeros(21)).byte_time(np.random.default_rng(0))[1]
    assert np.std(draws) > 1.2 * np.std(known_header) * (1 + HEADER / PACKET)


def test_a_known_change_point_is_in_every_model() -> None:
    lines = fit(STREAM, window(1), np.zeros(21), change=(1 << 14, 1 << 15))
    assert all(15 in fitted.model.breaks for _, fitted in lines.averaged)


def test_times_with_large_known_errors_hardly_count() -> None:
    error = np.where(SIZES == 4, 3e5, 2e3)
    data = noisy(times(), 1e-4, 8) + 3e5 * (SIZES == 4)
    lines = fit(SIZES, data, np.zeros(24), error)
    assert lines.spread < 2e-3
    assert lines.least_time(np.random.default_rng(0))[0] == pytest.approx(1e6, rel=0.003)


def test_places_share_slopes_and_have_their_own_delays() -> None:
    size = np.array([8, 4096, 65536, 1 << 18, 1 << 20, 8, 65536, 1 << 20, 65536, 1 << 18], float)
    place = np.array([0] * 5 + [1] * 3 + [2] * 2)
    beyond = size > 16384
    time = 1e6 + 80 * size + 1e6 * beyond + place * (2e5 + 3e5 * beyond)
    lines = fit(size, time, np.full(10, 1.0), np.full(10, 1e3), change=(4096, 65536), place=place)
    least = [lines.least_time(np.random.default_rng(0), number)[0] for number in range(3)]
    assert least[:2] == pytest.approx([1e6 + 640, 1.2e6 + 640], rel=2e-3)
    # All times of the third are of messages that waited for a handshake.
    assert np.isnan(least[2])
    assert lines.byte_time(np.random.default_rng(0))[0] == pytest.approx(80, rel=1e-3)


def test_draws_of_known_errors_go_through_the_lines() -> None:
    size = np.array([8, 64, 512, 4096, 65536, 1 << 18, 1 << 20], float)
    rng = np.random.default_rng(0)
    skewed = -rng.exponential(2e4, (7, 4000))
    lines = fit(size, 1e6 + 80 * size, np.ones(7), np.full(7, 2e4), deviation_ps=skewed)
    _, draws = lines.least_time(np.random.default_rng(0))
    # All deviations are downwards, and so are those of the line.
    assert np.median(draws) < 1e6 - 5e3
    assert np.quantile(draws, 0.975) < 1e6 + 1.5e4


def test_known_errors_leave_no_further_one() -> None:
    # The same error in picoseconds for all: the long times determine the slope.
    rng = np.random.default_rng(0)
    size = np.array([8.0, 512, 2048, 4096, 8192, 16384, 32768, 65536, 1 << 18, 1 << 20])
    error, width = np.full(len(size), 4e3), {True: [], False: []}
    inside = []
    for _ in range(40):
        time = 1e6 + 20 * size + 4e3 * rng.standard_normal(len(size))
        draws = 4e3 * rng.standard_normal((len(size), 4000))
        for complete in (True, False):
            lines = fit(
                size, time, np.ones(len(size)), error, deviation_ps=draws, complete=complete
            )
            _, byte = lines.byte_time(np.random.default_rng(1))
            low, high = np.quantile(byte, [0.025, 0.975])
            width[complete].append(high - low)
            if complete:
                inside.append(low <= 20 <= high)
    assert np.mean(inside) > 0.85
    assert np.median(width[True]) < 0.8 * np.median(width[False])
    # Errors far beyond the known ones are still found.
    time = (1e6 + 20 * size) * np.exp(0.02 * rng.standard_normal(len(size)))
    assert (
        fit(size, time, np.ones(len(size)), error, deviation_ps=draws, complete=True).spread > 5e-3
    )
