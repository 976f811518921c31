"""The table of predicted and measured gains in the lab."""

from dataclasses import replace

import pytest
from lab_gains import HEAD, PLACEMENTS, Gain, _row, drawn, summary

from tailback.lab.causes import Setting, apply
from tailback.lab.plan import Plan
from tailback.lab.spec import load
from tests.factories.repository import ROOT

HIT = Gain(
    0,
    "by-leaf",
    "placement",
    "tile",
    (0.2, 0.1, 0.3),
    (0.15, 0.05, 0.25),
    (0.14, 0.16),
    True,
    0.05,
    "confirmed",
    "within",
    True,
)
MISS = replace(
    HIT,
    number=1,
    measured=(-0.1, -0.2, -0.05),
    covered=False,
    error=0.3,
    outcome="refuted",
    harm=True,
)
NONE = Gain(2, "by-node", "undetermined")


@pytest.mark.parametrize("beside", [False, True])
def test_cases_have_every_placement(beside: bool) -> None:
    plan = Plan(load(ROOT / "examples" / "lab" / "leaf-spine.toml"))
    cases = [drawn(1, number, beside=beside)[0] for number in range(40)]
    assert cases == [drawn(1, number, beside=beside)[0] for number in range(40)]
    kinds = {cause.partition(":")[2].partition(",")[0] for cause, *_ in cases}
    assert kinds == set(PLACEMENTS)
    others = {other.partition(":")[0] for _, *more in cases for other in more}
    assert others == ({"slow-cable", "cross-traffic", "imbalance"} if beside else set())
    for causes in cases:
        setting = Setting.nominal(plan)
        for cause in causes:
            apply(cause, setting, plan)


def test_rows_fit_the_head() -> None:
    columns = HEAD.splitlines()[0].count("|")
    assert all(_row(gain).count("|") == columns for gain in (HIT, MISS, NONE))
    assert "no remedy" in _row(NONE) and "20 % (10 to 30)" in _row(HIT)


def test_summary_counts_cases_with_remedy() -> None:
    figures = summary([HIT, MISS, NONE])
    assert (figures["runs"], figures["with_remedy"]) == (3, 2)
    assert (figures["covered"], figures["in_cost"], figures["harm"]) == (1, 2, 1)
    assert figures["median_absolute_error"] == 0.175
    assert figures["outcomes"] == {"confirmed": 1, "refuted": 1, "undetermined": 0}
    assert summary([NONE])["median_error"] is None
