"""The verdict on a measured run: costs that add up, no cause without evidence, no contradiction."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tailback.diagnosis.cause_wording import ADVICE
from tailback.diagnosis.model import (
    Candidate,
    CauseShare,
    Diagnosis,
    Estimate,
    Remedy,
    Saves,
    WaterfallBar,
)
from tailback.diagnosis.wording import late_ranks
from tailback.evidence.model import (
    HostReport,
    LateRank,
    Measured,
)
from tailback.inference.changes_over_time import ChangeOverTime
from tailback.inference.decision import (
    ASSUMED,
    COST_ERROR,
    MODELLED,
    RELATIVE_COST_ERROR,
    Alternative,
    fault_share,
)
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.interruptions import Interruptions
from tailback.inference.measured_costs import FurtherCosts
from tailback.inference.measured_remedy import of_measured, predicted_gain
from tailback.inference.measured_verdict import explain
from tailback.inference.next_measurement import Measurement
from tailback.inference.unknown_job import UnknownJob
from tailback.units import format_time, percent
from tests.factories.measured_times import MS, measured
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
        options.pop("advise", lambda diagnosis, _saves: diagnosis.remedy),
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


def test_unexplained_time_is_the_same_everywhere() -> None:
    """The causes together cost 2 ms less than one after the other: the model's own remainder."""
    one_by_one = expected(80, share("slow-link", 0.25))
    modelled = one_by_one.model_copy(
        update={
            "waterfall": [*one_by_one.waterfall, bar("observed", 78 * MS, -2 * MS)],
            "elapsed_ps": 78 * MS,
            "expected_ps": 78 * MS,
        }
    )
    explanation = explained(modelled, measured(100), evidence=SLOW).explanation
    assert explanation is not None and explanation.not_explained_ps == 22 * MS
    assert explanation.parts["remainder of the model"] == -2 * MS
    more = explained(
        modelled, measured(100), evidence=replace(SLOW, slow_more_ps=10 * MS)
    ).explanation
    assert more is not None and more.not_explained_ps == 12 * MS
    assert more.parts["slow links"] == explanation.parts["slow links"] + 10 * MS


def test_a_computing_run_gets_no_communication_advice() -> None:
    diagnosis = explained(expected(100, share("placement", 0.02)), measured(100, computing_ms=60))
    assert diagnosis.cause == "healthy" and "idle network" not in diagnosis.headline


def test_a_run_as_expected_is_healthy() -> None:
    diagnosis = explained(
        expected(100, share("placement", 0.02), share("pattern", 0.12)), measured(105)
    )
    assert diagnosis.cause == "healthy" and "No fault found" in diagnosis.headline
    assert [finding.cause for finding in diagnosis.findings if finding.code == "TB000"] == [
        "healthy"
    ]
    assert diagnosis.findings[0].explanation == diagnosis.headline
    assert "72 % of the time is communication that takes as long on an idle" in diagnosis.headline
    # What is nearest to a fault: 12 of 15 %, where placement has 2 of 10 %.
    assert "communication pattern, at 11.9 %" in diagnosis.headline
    # It is near the share from which it would be a fault.
    assert 0.5 < diagnosis.confidence < 0.9
    assert diagnosis.explanation is not None
    # What endpoints cost is there, and is no fault below its own threshold.
    assert diagnosis.explanation.costs[0].cause == "pattern"


def with_error(ms: int, relative: float = RELATIVE_COST_ERROR) -> tuple[int, int, int]:
    """Low end, cost and high end of a cost of 100 ms, with the error of the model alone, ps."""
    half = round(1.96 * math.hypot(COST_ERROR * 100, relative * ms) * MS)
    return max(ms * MS - half, 0), ms * MS, ms * MS + half


def test_a_fault_that_costs_enough_is_the_cause() -> None:
    diagnosis = explained(
        expected(100, share("placement", 0.1), share("slow-link", 0.4, 0.1)),
        measured(100),
        evidence=SLOW,
    )
    assert (
        diagnosis.cause == "slow-link"
        and "leaf1[5] → spine0 serves 20 of 100" in diagnosis.headline
    )
    assert diagnosis.explanation is not None
    cost = diagnosis.explanation.costs[0]
    # The range over simulations, 30 to 50 ms, is within the error of the model.
    assert (cost.low_ps, cost.ps, cost.high_ps) == with_error(40)
    assert cost.evidence == "its port queued" and cost.rests_on == ("counters", "model")
    assert diagnosis.explanation.not_explained_ps == 0


@pytest.mark.parametrize("cause", ["placement", "other-traffic"])
def test_the_threshold_separates_fault_from_no_fault(cause: str) -> None:
    for off, verdict in ((-0.04, "healthy"), (0.0, "undetermined"), (0.04, cause)):
        value = fault_share(cause) + off
        assert explained(expected(100, share(cause, value)), measured(100)).cause == verdict


def test_much_that_nothing_explains_is_undetermined() -> None:
    diagnosis = explained(expected(100, share("placement", 0.08)), measured(250))
    assert diagnosis.cause == "undetermined" and diagnosis.confidence == 0.0
    assert ("150 ms of 250 ms is not explained by any cause with evidence") in diagnosis.headline
    assert (
        diagnosis.explanation is not None
        and diagnosis.explanation.parts["not explained"] == 150 * MS
    )


def test_an_undetermined_cause_asks_for_evidence() -> None:
    """What helps a model that does not describe the run need not help the run."""
    change = ChangeOverTime(0.2, 0.01, 0.99, 2.0, 160e9, None)
    run = expected(100, share("placement", 0.08))
    assert run.remedy is not None and run.remedy.gain > 0.0
    for evidence, advice in (
        (EvidenceSummary(), "First find the cause"),
        (
            EvidenceSummary(candidates=("a (20 of 100)",)),
            "First ask the operators to check these links (speed, ",
        ),
        (EvidenceSummary(change=change), "First look at what changed about 160 ms after the"),
    ):
        diagnosis = explained(run, measured(250), evidence=evidence)
        assert diagnosis.cause == "undetermined" and diagnosis.remedy is not None
        assert advice in diagnosis.remedy.action
        assert (
            diagnosis.remedy.gain == 0.0
            and not diagnosis.remedy.commands
            and not diagnosis.remedy.name
        )
        assert not diagnosis.remedy.candidates
        finding = next(
            candidate for candidate in diagnosis.findings if candidate.cause == "undetermined"
        )
        assert finding.advice == diagnosis.remedy.action
        assert finding.title == "The evidence does not determine the cause"


def test_the_network_is_not_blamed_for_setup() -> None:
    diagnosis = explained(expected(100), measured(1100, outside_ms=1000))
    assert diagnosis.cause == "healthy"
    assert diagnosis.explanation is not None and diagnosis.explanation.not_explained_ps == 0


def test_ranks_ending_early_share_the_cables_cost() -> None:
    """Ranks far from it run ahead and end early; in the simulation they do as well."""
    run = measured(100, outside_ms=40).model_copy(update={"ended_early_ps": 40 * MS})
    diagnosis = explained(expected(100, share("slow-link", 0.4)), run, evidence=SLOW)
    assert diagnosis.cause == "slow-link"
    assert diagnosis.explanation is not None and diagnosis.explanation.costs[0].ps == 40 * MS
    assert diagnosis.explanation.not_explained_ps == 0


def test_a_model_above_the_measurement_says_so() -> None:
    diagnosis = explained(expected(130), measured(100))
    assert diagnosis.explanation is not None and diagnosis.explanation.not_explained_ps == -30 * MS
    # Simulated with a slow cable, it takes longer still: the cable is a suspect, not the cause.
    suspect = EvidenceSummary(candidates=("a (20 of 100)",))
    suspected = explained(expected(130), measured(100), evidence=suspect)
    assert suspected.cause == "undetermined" and "If a link is slow" in suspected.headline
    assert (
        "a (20 of 100)" in suspected.headline and "no cause can be ruled out" in suspected.headline
    )


def test_all_links_that_may_be_slow_are_named() -> None:
    two = EvidenceSummary(
        slow=SLOW.slow, slow_shown_by="", candidates=("a (20 of 100)", "b (25 of 100)")
    )
    diagnosis = explained(expected(100, share("slow-link", 0.5)), measured(100), evidence=two)
    assert "tried, these fit best: a (20 of 100); b (25 of 100)" in diagnosis.headline
    assert (
        diagnosis.remedy is not None and "a (20 of 100); b (25 of 100)" in diagnosis.remedy.action
    )


def test_an_unlocated_slow_link_is_not_among_candidates() -> None:
    evidence = EvidenceSummary(slow=SLOW.slow, candidates=("a (20 of 100)",), place_open=True)
    run = expected(100, share("slow-link", 0.5)).model_copy(update={"slow_links": ["a"]})
    diagnosis = explained(run, measured(100), evidence=evidence)
    assert (
        diagnosis.cause == "slow-link" and diagnosis.confidence > 0.9
    )  # Of the kind, not of the place.
    assert "but which one is open" in diagnosis.headline
    assert "which need not contain it: a (20 of 100)" in diagnosis.headline
    assert diagnosis.slow_links == []
    assert (
        diagnosis.explanation is not None and "place open" in diagnosis.explanation.costs[0].subject
    )
    assert diagnosis.remedy is not None and "forwarding=" in diagnosis.remedy.action


def test_links_that_may_be_slow_are_checked_first() -> None:
    evidence = EvidenceSummary(candidates=("a (20 of 100)",), measurements=asking("port counters"))
    run = expected(70).model_copy(update={"remedy": None})
    diagnosis = explained(run, measured(100), evidence=evidence)
    assert diagnosis.cause == "undetermined" and "this link may be slow: a" in diagnosis.headline
    assert diagnosis.remedy is not None
    assert "First ask the operators to check these links" in diagnosis.remedy.action
    assert "If they are sound, get the evidence" in diagnosis.remedy.action


def test_equally_costly_causes_leave_the_verdict_open() -> None:
    alone = explained(expected(100, share("slow-link", 0.3)), measured(100), evidence=SLOW)
    both = explained(
        expected(100, share("slow-link", 0.3), share("placement", 0.295)),
        measured(100),
        evidence=SLOW,
    )
    assert alone.cause == "slow-link" and both.cause == "undetermined"
    assert both.explanation is not None
    assert both.chances["slow-link"] == pytest.approx(alone.confidence / 2, rel=0.2)
    assert "slow link (" in both.headline and "placement (" in both.headline


@pytest.mark.parametrize("cause", ["imbalance", "noise"])
def test_computation_is_a_cause_like_others(cause: str) -> None:
    cost = {"imbalance_ps": (0, 0), "noise_ps": (0, 0), f"{cause}_ps": (18 * MS, 22 * MS)}
    diagnosis = explained(expected(100), measured(100), cost=FurtherCosts(**cost))  # type: ignore[arg-type]
    assert diagnosis.cause == cause and "(20 ms of 100 ms)" in diagnosis.headline
    assert diagnosis.explanation is not None
    only = diagnosis.explanation.costs[0]
    assert (only.low_ps, only.ps, only.high_ps) == with_error(20, relative=0.0)
    assert len(diagnosis.explanation.costs) == 1


def test_imbalance_costs_what_the_run_saves_without() -> None:
    run = measured(100).model_copy(update={"slow_rank_waits_ps": 20 * MS})
    cost = FurtherCosts(imbalance_ps=(11 * MS,), noise_ps=(0,))
    diagnosis = explained(expected(100), run, cost=cost)
    assert diagnosis.cause == "imbalance" and "(11 ms of 100 ms)" in diagnosis.headline


def test_waits_for_slow_ranks_are_imbalance_despite_modelling() -> None:
    """Between nothing, as the replay says, and all that ranks waited."""
    run = measured(100)
    parts = [
        part.model_copy(update={"name": "imbalance", "ps": 25 * MS})
        if part.name == "other_mpi"
        else part
        for part in run.parts
    ]
    turns = explained(expected(100), run.model_copy(update={"parts": parts}))
    slow = explained(
        expected(100), run.model_copy(update={"parts": parts, "slow_rank_waits_ps": 24 * MS})
    )
    assert (turns.cause, slow.cause) == ("late-partner", "imbalance")
    assert slow.explanation is not None
    assert {
        cost.cause: (cost.low_ps, cost.ps, cost.high_ps) for cost in slow.explanation.costs
    } == {
        "imbalance": (0, 12 * MS, 24 * MS),
        "late-partner": with_error(1),
    }


@pytest.mark.parametrize(
    ("chained_ms", "verdict", "cost_ms"),
    [(0, "late-partner", 40), (20, "late-partner", 20), (40, "healthy", 0)],
)
def test_chains_of_ranks_are_no_late_partners(chained_ms: int, verdict: str, cost_ms: int) -> None:
    run = measured(100)
    parts = [
        part.model_copy(update={"name": "imbalance", "ps": 40 * MS})
        if part.name == "other_mpi"
        else part
        for part in run.parts
    ]
    update = {"parts": parts, "dependency_waits_ps": chained_ms * MS}
    diagnosis = explained(expected(100), run.model_copy(update=update))
    assert diagnosis.cause == verdict and diagnosis.explanation is not None
    costs = {cost.cause: cost for cost in diagnosis.explanation.costs}
    if verdict == "late-partner":
        late = costs["late-partner"]
        assert (late.low_ps, late.ps, late.high_ps) == with_error(cost_ms)
    else:
        assert "late-partner" not in costs and "as in a pipeline" in diagnosis.headline
    assert diagnosis.explanation.parts.get("dependencies between ranks", 0) == chained_ms * MS


def test_imbalance_beside_chains_has_a_range() -> None:
    run = measured(100)
    parts = [
        part.model_copy(update={"name": "imbalance", "ps": 40 * MS})
        if part.name == "other_mpi"
        else part
        for part in run.parts
    ]
    chained = run.model_copy(update={"parts": parts, "dependency_waits_ps": 20 * MS})
    diagnosis = explained(expected(100), chained, cost=FurtherCosts((12 * MS,), (0,)))
    assert diagnosis.explanation is not None
    late = diagnosis.explanation.cost("late-partner")
    # Of 40 ms, balance saves 12: of the 28 that remain 8 to 20 are no chain.
    assert late is not None and (late.low_ps, late.ps, late.high_ps) == (8 * MS, 14 * MS, 20 * MS)


def test_possible_interruptions_leave_the_verdict_open() -> None:
    for support, verdict in ((0.9, "healthy"), (1.1, "undetermined")):
        weighed = Interruptions(np.array([0.1]), np.array([0.05]), support)
        diagnosis = explained(
            expected(100), measured(100), cost=replace(NOTHING, interruptions=weighed)
        )
        assert diagnosis.cause == verdict
        assert ("noise may" in diagnosis.headline) == (verdict == "undetermined")


def test_simulated_time_scales_no_computation_cost() -> None:
    run = measured(100)
    parts = [
        part.model_copy(update={"name": "imbalance", "ps": 35 * MS})
        if part.name == "other_mpi"
        else part
        for part in run.parts
    ]
    cost = FurtherCosts(imbalance_ps=(20 * MS,), noise_ps=(0,))
    run = run.model_copy(update={"parts": parts})
    diagnosis = explained(expected(80, share("slow-link", 0.1)), run, cost=cost)
    assert diagnosis.explanation is not None
    costs = {cost.cause: cost.ps for cost in diagnosis.explanation.costs}
    assert (costs["imbalance"], costs["late-partner"]) == (20 * MS, 15 * MS)
    assert costs["slow-link"] > 8 * MS


def test_the_patterns_cost_hides_no_fault() -> None:
    diagnosis = explained(
        expected(100, share("pattern", 0.23), share("other-traffic", 0.2)), measured(100)
    )
    assert diagnosis.cause == "other-traffic"
    crowded = explained(
        expected(100, share("pattern", 0.5), share("other-traffic", 0.2)), measured(100)
    )
    assert crowded.cause == "pattern"


def test_queueing_behind_own_messages_is_no_pattern_cost() -> None:
    halo = expected(100, share("pattern", 0.3))
    order = replace(NOTHING, adapter_order_ps=(28 * MS, 26 * MS))
    assert explained(halo, measured(100)).cause == "pattern"
    diagnosis = explained(halo, measured(100), cost=order)
    assert diagnosis.cause == "healthy" and diagnosis.explanation is not None
    assert diagnosis.explanation.parts["pattern"] == 3 * MS
    assert diagnosis.explanation.parts["adapter order"] == 27 * MS
    bars = {bar.name: bar for bar in diagnosis.waterfall}
    assert (bars["pattern"].delta_ps, bars["adapter order"].delta_ps) == (3 * MS, 27 * MS)
    assert bars["adapter order"].low_ps == 26 * MS and bars["adapter order"].high_ps == 28 * MS
    assert [
        share_of_cause.charged
        for share_of_cause in diagnosis.shares
        if share_of_cause.cause == "pattern"
    ] == [pytest.approx(0.03)]
    crowded = explained(expected(100, share("pattern", 0.5)), measured(100), cost=order)
    assert crowded.cause == "pattern" and crowded.explanation is not None
    assert crowded.explanation.costs[0].ps == 23 * MS


@pytest.mark.parametrize(("inside_ms", "verdict"), [(14, "healthy"), (16, "undetermined")])
def test_unknown_one_sided_waits_leave_the_verdict_open(inside_ms: int, verdict: str) -> None:
    """The model waits there too: the measured time is as expected, whoever is late."""
    run = measured(100, outside_ms=inside_ms)
    parts = [
        part.model_copy(update={"name": "one_sided"}) if part.name == "other_mpi" else part
        for part in run.parts
    ]
    diagnosis = explained(expected(100), run.model_copy(update={"parts": parts}))
    assert diagnosis.cause == verdict
    assert ("inside calls that synchronise" in diagnosis.headline) == (verdict == "undetermined")


@pytest.mark.parametrize("chance", [0.0, 0.5])
def test_unknown_timing_widens_the_cost(chance: float) -> None:
    summary = EvidenceSummary(unknown_timing=chance)
    diagnosis = explained(expected(100, share("slow-link", 0.4)), measured(100), evidence=summary)
    assert diagnosis.explanation is not None
    cost = next(cost for cost in diagnosis.explanation.costs if cost.cause == "slow-link")
    assert cost.ps == 40 * MS
    assert cost.low_ps == (6 * MS if chance else with_error(40)[0])


def test_a_run_a_third_too_long_is_unhealthy() -> None:
    assert explained(expected(100), measured(108)).cause == "healthy"
    assert explained(expected(100), measured(133)).cause == "undetermined"
    near, far = (explained(expected(100), measured(ms)) for ms in (100, 110))
    assert 0.5 < far.chances["healthy"] < near.chances["healthy"] - 0.1
    # TCP takes longer than a model with back-pressure expects.
    lossy = EvidenceSummary(lossy=True)
    assert explained(expected(100), measured(145), evidence=lossy).cause == "healthy"
    assert explained(expected(100), measured(220), evidence=lossy).cause == "undetermined"


def test_placements_around_a_slow_link_are_not_bad() -> None:
    away = CauseShare(
        cause="placement",
        charged=0.01,
        low=0.01,
        high=0.01,
        removed=0.3,
        removed_low=0.3,
        removed_high=0.3,
    )
    run = expected(100, away, share("slow-link", 0.15))
    good = FurtherCosts((0,), (0,), placement_ps=(2 * MS,), in_order_ps=(0,))
    assert explained(run, measured(100), evidence=SLOW, cost=good).cause == "slow-link"
    # Ranks that are slower than in the order of their hosts go round it for a reason of their own.
    bad = replace(good, placement_ps=(8 * MS,), in_order_ps=(8 * MS,))
    assert explained(run, measured(100), evidence=SLOW, cost=bad).cause == "placement"


@pytest.mark.parametrize(("uneven", "cause"), [(0.1, "placement"), (1.2, "routing")])
def test_joint_cost_is_charged_by_the_tables(uneven: float, cause: str) -> None:
    placement = CauseShare(
        cause="placement",
        charged=0.01,
        low=0.01,
        high=0.01,
        removed=0.35,
        removed_low=0.35,
        removed_high=0.35,
    )
    cost = FurtherCosts((0,), (0,), placement_ps=(35 * MS,), uneven_tables=uneven)
    run = expected(100, placement, share("routing", 0.3))
    diagnosis = explained(run, measured(100), cost=cost)
    assert diagnosis.cause == cause
    assert diagnosis.explanation is not None
    shown = [
        cost_of_cause.evidence
        for cost_of_cause in diagnosis.explanation.costs
        if cost_of_cause.cause == "routing"
    ]
    # With even tables, none of the cost is that of the routes.
    assert [("120 %" in text) for text in shown] == [True] * (cause == "routing")


def test_collisions_of_the_placement_are_not_the_routes() -> None:
    placement = CauseShare(
        cause="placement",
        charged=0.01,
        low=0.01,
        high=0.01,
        removed=0.2,
        removed_low=0.2,
        removed_high=0.2,
    )
    run = expected(100, placement, share("routing", 0.1))
    moved = FurtherCosts((0,), (0,), placement_ps=(20 * MS,), in_order_ps=(20 * MS,))
    assert explained(run, measured(100), cost=moved).cause == "placement"
    # No placement helps, so the routes are at fault.
    kept = replace(moved, placement_ps=(1 * MS,), in_order_ps=(1 * MS,))
    assert explained(run, measured(100), cost=kept).cause == "routing"


def test_likely_interruptions_in_every_computation_are_stated() -> None:
    def judge(probability: float) -> Diagnosis:
        hidden = Interruptions(np.array([0.15]), np.array([probability]))
        return explained(expected(100), measured(100), cost=replace(NOTHING, interruptions=hidden))

    likely = judge(0.9)
    assert likely.cause == "noise" and "(15 ms of 100 ms)" in likely.headline
    unlikely = judge(0.1)
    assert unlikely.cause == "healthy" and unlikely.explanation is not None
    assert unlikely.explanation.cost("noise") is None


def test_other_traffic_costs_at_most_the_measured_time() -> None:
    beside = EvidenceSummary(others="job 7 on h1", rests_on={"other-traffic": ("counters",)})
    run = expected(110, share("other-traffic", 0.3))
    diagnosis = explained(run, measured(100), evidence=beside)
    assert diagnosis.explanation is not None and diagnosis.explanation.not_explained_ps == 0
    cost = diagnosis.explanation.cost("other-traffic")
    assert cost is not None and cost.ps == 23 * MS
    assert diagnosis.explanation.parts["other traffic"] == 23 * MS


def test_uneven_routes_add_to_the_expectation() -> None:
    cost = FurtherCosts((0,), (0,), (40 * MS,), uneven=0.9)
    diagnosis = explained(expected(100), measured(140), cost=cost)
    assert diagnosis.cause == "routing"
    assert diagnosis.explanation is not None and diagnosis.explanation.not_explained_ps == 0
    assert diagnosis.explanation.parts["routing"] == 40 * MS
    assert "90 %" in diagnosis.explanation.costs[0].evidence


def unknown_job(ps: int, low_ps: int, high_ps: int) -> UnknownJob:
    """An unknown job, at such a cost."""
    return UnknownJob(ps, low_ps, high_ps, load=0.3, spread=0.01, spread_alone=0.2)


def test_an_unknown_job_is_traffic_of_others() -> None:
    job = unknown_job(30 * MS, 20 * MS, 38 * MS)
    evidence = EvidenceSummary(
        others="unknown senders",
        others_shown_by="repetitions differ",
        unknown_job=job,
        rests_on={"other-traffic": ("trace", "model")},
        measurements=asking("port counters"),
    )
    alone = expected(100).model_copy(update={"remedy": None})
    diagnosis = explained(alone, measured(140), evidence=evidence)
    assert diagnosis.cause == "other-traffic" and "unknown senders" in diagnosis.headline
    assert diagnosis.remedy is not None and diagnosis.remedy.gain == 0.0
    assert diagnosis.remedy.action.endswith(
        "evidence that shows whose traffic it is: port counters."
    )
    explanation = diagnosis.explanation
    assert explanation is not None and explanation.parts["other traffic"] == 30 * MS
    cost = explanation.cost("other-traffic")
    assert cost is not None and cost.rests_on == ("trace", "model")
    assert cost.low_ps <= 20 * MS and cost.high_ps >= 38 * MS
    assert explanation.not_explained_ps == 10 * MS


def test_a_job_fitting_like_the_adapters_is_open() -> None:
    taken = Alternative(0.0, 98 * MS)
    job = Alternative(0.3, 98 * MS, {"other-traffic": 15 * MS})
    evidence = EvidenceSummary(alternatives=(taken,), measurements=asking("port counters"))
    assert explained(expected(98), measured(100), evidence=evidence).cause == "healthy"
    both = replace(evidence, alternatives=(taken, job))
    diagnosis = explained(
        expected(98).model_copy(update={"remedy": None}), measured(100), evidence=both
    )
    assert diagnosis.cause == "undetermined" and diagnosis.confidence == 0.0
    assert "other traffic (57 %), no fault (43 %)" in diagnosis.headline
    assert diagnosis.remedy is not None and "port counters" in diagnosis.remedy.action


def test_inner_cost_of_few_receivers_joins_the_pattern() -> None:
    run = expected(100, share("pattern", 0.25), share("placement", 0.20), share("routing", 0.06))
    moved = explained(run, measured(100)).explanation
    fan_in = explained(run, measured(100), cost=FurtherCosts((0,), (0,), hot_receivers=1.0))
    assert moved is not None and fan_in.explanation is not None
    before, after = moved.cost("pattern"), fan_in.explanation.cost("pattern")
    assert before is not None and after is not None and fan_in.cause == "pattern"
    assert before.share == pytest.approx(0.25, abs=0.001)
    assert after.share == pytest.approx(0.38, abs=0.001)
    # Without the inner costs and with all of them.
    assert after.low_ps <= 25 * MS and after.high_ps >= 50 * MS


def test_a_run_with_a_likelier_fault_is_unhealthy() -> None:
    # 12 % that nothing explains, and three causes just below what would be a fault.
    near = [share("placement", 0.09), share("routing", 0.055), share("pattern", 0.14)]
    diagnosis = explained(expected(88, *near), measured(100))
    assert diagnosis.cause == "undetermined" and diagnosis.confidence == 0.0
    assert "is not explained by any cause with evidence" in diagnosis.headline


def test_an_overshooting_model_leaves_other_traffic_open() -> None:
    """Without it the model expects what was measured, with it a fifth more."""
    evidence = EvidenceSummary(
        others="unknown senders", rests_on={"other-traffic": ("counters", "model")}
    )
    beside = expected(125, share("other-traffic", 0.2))
    diagnosis = explained(beside, measured(100), evidence=evidence)
    assert diagnosis.cause == "undetermined" and diagnosis.confidence == 0.0
    assert "between nothing and 25 % of the measured 100 ms" in diagnosis.headline
    # Where it costs little either way, the run is healthy.
    little = expected(103, share("other-traffic", 0.03))
    assert explained(little, measured(100), evidence=evidence).cause == "healthy"


def test_assumed_hosts_are_stated_and_lower_the_confidence() -> None:
    why = "This assumes that the ranks ran on the hosts of the fabric in order"
    stated = explained(expected(100, share("placement", 0.4)), measured(100))
    evidence = EvidenceSummary(assumed_hosts=why)
    assumed = explained(expected(100, share("placement", 0.4)), measured(100), evidence=evidence)
    assert (stated.cause, assumed.cause) == ("placement", "undetermined")
    assert "placement (58 %)" in assumed.headline
    assert assumed.headline.endswith(f"{why}.") and why not in stated.headline


def test_a_lossy_slow_link_needs_counters_for_certainty() -> None:
    def sure(lossy: bool, origin: str) -> float:
        evidence = EvidenceSummary(
            slow=("a → b",), lossy=lossy, rests_on={"slow-link": (origin, "model")}
        )  # type: ignore[dict-item]
        return explained(
            expected(100, share("slow-link", 0.5)), measured(110), evidence=evidence
        ).confidence

    assert sure(True, "trace") <= ASSUMED < sure(True, "counters")
    assert sure(False, "trace") == sure(False, "counters") > ASSUMED


def test_a_trace_without_calls_or_partners_says_nothing() -> None:
    idle = explained(expected(1), measured(100, computing_ms=0, outside_ms=99))
    assert idle.cause == "undetermined" and "99 % of its time" in idle.headline
    alone = explained(expected(100), measured(100).model_copy(update={"n_ranks": 1}))
    assert alone.cause == "undetermined" and "single rank" in alone.headline


def test_every_cause_has_advice_and_health_none() -> None:
    assert explained(expected(100), measured(100)).remedy is None
    waits = FurtherCosts((40 * MS,), (0,))
    late = explained(expected(100), measured(100), cost=waits)
    assert late.cause == "imbalance" and late.remedy is not None
    assert late.remedy.action.startswith(ADVICE["imbalance"])
    unknown = explained(expected(50).model_copy(update={"remedy": None}), measured(150))
    assert unknown.cause == "undetermined" and unknown.remedy is not None
    assert "one by one" in unknown.remedy.action


def test_a_single_host_precedes_the_network() -> None:
    run = expected(50).model_copy(update={"remedy": None})
    hosts = HostReport(source="the trace", hosts=1, most_ranks=4)
    on_one_host = measured(150).model_copy(update={"hosts": hosts})
    alone = explained(run.model_copy(update={"measured": on_one_host}), on_one_host)
    assert alone.remedy is not None and "look at the host itself" in alone.remedy.action


def test_the_remedy_is_one_for_the_measured_cause() -> None:
    """The model alone blames the pattern, the measured time the placement."""
    run = expected(100, share("placement", 0.4)).model_copy(update={"cause": "pattern"})
    assert run.remedy is not None

    def advise(diagnosis: Diagnosis, _saves: Saves) -> Remedy | None:
        assert run.remedy is not None
        return run.remedy.model_copy(update={"actions": (f"for {diagnosis.cause}",)})

    verdict = explained(run, measured(100), advise=advise)
    assert verdict.cause == "placement"
    assert verdict.remedy is not None and verdict.remedy.action.startswith("for placement")
    # A verdict that no change of the network removes keeps the remedy of the expected run.
    alone = expected(100).model_copy(update={"cause": "pattern"})
    late = FurtherCosts((40 * MS,), (0,))
    other = explained(alone, measured(100), advise=advise, cost=late)
    assert other.cause == "imbalance"
    assert other.remedy is not None and "for pattern" in other.remedy.actions


def test_cost_of_placement_is_its_predicted_gain() -> None:
    run = expected(100, share("placement", 0.4))
    verdict = explained(run, measured(120))
    assert verdict.cause == "placement" and verdict.explanation is not None
    cost, remedy = verdict.explanation.cost("placement"), verdict.remedy
    assert cost is not None and remedy is not None
    gain = remedy.predicted_gain
    assert gain is not None and remedy.name == remedy.placement and remedy.gain == gain.value
    stated = [round(share * 120 * MS) for share in (gain.value, gain.low, gain.high)]
    assert [cost.ps, cost.low_ps, cost.high_ps] == stated
    assert percent(gain.value) in verdict.headline


def test_words_of_gain_are_of_measured_time() -> None:
    run = expected(100, share("placement", 0.4))
    before = Candidate(name="block", elapsed_ps=100 * MS, repetitions=1)
    tried = before.model_copy(update={"name": "tile", "elapsed_ps": 60 * MS})

    def advise(diagnosis: Diagnosis, saves: Saves) -> Remedy | None:
        assert run.remedy is not None
        return run.remedy.model_copy(update={"actions": (saves(tried, before),)})

    verdict = explained(run, measured(100), advise=advise)
    assert verdict.remedy is not None
    assert "less time than the measured 100 ms" in verdict.remedy.action
    assert "re-simulation" not in verdict.remedy.action


def test_predicted_gain_is_of_measured_time() -> None:
    remedy = expected(100).remedy
    assert remedy is not None and remedy.gain > 0
    best = next(c for c in remedy.candidates if c.name == remedy.name)

    def predicted(elapsed_ps: int, *, lossy: bool = False) -> Estimate:
        return predicted_gain(best, remedy.before_ps, lasting(elapsed_ps), lossy=lossy)

    def lasting(elapsed_ps: int) -> Measured:
        return measured(100).model_copy(update={"elapsed_ps": elapsed_ps, "parts": []})

    as_modelled = of_measured(remedy, lasting(remedy.before_ps), lossy=False)
    assert as_modelled is not None and as_modelled.predicted_gain is not None
    gain = as_modelled.predicted_gain
    assert gain.value == pytest.approx(remedy.gain, abs=0.005)
    assert gain.low < remedy.gain < gain.high
    assert as_modelled.gain_range.endswith(f"({percent(gain.low)} to {percent(gain.high)})")
    # Half of what the model lacks recurs, at the median.
    lacking = remedy.before_ps // 5
    longer = predicted(remedy.before_ps + lacking)
    after = remedy.after_ps + lacking / 2
    assert longer.value == pytest.approx(1 - after / (remedy.before_ps + lacking), abs=0.01)
    # What the model has too much was partly time that the remedy is said to save.
    shorter = predicted(remedy.before_ps * 2 // 3)
    assert 0 < shorter.value < gain.value
    assert shorter.high == pytest.approx(gain.value, abs=0.01)
    # Times of a lossy network are less certain.
    lossy = predicted(remedy.before_ps, lossy=True)
    assert lossy.high - lossy.low > gain.high - gain.low


def test_costly_ranks_and_hosts_are_named() -> None:
    late = [
        LateRank(rank=39, waited_ps=100, host="n010"),
        LateRank(rank=38, waited_ps=90, host="n010"),
        LateRank(rank=7, waited_ps=95, noise_ps=90, host="n002"),
        LateRank(rank=3, waited_ps=4),
    ]
    assert late_ranks(late, "imbalance") == "ranks 38–39 on n010"
    assert late_ranks(late, "noise") == "rank 7 on n002"
    # A rank that computes longer is the cause, even if clocks hide that its neighbours wait for it.
    slow = [LateRank(rank=13, waited_ps=0, excess_ps=50, host="n013"), *late]
    assert late_ranks(slow, "imbalance") == "rank 13 on n013"
    assert late_ranks(slow, "noise") == "rank 7 on n002"
    many = [LateRank(rank=rank, waited_ps=50) for rank in range(8)]
    assert late_ranks(many, "imbalance") == "rank 0, rank 1, rank 2 and at least 5 others"
    assert late_ranks([], "noise") == ""


def test_costs_have_the_interval_of_extrapolated_steps() -> None:
    def low(half_ms: int) -> int:
        evidence = EvidenceSummary(slow=("a → b",), extrapolated_ps=half_ms * MS)
        diagnosis = explained(
            expected(100, share("slow-link", 0.3)), measured(100), evidence=evidence
        )
        assert diagnosis.explanation is not None
        return diagnosis.explanation.costs[0].low_ps

    # Beyond the error of the model.
    assert low(0) == with_error(30)[0] and 30 * MS - low(14) == pytest.approx(14 * MS, abs=MS / 10)


@pytest.mark.parametrize("overlapping", [0, 1])
@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize(
    ("times", "determined"), [(1.0, True), (1.15, True), (3.0, False), (8.0, False)]
)
def test_a_model_far_above_measurement_has_no_verdict(
    times: float, determined: bool, lossy: bool, overlapping: int
) -> None:
    """Counters show a slow cable, with which the run should take so many times as long.

    Without another cause the run saves two fifths as much: costs that overlap add no doubt.
    """
    evidence = replace(SLOW, lossy=lossy)
    slow = share("slow-link", 1.0 - 0.5 / times)
    rivals = [
        share(cause, 0.4 * slow.charged).model_copy(update={"charged": 0.0, "low": 0.0})
        for cause in ("pattern", "capacity")[: round(times) // 2 * overlapping]
    ]
    modelled = expected(round(100 * times), slow, *rivals)
    if overlapping:  # The cable is part of every hypothesis.
        every = Alternative(0.0, modelled.modelled_ps)
        evidence = replace(evidence, alternatives=(every,))
    verdict = explained(modelled, measured(100), evidence=evidence)
    assert verdict.cause == ("slow-link" if determined else "undetermined")
    assert determined or (
        verdict.confidence == 0.0 and "no cause can be ruled out" in verdict.headline
    )


def test_what_cannot_be_leaves_the_verdict_open() -> None:
    evidence = replace(SLOW, impossible="A link served nothing.")
    diagnosis = explained(expected(100, share("slow-link", 0.5)), measured(100), evidence=evidence)
    assert (diagnosis.cause, diagnosis.confidence) == ("undetermined", 0.0)
    assert diagnosis.headline == evidence.impossible and not diagnosis.slow_links
    assert diagnosis.remedy is not None and "make the model fit" in diagnosis.remedy.action
