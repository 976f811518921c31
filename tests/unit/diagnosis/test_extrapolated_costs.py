"""Ranges of costs where repeated steps of the expected run were extrapolated."""

from __future__ import annotations

from tailback.diagnosis.explanation import Cost
from tailback.inference.measured_costs import with_interval
from tests.factories.report_data import make_run


def test_a_range_includes_the_expected_times_interval() -> None:
    cost = Cost(
        cause="slow-link",
        ps=40,
        low_ps=30,
        high_ps=50,
        share=0.4,
        subject="",
        evidence="",
        rests_on=("counters",),
    )
    ranges = {half: with_interval([cost], half, 100)[0] for half in (0, 20, 90)}
    assert ranges[0] == cost and {cost_range.ps for cost_range in ranges.values()} == {40}
    assert (ranges[20].low_ps, ranges[20].high_ps) == (10, 70)
    assert (ranges[90].low_ps, ranges[90].high_ps) == (0, 100)


def test_a_run_states_half_of_its_interval() -> None:
    run = make_run()
    assert run.extrapolated_ps == 0
    run.summary["skipped"] = {"elapsed_low_ps": 40, "elapsed_high_ps": 100}
    assert run.extrapolated_ps == 30
