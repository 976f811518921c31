"""The confidence of a verdict on an expected run: the share of variations in which it holds."""

from __future__ import annotations

import pytest

from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.confidence import TimeUse, count_agreement, main_cause
from tailback.diagnosis.model import Agreement, Cause
from tailback.diagnosis.waterfall import VariedTimes
from tests.factories.diagnosis_runs import other_run

COMMUNICATING = TimeUse(communication=1.0, wire=0.0)


def varied(pattern: int, placement: int, run_ps: int = 100) -> VariedTimes:
    """A variation without other costs; what contention does not need is adapters' time."""
    base = 100 - pattern - placement
    steps = {
        "injection": base, "pattern": base + pattern, "placement": 100, "routing": 100,
        "slow links": 100, "other traffic": 100,
    }  # fmt: skip
    return VariedTimes(steps, run_ps)


def test_the_confidence_is_the_share_of_variations_with_the_same_main_cause() -> None:
    variations = [varied(10, 40)] * 7 + [varied(40, 10)] * 2 + [varied(1, 2)]
    found = count_agreement("placement", variations, {}, COMMUNICATING)
    assert (found.holds, found.of, found.otherwise) == (7, 10, "pattern")
    assert found.confidence == pytest.approx(7.5 / 11)


def test_few_variations_that_agree_are_less_sure_than_many() -> None:
    sure = [Agreement(holds=n, of=n).confidence for n in (1, 5, 15, 100)]
    assert sure == sorted(sure) and sure[0] == 0.75 and sure[-1] < 1.0
    assert Agreement(holds=15, of=15, identified=0.5).confidence == pytest.approx(sure[2] / 2)


def test_unexplained_time_counts_in_every_variation() -> None:
    hidden: dict[Cause, float] = {"slow-link": 0.2}
    found = count_agreement("slow-link", [varied(10, 15), varied(10, 25)], hidden, COMMUNICATING)
    assert (found.holds, found.otherwise) == (1, "placement")


def test_contention_that_does_not_fit_into_the_time_of_the_run_is_scaled_down() -> None:
    """Adapters need 50 of 52 units, so contention costs at most 2, less than is worth fixing."""
    found = count_agreement("not-network", [varied(10, 40, run_ps=52)], {}, COMMUNICATING)
    assert found.holds == 1


@pytest.mark.parametrize(
    ("cost", "communication", "wire", "told"),
    [
        ({"pattern": 0.04, "placement": 0.051}, 1.0, 0.9, "placement"),
        ({"pattern": 0.0, "placement": 0.049}, 1.0, 0.5, "injection"),
        ({"pattern": 0.0, "placement": 0.049}, 1.0, 0.49, "not-network"),
        # A fifth of the time spent communicating, and 2 % of the whole.
        ({"pattern": 0.0, "placement": 0.021}, 0.1, 0.0, "placement"),
        ({"pattern": 0.0, "placement": 0.021}, 0.11, 0.0, "not-network"),
        ({"pattern": 0.0, "placement": 0.019}, 0.05, 0.0, "not-network"),
    ],
)
def test_the_most_expensive_cause_must_be_worth_fixing(
    cost: dict[Cause, float], communication: float, wire: float, told: Cause
) -> None:
    assert main_cause(cost, TimeUse(communication, wire)) == told


def test_samples_alone_are_less_sure_the_more_stays_open() -> None:
    clear, thin = diagnose_cause(other_run()), diagnose_cause(other_run(seed=2, log=False))
    assert clear.basis == thin.basis == "samples"
    assert 0 < clear.confidence < 1 and clear.agreement is None
