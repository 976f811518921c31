"""The remedy of a measured run is that of its cause."""

from __future__ import annotations

import pytest

from tailback.diagnosis.model import (
    Candidate,
    Diagnosis,
    Estimate,
    Remedy,
    Saves,
)
from tailback.evidence.model import (
    HostReport,
    Measured,
)
from tailback.inference.measured_costs import FurtherCosts
from tailback.inference.measured_remedy import EVEN_ROUTES, MeasuredGains, predicted_gain
from tailback.units import percent
from tests.factories.explanations import expected, explained, share
from tests.factories.measured_times import MS, measured


def test_a_single_host_precedes_the_network() -> None:
    run = expected(50).model_copy(update={"remedy": None})
    hosts = HostReport(source="the trace", hosts=1, most_ranks=4)
    on_one_host = measured(150).model_copy(update={"hosts": hosts})
    alone = explained(run.model_copy(update={"measured": on_one_host}), on_one_host)
    assert alone.remedy is not None and "look at the host itself" in alone.remedy.action


def test_the_remedy_is_one_for_the_measured_cause() -> None:
    """The model alone blames the pattern, the measured time the placement."""
    run = expected(100, share("placement", 0.4)).model_copy(update={"cause": "pattern"})
    assert run.remedy is not None

    def advise(diagnosis: Diagnosis, *_: object) -> Remedy | None:
        assert run.remedy is not None
        return run.remedy.model_copy(update={"actions": (f"for {diagnosis.cause}",)})

    verdict = explained(run, measured(100), advise=advise)
    assert verdict.cause == "placement"
    assert verdict.remedy is not None and verdict.remedy.action.startswith("for placement")
    # A verdict that no change of the network removes keeps the remedy of the expected run.
    alone = expected(100).model_copy(update={"cause": "pattern"})
    late = FurtherCosts((40 * MS,), (0,))
    other = explained(alone, measured(100), advise=advise, cost=late)
    assert other.cause == "imbalance"
    assert other.remedy is not None and "for pattern" in other.remedy.actions


def test_uneven_routes_are_cured_by_even_ones() -> None:
    """The run with even routes takes 60 ms, the links that were used 36 to 44 ms more."""
    uneven = FurtherCosts((0,), (0,), routing_ps=(36 * MS, 40 * MS, 44 * MS), uneven=1.0)
    verdict = explained(expected(60), measured(100), cost=uneven)
    assert verdict.cause == "routing" and verdict.remedy is not None
    remedy = verdict.remedy
    assert remedy.name == EVEN_ROUTES and "less time than the measured" in remedy.action
    assert remedy.before_ps == pytest.approx(100 * MS, rel=0.02) and remedy.after_ps == 60 * MS
    gain = remedy.predicted_gain
    assert gain is not None and gain.low < 0.4 < gain.high
    assert gain.value == pytest.approx(0.4, abs=0.1)


def test_cost_of_placement_is_its_predicted_gain() -> None:
    run = expected(100, share("placement", 0.4))
    verdict = explained(run, measured(120))
    assert verdict.cause == "placement" and verdict.explanation is not None
    cost, remedy = verdict.explanation.cost("placement"), verdict.remedy
    assert cost is not None and remedy is not None
    gain = remedy.predicted_gain
    assert gain is not None and remedy.name == remedy.placement and remedy.gain == gain.value
    stated = [round(share * 120 * MS) for share in (gain.value, gain.low, gain.high)]
    assert [cost.ps, cost.low_ps, cost.high_ps] == stated
    assert percent(gain.value) in verdict.headline


@pytest.mark.parametrize(
    ("gain", "cause"), [(0.4, "placement"), (0.1, "undetermined"), (0.02, "healthy")]
)
def test_the_gain_decides_an_open_placement(gain: float, cause: str) -> None:
    """Of placements that cost 11 %, some are no fault: one that saves nothing costs nothing."""
    run = expected(100, share("placement", 0.11))
    assert run.remedy is not None
    name, before_ps = run.remedy.name, 100 * MS
    after_ps = round((1.0 - gain) * before_ps)
    candidate = Candidate(name=name, elapsed_ps=after_ps, low_ps=after_ps, high_ps=after_ps)
    proved = {"candidates": [candidate], "gain": gain, "after_ps": after_ps}
    best = run.remedy.model_copy(update={**proved, "before_ps": before_ps})
    verdict = explained(run, measured(100), advise=lambda *_: best)
    assert verdict.cause == cause
    if cause == "undetermined":
        # It helps, whether others would pay as much or not.
        assert verdict.remedy is not None and verdict.remedy.name == name


def test_words_of_gain_are_of_measured_time() -> None:
    run = expected(100, share("placement", 0.4))
    before = Candidate(name="block", elapsed_ps=100 * MS, repetitions=1)
    tried = before.model_copy(update={"name": "tile", "elapsed_ps": 60 * MS})

    def advise(diagnosis: Diagnosis, saves: Saves, _without: object) -> Remedy | None:
        assert run.remedy is not None
        return run.remedy.model_copy(update={"actions": (saves(tried, before),)})

    verdict = explained(run, measured(100), advise=advise)
    assert verdict.remedy is not None
    assert "less time than the measured 100 ms" in verdict.remedy.action
    assert "re-simulation" not in verdict.remedy.action


def test_predicted_gain_is_of_measured_time() -> None:
    remedy = expected(100).remedy
    assert remedy is not None and remedy.gain > 0
    best = next(c for c in remedy.candidates if c.name == remedy.name)

    def predicted(elapsed_ps: int, *, lossy: bool = False) -> Estimate:
        return predicted_gain(best, remedy.before_ps, lasting(elapsed_ps), lossy=lossy)

    def lasting(elapsed_ps: int) -> Measured:
        return measured(100).model_copy(update={"elapsed_ps": elapsed_ps, "parts": []})

    gains = MeasuredGains(lasting(remedy.before_ps), [], "placement", lossy=False)
    as_modelled = gains.stated(remedy)
    assert as_modelled is not None and as_modelled.predicted_gain is not None
    gain = as_modelled.predicted_gain
    assert gain.value == pytest.approx(remedy.gain, abs=0.005)
    assert gain.low < remedy.gain < gain.high
    assert as_modelled.gain_range.endswith(f"({percent(gain.low)} to {percent(gain.high)})")
    # Half of what the model lacks recurs, at the median.
    lacking = remedy.before_ps // 5
    longer = predicted(remedy.before_ps + lacking)
    after = remedy.after_ps + lacking / 2
    assert longer.value == pytest.approx(1 - after / (remedy.before_ps + lacking), abs=0.01)
    # What the model has too much was partly time that the remedy is said to save.
    shorter = predicted(remedy.before_ps * 2 // 3)
    assert 0 < shorter.value < gain.value
    assert shorter.high == pytest.approx(gain.value, abs=0.01)
    # Times of a lossy network are less certain.
    lossy = predicted(remedy.before_ps, lossy=True)
    assert lossy.high - lossy.low > gain.high - gain.low


def test_what_gains_nothing_is_not_said() -> None:
    before = Candidate(name="block", elapsed_ps=100 * MS, repetitions=1)
    gains = MeasuredGains(measured(100), [], "placement", lossy=False)
    little, much = (
        gains.said(before.model_copy(update={"name": "tile", "elapsed_ps": ms * MS}), before)
        for ms in (99, 90)
    )
    assert little == "" and "10 % less time" in much
