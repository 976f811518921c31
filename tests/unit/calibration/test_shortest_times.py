"""End points below the shortest times of messages, whatever noise and others' traffic add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tailback.calibration.shortest_times import Gaps, PairTimes, end_points

END_PS, NOISE_PS = 1e6, 30e3
NO_GAPS = Gaps(np.zeros(0), np.zeros(0))


def cell(
    pairs: int, rng: np.random.Generator, late_ps: float = 0, messages: int = 1, others: float = 1e4
) -> PairTimes:
    """Shortest times of pairs that met exponential noise in both directions."""
    extra = rng.exponential(NOISE_PS, (pairs, 2, messages)).min(axis=2).mean(axis=1)
    time = END_PS + extra + late_ps * (np.arange(pairs) == 0)
    return PairTimes(time, np.full((pairs, 2), float(messages)), np.full((pairs, 2), others))


@pytest.mark.slow
def test_intervals_hold_end_points_as_often_as_stated() -> None:
    rng = np.random.default_rng(0)
    inside, error = [], []
    for _ in range(40):
        ends = end_points([cell(int(rng.integers(1, 7)), rng) for _ in range(12)], NO_GAPS, 1)
        assert ends is not None
        draws = ends.time_ps[:, None] + ends.deviation_ps
        low, high = np.quantile(draws, [0.025, 0.975], axis=1)
        inside += ((low <= END_PS) & (high >= END_PS)).tolist()
        error += (ends.time_ps - END_PS).tolist()
    # Chance adds one point (one standard deviation) to 95 % ± 3 %.
    assert 0.91 <= np.mean(inside) <= 0.99
    assert abs(np.mean(error)) < 0.15 * NOISE_PS


@pytest.mark.slow
def test_few_pairs_are_not_later_than_many() -> None:
    # Twice the shortest time less the second shortest is 0.5 × the noise too late for one pair.
    rng = np.random.default_rng(1)
    error = []
    for _ in range(40):
        ends = end_points(
            [cell(1, rng), cell(2, rng), *(cell(8, rng) for _ in range(6))], NO_GAPS, 1
        )
        assert ends is not None
        error.append(ends.time_ps - END_PS)
    mean = np.mean(error, axis=0)
    assert abs(mean[0] - mean[2:].mean()) < 0.3 * NOISE_PS
    assert abs(mean[1] - mean[2:].mean()) < 0.25 * NOISE_PS


def test_messages_that_met_others_widen_few_intervals() -> None:
    errors = []
    for late_ps in (0, 3e6):
        rng = np.random.default_rng(2)
        cells = [cell(5, rng, late_ps if number % 6 == 0 else 0) for number in range(12)]
        ends = end_points(cells, NO_GAPS, 1)
        assert ends is not None
        errors.append(np.median(ends.error_ps))
    assert errors[1] < 2 * errors[0]


@pytest.mark.slow
def test_messages_that_met_little_keep_the_noise() -> None:
    # Delays of the size of the noise itself, for all messages with others' traffic about them.
    rng = np.random.default_rng(5)
    error, width = [], []
    for _ in range(20):
        alone = [cell(4, rng, others=0) for _ in range(6)]
        met = [cell(4, rng, others=1e6) for _ in range(6)]
        delay = rng.exponential(3 * NOISE_PS, (6, 4, 2)).mean(axis=2)
        late = zip(met, delay, strict=True)
        met = [
            replace(alone_cell, time_ps=alone_cell.time_ps + extra) for alone_cell, extra in late
        ]
        ends = end_points([*alone, *met], NO_GAPS, 1)
        assert ends is not None
        error += (ends.time_ps[:6] - END_PS).tolist()
        width += ends.error_ps[:6].tolist()
    assert abs(np.mean(error)) < 0.08 * NOISE_PS
    assert np.median(width) < 0.35 * NOISE_PS


def test_repeated_messages_of_one_pair_show_the_noise() -> None:
    rng = np.random.default_rng(3)
    cells = [cell(1, rng, messages=4, others=0) for _ in range(3)]
    gaps = Gaps(rng.exponential(NOISE_PS, 60), np.zeros(60))
    ends = end_points(cells, gaps, 1)
    assert ends is not None
    # The mean of two exponentials, each of a quarter of the noise.
    assert ends.error_ps == pytest.approx(NOISE_PS / 4 / np.sqrt(2), rel=0.35)
    assert ends.time_ps == pytest.approx(END_PS, abs=NOISE_PS)


def test_too_few_times_tell_no_noise() -> None:
    rng = np.random.default_rng(4)
    assert end_points([cell(2, rng), cell(3, rng)], NO_GAPS, 1) is None
