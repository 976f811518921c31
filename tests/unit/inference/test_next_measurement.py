"""The next measurement: what may be measured, and what that is expected to tell."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tailback.api.diagnose import DiagnosisResult, diagnose
from tailback.cli.render import diagnosis_lines
from tailback.fabric.degraded import SlowLink
from tailback.inference import measured_verdict
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.hypotheses import Posterior
from tailback.inference.next_measurement import (
    Measurement,
    MeasurementChoice,
    information,
    possible_measurements,
    shifted,
)
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tests.factories.traced_simulations import STENCIL, traced

PREPARED = prepare(
    parse(
        {
            "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 2}},
            "job": [{"pattern": {"kind": "ring", "ranks": 4, "size": "1 KiB"}}],
        }
    )
)
HOST_LINK = int(np.flatnonzero(PREPARED.fabric.link_dst == PREPARED.observed.node[3])[0])
"""The cable of the last rank's host, from its switch."""


def possible(evidence: NetworkEvidence, **stated: Any) -> list[Measurement]:
    space: Any = SimpleNamespace(evidence=evidence)
    usual = {"assumed_hosts": False, "candidates": (), "counted": True, "pairs": ""}
    return possible_measurements(space, PREPARED, **(usual | stated))


def choice(*kinds: str) -> MeasurementChoice:
    """A choice without places of slow cables, so that nothing is simulated."""
    machine = ("round-robin", "adaptive")
    prepared: Any = SimpleNamespace(fabric=SimpleNamespace(link_interface=None))
    space: Any = SimpleNamespace(
        evidence=NetworkEvidence(),
        machines={machine: SimpleNamespace(prepared=prepared, name=machine)},
        alone=lambda *_, **__: SimpleNamespace(summary={"events": 1}),
    )
    posterior: Any = SimpleNamespace(
        weighed=(), best=SimpleNamespace(machine=machine), slower_machine=(0.0, ())
    )
    return MeasurementChoice(
        space,
        posterior,
        [Measurement(kind, kind, ("do", kind)) for kind in kinds],  # type: ignore[arg-type]
    )


# --- information -------------------------------------------------------------------------------


def test_information_is_the_fall_of_the_entropy() -> None:
    even = np.array([0.5, 0.5])
    assert information(even, np.eye(2)) == pytest.approx(1.0)
    assert information(even, np.full((2, 2), 0.5)) == pytest.approx(0.0)
    assert information(np.array([0.9, 0.1]), np.eye(2)) == pytest.approx(0.469, abs=1e-3)
    # A binary symmetric channel with an error of 0.1: 1 - H(0.1).
    assert information(even, np.array([[0.9, 0.1], [0.1, 0.9]])) == pytest.approx(0.531, abs=1e-3)


def test_impossible_outcomes_have_no_information() -> None:
    channel = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    assert np.isfinite(information(np.array([1.0, 0.0]), channel))


@pytest.mark.parametrize(
    ("chances", "kind"),
    [
        ({"other-traffic": 0.5, "healthy": 0.5, "unexplained": 0.0}, "counters"),
        ({"imbalance": 0.5, "other-traffic": 0.5, "unexplained": 0.0}, "counters"),
        ({"healthy": 0.5, "slow-link": 0.5, "unexplained": 0.0}, "pairs"),
    ],
)
def test_the_most_telling_measurement_is_chosen(chances: dict[str, float], kind: str) -> None:
    measurements = choice("jobs", "errors", "pairs", "counters")
    ranked = measurements.ranked(chances)
    best = measurements.best(ranked)
    assert best is not None and (best.kind, best.command) == (kind, ["do", kind])
    bits = [bits for bits, _ in ranked]
    assert bits == sorted(bits, reverse=True) and 0.0 < bits[0] <= 1.0


def test_measurements_that_tell_nothing_are_not_named() -> None:
    measurements = choice("jobs", "errors", "pairs")
    ranked = measurements.ranked({"placement": 0.6, "imbalance": 0.4})
    assert ranked[0][0] == 0.0
    assert measurements.best(ranked) is None


def test_unknown_hosts_are_asked_for_first() -> None:
    unknown = {"healthy": 0.0, "unexplained": 1.0}
    (_, first), *_ = choice("hosts", "counters", "pairs").ranked(unknown)
    assert first.kind == "hosts"


def test_program_causes_are_not_told_apart_by_networks() -> None:
    chances = {"imbalance": 0.5, "noise": 0.5, "unexplained": 0.0}
    assert [bits for bits, _ in choice("jobs", "counters", "pairs").ranked(chances)] == [0.0] * 3


def test_accounts_are_all_of_the_probability() -> None:
    accounts = choice().accounts({"slow-link": 0.2, "noise": 0.3, "unexplained": 0.5})
    assert sum(account.probability for account in accounts) == pytest.approx(1.0)


# --- what may be measured ----------------------------------------------------------------------


def test_only_missing_evidence_is_asked_for() -> None:
    counters: Any = SimpleNamespace()
    asked = [m.kind for m in possible(NetworkEvidence()) if m.asked]
    assert asked == ["counters"]
    cables = {"candidates": (SlowLink(HOST_LINK, 1.0),)}
    assert [m.kind for m in possible(NetworkEvidence(), **cables) if m.asked] == [
        "forwarding",
        "counters",
    ]
    assert not any(m.asked for m in possible(NetworkEvidence(counters, jobs=())))
    (of_cables,) = [
        m
        for m in possible(NetworkEvidence(counters, jobs=()), **cables, counted=False)
        if m.kind == "counters"
    ]
    assert of_cables.asked and of_cables.subjects == (PREPARED.fabric.link_name(HOST_LINK),)


def test_a_job_on_one_host_has_no_pairs() -> None:
    kinds = {m.kind for m in possible(NetworkEvidence())}
    assert {"pairs", "second-run"} <= kinds
    (again,) = [m for m in possible(NetworkEvidence()) if m.kind == "second-run"]
    assert again.subjects[-1] == PREPARED.fabric.host_name[0]


def test_a_suspect_cables_host_is_tested_first() -> None:
    (pairs,) = [
        m
        for m in possible(NetworkEvidence(), candidates=(SlowLink(HOST_LINK, 1.0),))
        if m.kind == "pairs"
    ]
    assert pairs.command[-1] == PREPARED.fabric.host_name[PREPARED.observed.node[3]]


def test_shifted_ranks_run_on_the_next_host() -> None:
    node = PREPARED.observed.node
    assert shifted(PREPARED).tolist() == np.roll(node, -1).tolist()


# --- in a diagnosis ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undetermined(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[DiagnosisResult, MeasurementChoice]:
    """A trace of a run with a slow cable, of which the paths are unknown, and what may follow."""
    small = {**STENCIL, "dims": [2, 4], "rounds": 6}
    data, _ = traced(tmp_path_factory.mktemp("trace"), (16,), 0.5, pattern=small)
    choices: list[MeasurementChoice] = []
    original = measured_verdict._with_next_measurement

    def kept(explanation: Any, measurements: MeasurementChoice, decision: Any) -> Any:
        choices.append(measurements)
        return original(explanation, measurements, decision)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_verdict, "_with_next_measurement", kept)
        result = diagnose(data, methods=["block"], remedies=["placement"], seeds=1)
    assert result.diagnosis.cause == "undetermined"
    return result, choices[0]


def test_an_undetermined_verdict_ends_with_a_command(
    undetermined: tuple[DiagnosisResult, MeasurementChoice], tmp_path: Path
) -> None:
    result, _ = undetermined
    explanation = result.diagnosis.explanation
    assert explanation is not None and explanation.next_measurement is not None
    measurement = explanation.next_measurement
    assert measurement.kind == "counters" and measurement.bits > 0.3
    assert shlex.split(measurement.command_line) == measurement.command
    screen = "\n".join(diagnosis_lines(result.diagnosis, tmp_path))
    assert f"  $ {measurement.command_line}" in screen and "still missing" not in screen
    assert explanation.missing[0] == measurement.text
    assert result.diagnosis.remedy is not None
    assert measurement.text in result.diagnosis.remedy.action
    result.write(tmp_path / "out")
    written = json.loads((tmp_path / "out" / "diagnosis.json").read_text())["explanation"]
    assert written["next_measurement"]["command"][:2] == ["tailback", "collect"]
    assert "Next measurement" in (tmp_path / "out" / "report.html").read_text()


def test_counters_tell_simulated_cables_apart(
    undetermined: tuple[DiagnosisResult, MeasurementChoice],
) -> None:
    searched = undetermined[1]
    space, best = searched.space, searched.posterior.best
    slow = [
        replace(best, slow=(SlowLink(link, 30.0),), alone_ps=best.outcome.elapsed_ps)
        for link in (0, 4)
    ]
    posterior = Posterior([best, *slow], searched.posterior.model, space.prior())
    measurements = MeasurementChoice(space, posterior, searched.possible)
    chances = {"slow-link": 0.9, "healthy": 0.1, "unexplained": 0.0}
    accounts = measurements.accounts(chances)
    assert sum(account.hypothesis is not None for account in accounts) == 2
    probability = np.array([account.probability for account in accounts])
    entropy = information(probability, np.eye(len(accounts)))
    bits = {m.kind: bits for bits, m in measurements.ranked(chances)}
    assert 0.1 < bits["counters"] < entropy and bits["jobs"] == 0.0
    # Each measurement with the run as it is, and with each of the cables.
    assert {kind for kind, _ in measurements.runs} == {"forwarding", "counters", "second-run"}
    assert len(measurements.runs) == 9


def test_verdicts_have_no_next_measurement(tmp_path: Path) -> None:
    data, _ = traced(tmp_path, engine={"routing": "deterministic"})
    explanation = diagnose(
        data, methods=["block"], remedies=["placement"], seeds=1
    ).diagnosis.explanation
    assert explanation is not None and explanation.next_measurement is None
    assert any("tailback collect" in text for text in explanation.missing)
