"""Pairs of miniGhost's rules, predicted from the single ones."""

from __future__ import annotations

import pytest

from studies.taffet2019 import minighost_pairs
from studies.taffet2019.minighost_pairs import READING, chosen, pairs
from studies.taffet2019.minighost_rules import Outcome, outcomes
from tests.factories.repository import ROOT


def test_predictions_are_products_of_both_factors() -> None:
    base, *single = outcomes()
    by_name = {outcome.name: outcome for outcome in single}
    for pair in pairs():
        first, other = (by_name[setting.name] for setting in pair.settings)
        assert pair.predicted.tiling == pytest.approx(first.tiling * other.tiling / base.tiling)
        assert pair.predicted.together * base.together == pytest.approx(
            first.together * other.together
        )


def test_rules_of_one_setting_are_not_combined() -> None:
    names = {frozenset(setting.name for setting in pair.settings) for pair in pairs()}
    assert frozenset(["buffers of 32 KiB", "buffers of 128 KiB"]) not in names
    assert frozenset(["buffers of 32 KiB", "axes in the order x, y, z"]) in names
    assert set(minighost_pairs.SAME) <= {outcome.name for outcome in outcomes()}


def test_nearest_pairs_precede_the_drawn() -> None:
    near, others = chosen(pairs(), 8)
    far = [pair.predicted.distance(READING) for pair in near]
    assert far == sorted(far) and far[-1] <= minighost_pairs.NEAR
    assert all(pair.predicted.distance(READING) > minighost_pairs.NEAR for pair in others)
    assert len(others) == 8


def test_the_page_lists_what_the_command_predicts() -> None:
    near, _ = chosen(pairs(), 0)
    page = (ROOT / "studies" / "taffet2019" / "README.md").read_text(encoding="utf-8")
    assert near
    for pair in near:
        assert f"| {pair.predicted.name} | predicted near |" in page


def test_figures_that_are_met_are_bold() -> None:
    assert minighost_pairs.figures(Outcome("", 2.9, 4.64)) == "**2.90×**, **60 %**, **4.64×**"
    assert minighost_pairs.figures(Outcome("", 2.0, 4.64)) == "2.00×, 132 %, **4.64×**"
