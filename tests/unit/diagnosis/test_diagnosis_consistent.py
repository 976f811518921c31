"""A diagnosis that contradicts itself, or recommends what its own proof shows worse, is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tailback.cli.render import diagnosis_lines
from tailback.diagnosis import Diagnosis, diagnose_cause
from tailback.diagnosis.cause_wording import CODE
from tailback.diagnosis.confidence import SURE
from tailback.diagnosis.explanation import Explanation
from tailback.diagnosis.model import Candidate, CauseShare
from tailback.evaluate import Change, Evaluate
from tailback.remedy import RemedyContext, diagnose, find_remedy, recommend
from tailback.run.run import Run
from tests.factories.diagnosis_runs import (
    TOTAL,
    endpoint_run,
    placement_run,
    routing_run,
)
from tests.factories.report_data import make_diagnosis, make_run


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    return make_diagnosis(make_run())


def test_a_cause_that_no_finding_has_is_refused(diagnosis: Diagnosis) -> None:
    for change in ({"cause": "routing"}, {"findings": []}, {"findings": diagnosis.findings[1:]}):
        with pytest.raises(ValidationError, match=r"which no finding has"):
            diagnosis.model_copy(update=change)
    fields = {name: getattr(diagnosis, name) for name in Diagnosis.model_fields}
    with pytest.raises(ValidationError, match=r"which no finding has"):
        Diagnosis(**{**fields, "cause": "slow-link"})
    with pytest.raises(ValidationError, match=r"which no finding has"):
        Diagnosis.model_validate_json(
            diagnosis.model_dump_json().replace(
                '"cause":"placement","headline"', '"cause":"routing","headline"'
            )
        )


def test_a_time_below_the_ideal_is_refused(diagnosis: Diagnosis) -> None:
    ideal = diagnosis.ideal_ps
    assert ideal == diagnosis.waterfall[0].elapsed_ps > 0 and diagnosis.remedy is not None
    low = diagnosis.waterfall[2].model_copy(update={"elapsed_ps": ideal - 1})
    with pytest.raises(ValidationError, match=r"placement takes .* less than the ideal"):
        diagnosis.model_copy(
            update={"waterfall": [*diagnosis.waterfall[:2], low, *diagnosis.waterfall[3:]]}
        )
    first = diagnosis.remedy.candidates[0]
    for kind, field in (
        ("placement", "low_ps"),
        ("routing", "elapsed_ps"),
        ("rate-control", "low_ps"),
    ):
        quick = first.model_copy(update={"name": "x", "kind": kind, field: ideal - 1})
        remedy = diagnosis.remedy.model_copy(
            update={"candidates": [*diagnosis.remedy.candidates, quick]}
        )
        with pytest.raises(ValidationError, match=r"x takes .* less than the ideal"):
            diagnosis.model_copy(update={"remedy": remedy})
    # Another program has another ideal.
    other = first.model_copy(update={"name": "x", "kind": "pattern", "low_ps": ideal // 2})
    remedy = diagnosis.remedy.model_copy(
        update={"candidates": [*diagnosis.remedy.candidates, other]}
    )
    assert diagnosis.model_copy(update={"remedy": remedy}).remedy == remedy


def test_an_unproved_remedy_is_refused(diagnosis: Diagnosis) -> None:
    remedy = diagnosis.remedy
    assert remedy is not None
    worse = next(c for c in remedy.candidates if c.elapsed_ps > remedy.before_ps)
    for what, field in (("remedy", "name"), ("placement", "placement")):
        with pytest.raises(ValidationError, match=f"{what} {worse.name!r} is recommended, and"):
            remedy.model_copy(update={field: worse.name, "after_ps": worse.elapsed_ps})
        for name in ("hypercube", "nobody"):  # One could not be tried, the other was not.
            with pytest.raises(ValidationError, match="without a proof"):
                remedy.model_copy(update={field: name})
    with pytest.raises(ValidationError, match="has parts"):
        remedy.model_copy(update={"parts": ("block", remedy.name)})
    with pytest.raises(ValidationError, match="not what was proved"):
        remedy.model_copy(update={"after_ps": remedy.after_ps - 1})


def test_a_slower_run_removes_no_cause() -> None:
    with pytest.raises(ValidationError, match="removing routing cannot save"):
        CauseShare(cause="routing", charged=0.3, low=0.3, high=0.3, removed=-2.6)


def beside_others(run: Run, adaptive: float) -> Evaluate:
    """Static routes cost half of the time; adaptive ones are good alone, and beside others take so
    many times as long as the run."""

    def evaluate(change: Change) -> Run:
        share = 1.0
        if change.network in ("no-contention", "star") or change.routing == "adaptive":
            share = 0.5
            if change.background and change.network == "as-is":
                share = adaptive
        elapsed = round(share * TOTAL)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": elapsed})

    return evaluate


def test_worse_adaptive_routing_is_nowhere_recommended() -> None:
    run = routing_run()
    job = run.scenario.job[0]
    jobs = [job, job.model_copy(update={"observed": False, "name": "others"})]
    scenario = run.scenario.model_copy(
        update={
            "job": jobs,
            "engine": run.scenario.engine.model_copy(update={"routing": "deterministic"}),
        }
    )
    run = dataclasses.replace(run, scenario=scenario)
    only = frozenset({"routing"})
    diagnosis = diagnose(run, beside_others(run, 3.7), kinds=only, seeds=1)
    assert diagnosis.cause == "routing" and diagnosis.remedy is not None
    share = next(share for share in diagnosis.shares if share.cause == "routing")
    assert share.charged == pytest.approx(0.5) and share.removed == 0
    assert "no change that was tried saves any of it" in diagnosis.headline
    assert diagnosis.remedy.name == "" and diagnosis.remedy.gain == 0
    assert "adaptive-routing (270 % more time" in diagnosis.remedy.action
    texts = [diagnosis.remedy.action, diagnosis.headline, *diagnosis.warnings]
    texts += [text for f in diagnosis.findings for text in (f.advice, f.explanation, f.title)]
    assert not any("use adaptive" in text.lower() or "turn on" in text.lower() for text in texts)
    screen = "\n".join(diagnosis_lines(diagnosis, Path("out"), verbose=True))
    assert "adaptive-routing" in screen and "-270 %" in screen
    # Where it is proved to help it is what to do.
    good = diagnose(run, beside_others(run, 0.6), kinds=only, seeds=1)
    assert good.remedy is not None and good.remedy.name in ("adaptive-routing", "vc-routing")
    share = next(share for share in good.shares if share.cause == "routing")
    assert share.removed == pytest.approx(0.4)


def test_the_ideal_holds_for_every_placement() -> None:
    """Under the other placement ways are shorter, and nothing beats that without contention."""
    run = placement_run()

    def evaluate(change: Change) -> Run:
        ideal = 0.4 if change.placement is not None else 0.6
        share = {"no-contention": ideal, "star": 0.6}.get(change.network, ideal + 0.1)
        if change.placement is None and change.network not in ("no-contention", "star"):
            share = 1.0
        elapsed = round(share * TOTAL)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": elapsed})

    nodes = {"near": np.arange(32, dtype=np.uint32)}
    diagnosis = diagnose(run, evaluate, placements=nodes, seeds=1)
    assert diagnosis.ideal_ps == round(0.4 * TOTAL)
    step = {bar.name: bar for bar in diagnosis.waterfall}
    # The other placement saves more of the paths than its own run has: that is charged to it.
    assert step["paths"].delta_ps == pytest.approx(0.1 * TOTAL)
    assert diagnosis.remedy is not None and diagnosis.remedy.after_ps == round(0.5 * TOTAL)
    assert min(bar.elapsed_ps for bar in diagnosis.waterfall) == diagnosis.ideal_ps


def test_a_proof_below_the_ideal_is_none() -> None:
    """Contention that makes a program quicker than without is an error of the model, and said."""
    run = placement_run()

    def evaluate(change: Change) -> Run:
        share = 0.6 if change.network in ("no-contention", "star") else 1.0
        if change.placement is not None and change.background:
            share = 0.5
        elapsed = round(share * TOTAL)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": elapsed})

    judged = diagnose_cause(run, evaluate, seeds=1)
    nodes = {"near": np.arange(32, dtype=np.uint32)}
    means = RemedyContext(evaluate, placements=nodes, kinds=frozenset({"placement"}))
    remedy = find_remedy(run, judged, means, seeds=1).remedy
    assert remedy is not None and remedy.name == ""
    near = next(c for c in remedy.candidates if c.name == "near")
    assert near.elapsed_ps == 0 and "less than the ideal" in near.reason


def test_a_run_quicker_than_modelled_bounds_the_ideal() -> None:
    run = placement_run()

    def evaluate(change: Change) -> Run:
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": round(1.3 * TOTAL)})

    diagnosis = diagnose_cause(run, evaluate, seeds=1)
    assert diagnosis.ideal_ps == run.elapsed_ps
    assert any("longer than the run" in warning for warning in diagnosis.warnings)


def test_a_cause_told_by_time_alone_is_listed() -> None:
    """TB001 fired, the time says placement: that is a finding, and the first one."""
    run = endpoint_run()

    def evaluate(change: Change) -> Run:
        share = 0.4 if change.network in ("no-contention", "star") else 1.0
        elapsed = round(share * TOTAL)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": elapsed})

    diagnosis = diagnose_cause(run, evaluate, seeds=1)
    assert diagnosis.cause == "placement"
    assert (diagnosis.findings[0].code, diagnosis.findings[0].cause) == (CODE, "placement")
    assert "60 % of the time" in diagnosis.findings[0].explanation
    assert json.loads(diagnosis.model_dump_json())["findings"][0]["code"] == CODE


def test_worse_kinds_count_against_no_placement() -> None:
    def candidate(name: str, kind: Any, time: int) -> Candidate:
        return Candidate(name=name, kind=kind, elapsed_ps=time, low_ps=time, high_ps=time)

    run = placement_run()
    big = TOTAL
    tried = [
        candidate("block", "placement", big),
        candidate("tile", "placement", round(0.7 * big)),
        candidate("adaptive-routing", "routing", 3 * big),
    ]
    remedy = recommend(run, diagnose_cause(run), tried)
    assert remedy is not None and remedy.name == "tile" and "worse" not in remedy.action


def test_parts_that_do_not_add_up_are_refused() -> None:
    fields = {
        "elapsed_ps": 10,
        "costs": [],
        "not_explained_ps": 0,
        "model_error_ps": 0,
        "missing": [],
        "sources": [],
    }
    assert Explanation(parts={"a": 12, "not explained": -2}, **fields).cost("a") is None
    with pytest.raises(ValidationError, match="parts add up to 9 ps of 10 ps"):
        Explanation(parts={"a": 9}, **fields)


def test_two_ways_to_save_time_are_named() -> None:
    """Other jobs cost our ranks half of the time where they are, and none at other places."""
    run = placement_run(background=True)

    def evaluate(change: Change) -> Run:
        beside = change.background and not change.placement_name
        share = 0.5 if not beside else 1.0 if change.variation is None else 0.8
        elapsed = round(share * TOTAL) if change.network == "as-is" else round(0.5 * TOTAL)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": elapsed})

    diagnosis = diagnose(run, evaluate, placements={"moved": np.arange(32, dtype=np.uint32)})
    assert diagnosis.cause == "other-traffic" and diagnosis.alternatives == ["placement"]
    assert max(diagnosis.chances.values()) < SURE <= diagnosis.confidence
    assert "50 % of the run time is saved" in diagnosis.headline
    assert "saved by another placement (50 %) instead" in diagnosis.headline
    screen = "\n".join(diagnosis_lines(diagnosis, Path("out")))
    assert "OTHER TRAFFIC OR PLACEMENT" in screen
