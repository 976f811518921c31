"""Diagnoses of expected runs, explained by measured times."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from tailback.diagnosis.model import (
    CauseShare,
    Diagnosis,
    WaterfallBar,
)
from tailback.evidence.model import (
    Measured,
)
from tailback.inference.decision import (
    COST_ERROR,
    MODELLED,
    RELATIVE_COST_ERROR,
)
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.measured_costs import FurtherCosts
from tailback.inference.measured_verdict import explain
from tailback.inference.next_measurement import Measurement
from tailback.inference.unknown_job import UnknownJob
from tailback.units import format_time
from tests.factories.measured_times import MS
from tests.factories.report_data import make_diagnosis, make_run

BASE = make_diagnosis(make_run())


def asking(text: str) -> Any:
    """A choice of measurements that has one."""
    measurement = Measurement("counters", text, ("tailback", "collect"), asked=True)
    return SimpleNamespace(
        possible=[measurement],
        ranked=lambda _chances: [(1.0, measurement)],
        best=lambda _ranked: None,
    )


NOTHING = FurtherCosts((0, 0), (0, 0))


def share(cause: str, removed: float, spread: float = 0.0) -> CauseShare:
    return CauseShare(
        cause=cause,
        charged=removed,
        low=removed,
        high=removed,
        removed=removed,
        removed_low=max(removed - spread, 0.0),
        removed_high=removed + spread,
    )


def expected(elapsed_ms: int, *shares: CauseShare) -> Diagnosis:
    """A diagnosis of the expected run, whose waterfall has what the shares charge."""
    total, bars, now = elapsed_ms * MS, [], elapsed_ms * MS
    names = {"slow-link": "slow links", "other-traffic": "other traffic"}
    for share_of_cause in shares:
        delta = round(share_of_cause.charged * total)
        bars.append(bar(names.get(share_of_cause.cause, share_of_cause.cause), now, delta))
        now -= delta
    bars.append(bar("injection", now, now))
    return BASE.model_copy(
        update={
            "shares": list(shares),
            "waterfall": bars[::-1],
            "elapsed_ps": total,
            "expected_ps": total,
        }
    )


def bar(name: str, elapsed: int, delta: int) -> WaterfallBar:
    return WaterfallBar(
        name=name, elapsed_ps=elapsed, delta_ps=delta, low_ps=delta, high_ps=delta, meaning=name
    )


SLOW = EvidenceSummary(
    slow=("leaf1[5] → spine0 serves 20 of 100 Gb/s",),
    slow_shown_by="its port queued",
    rests_on={"slow-link": ("counters", "model")},
    sources=("trace", "counters"),
)


def explained(diagnosis: Diagnosis, run: Measured, **options: Any) -> Diagnosis:
    verdict = explain(
        diagnosis,
        run,
        options.pop("evidence", EvidenceSummary()),
        options.pop("cost", NOTHING),
        options.pop("advise", lambda diagnosis, *_: diagnosis.remedy),
    )
    explanation = verdict.explanation
    assert (
        explanation is not None
        and sum(explanation.parts.values()) == run.elapsed_ps == explanation.elapsed_ps
    )
    assert explanation.parts["not explained"] == explanation.not_explained_ps
    assert 0.0 <= verdict.confidence <= MODELLED
    costs = [cost.ps for cost in explanation.costs]
    assert costs == sorted(costs, reverse=True)
    for cost in explanation.costs:
        assert 0 < cost.ps <= cost.high_ps and cost.low_ps <= cost.high_ps
        assert 0 < cost.share <= 1
    # The cause is in the table and among the findings, and only its links are blamed.
    if verdict.cause not in ("healthy", "undetermined"):
        cost_of = explanation.cost(verdict.cause)
        assert cost_of is not None and format_time(cost_of.ps) in verdict.headline
    assert any(finding.cause == verdict.cause for finding in verdict.findings)
    assert verdict.cause == "slow-link" or not verdict.slow_links
    return verdict


def with_error(ms: int, relative: float = RELATIVE_COST_ERROR) -> tuple[int, int, int]:
    """Low end, cost and high end of a cost of 100 ms, with the error of the model alone, ps."""
    half = round(1.96 * math.hypot(COST_ERROR * 100, relative * ms) * MS)
    return max(ms * MS - half, 0), ms * MS, ms * MS + half


def unknown_job(ps: int, low_ps: int, high_ps: int) -> UnknownJob:
    """An unknown job, at such a cost."""
    return UnknownJob(ps, low_ps, high_ps, load=0.3, spread=0.01, spread_alone=0.2)
