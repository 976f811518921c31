"""Intervals of the fluid model, in scenarios that they were not fitted to."""

from __future__ import annotations

import numpy as np
from fluid_bound import intervals, measure, scenarios


def test_intervals_hold_in_scenarios_that_were_not_fitted() -> None:
    """Of 30 other draws 29 are expected in the interval; 25 or fewer have a chance of 2 %."""
    rows = [measure(data, always=False) for data in scenarios(45, seed=77)]
    stated = [row for row in rows if row["stated"]]
    assert len(stated) > 20
    assert sum(row["held"] for row in stated) >= 0.85 * len(stated)
    # An interval that holds anything says nothing.
    assert np.median([row["half"] for row in stated]) < 0.6


def test_further_scenarios_leave_the_interval_as_stated() -> None:
    rng = np.random.default_rng(1)
    beside = []
    for _ in range(300):
        rows = [{"fan_in": False, "error": error} for error in rng.standard_cauchy(200)]
        interval = intervals(rows)[False]
        assert interval is not None
        beside.append(not interval[0] <= rng.standard_cauchy() <= interval[1])
    assert 0.01 < np.mean(beside) < 0.06
    assert intervals(rows[:20])[False] is None
