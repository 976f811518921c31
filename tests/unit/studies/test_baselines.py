"""What fits must beat, on shares whose answers are known."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from studies import baselines

THEIRS = np.array([0.1, 0.5, 0.9])


def test_reordered_shares_are_all_orders() -> None:
    ours = np.array([0.2, 0.3, 0.7])
    orders = [np.mean((np.array(order) - THEIRS) ** 2) for order in permutations(ours)]
    assert baselines.rms_reordered(ours, THEIRS) == pytest.approx(np.sqrt(np.mean(orders)))


def test_related_classes_are_predicted_from_the_others() -> None:
    """In every draw the third share is one less the first, as in the published ones."""
    first = np.linspace(0, 1, 101)
    shares = np.column_stack([first, np.full(101, 0.5), 1 - first])
    allowed = np.ones(101, bool)
    predicted = baselines.predict_left_out(shares, THEIRS, allowed, keep=1)
    assert predicted == pytest.approx(THEIRS)
    text, better = baselines.baseline_table(shares, THEIRS, allowed, keep=1)
    assert better and "better than a constant" in text


def test_unrelated_classes_do_not_beat_a_constant() -> None:
    shares = np.random.default_rng(1).random((400, 3))
    text, better = baselines.baseline_table(shares, THEIRS, np.ones(400, bool), keep=4)
    # The nearest draw is near all the same.
    assert not better and "no better than a constant" in text
    assert "| the nearest draw | all of them | 0.0" in text
