"""The work that depends on a program alone is done once for all simulations of it."""

from __future__ import annotations

import numpy as np
import pytest

from tailback import _core
from tailback.evaluate import Change
from tailback.scenario.model import parse
from tailback.simulation import contexts, make_evaluate, prepare
from tailback.simulation.prepare import PreparedScenario
from tailback.traffic.program import Program

TREE = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}


def prepared(**telemetry: bool) -> PreparedScenario:
    stencil = {"kind": "stencil2d", "dims": [4, 4], "size": "32 KiB"}
    job = {"pattern": stencil, "repeat": 2}
    return prepare(parse({"fabric": {"fat_tree": TREE}, "job": [job], "telemetry": telemetry}))


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """Programs whose sends and receives were matched for their labels."""
    out: list[Program] = []
    real = _core.receive_labels

    def counted(program: Program) -> object:
        out.append(program)
        return real(program)

    monkeypatch.setattr(contexts._core, "receive_labels", counted)
    return out


def test_simulations_of_one_program_match_its_labels_once(matched: list[Program]) -> None:
    scenario = prepared()
    evaluate = make_evaluate(scenario)
    back = np.ascontiguousarray(scenario.observed.node[::-1])
    times = {
        evaluate(change).elapsed_ps
        for change in (Change(), Change(network="star"), Change(placement=back))
    }
    assert len(times) > 1
    assert len(matched) == 1 and matched[0] is scenario.observed.program
    # Another program is not mistaken for it.
    other = prepared()
    make_evaluate(other)(Change())
    assert len(matched) == 2 and matched[1] is other.observed.program


def test_receivers_are_told_apart_for_each_placement(matched: list[Program]) -> None:
    scenario = prepared(receivers=True)
    evaluate = make_evaluate(scenario)
    back = np.ascontiguousarray(scenario.observed.node[::-1])
    runs = [
        evaluate(change) for change in (Change(measure=True), Change(placement=back, measure=True))
    ]
    assert len(matched) == 2
    for run in runs:
        node = dict(run.tables["ranks"].select("rank", "node").iter_rows())
        reached = {node[rank] for rank in run.tables["messages"]["dst_rank"].to_list()}
        assert set(run.tables["samples"]["receiver"].to_list()) <= reached
