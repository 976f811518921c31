"""Time that comes and goes is told from time that every step costs."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.diagnosis.intermittent import MIN_STEPS, find_intermittent
from tailback.evidence.call_profile import StepTimes

EXPECTED = np.full(20, 100.0)
BURSTS = np.array([0.0, 0.0, 0.0, 80.0, 90.0] * 4)


def steps(excess: np.ndarray, simulated: np.ndarray = EXPECTED) -> StepTimes:
    return StepTimes(EXPECTED + excess, simulated)


def test_bursts_are_found_with_what_they_cost() -> None:
    found = find_intermittent(steps(BURSTS), None, missing_ps=680)
    assert found is not None
    # A quarter of the steps is quiet, so all of what is missing comes and goes.
    assert (found.ps, found.low_ps, found.high_ps) == (680, 680, 680)
    assert (found.steps, found.longer) == (20, 8)


def test_what_every_step_costs_may_be_of_others_or_of_the_model() -> None:
    found = find_intermittent(steps(BURSTS + 34.0), None, missing_ps=1360)
    # Half of the time that the quiet steps take longer too: it may be the model's.
    assert found is not None
    assert (found.low_ps, found.ps, found.high_ps) == (680, 1020, 1360)


@pytest.mark.parametrize("excess", [np.full(20, 50.0), 50.0 + 8.0 * np.array([-1.0, 1.0] * 10)])
def test_steps_that_take_longer_alike_are_no_traffic_of_others(excess: np.ndarray) -> None:
    assert find_intermittent(steps(excess), None, missing_ps=1000) is None


def test_single_long_steps_are_no_traffic_of_others() -> None:
    once = np.full(20, 20.0)
    once[7] = 2000.0
    assert find_intermittent(steps(once), None, missing_ps=2380) is None


def test_steps_of_which_a_slow_cable_predicts_some_are_none() -> None:
    # Every third step does not use the cable.
    used = 60.0 * np.array([1.0, 1.0, 0.0] * 6 + [1.0, 1.0])
    assert find_intermittent(steps(used), None, missing_ps=800) is not None
    cable = steps(used, EXPECTED + 0.5 * used)
    assert find_intermittent(steps(used), cable, missing_ps=800) is None
    other = steps(BURSTS, EXPECTED + 0.5 * used)
    assert find_intermittent(steps(BURSTS), other, missing_ps=800) is not None


@pytest.mark.parametrize("missing_ps", [0, -5])
def test_nothing_missing_is_nothing_to_explain(missing_ps: int) -> None:
    assert find_intermittent(steps(BURSTS), None, missing_ps) is None


def test_few_steps_tell_nothing() -> None:
    few = MIN_STEPS - 1
    short = StepTimes((EXPECTED + BURSTS)[:few], EXPECTED[:few])
    assert find_intermittent(short, None, missing_ps=300) is None
