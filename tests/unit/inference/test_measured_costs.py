"""What each cause costs in a measured run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tailback.budget import Budget, leave_out, limited_to
from tailback.diagnosis.model import (
    CauseShare,
    Diagnosis,
)
from tailback.diagnosis.wording import late_ranks
from tailback.evidence.model import (
    LateRank,
    Measured,
    Part,
)
from tailback.inference.decision import COMPUTATION_ERROR, Alternative
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.interruptions import Interruptions
from tailback.inference.measured_costs import FurtherCosts
from tests.factories.explanations import NOTHING, SLOW, expected, explained, share, with_error
from tests.factories.measured_times import MS, measured


def avoidable_placement(removed: float) -> CauseShare:
    """A placement that is charged little, but without which the run saves that share."""
    saved = {"removed": removed, "removed_low": removed, "removed_high": removed}
    return CauseShare(cause="placement", charged=0.01, low=0.01, high=0.01, **saved)


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


def test_ranks_ending_early_share_the_cables_cost() -> None:
    """Ranks far from it run ahead and end early; in the simulation they do as well."""
    run = measured(100, outside_ms=40).model_copy(update={"ended_early_ps": 40 * MS})
    diagnosis = explained(expected(100, share("slow-link", 0.4)), run, evidence=SLOW)
    assert diagnosis.cause == "slow-link"
    assert diagnosis.explanation is not None and diagnosis.explanation.costs[0].ps == 40 * MS
    assert diagnosis.explanation.not_explained_ps == 0


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
    assert (only.low_ps, only.ps, only.high_ps) == with_error(20, relative=COMPUTATION_ERROR)
    assert len(diagnosis.explanation.costs) == 1


def waiting(run: Measured, ms: int) -> list[Part]:
    """The parts of a run that waits so long for slow ranks in place of other calls."""
    return [
        part.model_copy(update={"name": "imbalance", "ps": ms * MS})
        if part.name == "other_mpi"
        else part
        for part in run.parts
    ]


def test_imbalance_costs_what_the_run_saves_without() -> None:
    run = measured(100).model_copy(update={"slow_rank_waits_ps": 20 * MS})
    cost = FurtherCosts(imbalance_ps=(11 * MS,), noise_ps=(0,))
    diagnosis = explained(expected(100), run, cost=cost)
    assert diagnosis.cause == "imbalance" and "(11 ms of 100 ms)" in diagnosis.headline


def test_ranks_with_equal_totals_are_late_partners() -> None:
    run = measured(100)
    parts = waiting(run, 25)
    slow = run.model_copy(update={"parts": parts, "slow_rank_waits_ps": 24 * MS})
    for by_order, cause in ((False, "imbalance"), (True, "late-partner")):
        cost = FurtherCosts((0,), (0,), by_order=by_order)
        assert explained(expected(100), slow, cost=cost).cause == cause


def test_waits_for_slow_ranks_are_imbalance_despite_modelling() -> None:
    """Between nothing, as the replay says, and all that ranks waited."""
    run = measured(100)
    parts = waiting(run, 25)
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
    parts = waiting(run, 40)
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
    parts = waiting(run, 40)
    chained = run.model_copy(update={"parts": parts, "dependency_waits_ps": 20 * MS})
    diagnosis = explained(expected(100), chained, cost=FurtherCosts((12 * MS,), (0,)))
    assert diagnosis.explanation is not None
    late = diagnosis.explanation.cost("late-partner")
    # Of 40 ms, balance saves 12: of the 28 that remain 8 to 20 are no chain.
    assert late is not None and (late.low_ps, late.ps, late.high_ps) == (8 * MS, 14 * MS, 20 * MS)


def test_possible_interruptions_leave_the_verdict_open() -> None:
    for prior, verdict in ((0.06, "healthy"), (0.04, "undetermined")):
        weighed = Interruptions(np.array([0.1]), np.array([0.05]), prior)
        diagnosis = explained(
            expected(100), measured(100), cost=replace(NOTHING, interruptions=weighed)
        )
        assert diagnosis.cause == verdict
        assert ("noise may" in diagnosis.headline) == (verdict == "undetermined")


def test_run_without_tested_placements_is_not_healthy() -> None:
    with limited_to(Budget(60.0)):
        assert explained(expected(100), measured(100)).cause == "healthy"
        leave_out("placements", 0, 1)
        diagnosis = explained(expected(100), measured(100))
    assert diagnosis.cause == "undetermined" and "left out other placements" in diagnosis.headline


def test_healthy_run_names_the_delays_it_lacks() -> None:
    account = Alternative(0.0, 100 * MS)
    summary = EvidenceSummary(alternatives=(account,), usual_delays=6.0)
    diagnosis = explained(expected(85), measured(100), evidence=summary)
    assert diagnosis.cause == "healthy" and diagnosis.confidence >= 0.8
    assert "15 % more than the model expects would be delays 6 times" in diagnosis.headline


def test_simulated_time_scales_no_computation_cost() -> None:
    run = measured(100)
    parts = waiting(run, 35)
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


def test_placements_around_a_slow_link_are_not_bad() -> None:
    away = avoidable_placement(0.3)
    run = expected(100, away, share("slow-link", 0.15))
    good = FurtherCosts((0,), (0,), placement_ps=(2 * MS,), in_order_ps=(0,))
    assert explained(run, measured(100), evidence=SLOW, cost=good).cause == "slow-link"
    # Ranks that are slower than in the order of their hosts go round it for a reason of their own.
    bad = replace(good, placement_ps=(8 * MS,), in_order_ps=(8 * MS,))
    assert explained(run, measured(100), evidence=SLOW, cost=bad).cause == "placement"


@pytest.mark.parametrize(
    ("placement_ms", "tables_ms", "cause"), [(35, 0, "placement"), (0, 35, "routing")]
)
def test_joint_cost_is_charged_by_the_tables(placement_ms: int, tables_ms: int, cause: str) -> None:
    placement = avoidable_placement(0.35)
    cost = FurtherCosts(
        (0,),
        (0,),
        placement_ps=(placement_ms * MS,),
        tables_ps=(tables_ms * MS,),
        uneven_tables=1.2 if tables_ms else 0.1,
    )
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
    placement = avoidable_placement(0.2)
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
    explanation = diagnosis.explanation
    assert explanation is not None and abs(explanation.not_explained_ps) < 2 * MS
    assert explanation.parts["routing"] == pytest.approx(40 * MS, abs=2 * MS)
    assert "90 %" in explanation.costs[0].evidence


def test_uneven_routes_cost_what_the_time_leaves() -> None:
    cost = FurtherCosts((0,), (0,), (40 * MS,), uneven=0.9)
    healthy = explained(expected(100), measured(100), cost=cost)
    assert healthy.explanation is not None and healthy.cause != "routing"
    assert healthy.explanation.parts.get("routing", 0) < 10 * MS
    half = explained(expected(100), measured(120), cost=cost).explanation
    assert half is not None
    routing = half.cost("routing")
    assert routing is not None and routing.low_ps < 20 * MS < routing.high_ps


def test_hashed_routes_leave_a_healthy_run_open() -> None:
    hashed = FurtherCosts((0,), (0,), hashed_ps=(2 * MS, 10 * MS))
    open_ = explained(expected(100), measured(100), cost=hashed)
    assert open_.cause == "undetermined" and "collisions cost up to 10 %" in open_.headline
    few = replace(hashed, hashed_ps=(2 * MS,))
    assert explained(expected(100), measured(100), cost=few).cause == "healthy"


def test_placement_off_uneven_links_saves_their_cost() -> None:
    run = expected(60, share("placement", 0.2))
    cost = FurtherCosts((0,), (0,), (40 * MS,), uneven=0.9, placement_ps=(12 * MS,))
    alone = explained(run, measured(100), cost=cost)
    assert alone.cause == "routing"
    beside = replace(cost, placement_limited_ps=(58 * MS,))
    assert explained(run, measured(100), cost=beside).cause == "placement"


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


def test_tables_cost_more_beside_more_traffic() -> None:
    """Even tables save 10 of 100 ms alone, and 20 beside traffic that costs 30 ms as simulated."""
    cost = FurtherCosts((0,), (0,), tables_ps=(20 * MS,), tables_alone_ps=10 * MS)
    run = expected(100, share("other-traffic", 0.3))
    shares = {}
    for more_ms in (0, 15):
        evidence = EvidenceSummary(others="job 7", others_more_ps=more_ms * MS)
        diagnosis = explained(run, measured(100 + more_ms), evidence=evidence, cost=cost)
        assert diagnosis.explanation is not None
        routing = diagnosis.explanation.cost("routing")
        assert routing is not None
        shares[more_ms] = routing.ps
    assert shares == {0: 20 * MS, 15: pytest.approx(25 * MS, rel=0.01)}


def test_tables_are_taken_out_with_other_causes() -> None:
    assert "routing" not in NOTHING.separable
    assert "routing" in replace(NOTHING, tables_ps=(MS,)).separable


@pytest.mark.parametrize(
    ("hash_chance", "cause"),
    [(None, "routing"), (0.001, "routing"), (0.04, "undetermined"), (0.4, "capacity")],
)
def test_collisions_of_usual_hashes_are_no_fault(hash_chance: float | None, cause: str) -> None:
    saved = {"tables_ps": (40 * MS,), "tables_alone_ps": 40 * MS}
    verdict = explained(
        expected(100), measured(100), cost=replace(NOTHING, **saved, hash_chance=hash_chance)
    )
    assert verdict.cause == cause
    rows = [row for row in verdict.evidence if row.quantity == "hashes as uneven"]
    assert [row.value for row in rows] == ([] if hash_chance is None else [hash_chance])


def test_capacity_has_the_usual_collisions_of_our_job() -> None:
    """Beside others, whose paths are less certain, even paths save 60 ms, and 40 ms alone."""
    beside = replace(NOTHING, tables_ps=(60 * MS,), tables_alone_ps=40 * MS, hash_chance=0.4)
    verdict = explained(expected(100), measured(100), cost=beside)
    assert verdict.explanation is not None
    cost = verdict.explanation.cost("capacity")
    assert cost is not None and cost.ps == pytest.approx(40 * MS)
    assert "most hashes" in cost.evidence
