"""The verdict on a measured run: the cost of each cause, and the time that remains unexplained.

The expected run includes the slow cables and other traffic for which there is positive evidence.
The cost of a cause is the time that the expected run saves without it, scaled to the measured time:
a model error that scales all times alike (such as an unmodelled protocol) scales every cost too,
except for those of computation, which the trace shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tailback.diagnosis.cause_wording import ADVICE, CODE, ensure_cause_finding
from tailback.diagnosis.evidence_rows import by_weight
from tailback.diagnosis.explanation import (
    Cost,
    EvidenceRow,
    Explanation,
    Origin,
    Source,
    SuspectLink,
)
from tailback.diagnosis.model import (
    Cause,
    CauseShare,
    Diagnosis,
    Finding,
    Remedy,
    WaterfallBar,
)
from tailback.diagnosis.wording import late_ranks
from tailback.evidence.measured_routes import MIN_UNEVENNESS
from tailback.evidence.model import Measured
from tailback.inference import measured_wording as wording
from tailback.inference.decision import (
    ASSUMED,
    HEALTHY,
    RELATIVE_COST_ERROR,
    UNEXPLAINED,
    Alternative,
    Decision,
    Ensemble,
    decide,
    fault_share,
    with_lossy_costs,
)
from tailback.inference.decision import COMPUTATION as CONCEALING
from tailback.inference.decision import MEASURED as IN_MEASURED_TIME
from tailback.inference.error_model import ErrorModel
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.hypotheses import FAULT, LIKELY, log_unexplained
from tailback.inference.interruptions import Interruptions
from tailback.inference.measured_remedy import NOT_OF_THE_NETWORK, advised, of_measured, remedy_for
from tailback.inference.next_measurement import MeasurementChoice
from tailback.inference.suspect_links import CostRange, no_shorter, not_excluded
from tailback.units import percent

_ExpectedCost = tuple[str, float, float, float, str, str, tuple[Origin, ...]]
"""Cause; its cost in the expected run, or in the measured one if it is of computation, with its
least and greatest value, ps; subject; evidence, and what it rests on."""

Advise = Callable[[Diagnosis], Remedy | None]
"""Selects the remedy for a diagnosis from those that were simulated."""

MIN_TABLE_UNEVENNESS = 0.5
"""Smallest destination-weighted deviation of parallel up-links from their mean number of
destinations at which forwarding tables are at fault: tables of real fabrics of 125 and 281 hosts
deviate by 0.14 and 0.03; with all destinations on one of two links, the deviation is 1."""

_INSIDE = ("capacity", "placement", "routing")
"""Causes of congestion between switches by our own traffic."""

MIN_INSIDE_SHARE = 0.02
"""Smallest share of the measured time between a rank's first and last call, in computation or in
calls that transfer data, for which the trace supports a diagnosis."""


STANDARD_ERRORS = 3.0
"""Number of standard errors by which an expected time may exceed the measured one: chance does so
once in 700 runs."""


@dataclass(frozen=True)
class FurtherCosts:
    """Time that the expected run saves without causes that are not part of the waterfall.

    Each tuple holds one value per repetition, in picoseconds.

    Attributes:
        imbalance_ps: Saved if computation is balanced across ranks, of the measured time.
        noise_ps: Saved if no repetition of a computation exceeds its usual time, likewise.
        routing_ps: Saved if traffic is balanced over parallel links, where a few carried most of
            it; not part of the expected time, so it is added to it.
        uneven: Mean deviation of the load of parallel links from their mean, 0–2.
        hot_receivers: Share of the congestion between switches due to traffic to few receivers.
        placement_ps: Saved by the best placement, with our job alone on the healthy network and
            its current routes; empty if no placement was simulated.
        in_order_ps: The same with ranks in host order, switch by switch.
        uneven_tables: Mean deviation from the mean of the number of destinations that forwarding
            tables assign to parallel up-links, 0–2; 0 without tables.
        adapter_order_ps: Saved on an ideal switch by adapters that share their link among messages;
            empty if they already do.
        interruptions: Interruptions that every computation contains, so that no repetition shows
            its time without noise.
        without: Simulates the expected run without several causes at once.
    """

    imbalance_ps: tuple[int, ...]
    noise_ps: tuple[int, ...]
    routing_ps: tuple[int, ...] = ()
    uneven: float = 0.0
    hot_receivers: float = 0.0
    placement_ps: tuple[int, ...] = ()
    in_order_ps: tuple[int, ...] = ()
    uneven_tables: float = 0.0
    adapter_order_ps: tuple[int, ...] = ()
    interruptions: Interruptions = field(default_factory=Interruptions.none)
    without: Without | None = None

    @property
    def faulty_tables(self) -> bool:
        """Whether the forwarding tables are at fault, whatever the traffic."""
        return self.uneven_tables >= MIN_TABLE_UNEVENNESS

    @property
    def routing_mean_ps(self) -> int:
        """Mean of ``routing_ps``; 0 if it is empty."""
        return round(sum(self.routing_ps) / len(self.routing_ps)) if self.routing_ps else 0


def explain(
    diagnosis: Diagnosis,
    measured: Measured,
    summary: EvidenceSummary,
    further: FurtherCosts,
    advise: Advise,
) -> Diagnosis:
    """Turn the diagnosis of the expected run into a diagnosis of the measured run.

    Args:
        diagnosis: Diagnosis of the expected run with all detected causes.
        measured: The measured run.
        summary: Results from evidence other than the trace.
        further: Costs of computation and routing.
        advise: Selects a remedy if the verdict differs from that of the expected run.
    """
    diagnosis = split_adapter_order(diagnosis, further.adapter_order_ps)
    outside = measured.outside_model_ps
    inside = max(measured.elapsed_ps - outside, 1)
    expected = diagnosis.modelled_ps + further.routing_mean_ps + summary.added_ps
    surplus = _surplus_of_others(diagnosis, expected - inside)
    expected -= surplus
    ensemble = _ensemble(measured, summary, expected, (further.routing_mean_ps, surplus))
    surplus, scale = surplus - summary.others_more_ps, ensemble.mean_scale
    costs = _costs(diagnosis, measured, summary, further, scale, surplus)
    if summary.unknown_job is None:
        costs = with_cost_together(costs, diagnosis.modelled_ps, further.without, scale, surplus)
    costs = with_lossy_costs(costs, inside, expected, scale) if summary.lossy else costs
    costs = with_interval(costs, round(scale * summary.extrapolated_ps), measured.elapsed_ps)
    if summary.unknown_timing > _TAIL:
        costs = _with_unknown_timing(costs, measured.elapsed_ps)
    not_explained_ps = measured.elapsed_ps - outside - expected
    decision = decide(costs, ensemble, _validity(summary), further.interruptions, summary.change)
    explanation = Explanation(
        elapsed_ps=measured.elapsed_ps,
        parts=_parts(diagnosis, measured, outside, further, summary, surplus),
        costs=costs,
        not_explained_ps=not_explained_ps,
        model_error_ps=round(abs(inside - scale * expected)),
        missing=_asked(summary),
        sources=list(summary.sources),
        shared_links=list(summary.shared_links),
        sampled_links=list(summary.sampled_links),
        port_events=list(summary.port_events),
        suspect_links=_suspect_links(summary, costs),
    )
    cause: Cause = decision.cause  # type: ignore[assignment]
    sure = decision.confidence
    main = next((cost for cost in costs if cost.cause == cause), None)
    if main is None and cause != HEALTHY:
        cause, sure = "undetermined", 0.0
    headline = _headline(cause, main, measured, explanation, summary, decision)
    too_little = _nothing_to_diagnose(measured, summary, inside)
    open_question = too_little or summary.impossible
    if not open_question:
        open_question = _model_too_slow(costs, (expected, inside), scale, summary)
    if not open_question and main is None:
        open_question = _open_without_cause(cause, diagnosis, surplus, measured)
    if not open_question and cause == HEALTHY:
        open_question = wording.errors_not_excluded(explanation.suspect_links)
        if not open_question and further.interruptions.may_be_fault:
            open_question = wording.interruptions_not_excluded(decision.chances.get("noise", 0.0))
    if open_question:
        cause, sure, headline = "undetermined", 0.0, open_question
    if summary.assumed_hosts:
        headline = f"{headline} {summary.assumed_hosts}."
    if not too_little:
        explanation = _with_limits(explanation, cause, summary, decision)
    blamed = cause == "slow-link" and not summary.place_open
    shown = main.evidence if main is not None and main.cause == cause else headline
    explained = diagnosis.model_copy(
        update={
            "cause": cause,
            "headline": headline,
            "confidence": sure,
            "chances": dict(decision.chances),
            "findings": _findings(cause, diagnosis, costs, shown),
            "explanation": explanation,
            "evidence": by_weight([*summary.evidence, *_rows_of_routes(further, measured)]),
            "not_explained_ps": not_explained_ps,
            "not_explained_low_ps": measured.low_ps - outside - expected,
            "not_explained_high_ps": measured.high_ps - outside - expected,
            "slow_links": list(diagnosis.slow_links) if blamed else [],
        }
    )
    other = cause != diagnosis.cause and cause not in NOT_OF_THE_NETWORK
    proved = advise(explained) if other else diagnosis.remedy
    remedy = remedy_for(explained, proved, summary, explanation.missing)
    return advised(explained, of_measured(remedy, measured, lossy=summary.lossy))


def _findings(
    cause: Cause, diagnosis: Diagnosis, costs: Sequence[Cost], shown: str
) -> list[Finding]:
    """The findings of rules, and one of the cause with the evidence that is shown for it."""
    # A finding without a rule belongs to the verdict on the expected run, which may differ.
    rules = [finding for finding in diagnosis.findings if finding.code != CODE]
    shares: dict[Cause, float] = {cost.cause: cost.share for cost in costs}  # type: ignore[misc]
    return ensure_cause_finding(cause, rules, shares, wording.as_sentence(shown))


def _asked(summary: EvidenceSummary) -> list[str]:
    """Evidence that is worth collecting whatever the verdict."""
    measurements = summary.measurements
    possible = [] if measurements is None else measurements.possible
    return [measurement.text for measurement in possible if measurement.asked]


def _with_limits(
    explanation: Explanation, cause: Cause, summary: EvidenceSummary, decision: Decision
) -> Explanation:
    """The explanation with what an open verdict lacks, or what a healthy one would have shown."""
    if cause == "undetermined" and summary.measurements is not None:
        return _with_next_measurement(explanation, summary.measurements, decision)
    if cause == HEALTHY and summary.sizes is not None:
        return explanation.model_copy(update={"smallest_fault": summary.sizes.smallest()})
    return explanation


def _with_next_measurement(
    explanation: Explanation, measurements: MeasurementChoice, decision: Decision
) -> Explanation:
    """The explanation with what may be measured, by the information that it is expected to give."""
    ranked = measurements.ranked(decision.chances)
    update = {
        "missing": [measurement.text for bits, measurement in ranked if bits > 0],
        "next_measurement": measurements.best(ranked),
    }
    return explanation.model_copy(update=update)


def _rows_of_routes(further: FurtherCosts, measured: Measured) -> list[EvidenceRow]:
    """What counters and forwarding tables say of the routes."""
    rows: list[EvidenceRow] = []
    judged_by: tuple[tuple[Source, float, float], ...] = (
        ("counters", further.uneven, MIN_UNEVENNESS),
        ("forwarding", further.uneven_tables, MIN_TABLE_UNEVENNESS),
    )
    for source, deviation, least in judged_by:
        if deviation > 0.0:
            judged = "for" if deviation >= least else "against"
            rows.append(
                EvidenceRow(
                    subject="parallel links",
                    kind="run",
                    start_ps=0,
                    end_ps=measured.elapsed_ps,
                    quantity="uneven bytes" if source == "counters" else "uneven destinations",
                    value=deviation,
                    unit="share",
                    source=source,
                    says={"routing": f"{judged}: {percent(least)} would be uneven"},
                )
            )
    return rows


def _suspect_links(summary: EvidenceSummary, costs: Sequence[Cost]) -> list[SuspectLink]:
    """The suspect links; of slow ones, those that cost nothing are not named."""
    cost = next((cost for cost in costs if cost.cause == "slow-link"), None)
    total = 0.0 if cost is None or cost.share <= 0 else cost.ps / cost.share
    named = CostRange(0.0, 0.0, 0.0)
    if cost is not None and total:
        named = CostRange(cost.share, cost.low_ps / total, cost.high_ps / total)

    def reconsidered(link: SuspectLink) -> SuspectLink:
        if link.status != "named" or not named.is_excluded:
            return link
        alone = CostRange.of(link) or named
        status, reason = (
            ("ruled-out", no_shorter(alone))
            if alone.is_excluded
            else ("candidate", not_excluded(alone))
        )
        return link.model_copy(update={"status": status, "reason": reason})

    links = [reconsidered(link) for link in summary.suspect_links]
    return sorted(links, key=lambda link: ("named", "candidate", "ruled-out").index(link.status))


def _nothing_to_diagnose(measured: Measured, summary: EvidenceSummary, inside_ps: int) -> str:
    """Why the trace is insufficient to diagnose communication; empty if it is sufficient."""
    if summary.ranks_missing:
        return f"{wording.ranks_missing(summary.ranks_missing)}."
    if measured.n_ranks == 1:
        return f"{wording.ONE_RANK}."
    if inside_ps >= MIN_INSIDE_SHARE * measured.elapsed_ps:
        return ""
    outside = 1.0 - inside_ps / max(measured.elapsed_ps, 1)
    return f"{wording.almost_no_calls(outside)}."


def _model_too_slow(
    costs: Sequence[Cost], times: tuple[int, int], scale: float, summary: EvidenceSummary
) -> str:
    """Headline if the expected run takes far longer than the run did; otherwise empty.

    Far: by more than the errors of the simulated time and of the costs in it allow. What the model
    then charges to a cause was not lost.

    Args:
        costs: The costs, at the mean scale.
        times: The expected and the measured time of the modelled part, ps.
        scale: The mean scale of costs.
        summary: Results from evidence other than the trace.
    """
    expected, inside = times
    model = ErrorModel(inside, lossy=summary.lossy)
    # Errors of costs are independent. Costs may overlap, but together are no longer than the run.
    charged = math.hypot(*(cost.ps for cost in costs)) / max(scale, 1e-9)
    charged = RELATIVE_COST_ERROR * min(charged, expected)
    error = math.hypot(model.time_error * expected, charged)
    if expected - inside <= STANDARD_ERRORS * error:
        return ""
    return wording.model_too_slow(expected, inside, summary.candidates)


def _open_without_cause(
    cause: Cause, diagnosis: Diagnosis, surplus: int, measured: Measured
) -> str:
    """Why no cause was found although there may be one; empty if nothing says so."""
    others = _open_cost_of_others(diagnosis, surplus, measured)
    return others or (_one_sided_waits(measured) if cause == HEALTHY else "")


def _one_sided_waits(measured: Measured) -> str:
    """Headline if ranks may wait for one another in one-sided calls; otherwise empty.

    As late partners are no part of the waterfall, the model does not tell what they cost.
    """
    inside = measured.part("one_sided")
    if inside < fault_share("late-partner") * measured.elapsed_ps:
        return ""
    return wording.one_sided_waits(inside, measured.elapsed_ps)


def _open_cost_of_others(diagnosis: Diagnosis, surplus: int, measured: Measured) -> str:
    """Headline if the model cannot decide whether other traffic is a fault; otherwise empty."""
    others = _cost_of_others(diagnosis)
    if others < FAULT * measured.elapsed_ps or surplus < others / 2:
        return ""
    return wording.cost_of_others_open(others - surplus, others, measured.elapsed_ps)


def _surplus_of_others(diagnosis: Diagnosis, overshoot_ps: int) -> int:
    """Excess of the expected over the measured time due to other traffic, at most its full cost.

    Counters give the bytes of other jobs per window, not their timing within it. This is the most
    uncertain input of the model, and the measured time bounds its cost.
    """
    return max(min(overshoot_ps, _cost_of_others(diagnosis)), 0)


def _cost_of_others(diagnosis: Diagnosis) -> int:
    """Time that the expected run saves without other traffic, ps."""
    saved = [s.removed or 0.0 for s in diagnosis.shares if s.cause == "other-traffic"]
    return round(sum(saved) * diagnosis.modelled_ps)


def _ensemble(
    measured: Measured, summary: EvidenceSummary, expected: int, late: tuple[int, int]
) -> Ensemble:
    """The ensemble of hypotheses, corrected for costs that are known only after their search.

    Args:
        measured: The measured run.
        summary: Results from evidence other than the trace.
        expected: The expected time, with all hidden causes, ps.
        late: Increase of every run by uneven routes, and decrease of the cost of other traffic, ps.
    """
    elapsed, (routing, surplus) = max(measured.elapsed_ps, 1), late
    model = ErrorModel(max(elapsed - measured.outside_model_ps, 1), lossy=summary.lossy)
    if not summary.alternatives:
        unknown = log_unexplained(model.off_share(expected), model)
        both = Alternative(0.0, expected), Alternative(unknown, expected, unexplained=True)
        return Ensemble.of(both, model, elapsed)
    moved = [
        replace(
            alternative,
            elapsed_ps=max(alternative.elapsed_ps + routing - surplus, 1),
            hidden_ps={
                name: ps - surplus * (name == "other-traffic")
                for name, ps in alternative.hidden_ps.items()
            },
        )
        for alternative in summary.alternatives
    ]
    return Ensemble.of(moved, model, elapsed)


def _validity(summary: EvidenceSummary) -> dict[str, float]:
    """Probability that the assumptions behind causes hold, where it is not 1."""
    if summary.assumed_hosts:
        return {cause: ASSUMED for cause in ADVICE if cause not in NOT_OF_THE_NETWORK}
    shown = {"counters", "fabric"} & set(summary.rests_on.get("slow-link", ("counters",)))
    return {} if shown or not summary.lossy else {"slow-link": ASSUMED}


def _costs(
    diagnosis: Diagnosis,
    measured: Measured,
    summary: EvidenceSummary,
    further: FurtherCosts,
    scale: float,
    surplus: int,
) -> list[Cost]:
    """Cost of each cause in the measured run, largest first."""
    total, expected = max(measured.elapsed_ps, 1), diagnosis.modelled_ps
    out: list[_ExpectedCost] = []
    inside = sum(s.charged for s in diagnosis.shares if s.cause in _INSIDE)
    for share in diagnosis.shares:
        if share.cause == "in-host":
            continue  # The rates of hosts are as stated: a part of the time, and no fault.
        alone, low, high = _own_cost(share, further, expected, inside)
        less = more = 0
        if share.cause == "other-traffic":
            alone, low, high = (x - surplus / max(expected, 1) for x in (alone, low, high))
            less, more = summary.others_range
        busier = summary.slow_more_ps if share.cause == "slow-link" else 0
        subject, shown, rests = _described(share.cause, summary)
        if share.cause == "routing" and further.faulty_tables:
            shown = wording.uneven_tables(further.uneven_tables)
        out.append(
            (
                share.cause,
                alone * expected + busier,
                low * expected + less + busier,
                high * expected + more + busier,
                subject,
                shown,
                rests,
            )
        )
    out += _costs_of_computation(measured, further)
    if further.routing_ps:
        limited, uneven = further.routing_ps, wording.uneven_links(further.uneven)
        out.append(
            (
                "routing",
                further.routing_mean_ps,
                min(limited),
                max(limited),
                "",
                uneven,
                ("counters", "model"),
            )
        )
    if summary.unknown_job is not None:
        # Counters of long intervals show a part of it, which the expected run contains.
        counted = [row[1:4] for row in out if row[0] == "other-traffic"]
        job = summary.unknown_job.costs_ps
        cost, least, most = map(sum, zip(job, *counted, strict=True))
        out = [row for row in out if row[0] != "other-traffic"]
        out.append(("other-traffic", cost, least, most, *_described("other-traffic", summary)))
    return _in_measured_time(out, scale, total, summary)


def _costs_of_computation(measured: Measured, further: FurtherCosts) -> list[_ExpectedCost]:
    """Costs of imbalance, noise and late partners in the measured run."""
    even, quiet = (sum(ps) / max(len(ps), 1) for ps in (further.imbalance_ps, further.noise_ps))
    everywhere = further.interruptions.likely_share() * measured.elapsed_ps
    imbalance = _imbalance(measured, even)
    turns = _TurnWaits.of(measured, further)
    rests_on: tuple[Origin, ...] = ("trace", "model")
    out: list[_ExpectedCost] = []
    for cause, saved, mean, most in (
        ("imbalance", further.imbalance_ps, imbalance, measured.slow_rank_waits_ps),
        ("noise", further.noise_ps, max(quiet, everywhere), everywhere),
    ):
        low, high = min(saved, default=0), max([*saved, most])
        out.append((cause, mean, low, high, *_computation(cause, measured), rests_on))
    late = (turns.late_ps, turns.late_low_ps, turns.late_high_ps)
    return [*out, ("late-partner", *late, "", wording.TAKEN_TURNS, rests_on)]


def _in_measured_time(
    costs: Sequence[_ExpectedCost], scale: float, total_ps: int, summary: EvidenceSummary
) -> list[Cost]:
    """Costs in the expected run, scaled to the measured one, largest first."""
    made = []
    for cause, ps, low, high, subject, shown, rests in costs:
        factor = 1.0 if cause in IN_MEASURED_TIME else scale
        value = max(round(ps * factor), 0)
        if value == 0:
            continue
        named = cause == "slow-link" and not summary.place_open
        made.append(
            Cost(
                cause=cause,
                ps=value,
                low_ps=max(round(low * min(factor, 1.0)), 0),
                high_ps=max(round(high * max(factor, 1.0)), value),
                share=min(value / total_ps, 1.0),
                subject=subject,
                links=summary.slow_links if named else (),
                one_of_links=named and bool(summary.candidates),
                evidence=shown,
                rests_on=rests,
            )
        )
    return sorted(made, key=lambda cost: (-cost.ps, cost.cause))


def _imbalance(measured: Measured, saved_ps: float) -> float:
    """Cost of imbalance, ps, where the replay with balanced computation saves so much.

    A rank that computes does not progress its messages, which no model has. But what waits for a
    slow rank may wait for other messages, too. So the cost lies between what the replay saves and
    all waits for slow ranks. If the replay saves as much as a fault, it is believed; otherwise the
    middle is.
    """
    if saved_ps >= FAULT * measured.elapsed_ps:
        return saved_ps
    return (saved_ps + max(measured.slow_rank_waits_ps, saved_ps)) / 2.0


def _own_cost(
    share: CauseShare, further: FurtherCosts, expected: int, inside: float
) -> tuple[float, float, float]:
    """Cost of a cause by itself with its lower and upper bound, as shares of the expected time.

    ``inside`` is the share charged to placement and routing together.
    """
    if share.cause == "placement" and further.placement_ps and not further.faulty_tables:
        return _own_cost_of_placement(share, further, expected)
    # Other routes and placements also avoid slow links and other traffic: their own cost is what
    # they cost our job on the healthy network.
    if share.removed is not None and share.cause not in ("routing", "placement"):
        alone, low = share.removed, share.removed_low or 0.0
        high = share.removed_high or alone
    else:
        alone = share.charged
        low, high = min(share.low, alone), max(share.high, alone)
    if share.cause == "routing" and further.placement_ps and not further.faulty_tables:
        # Collisions that another placement avoids with the same even tables are the placement's.
        placement_cost = sum(further.placement_ps) / len(further.placement_ps) / max(expected, 1)
        alone, low, high = (max(x - placement_cost, 0.0) for x in (alone, low, high))
    if share.cause == "pattern":
        # Without the hot receivers, their traffic would not collide between switches either:
        # between none and all of that cost belongs to the pattern.
        shared = further.hot_receivers * inside
        alone, high = alone + shared / 2, high + shared
    return alone, low, high


def _own_cost_of_placement(
    share: CauseShare, further: FurtherCosts, expected: int
) -> tuple[float, float, float]:
    """Cost of placement with its bounds, if forwarding tables spread destinations evenly.

    With static routes, flows collide on a link because of placement and routes together. If the
    tables are even, the cost is attributed to the placement.

    A placement in host order, or as good as that, is not at fault because another one avoids a slow
    link or other traffic: its cost is what it costs our job alone. A worse placement costs what the
    run saves without it.
    """
    saved = [ps / max(expected, 1) for ps in further.placement_ps]
    cost = sum(saved) / len(saved), min(saved), max(saved)
    in_order = sum(further.in_order_ps) / max(len(further.in_order_ps), 1) / max(expected, 1)
    if in_order < FAULT or share.removed is None or share.removed < cost[0]:
        return cost
    return share.removed, min(cost[1], share.removed), max(share.removed_high or 0.0, cost[2])


@dataclass(frozen=True)
class _TurnWaits:
    """Waits for computation that would remain with balanced computation: ranks compute in turn.

    The trace shows how long ranks wait for the computation of others. What the expected run saves
    with balanced computation or without noise is imbalance or noise, as are waits for slow ranks.
    The others are due to dependencies, if ranks receive, compute and send on, and else due to late
    partners. Which of them the expected run saves is unknown: between all and none of each.

    Attributes:
        late_ps: Waits for partners that could send before they compute.
        late_low_ps: Lower bound.
        late_high_ps: Upper bound.
        dependency_ps: Waits for what depends on messages by the order of calls.
    """

    late_ps: float
    late_low_ps: float
    late_high_ps: float
    dependency_ps: float

    @classmethod
    def of(cls, measured: Measured, further: FurtherCosts) -> _TurnWaits:
        """Waits of a measured run, averaged over its ranks."""
        even, quiet = (sum(ps) / max(len(ps), 1) for ps in (further.imbalance_ps, further.noise_ps))
        waits = measured.part("imbalance") + measured.part("noise")
        saved = max(even, measured.slow_rank_waits_ps) + max(quiet, 0.0)
        turns = max(waits - saved, 0.0)
        chained = min(measured.dependency_waits_ps, waits)
        dependency = turns * chained / max(waits, 1)
        low, high = max(turns - chained, 0.0), min(turns, waits - chained)
        return cls(turns - dependency, low, high, dependency)


def _described(cause: Cause, summary: EvidenceSummary) -> tuple[str, str, tuple[Origin, ...]]:
    """Subject of a cause, its evidence, and the kinds of evidence."""
    if cause == "slow-link":
        which = (
            wording.one_of(summary.candidates) if summary.candidates else "; ".join(summary.slow)
        )
        which = wording.PATHS_UNKNOWN if summary.place_open else which
        return which, summary.slow_shown_by, summary.rests_on.get(cause, ("model",))
    if cause == "other-traffic":
        return summary.others, summary.others_shown_by, summary.rests_on.get(cause, ("model",))
    return "", wording.SHOWN_BY_MODEL.get(cause, ""), ("trace", "model")


def _computation(cause: str, measured: Measured) -> tuple[str, str]:
    """The late ranks, and the evidence for them."""
    return late_ranks(measured.latecomers, cause), wording.waits_for_computation(cause)


def _parts(
    diagnosis: Diagnosis,
    measured: Measured,
    outside: int,
    further: FurtherCosts,
    summary: EvidenceSummary,
    surplus: int,
) -> dict[str, int]:
    """Components of the measured time, ps; they add up to it."""
    parts = {wording.OUTSIDE_MODEL: outside}
    computing = measured.part("computation")
    parts[wording.COMPUTATION] = computing
    bars = {bar.name: bar for bar in diagnosis.waterfall}
    if bars:
        base = bars["injection"].elapsed_ps
        within = bars["in-host"].delta_ps if "in-host" in bars else 0
        by_program = base - computing - within
        chained = round(_TurnWaits.of(measured, further).dependency_ps)
        parts[wording.DEPENDENCIES] = min(chained, max(by_program, 0))
        parts[wording.BOUND_BY_PROGRAM] = by_program - parts[wording.DEPENDENCIES]
        for name, bar in bars.items():
            if name in (
                "in-host",
                "pattern",
                ADAPTER_ORDER,
                "network",
                "placement",
                "routing",
                "slow links",
                "other traffic",
            ):
                parts[name] = parts.get(name, 0) + bar.delta_ps
        parts[wording.REMAINDER] = bars["observed"].delta_ps if "observed" in bars else 0
    parts["routing"] = parts.get("routing", 0) + further.routing_mean_ps
    parts["slow links"] = parts.get("slow links", 0) + summary.slow_more_ps
    parts["other traffic"] = parts.get("other traffic", 0) + summary.unknown_job_ps - surplus
    parts = {name: ps for name, ps in parts.items() if ps}
    parts[wording.UNEXPLAINED] = measured.elapsed_ps - sum(parts.values())
    return parts


def _headline(
    cause: Cause,
    main: Cost | None,
    measured: Measured,
    explanation: Explanation,
    summary: EvidenceSummary,
    decision: Decision,
) -> str:
    """One sentence with the verdict, its cost and the total time."""
    total = measured.elapsed_ps
    if cause == "healthy":
        threshold = {c.cause: fault_share(c.cause) for c in explanation.costs}
        largest = max(explanation.costs, key=lambda c: c.share / threshold[c.cause], default=None)
        text = wording.nothing_costs(total)
        if largest is not None:
            text = wording.no_fault(total, largest, threshold[largest.cause])
        chained = explanation.parts.get(wording.DEPENDENCIES, 0) / total
        if chained >= fault_share("late-partner"):
            text += wording.bound_by_dependencies(chained)
        program = explanation.parts.get(wording.BOUND_BY_PROGRAM, 0)
        if program > explanation.parts.get(wording.COMPUTATION, 0):
            text += wording.bound_by_communication(program / total)
        return text
    if cause == "undetermined" or main is None:
        named = {name: chance for name, chance in decision.chances.items() if name in ADVICE}
        if max(named.values(), default=0.0) > decision.chances[UNEXPLAINED]:
            subjects = {cost.cause: cost.subject for cost in explanation.costs}
            return wording.candidates(named, subjects, decision.chances[UNEXPLAINED], total)
        not_explained_ps = explanation.not_explained_ps
        if not_explained_ps < 0:
            inside = total - measured.outside_model_ps
            return wording.model_too_slow(inside - not_explained_ps, inside, summary.candidates)
        if summary.change is not None and summary.change.is_fault:
            return wording.changed(summary.change, total)
        text = wording.not_explained(
            not_explained_ps, total, summary.candidates, summary.slow_anywhere
        )
        waits = next((c for c in explanation.costs if c.cause in CONCEALING), None)
        if waits is not None and any(
            alternative.concealed >= LIKELY for alternative in summary.alternatives
        ):
            text += wording.concealed(waits)
        return text
    if cause == "slow-link" and summary.candidates:
        if summary.place_open:
            return wording.place_open(main, total, summary.candidates)
        return wording.one_of_the_links(main, total, summary.candidates)
    return wording.main_cause(cause, main, total)


# --- order of adapters -------------------------------------------------------------------------

# If adapters send messages one after another, a message to a free receiver waits for those ahead of
# it. On the ideal switch, this delays even runs without overloaded receivers; adapters that share
# their link among messages would avoid it. It is therefore not a cost of the pattern.

ADAPTER_ORDER = "adapter order"
"""Name of the waterfall bar and of the part of the measured time."""

_MEANING = "the same with adapters that send messages one after another"


def split_adapter_order(diagnosis: Diagnosis, order_ps: Sequence[int]) -> Diagnosis:
    """Split the pattern bar of a diagnosis in two, and reduce the share of the pattern.

    Args:
        diagnosis: Diagnosis of the expected run.
        order_ps: Time saved on an ideal switch if adapters share their link, by repetition.
    """
    pattern = next((bar for bar in diagnosis.waterfall if bar.name == "pattern"), None)
    mean = round(sum(order_ps) / max(len(order_ps), 1))
    if pattern is None or mean <= 0 or pattern.delta_ps <= 0:
        return diagnosis
    order = min(mean, pattern.delta_ps)
    bars: list[WaterfallBar] = []
    for bar in diagnosis.waterfall:
        if bar is not pattern:
            bars.append(bar)
            continue
        low, high = (max(ps - order, 0) for ps in (bar.low_ps, bar.high_ps))
        elapsed, delta = bar.elapsed_ps - order, bar.delta_ps - order
        bars.append(
            bar.model_copy(
                update={"elapsed_ps": elapsed, "delta_ps": delta, "low_ps": low, "high_ps": high}
            )
        )
        bars.append(
            WaterfallBar(
                name=ADAPTER_ORDER,
                elapsed_ps=bar.elapsed_ps,
                delta_ps=order,
                low_ps=min(*order_ps, order),
                high_ps=max(*order_ps, order),
                meaning=_MEANING,
            )
        )
    part = order / max(diagnosis.modelled_ps, 1)
    shares = [_reduced(s, part) if s.cause == "pattern" else s for s in diagnosis.shares]
    shares.sort(key=lambda share: (-share.charged, share.cause))
    return diagnosis.model_copy(update={"waterfall": bars, "shares": shares})


def _reduced(share: CauseShare, part: float) -> CauseShare:
    """The share of a cause, reduced by a part of the time."""
    names = ("charged", "low", "high", "removed", "removed_low", "removed_high")
    values = {name: getattr(share, name) for name in names}
    return share.model_copy(
        update={n: max(value - part, 0.0) for n, value in values.items() if value is not None}
    )


# --- costs that cannot be told apart -----------------------------------------------------------

SEPARABLE: Final = frozenset({"imbalance", "noise", "slow-link", "other-traffic"})
"""Causes that can be taken out of the expected run together."""

Without = Callable[[frozenset[str]], int]
"""Expected time without several causes of :data:`SEPARABLE`, ps, by one simulation."""


def with_cost_together(
    costs: Sequence[Cost], expected_ps: int, without: Without | None, scale: float, surplus_ps: int
) -> list[Cost]:
    """The costs; the evidence of the largest says what the run saves without the second as well.

    Each cost is what the run saves without that cause alone. Two causes that hide each other save
    more together than their sum, and two that delay the same messages save less.

    Args:
        costs: Cost of each cause, largest first.
        expected_ps: Time of the expected run, ps.
        without: Simulates it without several causes; None if that is not possible.
        scale: Factor from expected to measured time.
        surplus_ps: Part of the simulated cost of other traffic that the measured time excludes, ps.
    """
    faults = [cost for cost in costs if cost.share >= fault_share(cost.cause)][:2]
    names = frozenset(cost.cause for cost in faults)
    if len(names) < 2 or not names <= SEPARABLE or without is None:
        return list(costs)
    excluded = max(surplus_ps, 0) if "other-traffic" in names else 0
    saved = max(expected_ps - without(names) - excluded, 0) * scale
    first, second = faults
    share = saved * first.share / first.ps
    said = wording.cost_together(second.cause, round(saved), share)
    evidence = f"{first.evidence}; {said}"
    return [first.model_copy(update={"evidence": evidence}), *(c for c in costs if c is not first)]


_TAIL: Final = 0.025
"""Probability that a 95 % interval leaves out at either end."""


def _with_unknown_timing(costs: Sequence[Cost], elapsed_ps: int) -> list[Cost]:
    """Costs where a cable with errors may delay messages at other times than was simulated.

    Then it costs as little as a fault does, or what the run lacks without it, or anything between.
    """
    least = round(FAULT * elapsed_ps)
    return [
        cost.model_copy(update={"low_ps": min(cost.low_ps, least)})
        if cost.cause == "slow-link"
        else cost
        for cost in costs
    ]


def with_interval(costs: Sequence[Cost], half_ps: int, most_ps: int) -> list[Cost]:
    """Costs whose range includes the interval of extrapolated steps.

    A cost is the difference of two runs with such an interval. Their errors are alike, as both lack
    the same steps, so the interval of one is added.
    """
    return [
        cost.model_copy(
            update={
                "low_ps": max(cost.low_ps - half_ps, 0),
                "high_ps": max(cost.high_ps, min(cost.high_ps + half_ps, most_ps)),
            }
        )
        for cost in costs
    ]
