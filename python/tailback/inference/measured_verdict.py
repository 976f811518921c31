"""The verdict on a measured run: the main cause, and the time that remains unexplained.

The expected run includes the slow cables and other traffic for which there is positive evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from tailback.budget import is_left_out, optional
from tailback.diagnosis.cause_wording import ADVICE, CODE, ensure_cause_finding
from tailback.diagnosis.confidence import SURE
from tailback.diagnosis.evidence_rows import by_weight
from tailback.diagnosis.explanation import (
    Cost,
    EvidenceRow,
    Explanation,
    SmallestFault,
    Source,
    SuspectLink,
)
from tailback.diagnosis.model import (
    Cause,
    CauseShare,
    Diagnosis,
    Finding,
    Kind,
    Remedy,
    Saves,
    WaterfallBar,
)
from tailback.evidence.measured_routes import MIN_UNEVENNESS
from tailback.evidence.model import Measured
from tailback.inference import measured_wording as wording
from tailback.inference.decision import (
    ASSUMED,
    HEALTHY,
    NO_FAULTS,
    RELATIVE_COST_ERROR,
    UNEXPLAINED,
    Alternative,
    Decision,
    Ensemble,
    decide,
    fault_share,
    with_lossy_costs,
    with_model_error,
)
from tailback.inference.decision import COMPUTATION as CONCEALING
from tailback.inference.error_model import error_model
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.hypotheses import FAULT, LIKELY, log_unexplained
from tailback.inference.measured_costs import (
    MIN_TABLE_UNEVENNESS,
    USUAL_PATHS,
    FurtherCosts,
    TurnWaits,
    costs_of_causes,
    with_cost_together,
    with_interval,
    with_noise_in_calls,
    with_unknown_timing,
)
from tailback.inference.measured_remedy import (
    NOT_OF_THE_NETWORK,
    REMOVED,
    MeasuredGains,
    advised,
    remedy_for,
    with_even_routes,
    with_gain_as_cost,
)
from tailback.inference.next_measurement import MeasurementChoice
from tailback.inference.suspect_links import CostRange, no_shorter, not_excluded
from tailback.units import percent

Advise = Callable[[Diagnosis, Saves, frozenset[Kind]], Remedy | None]
"""Selects the remedy for a diagnosis from those that were simulated, with words for the gains, and
without those that have a part of some kinds."""


MIN_INSIDE_SHARE = 0.02
"""Smallest share of the measured time between a rank's first and last call, in computation or in
calls that transfer data, for which the trace supports a diagnosis."""


STANDARD_ERRORS = 3.0
"""Number of standard errors by which an expected time may exceed the measured one: chance does so
once in 700 runs."""


def explain(
    diagnosis: Diagnosis,
    measured: Measured,
    summary: EvidenceSummary,
    further: FurtherCosts,
    advise: Advise,
    placement: Cost | None = None,
) -> Diagnosis:
    """Turn the diagnosis of the expected run into a diagnosis of the measured run.

    Where it is open whether the placement is at fault, what the best one gains decides.

    Args:
        diagnosis: Diagnosis of the expected run with all detected causes.
        measured: The measured run.
        summary: Results from evidence other than the trace.
        further: Costs of computation and routing.
        advise: Selects the remedy, for the cause of the expected run if the verdict is no other
            cause in the network.
        placement: Cost of the placement by the gain of the best one; None if not known.
    """
    modelled = diagnosis
    diagnosis = split_adapter_order(diagnosis, further.adapter_order_ps)
    outside = measured.outside_model_ps
    inside = max(measured.elapsed_ps - outside, 1)
    even = diagnosis.modelled_ps + summary.added_ps
    further = further.within(even, error_model(measured, lossy=summary.lossy))
    expected = even + further.routing_mean_ps
    overshoot = _surplus_of_others(diagnosis, expected - inside)
    expected -= overshoot
    ensemble = _ensemble(measured, summary, expected, (further.routing_mean_ps, overshoot))
    surplus, scale = overshoot - summary.others_more_ps, ensemble.mean_scale
    costs = _costs(diagnosis, measured, summary, further, scale, surplus, expected)
    if placement is not None:
        costs = [placement if cost.cause == "placement" else cost for cost in costs]
    not_explained_ps = measured.elapsed_ps - outside - expected
    decision = _decided(costs, ensemble, further, summary, even)
    parts = _parts(diagnosis, measured, outside, further, summary, surplus)
    off_ps = round(abs(inside - scale * expected))
    explanation = _explanation(measured, summary, costs, parts, (not_explained_ps, off_ps))
    cause, sure = cast("Cause", decision.cause), decision.confidence
    main = explanation.cost(cause)
    if main is None and cause != HEALTHY:
        cause, sure = "undetermined", 0.0
    too_little = _nothing_to_diagnose(measured, summary, inside)
    open_question = too_little or summary.impossible
    if not open_question:
        open_question = _model_too_slow(costs, expected, ensemble, summary)
    if not open_question and main is None:
        open_question = _open_without_cause(cause, diagnosis, overshoot, measured)
    if not open_question and cause == HEALTHY:
        hashed = max(further.hashed_ps, default=0) / max(diagnosis.modelled_ps, 1)
        open_question = _not_excluded(explanation, further, decision, hashed)
    if open_question:
        cause, sure = "undetermined", 0.0
    if not too_little:
        explanation = _with_limits(explanation, cause, summary, decision)
    alike = {
        "cause": cause,
        "confidence": sure,
        "chances": dict(decision.chances),
        "evidence": by_weight([*summary.evidence, *_rows_of_routes(further, measured)]),
        "not_explained_ps": not_explained_ps,
        "not_explained_low_ps": measured.low_ps - outside - expected,
        "not_explained_high_ps": measured.high_ps - outside - expected,
    }
    verdict = _StatedVerdict(
        diagnosis, alike, open_question, explanation, decision, measured, summary
    )
    remedies = _Remedies(verdict, further, advise, ensemble)
    cured = "" if open_question else decision.helps_either_way
    gains, remedy = remedies.of(cast("Cause", cured or cause))
    gained = gains.cost("placement")
    if cured and placement is None and gained != explanation.cost("placement"):
        return explain(modelled, measured, summary, further, advise, gained)
    if cured and (remedy is None or not remedy.name):
        gains, remedy = remedies.of(cause)
    return advised(verdict.with_costs(gains.costs), remedy)


@dataclass(frozen=True)
class _StatedVerdict:
    """The verdict, before its costs are stated.

    Attributes:
        expected: Diagnosis of the expected run.
        stated: Fields of the diagnosis that no cost is stated in, among them the cause.
        open_question: Why the cause is undetermined, as a headline; empty if for no such reason.
        explanation: Breakdown of the measured time.
        decision: Probabilities of causes.
        measured: The measured run.
        summary: Results from evidence other than the trace.
    """

    expected: Diagnosis
    stated: Mapping[str, Any]
    open_question: str
    explanation: Explanation
    decision: Decision
    measured: Measured
    summary: EvidenceSummary

    def with_costs(self, costs: Sequence[Cost]) -> Diagnosis:
        """The diagnosis of the measured run with these costs, largest first, in all its parts."""
        cause, measured = self.stated["cause"], self.measured
        explanation = self.explanation.model_copy(update={"costs": list(costs)})
        main = explanation.cost(cause)
        headline = self.open_question or _headline(
            cause, main, measured, explanation, self.summary, self.decision
        )
        caveats = filter(None, (self.summary.assumed_hosts, measured.caveat))
        headline = " ".join([headline, *(f"{caveat}." for caveat in caveats)])
        shown = main.evidence if main is not None else headline
        blamed = cause == "slow-link" and not self.summary.place_open
        return self.expected.model_copy(
            update={
                **self.stated,
                "headline": headline,
                "findings": _findings(cause, self.expected, costs, shown),
                "explanation": explanation,
                "slow_links": self.expected.slow_links if blamed else [],
            }
        )


@dataclass(frozen=True)
class _Remedies:
    """Remedies of the causes that a verdict may blame.

    Attributes:
        verdict: The verdict.
        further: Costs of computation and routing.
        advise: Selects the remedy by re-simulation.
        ensemble: The hypotheses: where one does not have a cause, its removal is uncertain.
    """

    verdict: _StatedVerdict
    further: FurtherCosts
    advise: Advise
    ensemble: Ensemble

    def of(self, cause: Cause) -> tuple[MeasuredGains, Remedy | None]:
        """The gains and costs with the remedy of a cause, and that remedy."""
        verdict, summary = self.verdict, self.verdict.summary
        costs = verdict.explanation.costs
        blaming = replace(verdict, stated={**verdict.stated, "cause": cause})
        blamed = blaming.with_costs(costs)
        same = cause == verdict.expected.cause or cause in NOT_OF_THE_NETWORK
        uncertain = frozenset(
            kind for kind, removed in REMOVED.items() if self.ensemble.hides(removed) < SURE
        )

        def in_words(gains: MeasuredGains) -> Remedy | None:
            proved = self.advise(verdict.expected if same else blamed, gains.said, uncertain)
            proved = with_even_routes(proved, blamed, self.further, gains.said)
            return remedy_for(blamed, proved, summary, verdict.explanation.missing)

        open_places = {
            "slow-link": summary.place_open,
            "other-traffic": summary.unknown_job is not None,
        }
        located = not open_places.get(cause, False)
        gains = MeasuredGains(verdict.measured, costs, cause, summary.lossy, located)
        # The remedy decides what a placement costs, and its words compare its gain with that.
        gains = with_gain_as_cost(gains, in_words(gains))
        return gains, gains.stated(in_words(gains))


def _not_excluded(
    explanation: Explanation, further: FurtherCosts, decision: Decision, hashed: float
) -> str:
    """Why a run without a fault that was found may have one, as a headline; empty if it has none.

    ``hashed``: share of the time that the run loses if switches hash flows to paths.
    """
    open_question = wording.errors_not_excluded(explanation.suspect_links)
    if is_left_out("placements"):
        open_question = wording.PLACEMENTS_NOT_TESTED
    if not open_question and further.interruptions.may_be_fault:
        open_question = wording.interruptions_not_excluded(decision.chances.get("noise", 0.0))
    if not open_question and hashed >= FAULT:
        open_question = wording.collisions_not_excluded(hashed)
    return open_question


def _costs(
    diagnosis: Diagnosis,
    measured: Measured,
    summary: EvidenceSummary,
    further: FurtherCosts,
    scale: float,
    surplus: int,
    expected: int,
) -> list[Cost]:
    """Cost of each cause, largest first, with what two of them cost together.

    Args:
        diagnosis: Diagnosis of the expected run.
        measured: The measured run.
        summary: Results from evidence other than the trace.
        further: Costs of computation and routing.
        scale: Factor from expected to measured time.
        surplus: Part of the simulated cost of other traffic that the measured time excludes, ps.
        expected: The expected time, ps.
    """
    model = error_model(measured, lossy=summary.lossy)
    costs = costs_of_causes(diagnosis, measured, summary, further, scale, surplus)
    if summary.unknown_job is None:
        costs = with_cost_together(
            costs, diagnosis.modelled_ps, further.without, scale, surplus, further.separable
        )
    costs = with_lossy_costs(costs, model, expected, scale) if summary.lossy else costs
    costs = with_interval(costs, round(scale * summary.extrapolated_ps), measured.elapsed_ps)
    return with_unknown_timing(costs, summary.unknown_timing, measured.elapsed_ps)


def _decided(
    costs: Sequence[Cost],
    ensemble: Ensemble,
    further: FurtherCosts,
    summary: EvidenceSummary,
    expected_ps: int,
) -> Decision:
    """The verdict of the ensemble. A placement in host order is what launchers make: no fault."""
    usual = further.is_in_order(expected_ps)
    return decide(
        costs,
        ensemble,
        _validity(summary, further),
        further.interruptions,
        summary.change,
        no_faults=NO_FAULTS | {"placement"} if usual else NO_FAULTS,
    )


def _explanation(
    measured: Measured,
    summary: EvidenceSummary,
    costs: list[Cost],
    parts: dict[str, int],
    off: tuple[int, int],
) -> Explanation:
    """The breakdown of the measured time, with the evidence behind it.

    Args:
        measured: The measured run.
        summary: Results from evidence other than the trace.
        costs: Cost of each cause, largest first.
        parts: Components of the measured time, ps.
        off: What is not explained, and the error of the model, ps.
    """
    not_explained_ps, error_ps = off
    explanation = Explanation(
        elapsed_ps=measured.elapsed_ps,
        parts=parts,
        costs=costs,
        not_explained_ps=not_explained_ps,
        model_error_ps=error_ps,
        missing=_asked(summary),
        sources=list(summary.sources),
        shared_links=list(summary.shared_links),
        sampled_links=list(summary.sampled_links),
        port_events=list(summary.port_events),
        suspect_links=_suspect_links(summary, costs),
        bus_bandwidths=list(summary.bus_bandwidths),
    )
    return _in_full(explanation, measured, summary)


def _in_full(explanation: Explanation, measured: Measured, summary: EvidenceSummary) -> Explanation:
    """The explanation with noise inside calls, and the model's error, in the ranges of costs.

    Routes that counters and tables show to cost time cost the larger of both. A suspect link that
    is the only one named costs what slow links do.
    """
    noise, elapsed = summary.noise_in_calls_ps, measured.elapsed_ps
    noisy = with_noise_in_calls(explanation.costs, *noise, elapsed)
    largest: dict[str, Cost] = {}
    for cost in with_model_error(noisy, elapsed, error_model(measured, lossy=summary.lossy)):
        largest.setdefault(cost.cause, cost)
    costs = list(largest.values())
    slow = next((cost for cost in costs if cost.cause == "slow-link"), None)
    links = explanation.suspect_links
    if slow is not None and len(slow.links) == 1:
        shares = {"share": slow.share, "low": slow.low_ps / elapsed, "high": slow.high_ps / elapsed}
        links = [
            link.model_copy(update=shares) if link.status == "named" else link for link in links
        ]
    return explanation.model_copy(update={"costs": costs, "suspect_links": links})


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
    if summary.impossible:
        # What the counters cannot mean has to be mended first: no measurement of cables helps.
        return explanation
    if cause == "undetermined" and summary.measurements is not None:
        return _with_next_measurement(explanation, summary.measurements, decision)
    if cause == HEALTHY and summary.sizes is not None:
        smallest: SmallestFault | None = None
        with optional("smallest fault"):
            smallest = summary.sizes.smallest()
        return explanation.model_copy(update={"smallest_fault": smallest})
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
    judged_by: list[tuple[Source, str, float, str]] = []
    if further.uneven > 0.0:
        judged = "for" if further.uneven >= MIN_UNEVENNESS else "against"
        said = f"{judged}: {percent(MIN_UNEVENNESS)} would be uneven"
        judged_by.append(("counters", "uneven bytes", further.uneven, said))
    if further.uneven_tables > 0.0:
        judged = "for" if further.uneven_tables >= MIN_TABLE_UNEVENNESS else "against"
        said = f"{judged}: {percent(MIN_TABLE_UNEVENNESS)} would be uneven"
        judged_by.append(("forwarding", "uneven destinations", further.uneven_tables, said))
    if further.hash_chance is not None:
        judged = "against" if further.paths_are_usual else "for"
        said = f"{judged}: up to {percent(USUAL_PATHS)} would be unusual"
        judged_by.append(("counters", "hashes as uneven", further.hash_chance, said))
    return [
        EvidenceRow(
            subject="parallel links",
            kind="run",
            start_ps=0,
            end_ps=measured.elapsed_ps,
            quantity=quantity,
            value=value,
            unit="share",
            source=source,
            says={"routing": said},
        )
        for source, quantity, value, said in judged_by
    ]


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
    costs: Sequence[Cost], expected: int, ensemble: Ensemble, summary: EvidenceSummary
) -> str:
    """Headline if the expected run takes far longer than the run did; otherwise empty.

    Far: by more than the errors of the simulated time and of the costs in it allow. What the model
    then charges to a cause was not lost.

    Args:
        costs: The costs, at the mean scale.
        expected: The expected time, ps.
        ensemble: The ensemble.
        summary: Results from evidence other than the trace.
    """
    model, scale = ensemble.model, ensemble.mean_scale
    inside = model.measured_ps
    # Errors of costs are independent. Costs may overlap, but together are no longer than the run.
    charged = math.hypot(*(cost.ps for cost in costs)) / max(scale, 1e-9)
    charged = RELATIVE_COST_ERROR * min(charged, expected)
    error = math.hypot(model.time_error * expected, charged)
    if expected - inside <= STANDARD_ERRORS * error:
        return ""
    return wording.model_too_slow(expected, inside, summary.candidates)


def _open_without_cause(
    cause: Cause, diagnosis: Diagnosis, overshoot: int, measured: Measured
) -> str:
    """Why no cause was found although there may be one; empty if nothing says so."""
    others = _open_cost_of_others(diagnosis, overshoot, measured)
    return others or (_one_sided_waits(measured) if cause == HEALTHY else "")


def _one_sided_waits(measured: Measured) -> str:
    """Headline if ranks may wait for one another in one-sided calls; otherwise empty.

    As late partners are no part of the waterfall, the model does not tell what they cost.
    """
    inside = measured.part("one_sided")
    if inside < fault_share("late-partner") * measured.elapsed_ps:
        return ""
    return wording.one_sided_waits(inside, measured.elapsed_ps)


def _open_cost_of_others(diagnosis: Diagnosis, overshoot: int, measured: Measured) -> str:
    """Headline if the model cannot decide whether other traffic is a fault; otherwise empty."""
    others = _cost_of_others(diagnosis)
    if others < FAULT * measured.elapsed_ps or overshoot < others / 2:
        return ""
    return wording.cost_of_others_open(others - overshoot, others, measured.elapsed_ps)


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
    model = error_model(measured, lossy=summary.lossy)
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


def _validity(summary: EvidenceSummary, further: FurtherCosts) -> dict[str, float]:
    """Probability that the assumptions behind causes hold, where it is not 1."""
    if summary.assumed_hosts:
        return {cause: ASSUMED for cause in ADVICE if cause not in NOT_OF_THE_NETWORK}
    shown = {"counters", "fabric"} & set(summary.rests_on.get("slow-link", ("counters",)))
    slow = {} if shown or not summary.lossy else {"slow-link": ASSUMED}
    return slow | {"routing": further.paths_at_fault}


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
        chained = round(TurnWaits.of(measured, further).dependency_ps)
        parts[wording.DEPENDENCIES] = min(chained, max(by_program, 0))
        parts[wording.BOUND_BY_PROGRAM] = by_program - parts[wording.DEPENDENCIES]
        saved = 0
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
                saved += min(bar.delta_ps, 0)
                parts[name] = parts.get(name, 0) + max(bar.delta_ps, 0)
        # What a step saves is no cost of a cause.
        observed = bars["observed"].delta_ps if "observed" in bars else 0
        parts[wording.REMAINDER] = observed + saved
    parts["routing"] = parts.get("routing", 0) + further.routing_mean_ps
    parts["slow links"] = parts.get("slow links", 0) + summary.slow_more_ps
    parts[wording.NOISE_IN_CALLS] = summary.noise_in_calls_ps[0]
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
        lacking = explanation.not_explained_ps / total
        if summary.usual_delays and lacking >= FAULT:
            text += wording.longer_delays(lacking, summary.usual_delays)
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
        slow = explanation.cost("slow-link")
        # Of lossless ports, stalls show how fast others take their packets, too.
        if slow is not None and summary.lossy and "counters" in slow.rests_on and slow.links:
            text += wording.shown_all_the_same(slow)
        waits = next((c for c in explanation.costs if c.cause in CONCEALING), None)
        if waits is not None and any(
            alternative.concealed >= LIKELY for alternative in summary.alternatives
        ):
            text += wording.concealed(waits)
        return text
    if cause == "slow-link" and summary.candidates:
        if summary.place_open:
            return wording.place_open(main, total, summary.candidates)
        anywhere = summary.slow_anywhere
        return wording.one_of_the_links(main, total, summary.candidates, anywhere)
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
