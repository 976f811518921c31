"""The example of a real run with a slow cable: what was injected is found, by the folder alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import tailback as tb
from tailback.errors import ScenarioError
from tailback.sources.lab_case import LabCase
from tailback.sources.source import Source
from tests.factories.repository import ROOT

CASE = ROOT / "examples" / "lab" / "slow-cable"
COST_S = 5.165
"""Time of the iterations less that of the same run without the fault (README.md of the example)."""


@pytest.mark.slow
def test_the_examples_slow_cable_costs_as_ranged() -> None:
    diagnosis = tb.diagnose(CASE, seeds=1, methods=["block"]).diagnosis
    (injected,) = json.loads((CASE / "truth.json").read_text())["causes"]
    assert injected["kind"] == "slow-cable"
    assert diagnosis.cause == "slow-link" and diagnosis.explanation is not None
    cost = diagnosis.explanation.costs[0]
    ends = {end.split("[")[0] for end in cost.links[0].name.split(" → ")}
    assert ends == set(injected["cable"].split("-"))
    assert cost.low_ps <= COST_S * 1e12 <= cost.high_ps
    rested = " ".join(diagnosis.explanation.sources)
    assert "counters of 40 links" in rested and "samples in packets" in rested


def test_options_override_a_labs_folder(tmp_path: Path) -> None:
    case = shutil.copytree(CASE, tmp_path / "mine")
    source = Source.of(case)
    assert source.scenario.name == "mine" and source.case == LabCase.of(case)
    assert source.scenario.job[0].placement_file == case / "rank_host.csv"
    chosen = Source.of(case, hosts="h[00-01]:8", fabric="tapered").scenario
    assert chosen.job[0].hosts == "h[00-01]:8" and chosen.job[0].placement_file is None
    assert chosen.fabric.file is None


def test_a_folder_without_lab_links_is_a_trace(tmp_path: Path) -> None:
    case = shutil.copytree(CASE, tmp_path / "mine")
    (case / "links.csv").unlink()
    assert LabCase.of(case) is None
    with pytest.raises(ScenarioError, match="needs a network"):
        Source.of(case / "trace")


PAIR = ROOT / "examples" / "lab" / "placement"


@pytest.mark.slow
def test_the_examples_remedy_gains_as_predicted(tmp_path: Path) -> None:
    result = tb.diagnose(PAIR / "before", seeds=1, remedies=["placement"])
    (injected,) = json.loads((PAIR / "before" / "truth.json").read_text())["causes"]
    assert injected["kind"] == result.diagnosis.cause == "placement"
    result.write(tmp_path / "diagnosis")
    confirmation = tb.confirm(tmp_path / "diagnosis", [PAIR / "after"])
    assert confirmation.outcome == "confirmed"
