"""A measured run on a fabric whose file states one cable as slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tailback as tb
from tailback.diagnosis.model import Diagnosis
from tailback.evaluate import Change
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare
from tests.factories.fabric_files import cable_list, cable_tree, with_rate
from tests.factories.otf2_traces import writing
from tests.factories.simulated_traces import RESOLUTION, scripts_of

PATTERN = {
    "kind": "stencil2d",
    "dims": [4, 4],
    "size": "256 KiB",
    "rounds": 10,
    "post": "all",
    "boundary": "skip",
    "compute": "30 us",
}
NAME = "leaf1[p5] → spine0[q5]"


def diagnosed(folder: Path, change: Change) -> Diagnosis:
    """The diagnosis of a trace of the run with this change of the network that the file states."""
    cables = with_rate(cable_tree(leaves=4, spines=1, parallel=4), 12.5, 5)
    (folder / "links.csv").write_text(cable_list(cables))
    data: dict[str, Any] = {
        "fabric": {"file": str(folder / "links.csv")},
        "engine": {"routing": "deterministic"},
        "job": [{"pattern": PATTERN}],
    }
    prepared = prepare(parse(data))
    run = make_evaluate(prepared)(change)
    hosts = [prepared.fabric.host_name[node] for node in prepared.observed.node]
    scripts = scripts_of(prepared.observed.program, run)
    data["job"] = [{"trace": str(writing(folder)(scripts, resolution=RESOLUTION, hosts=hosts))}]
    return tb.diagnose(data, methods=["block"], seeds=1)


def test_stated_slow_cable_that_explains_is_named(tmp_path: Path) -> None:
    diagnosis = diagnosed(tmp_path, Change(computations=True, measure=True))
    assert (
        diagnosis.cause == "slow-link" and f"{NAME} serves 12.5 of 100 Gb/s" in diagnosis.headline
    )
    assert diagnosis.explanation is not None
    cost = diagnosis.explanation.cost("slow-link")
    assert cost is not None and cost.share == pytest.approx(0.64, abs=0.05)
    assert diagnosis.explanation.cost("other-traffic") is None


@pytest.mark.slow
def test_cable_repaired_since_the_discovery_is_no_suspect(tmp_path: Path) -> None:
    diagnosis = diagnosed(tmp_path, Change(computations=True, measure=True, network="healthy"))
    assert diagnosis.cause == "healthy" and NAME not in diagnosis.headline
    assert diagnosis.explanation is not None
    assert any("the fabric states as slow" in line for line in diagnosis.explanation.sources)
