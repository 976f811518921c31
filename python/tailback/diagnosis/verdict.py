"""The verdict: findings of the rules, reconciled with their cost by re-simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tailback.diagnosis.adapter_load import receivers_are_full
from tailback.diagnosis.cause_wording import ensure_cause_finding
from tailback.diagnosis.confidence import (
    NO_CONTENTION_CAUSES,
    SURE,
    TIME_ERROR,
    WORTH_FIXING,
    Attainable,
    TimeUse,
    Unexplained,
    alternatives,
    attainable,
    attained,
    chances,
    contention_scale,
    costs_in,
    count_agreement,
    in_network,
    main_cause,
    scaled,
)
from tailback.diagnosis.headline import (
    INTERRUPTED,
    LISTED,
    NOT_RULED_OUT,
    HeadlineFacts,
    SampleFacts,
    SlowLinks,
    cost_despite_samples,
    finding_costs_little,
    headline,
    link_rate,
    model_takes_longer,
    open_causes,
    samples_sentence,
    slow_cables_explain,
    unexplained_time,
    verdict_follows_time,
)
from tailback.diagnosis.model import (
    Agreement,
    Basis,
    Cause,
    CauseShare,
    Diagnosis,
    Finding,
    Gain,
    Sampling,
    WaterfallBar,
)
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import MAX_UNSETTLED_SHARE, RunAnalysis
from tailback.diagnosis.sampled_verdict import SampledVerdict, sampled_verdict
from tailback.diagnosis.slow_cables import SlowCableFit, find_slow_cables, slow_links
from tailback.diagnosis.waterfall import (
    ENGINE_VARIATIONS,
    Placements,
    Waterfall,
    build_waterfall,
    overshoot_share,
    unexplained_share,
    with_gains,
)
from tailback.diagnosis.waterfall_steps import NON_MINIMAL_RULES
from tailback.diagnosis.wording import (
    BETWEEN_HOSTS,
    LONGER_PATHS,
    WITHOUT_SAMPLES,
    forecast_of,
    late_ranks,
    provenance,
    recorded_warnings,
    recording_contradiction,
    times_of,
    unordered,
)
from tailback.errors import RunError
from tailback.evaluate import EngineVariation, Evaluate
from tailback.evidence.measure import SLOW_RANK_RATIO
from tailback.evidence.model import LateRank
from tailback.io.progress import Progress
from tailback.run.run import Run
from tailback.stages import stage
from tailback.telemetry.entropy_ecn import ENTROPY_ECN
from tailback.traffic.computation import balanced
from tailback.traffic.program import Op, Program

TOP_LINKS = 20


UNTRIED = 0.5
"""Probability that the network lacks capacity, and the placement is not at fault, if one of them
is and no other placement was tried."""

MODEL_MISMATCH = 2 * TIME_ERROR
"""Excess of simulated over observed time, as a share, from which a model mismatch is reported."""


@stage("rules and waterfall")
def weigh_causes(
    run: Run,
    evaluate: Evaluate | None = None,
    *,
    placements: Placements | None = None,
    rules: Sequence[str] = (),
    seeds: int = 3,
    progress: Progress | None = None,
    analyse: Callable[[Run], RunAnalysis] = RunAnalysis,
    engines: Sequence[EngineVariation] = ENGINE_VARIATIONS,
    program: Program | None = None,
) -> WeighedCauses:
    """Find the evidence of a run and what each cause costs.

    Args:
        run: The run, simulated or measured.
        evaluate: Simulates changes for the waterfall; None omits the waterfall.
        placements: Candidate placements: node of each rank, shape (R,), by name. Without them,
            placement is charged with the full network cost of our job alone.
        rules: Routing rules to try for even spreading, in addition to the one in use.
        seeds: Repetitions of every re-simulation, at least 1.
        progress: Called with the current step and its progress, 0–1.
        analyse: Analyses a run; pass a caching function to reuse the analysis.
        engines: Other settings of the engine with which the verdict must hold.
        program: Traffic of the observed job, to see whether some ranks compute longer than others;
            None where the measured waits show that.

    Raises:
        RunError: ``seeds`` is below 1, or the run has no observed job.
    """
    _require_diagnosable(run, seeds)
    if progress is not None:
        progress("building congestion trees", 0.0)
    evidence = analyse(run)
    waterfall, slow = None, None
    late = [] if program is None else slow_ranks(run, program)
    if evaluate is not None:
        even = None if program is None or not late else balanced(program)
        waterfall = build_waterfall(
            run,
            evaluate,
            seeds,
            progress,
            placements,
            rules,
            engines,
            None if even is program else even,
        )
        if unexplained_share(waterfall.bars) >= WORTH_FIXING:
            slow = find_slow_cables(evidence, evaluate)
    return WeighedCauses(
        evidence,
        _findings(evidence),
        sampled_verdict(evidence),
        waterfall,
        slow,
        late,
        _others_tried(evidence, placements or {}),
    )


def diagnose_cause(run: Run, evaluate: Evaluate | None = None, **options: Any) -> Diagnosis:
    """Diagnose a run, without a search for remedies.

    Args:
        run: The run, simulated or measured.
        evaluate: Simulates changes for the waterfall; None omits the waterfall.
        options: As those of :func:`weigh_causes`.
    """
    return weigh_causes(run, evaluate, **options).diagnosis()


@dataclass(frozen=True, eq=False)
class WeighedCauses:
    """The evidence of a run, and what each cause costs.

    Attributes:
        evidence: Analysis of samples and message log.
        findings: Findings of the rules.
        sampled: The verdict of samples and message log.
        waterfall: The re-simulated steps; None if nothing was simulated.
        slow: The slow cables that explain the unexplained time best; None if none were tried.
        late: Ranks that compute longer than others.
        others_tried: Whether other placements were simulated.
    """

    evidence: RunAnalysis
    findings: list[Finding]
    sampled: SampledVerdict
    waterfall: Waterfall | None
    slow: SlowCableFit | None
    late: Sequence[LateRank]
    others_tried: bool

    def diagnosis(
        self,
        gains: Mapping[Cause, Gain] | None = None,
        best_change: tuple[str, float] | None = None,
        program_gain: float | None = None,
    ) -> Diagnosis:
        """The diagnosis.

        Args:
            gains: What the best change that removes each cause gains, if a search for remedies
                simulated more changes than the waterfall did.
            best_change: Name and gain of the best change of all, whichever causes it removes; no
                name if none helps. None if there was no search.
            program_gain: What the best change of the program gains, if all were tried: a receiver
                whose link is full all the time limits the run, unless a program sends it less.
        """
        evidence, run = self.evidence, self.evidence.run
        verdict = _Verdict(self.sampled.cause, {}, "samples", self.sampled.probability)
        bars, shares = list[WaterfallBar](), list[CauseShare]()
        if self.waterfall is not None:
            waterfall = self.waterfall
            if program_gain is not None:
                with_program_ps = round((1.0 - program_gain) * run.elapsed_ps)
                waterfall = waterfall.with_receivers(min(evidence.receive_ps, with_program_ps))
            shares = with_gains(waterfall.shares, gains or {})
            waterfall = replace(waterfall, shares=shares)
            bars = waterfall.bars
            verdict = _by_time(
                waterfall,
                self.findings,
                self.slow,
                evidence,
                self.sampled,
                others_tried=self.others_tried,
            )
        cause, warnings = verdict.cause, list(verdict.warnings)
        against = _contradiction(run, cause, crosses=evidence.crosses)
        if against or verdict.confidence < SURE:
            cause = "undetermined"
        if not run.complete:
            warnings.append(INTERRUPTED)
        facts = self._facts(bars, shares, best_change)
        facts = replace(facts, alternatives=verdict.alternatives)
        text = _headline_text(verdict, cause, self.findings, facts, evidence, against)
        return Diagnosis(
            cause=cause,
            headline=text,
            findings=ensure_cause_finding(
                cause,
                self.findings,
                verdict.cost if bars else None,
                text if cause == "undetermined" else "",
                logged=evidence.losses is not None,
            ),
            waterfall=bars,
            remedy=None,
            top_links=evidence.top_links(TOP_LINKS),
            sampling=_sampling(self.findings, evidence),
            elapsed_ps=run.elapsed_ps,
            expected_ps=run.elapsed_ps,
            communication_fraction=evidence.communication_fraction,
            warnings=[*recorded_warnings(run), *run.notes, *warnings],
            assumptions=run.assumptions,
            confidence=0.0 if cause == "undetermined" else verdict.confidence,
            chances={str(name): chance for name, chance in verdict.chances.items()},
            basis=verdict.basis,
            agreement=None if cause == "undetermined" else verdict.agreement,
            alternatives=[] if cause == "undetermined" else list(verdict.alternatives),
            shares=shares,
            slow_links=slow_links(self.slow, evidence) if cause == "slow-link" else [],
            times=times_of(run),
            times_from=provenance(run),
            forecast=forecast_of(run, captured=evidence.captured),
            captured=evidence.captured,
            not_recorded=list(run.summary.get("not_recorded", [])),
        )

    def _facts(
        self,
        bars: list[WaterfallBar],
        shares: list[CauseShare],
        best_change: tuple[str, float] | None,
    ) -> HeadlineFacts:
        """Facts about the run for the headline."""
        evidence, run = self.evidence, self.evidence.run
        samples: Literal["decoded", "undecodable", "none"] = (
            "decoded" if evidence.received else "none"
        )
        recorded = run.scenario.telemetry.scheme != "off"
        return HeadlineFacts(
            elapsed_ps=run.elapsed_ps,
            times=times_of(run),
            simulated_again=bool(bars),
            wire_share=evidence.adapter_share,
            receives=evidence.adapter_share > evidence.wire_share,
            congested_share=evidence.overall.value if recorded else None,
            communication_fraction=evidence.communication_fraction,
            captured=evidence.captured,
            congested=evidence.roots.height > 0,
            samples="undecodable" if evidence.undecoded else samples,
            detours=run.scenario.fabric.routes in NON_MINIMAL_RULES,
            longer_paths=_longer_paths(evidence),
            placements_tried=self.others_tried,
            gains={share.cause: share.removed for share in shares if share.removed is not None},
            best_change=best_change,
            slow_links=_known_slow_links(self.slow, evidence),
            slow_tried=self.slow is not None,
            accused=evidence.accused,
            marks_alone=evidence.scheme == ENTROPY_ECN,
            late_ranks=late_ranks(self.late, "imbalance"),
            total_name="communication time" if run.compute_scale == 0.0 else "run time",
        )


def _samples_lack(findings: Sequence[Finding], evidence: RunAnalysis) -> bool:
    """Whether samples are too few, or those of a capture do not tell causes apart."""
    if any(finding.code == "TB005" for finding in findings) or not evidence.received:
        return True
    return evidence.captured and any(finding.cause == "other-traffic" for finding in findings)


def _contradiction(run: Run, cause: Cause, *, crosses: bool) -> str:
    """What of the recording contradicts a cause; empty if nothing does."""
    if cause in NO_CONTENTION_CAUSES and crosses and (against := recording_contradiction(run)):
        return against
    return unordered(run) if cause == "pattern" and not receivers_are_full(run) else ""


def _headline_text(
    verdict: _Verdict,
    cause: Cause,
    findings: list[Finding],
    facts: HeadlineFacts,
    evidence: RunAnalysis,
    against: str,
) -> str:
    """The headline.

    Args:
        verdict: The verdict, with the likeliest cause.
        cause: The cause that is stated: that one, or undetermined.
        findings: Findings of the rules.
        facts: Facts about the run.
        evidence: Analysis of the run.
        against: What contradicts the verdict; empty if nothing does.
    """
    if why := evidence.run.summary.get("without_samples"):
        return WITHOUT_SAMPLES.format(why)
    if against:
        return against if verdict.cause == "pattern" else NOT_RULED_OUT.format(against)
    is_open = cause == "undetermined" and verdict.chances
    if is_open and (facts.simulated_again or not _samples_lack(findings, evidence)):
        return open_causes(verdict.chances, facts)
    return headline(cause, findings, verdict.cost, facts)


@dataclass(frozen=True)
class _Verdict:
    """A verdict.

    Attributes:
        cause: The main cause.
        cost: Share of the time that each cause costs; empty without re-simulation.
        basis: What it is based on.
        chances: Probability that each cause is the main one, 0–1.
        agreement: In how many variations of the model it, or an alternative, is the main cause;
            None without one.
        warnings: What contradicts it, or is open.
        alternatives: Other causes whose removal saves mostly the same time.
    """

    cause: Cause
    cost: dict[Cause, float]
    basis: Basis
    chances: Mapping[Cause, float]
    agreement: Agreement | None = None
    warnings: tuple[str, ...] = ()
    alternatives: tuple[Cause, ...] = ()

    @property
    def confidence(self) -> float:
        """Probability that it, or an alternative, is right; 0 if undetermined."""
        return sum(self.chances.get(cause, 0.0) for cause in (self.cause, *self.alternatives))


def _require_diagnosable(run: Run, seeds: int) -> None:
    if seeds < 1:
        raise RunError(f"seeds = {seeds}", remedy="give at least 1 repetition")
    if not run.tables["jobs"].filter("observed").height:
        raise RunError("no job of this run is observed", remedy="set observed = true for your job")


def _findings(evidence: RunAnalysis) -> list[Finding]:
    """Findings of all rules, largest share first."""
    findings = (entry.part(evidence) for entry in RULES)
    return sorted(filter(None, findings), key=lambda finding: (-finding.share, finding.code))


def _slow_cable_warnings(slow: SlowCableFit, evidence: RunAnalysis) -> list[str]:
    rate, name = evidence.topology.rate_gbps, evidence.topology.name
    cables = [(name[link], gbps, float(rate[link])) for link, gbps, _ in slow.cables]
    return [slow_cables_explain(cables, slow.fit)]


def _by_time(
    waterfall: Waterfall,
    findings: list[Finding],
    slow: SlowCableFit | None,
    evidence: RunAnalysis,
    sampled: SampledVerdict,
    *,
    others_tried: bool,
) -> _Verdict:
    """The cause that costs most by re-simulation, and in how many variations it does.

    Args:
        waterfall: The re-simulated steps.
        findings: Findings of the rules.
        slow: The slow cables that explain the unexplained time best; None if none were tried.
        evidence: Analysis of samples and message log.
        sampled: The verdict of samples and message log.
        others_tried: Whether other placements were simulated.
    """
    bars = waterfall.bars
    contention = in_network({share.cause: share.charged for share in waterfall.shares})
    use = TimeUse(evidence.communication_fraction, evidence.adapter_share, sum(contention.values()))
    hidden = unexplained(bars, slow)
    parts = attainable(waterfall.shares, use)
    cost = cost_shares(waterfall.shares, bars, hidden, parts)
    varied = costs_in(waterfall.variations, parts)
    probability = chances(varied, hidden, use)
    # If two causes cost the same, the costs alone decide nothing.
    likely = max(probability, key=lambda cause: probability[cause])
    cause, either = likely, tuple[Cause, ...]()
    if probability[likely] < SURE:
        cause = main_cause(cost, use)
        either = tuple(
            other
            for other in alternatives(cause, waterfall.shares)
            if probability.get(other, 0.0) >= LISTED
        )
    counted = count_agreement((cause, *either), varied, hidden, use)
    basis: Basis = "re-simulation"
    if cause == hidden.cause and hidden.share > 0.5 * cost[cause]:
        basis = "hypothesis"
        identified = hidden.slow if cause == "slow-link" else 1.0 - hidden.slow
        counted = counted.model_copy(update={"identified": identified})
    if not others_tried:
        probability = _with_untried_placements(probability)
    warnings = _contradictions(
        cause, cost, bars, findings, sampled.cause, with_log=evidence.losses is not None
    )
    if slow is not None and slow.explains:
        warnings += _slow_cable_warnings(slow, evidence)
    elif unexplained_share(bars) >= WORTH_FIXING:
        warnings.append(unexplained_time(unexplained_share(bars)))
    return _Verdict(cause, cost, basis, probability, counted, tuple(warnings), either)


def _with_untried_placements(chances: Mapping[Cause, float]) -> dict[Cause, float]:
    """The probabilities where no other placement was tried: capacity may be placement as well."""
    lacking = chances.get("capacity", 0.0)
    shared = lacking * UNTRIED
    placement = chances.get("placement", 0.0) + lacking - shared
    return {**chances, "capacity": shared, "placement": placement} if lacking else dict(chances)


def _contradictions(
    cause: Cause,
    cost: dict[Cause, float],
    bars: list[WaterfallBar],
    findings: list[Finding],
    sampled: Cause,
    *,
    with_log: bool,
) -> list[str]:
    """What the samples or the time of the run show that the costs do not."""
    warnings = [
        finding_costs_little(f, cost[f.cause])
        for f in findings
        if f.cause in cost and cost[f.cause] < WORTH_FIXING and cause != "capacity"
    ]
    if overshoot_share(bars) >= MODEL_MISMATCH:
        warnings.append(model_takes_longer(overshoot_share(bars)))
    if cause in NO_CONTENTION_CAUSES:
        return warnings
    if sampled in cost and sampled != cause and cause != "capacity":
        warnings.append(verdict_follows_time(sampled, cause, cost, with_log=with_log))
    if any(finding.cause in NO_CONTENTION_CAUSES for finding in findings):
        warnings.append(cost_despite_samples(cause, cost[cause]))
    return warnings


def cost_shares(
    shares: list[CauseShare],
    bars: list[WaterfallBar],
    hidden: Unexplained,
    parts: Mapping[Cause, Attainable],
) -> dict[Cause, float]:
    """Cost of each cause as a share of the observed time, as far as it can be gained.

    Args:
        shares: Cost of each cause.
        bars: The waterfall.
        hidden: Time that the model does not explain.
        parts: What can be gained of the cost of each cause.
    """
    time = {bar.name: bar.elapsed_ps for bar in bars}
    scale = contention_scale(time, time["observed"]) if time else 1.0
    gained = {share.cause: attained(parts, share.cause, share.charged) for share in shares}
    return hidden.added_to(scaled(gained, scale))


def unexplained(bars: list[WaterfallBar], slow: SlowCableFit | None) -> Unexplained:
    """Time that known causes do not explain, and how probably slow cables cost it."""
    return Unexplained(unexplained_share(bars), 0.5 if slow is None else slow.probability)


def slow_ranks(run: Run, program: Program) -> list[LateRank]:
    """Ranks that compute longer than the median rank, and by how much; empty if none is slow.

    Args:
        run: A run of the program.
        program: Traffic of the observed job.
    """
    compute = program.kind == Op.COMPUTE
    times = np.bincount(program.op_rank[compute], program.amount[compute], program.n_ranks)
    usual = float(np.median(times)) if len(times) else 0.0
    slow = np.flatnonzero((times >= SLOW_RANK_RATIO * usual) & (times > 0))
    if not usual or not len(slow):
        return []
    jobs = run.tables["jobs"].filter("observed").select("job")
    ranks = run.tables["ranks"].join(jobs, on="job", how="semi").sort("job_rank")
    hosts = ranks.join(run.tables["nodes"], on="node", how="left", maintain_order="left")
    return [
        LateRank(
            rank=rank,
            waited_ps=0,
            excess_ps=round(times[rank] - usual),
            host=hosts["host_name"][rank],
        )
        for rank in slow.tolist()
    ]


def _longer_paths(evidence: RunAnalysis) -> str:
    """How some of our messages have longer paths than others; empty if all visit one switch."""
    tables = evidence.run.tables
    ours = tables["jobs"].filter("observed").select("job")
    nodes = tables["ranks"].join(ours, on="job", how="semi")["node"].unique()
    where = tables["nodes"].join(nodes.to_frame(), on="node", how="semi")
    if where["switch"].n_unique() > 1:
        return LONGER_PATHS
    ranks = tables["ranks"].join(ours, on="job", how="semi").height
    return BETWEEN_HOSTS if ranks > where["host"].n_unique() > 1 else ""


def _others_tried(evidence: RunAnalysis, placements: Placements) -> bool:
    """Whether another placement than that in use was tried."""
    placements_in_use = evidence.run.tables["jobs"].filter("observed")["placement"]
    return not set(placements) <= set(placements_in_use)


def _known_slow_links(slow: SlowCableFit | None, evidence: RunAnalysis) -> SlowLinks | None:
    """Slow links found by re-simulation, else those listed in the scenario."""
    if slow is not None and slow.explains:
        name = evidence.topology.name
        return SlowLinks(
            [f"{link_rate(name[link], gbps)} Gb/s" for link, gbps, _ in slow.cables], stated=False
        )
    stated = slow_links(slow, evidence)
    return SlowLinks(stated, stated=True) if stated else None


def _sampling(findings: list[Finding], evidence: RunAnalysis) -> Sampling:
    telemetry = evidence.run.scenario.telemetry
    bits = telemetry.header_bits
    header = f"{telemetry.scheme}, {bits} bits" if bits else telemetry.scheme
    shortage = next((finding for finding in findings if finding.code == "TB005"), None)
    note = samples_sentence(
        SampleFacts(
            crosses=evidence.crosses,
            carried=header,
            links_seen=evidence.links_seen,
            links_sure=evidence.links_sure,
            unsure_share=evidence.unsure_share,
            few_unsure=evidence.unsure_share <= MAX_UNSETTLED_SHARE,
            shortage=None if shortage is None else shortage.advice,
        )
    )
    return Sampling(
        scheme=telemetry.scheme,
        header_bits=bits,
        packets=evidence.received,
        links_seen=evidence.links_seen,
        links_sure=evidence.links_sure,
        sufficient=shortage is None,
        note=note,
    )
