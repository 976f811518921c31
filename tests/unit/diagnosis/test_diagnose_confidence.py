"""The stated confidence: what a verdict rests on, and how clearly it was reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import pytest

from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.confidence import CONFIDENCE_CURVES, VerdictBasis, assess_confidence
from tailback.diagnosis.model import Basis, Finding
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.slow_cables import SlowCableFit
from tests.factories.diagnosis_runs import other_run, placement_run, slow_run


def test_there_is_a_curve_for_everything_a_verdict_can_rest_on() -> None:
    assert set(CONFIDENCE_CURVES) == set(get_args(Basis))


@pytest.mark.parametrize("basis", get_args(Basis))
def test_a_clearer_verdict_is_never_less_sure_and_none_is_certain(basis: Basis) -> None:
    sure = [VerdictBasis(basis, margin / 10).confidence for margin in range(11)]
    assert sure == sorted(sure)
    assert sure[0] > 0.2 and sure[-1] < 0.999


def test_re_simulation_is_as_clear_as_the_lead_of_the_heaviest_cause() -> None:
    evidence = RunAnalysis(placement_run())
    cost = {"placement": 0.4, "pattern": 0.1}
    told = assess_confidence("placement", [], cost, 0.0, None, evidence, worth=0.05)  # type: ignore[arg-type]
    assert told.basis == "re-simulation" and told.margin == pytest.approx(0.75)
    rest = {"placement": 0.01, "pattern": 0.0}
    told = assess_confidence("not-network", [], rest, 0.0, None, evidence, worth=0.05)  # type: ignore[arg-type]
    assert told.basis == "re-simulation, at rest" and told.margin == pytest.approx(0.8)


@pytest.mark.parametrize(("fit", "margin"), [(1.0, 1.0), (0.85, 0.5), (0.7, 0.0), (0.35, 0.5)])
def test_a_hypothesis_is_as_clear_as_its_fit(fit: float, margin: float) -> None:
    cause = "slow-link" if fit >= 0.7 else "other-traffic"
    told = assess_confidence(
        cause, [], {cause: 0.5, "pattern": 0.0}, 0.5, SlowCableFit(((1, 10.0),), fit),
        RunAnalysis(slow_run()), worth=0.05,
    )  # type: ignore[arg-type, dict-item]  # fmt: skip
    assert told.basis == "hypothesis" and told.margin == pytest.approx(margin)


def found(**shares: float) -> list[Finding]:
    return [
        Finding(code="", cause=cause, title="", explanation="", share=share, phases=[], links=[],
                advice="")  # type: ignore[arg-type]
        for cause, share in shares.items()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("findings", "unsure", "margin"),
    [
        ({"placement": 0.7, "pattern": 0.2}, 0.1, 0.4),
        ({"placement": 0.7}, 0.1, 0.6),
        ({"placement": 0.7, "pattern": 0.2, "routing": 0.3}, 0.0, 0.4),
        # Another leads, or what is open outweighs the lead.
        ({"placement": 0.2, "pattern": 0.7}, 0.0, 0.0),
        ({"placement": 0.4, "pattern": 0.3}, 0.2, 0.0),
    ],
)
def test_samples_alone_are_as_clear_as_the_lead_over_what_is_open(
    findings: dict[str, float], unsure: float, margin: float
) -> None:
    evidence = SimpleNamespace(unsure_share=unsure)
    told = assess_confidence("placement", found(**findings), {}, 0.0, None, evidence, worth=0.05)  # type: ignore[arg-type]
    assert told.basis == "samples" and told.margin == pytest.approx(margin)
    rest = assess_confidence("not-network", [], {}, 0.0, None, evidence, worth=0.05)  # type: ignore[arg-type]
    assert rest.basis == "samples, at rest" and rest.margin == pytest.approx(1 - unsure)


@pytest.mark.parametrize(
    ("hidden", "basis", "margin"),
    [
        # More than half of what others cost is supposed, and nothing was tried; or it is simulated.
        (0.31, "hypothesis", 0.0),
        (0.29, "re-simulation", 0.75),
    ],
)
def test_traffic_of_others_that_the_scenario_knows_is_no_hypothesis(
    hidden: float, basis: Basis, margin: float
) -> None:
    cost = {"other-traffic": 0.6, "pattern": 0.15}
    told = assess_confidence("other-traffic", [], cost, hidden, None, None, worth=0.05)  # type: ignore[arg-type]
    assert told.basis == basis and told.margin == pytest.approx(margin)


def test_no_verdict_is_surer_than_a_hundred_scenarios_tell() -> None:
    assert VerdictBasis("re-simulation", 1.0).confidence == 0.99


def test_samples_alone_are_less_sure_the_more_stays_open() -> None:
    clear, thin = diagnose_cause(other_run()), diagnose_cause(other_run(seed=2, log=False))
    assert clear.basis == thin.basis == "samples"
    assert 0 < clear.confidence < 1
