"""An unknown job is tried at loads that make the run as long as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailback.diagnosis.cable_search import Outcome
from tailback.inference.unknown_job import (
    BURSTS,
    DRAWS,
    FIRST_LOAD,
    LEAST_HOSTS,
    MAX_TRIALS,
    Draw,
    Tried,
    draws,
    try_unknown_job,
)

ALONE, MEASURED = 1000, 1400


def tried(
    elapsed: Callable[[float], float], *, measured: int = MEASURED
) -> tuple[list[Tried], list[Draw]]:
    """What was fitted, and all that was simulated, where a load makes a run so long."""
    seen: list[Draw] = []

    def simulate(draw: Draw) -> Outcome:
        assert 0.0 < draw.load <= 1.0
        seen.append(draw)
        return Outcome(round(elapsed(draw.load)), {"spread": 0.01})

    return list(try_unknown_job(simulate, draws(), ALONE, measured)), seen


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_the_load_reproduces_the_run_time(power: float) -> None:
    trials, seen = tried(lambda load: ALONE + 900 * load**power)
    assert [trial.draw.seed for trial in trials] == list(range(DRAWS))
    for trial in trials:
        assert trial.draw.load == pytest.approx((400 / 900) ** (1 / power), rel=0.1)
        assert trial.outcome.elapsed_ps == pytest.approx(MEASURED, abs=0.02 * MEASURED)
    # A few simulations were enough.
    assert len(seen) <= MAX_TRIALS * DRAWS


def test_the_number_of_simulations_is_limited() -> None:
    seen: list[Draw] = []

    def simulate(draw: Draw) -> Outcome:
        seen.append(draw)
        return Outcome(round(ALONE + 900 * draw.load**3), {})

    trials = list(try_unknown_job(simulate, draws(), ALONE, MEASURED, more=lambda: len(seen) < 8))
    assert len(seen) == 8
    assert 1 < len(trials) < DRAWS


def test_jobs_differ_in_hosts_partners_and_bursts() -> None:
    jobs = draws()
    assert jobs == draws() and len(jobs) == DRAWS
    assert jobs[0].hosts == 1.0 and {job.load for job in jobs} == {FIRST_LOAD}
    assert len({job.seed for job in jobs}) == len({job.hosts for job in jobs}) == DRAWS
    assert LEAST_HOSTS <= min(job.hosts for job in jobs) < 0.5
    bursts = [job.bursts for job in jobs]
    assert BURSTS[0] <= min(bursts) < 20 and 50 < max(bursts) <= BURSTS[1]


def test_a_job_on_other_links_is_not_tried() -> None:
    trials, seen = tried(lambda load: ALONE + 10 * load)
    assert not trials and [draw.load for draw in seen] == [0.3, 1.0]


def test_nothing_missing_is_nothing_to_explain() -> None:
    trials, seen = tried(lambda load: ALONE, measured=ALONE)
    assert not trials and not seen


def test_an_insufficient_job_costs_what_it_can() -> None:
    trials, _ = tried(lambda load: ALONE + 200 * load)
    assert {trial.draw.load for trial in trials} == {1.0}
    assert {trial.outcome.elapsed_ps for trial in trials} == {ALONE + 200}
