"""An unknown job is found by what its bursts do to repetitions of messages."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tailback.diagnosis.unknown_job import BURSTS, Draw, UnknownJob, fit_unknown_job

ALONE, MEASURED = 1000, 1400


def fitted(
    elapsed: Callable[[float], float],
    spread: Callable[[Draw], float],
    *,
    off: float = 0.2,
    measured: int = MEASURED,
) -> tuple[UnknownJob | None, list[Draw]]:
    """The fit, and all that was simulated, where a load makes a run so long and so different."""
    seen: list[Draw] = []

    def simulate(draw: Draw) -> Any:
        assert 0.0 < draw.load <= 1.0
        seen.append(draw)
        return SimpleNamespace(elapsed_ps=round(elapsed(draw.load)), draw=draw)

    found = fit_unknown_job(simulate, lambda run: spread(run.draw), ALONE, measured, off)  # type: ignore[attr-defined]
    return found, seen


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_the_load_makes_the_run_as_long_as_it_was(power: float) -> None:
    found, seen = fitted(lambda load: ALONE + 900 * load**power, lambda _: 0.01)
    assert found is not None
    assert found.load == pytest.approx((400 / 900) ** (1 / power), rel=0.1)
    assert found.ps == pytest.approx(400, abs=0.02 * MEASURED)
    assert found.low_ps <= found.ps <= found.high_ps == 400
    # Each kind of bursts was tried, and a few simulations were enough.
    assert {draw.bursts for draw in seen} == set(BURSTS) and len(seen) <= 20


def test_the_bursts_that_agree_best_are_taken_with_the_best_of_their_draws() -> None:
    def spread(draw: Draw) -> float:
        return 0.05 * abs(draw.bursts / 48 - 1) + 0.01 * (draw.seed != 2)

    found, seen = fitted(lambda load: ALONE + 1300 * load, spread)
    assert found is not None and found.spread == 0.0
    assert {(draw.bursts, draw.seed) for draw in seen} >= {(48, 0), (48, 1), (48, 2)}


def test_a_job_that_shares_no_link_with_ours_is_none() -> None:
    found, seen = fitted(lambda load: ALONE + 10 * load, lambda _: 0.0)
    assert found is None and [draw.load for draw in seen] == [0.3, 1.0]


def test_a_job_that_does_not_explain_how_repetitions_differ_is_none() -> None:
    assert fitted(lambda load: ALONE + 900 * load, lambda _: 0.15)[0] is None
    # Nor one that does, where a model that is off by a factor does as well.
    assert fitted(lambda load: ALONE + 900 * load, lambda _: 0.01, off=0.015)[0] is None


def test_nothing_missing_is_nothing_to_explain() -> None:
    found, seen = fitted(lambda load: ALONE, lambda _: 0.0, measured=ALONE)
    assert found is None and not seen


def test_a_job_that_cannot_cost_enough_costs_what_it_can() -> None:
    found, _ = fitted(lambda load: ALONE + 200 * load, lambda _: 0.01)
    assert found is not None and found.load == 1.0
    assert (found.ps, found.high_ps) == (200, 400)
