"""Intervals of the fluid model, in scenarios that they were not fitted to."""

from __future__ import annotations

import numpy as np
import pytest
from fluid_bound import is_inside, measure, quantiles, scenarios


def test_intervals_hold_in_scenarios_that_were_not_fitted() -> None:
    """Of 30 other draws 29 are expected in the interval; 26 or fewer have a chance of 2 %."""
    rows = [measure(data) for data in scenarios(45, seed=77)]
    stated = [row for row in rows if row["stated"]]
    assert len(stated) > 20
    assert sum(row["held"] for row in stated) >= 0.9 * len(stated)
    # An interval that holds anything says nothing.
    assert np.median([row["half"] for row in stated]) < 0.6


def test_further_scenarios_leave_the_interval_as_stated() -> None:
    rng = np.random.default_rng(1)
    beside = []
    for _ in range(300):
        *rows, further = [{"beyond": (error, error)} for error in rng.standard_cauchy(201)]
        beside.append(not is_inside(further, quantiles(rows)))
    assert 0.005 < np.mean(beside) < 0.045
    with pytest.raises(ValueError, match="too few"):
        quantiles(rows[:20])
