"""A diagnosis of a measured run remembers what it simulated; its answer does not depend on that."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tailback as tb
from tailback.api import expected_run
from tailback.inference import explain, search
from tailback.inference.comparisons import Comparisons
from tailback.inference.explain import ScenarioWithEvidence
from tailback.inference.hypothesis_space import HypothesisSpace
from tailback.inference.machine_models import PredictionCache
from tailback.run.run import Run
from tailback.simulation import execute, simulate
from tailback.simulation.evaluate import make_simulation
from tests.factories.evidence_traces import Script, collective, receive, send
from tests.factories.otf2_traces import writing

FABRIC = {"fat_tree": {"hosts_per_leaf": 2, "leaves": 4, "aggregation": 2}}
TURNS, SIZE = 4, 1 << 18


def scripts() -> list[Script]:
    """Eight ranks that send to one another in turn, of which two wait for a slow cable."""
    out: list[Script] = [[] for _ in range(8)]
    time = 0
    for turn in range(TURNS):
        step = 1 + turn % 3
        slowest = time
        for rank, script in enumerate(out):
            pair = rank ^ step
            long = 190_000 if {rank, pair} & {0, 1} else 45_000
            begin, half, end = time + 20_000, time + 20_000 + long, time + 20_000 + 2 * long
            sent = (send, "to"), (receive, "source")
            for (call, end_of), (enter, leave) in zip(
                sent if rank < pair else sent[::-1], ((begin, half), (half, end)), strict=True
            ):
                script += call(enter, leave, size=SIZE, **{end_of: pair})  # type: ignore[operator]
            slowest = max(slowest, end)
        for script in out:
            script += collective(slowest, slowest + 5_000)
        time = slowest + 5_000
    return out


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writing(tmp_path_factory.mktemp("trace"))(scripts())


def diagnosed(
    trace: Path, patch: pytest.MonkeyPatch
) -> tuple[tb.DiagnosisResult, int, list[ScenarioWithEvidence]]:
    """The diagnosis, how many simulations it took, and what the evidence explained."""
    simulated, explained = list[Any](), list[ScenarioWithEvidence]()
    engine: Any = sys.modules[execute.__module__]
    run, add = engine._EngineRun._simulate, explain.add_evidence

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        simulated.append(self)
        return run(self, *arguments, **named)

    def noted(*arguments: Any, **named: Any) -> ScenarioWithEvidence:
        explained.append(add(*arguments, **named))
        return explained[-1]

    patch.setattr(engine._EngineRun, "_simulate", counted)
    patch.setattr(expected_run, "add_evidence", noted)
    patch.setattr(HypothesisSpace, "recorded_on", lambda *_: True)
    patch.setattr(search, "MIN_STRETCHES", 1)
    scenario = {"fabric": FABRIC, "job": [{"trace": str(trace)}], "seed": 3}
    result = tb.diagnose(scenario, seeds=2, methods=["block"], remedies=["placement"], threads=1)
    return result, len(simulated), explained


@pytest.mark.slow
def test_cached_predictions_give_the_same_answer(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        cached, fewer, _ = diagnosed(trace, patch)
    assert cached.diagnosis.explanation is not None

    def again(_: Any, __: Any, simulate: Callable[[], tuple[Any, bool]]) -> Any:
        return simulate()[0]

    with monkeypatch.context() as patch:
        patch.setattr(PredictionCache, "find_or", again)
        patch.setattr(Comparisons, "of_links", property(lambda _: True))
        patch.setattr(explain, "_others", lambda *_: [])
        repeated, more, _ = diagnosed(trace, patch)
    assert cached.diagnosis == repeated.diagnosis
    # Calls block, so adapters never have a choice.
    assert fewer < 0.75 * more, (fewer, more)


@pytest.mark.slow
def test_the_search_does_not_repeat_the_expected_run(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for probeless in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(explain, "has_no_probes", lambda _, probeless=probeless: probeless)
            result, simulations, _ = diagnosed(trace, patch)
            counts.append((simulations, result.diagnosis))
    assert counts[0][0] == counts[1][0] - 1 and counts[0][1] == counts[1][1]


@pytest.mark.slow
def test_search_runs_belong_to_the_explained_scenario(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(first: Run, other: Run) -> None:
        assert first.summary == other.summary and first.notes == other.notes
        assert first.scenario == other.scenario
        for name, table in other.tables.items():
            assert first.tables[name].equals(table), name

    with monkeypatch.context() as patch:
        _, _, (explained,) = diagnosed(trace, patch)
    same(explained.run, simulate(explained.prepared, threads=1))
    assert explained.others
    for change, run in explained.others:
        assert change.measure and change.computations
        same(run, make_simulation(explained.prepared, threads=1)(change))
