"""Sums of probabilities whose logarithms are known, without underflow or overflow.

SciPy has such functions too, but takes a third of a second to import.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tailback.arrays import Floats


def log_sum(logs: ArrayLike, axis: int | None = None) -> Floats:
    """Logarithm of the sum of probabilities along an axis, by default of all of them.

    Args:
        logs: Their logarithms; ``-inf`` for an impossibility.
        axis: Axis that is summed.
    """
    logs = np.asarray(logs, np.float64)
    largest = logs.max(axis=axis, keepdims=True)
    # Where all are impossible, the difference of two infinities would be NaN.
    largest = np.where(np.isneginf(largest), 0.0, largest)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(logs - largest).sum(axis=axis, keepdims=True)) + largest
    return np.asarray(total.squeeze(axis=axis) if axis is not None else total.reshape(()))


def probabilities(logs: ArrayLike) -> Floats:
    """Probabilities with a sum of 1 that are proportional to those with these logarithms.

    Args:
        logs: Logarithms, of any shape, at least one of them finite; constants do not matter.
    """
    logs = np.asarray(logs, np.float64)
    relative = np.exp(logs - logs.max())
    return np.asarray(relative / relative.sum())


def probability_of_odds(log_odds: float) -> float:
    """Probability with these odds, from their logarithm."""
    return float(np.exp(-np.logaddexp(0.0, -log_odds)))
