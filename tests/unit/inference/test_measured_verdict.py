"""The verdict on a measured run follows from costs and evidence."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from tailback.diagnosis.cause_wording import ADVICE
from tailback.diagnosis.explanation import Origin, SubjectLink
from tailback.inference.changes_over_time import ChangeOverTime
from tailback.inference.decision import (
    ASSUMED,
    Alternative,
    fault_share,
)
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.measured_costs import FurtherCosts
from tailback.inference.next_measurement import MeasurementChoice
from tests.factories.explanations import SLOW, asking, bar, expected, explained, share, unknown_job
from tests.factories.measured_times import MS, measured


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


@pytest.mark.parametrize("cause", ["placement", "other-traffic"])
def test_the_threshold_separates_fault_from_no_fault(cause: str) -> None:
    for off, verdict in ((-0.04, "healthy"), (0.0, "undetermined"), (0.04, cause)):
        value = fault_share(cause) + off
        run = expected(100, share(cause, value))
        assert explained(run, measured(100), advise=lambda *_: None).cause == verdict


def test_much_that_nothing_explains_is_undetermined() -> None:
    diagnosis = explained(expected(100, share("placement", 0.08)), measured(250))
    assert diagnosis.cause == "undetermined" and diagnosis.confidence == 0.0
    assert ("150 ms of 250 ms is not explained by any cause with evidence") in diagnosis.headline
    assert (
        diagnosis.explanation is not None
        and diagnosis.explanation.parts["not explained"] == 150 * MS
    )


@pytest.mark.parametrize(("origin", "named"), [("counters", True), ("trace", False)])
def test_counters_name_a_slow_link_whatever_is_missing(origin: Origin, named: bool) -> None:
    evidence = EvidenceSummary(
        slow=("a → b",),
        slow_links=(SubjectLink(name="a → b", text="a → b", link=0),),
        rests_on={"slow-link": (origin, "model")},
        lossy=True,
    )
    run = expected(100, share("slow-link", 0.08))
    diagnosis = explained(run, measured(350), evidence=evidence)
    assert diagnosis.cause == "undetermined"
    assert ("Counters show a slow link all the same: a → b." in diagnosis.headline) == named


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


def test_a_run_a_third_too_long_is_unhealthy() -> None:
    assert explained(expected(100), measured(108)).cause == "healthy"
    assert explained(expected(100), measured(133)).cause == "undetermined"
    near, far = (explained(expected(100), measured(ms)) for ms in (100, 110))
    assert 0.5 < far.chances["healthy"] < near.chances["healthy"] - 0.1
    # TCP takes longer than a model with back-pressure expects.
    lossy = EvidenceSummary(lossy=True)
    assert explained(expected(100), measured(145), evidence=lossy).cause == "healthy"
    assert explained(expected(100), measured(220), evidence=lossy).cause == "undetermined"


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
    # No measurement is chosen before that: this one could not be.
    unranked = replace(evidence, measurements=cast(MeasurementChoice, SimpleNamespace(possible=[])))
    unranked_diagnosis = explained(
        expected(100, share("slow-link", 0.5)), measured(100), evidence=unranked
    )
    assert unranked_diagnosis.explanation is not None
    assert unranked_diagnosis.explanation.next_measurement is None
