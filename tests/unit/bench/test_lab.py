"""Verdicts on runs of a lab are held against the truth."""

from typing import Any

import pytest
from lab import judge

from tailback.lab.causes import FORMS, Setting, apply
from tailback.lab.plan import Plan
from tailback.lab.spec import load
from tests.factories.repository import ROOT


def _causes(*written: str) -> list[dict[str, Any]]:
    plan = Plan(load(ROOT / "examples" / "lab" / "leaf-spine.toml"))
    setting = Setting.nominal(plan)
    for text in written:
        apply(text, setting, plan)
    return setting.causes


def _found(cause: str, *links: str) -> dict[str, Any]:
    cost = {
        "cause": cause,
        "links": [{"name": name} for name in links],
        "one_of_links": len(links) > 1,
    }
    return {"cause": cause, "explanation": {"costs": [cost]}}


@pytest.mark.parametrize(
    ("written", "cause", "links", "right"),
    [
        ([], "healthy", [], True),
        ([], "undetermined", [], False),
        ([], "placement", [], False),
        (["slow-cable:l2-s1=30%"], "slow-link", ["l2[s1] → s1[l2]"], True),
        (["slow-cable:l2-s1=30%"], "slow-link", ["s1[l2] → l2[s1]"], True),
        (["slow-cable:l2-s1=30%"], "slow-link", ["l1[s1] → s1[l1]"], False),
        (
            ["slow-cable:l2-s1=30%"],
            "slow-link",
            ["l2[s1] → s1[l2]", "l1[s0] → s0[l1]"],
            True,
        ),
        (
            ["slow-cable:l2-s1=30%"],
            "slow-link",
            ["l2[s0] → s0[l2]", "l2[s1] → s1[l2]"],
            False,
        ),
        (["slow-cable:l2-s1=30%"], "routing", [], False),
        (["slow-cable:h20-l2=40%"], "slow-link", ["h20[e0] → l2[h20]"], True),
        (["slow-cable:l2-s1=30%", "imbalance:9=3"], "imbalance", [], True),
        (["slow-cable:l2-s1=30%", "imbalance:9=3"], "noise", [], False),
        (["one-spine:s0"], "routing", [], True),
        (["placement"], "placement", [], True),
        (["cross-traffic:h02-h22*3"], "other-traffic", [], True),
        (["noise:5%,60ms"], "imbalance", [], False),
    ],
)
def test_a_right_verdict_names_what_was_wrong(
    written: list[str], cause: str, links: list[str], right: bool
) -> None:
    assert judge(_causes(*written), _found(cause, *links)) is right


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_cause_can_be_judged(form: str) -> None:
    assert judge(_causes(form), _found("nothing of the kind")) is False
