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


def _found(cause: str, subject: str = "") -> dict[str, Any]:
    return {"cause": cause, "explanation": {"costs": [{"cause": cause, "subject": subject}]}}


@pytest.mark.parametrize(
    ("written", "cause", "subject", "right"),
    [
        ([], "healthy", "", True),
        ([], "undetermined", "", False),
        ([], "placement", "", False),
        (["slow-cable:l2-s1=30%"], "slow-link", "l2[s1] → s1[l2] serves 12.6 of 40 Mb/s", True),
        (["slow-cable:l2-s1=30%"], "slow-link", "s1[l2] → l2[s1] serves 12.6 of 40 Mb/s", True),
        (["slow-cable:l2-s1=30%"], "slow-link", "l1[s1] → s1[l1] serves 12.6 of 40 Mb/s", False),
        (
            ["slow-cable:l2-s1=30%"],
            "slow-link",
            "these fit best: l2[s1] → s1[l2] (12.6 of 40 Mb/s); l1[s0] → s0[l1] (12.6 of 40 Mb/s)",
            True,
        ),
        (
            ["slow-cable:l2-s1=30%"],
            "slow-link",
            "these fit best: l2[s0] → s0[l2] (12.6 of 40 Mb/s); l2[s1] → s1[l2] (12.6 of 40 Mb/s)",
            False,
        ),
        (["slow-cable:l2-s1=30%"], "routing", "", False),
        (["slow-cable:h20-l2=40%"], "slow-link", "h20[e0] → l2[h20] serves 16.9 of 50 Mb/s", True),
        (["slow-cable:l2-s1=30%", "imbalance:9=3"], "imbalance", "rank 9", True),
        (["slow-cable:l2-s1=30%", "imbalance:9=3"], "noise", "", False),
        (["one-spine:s0"], "routing", "", True),
        (["placement"], "placement", "", True),
        (["cross-traffic:h02-h22*3"], "other-traffic", "unknown senders on h02", True),
        (["noise:5%,60ms"], "imbalance", "", False),
    ],
)
def test_a_verdict_is_right_when_it_names_what_was_wrong(
    written: list[str], cause: str, subject: str, right: bool
) -> None:
    assert judge(_causes(*written), _found(cause, subject)) is right


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_cause_can_be_judged(form: str) -> None:
    assert judge(_causes(form), _found("nothing of the kind")) is False
