"""The verdict: findings of the rules, reconciled with their cost by re-simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from tailback.diagnosis.cause_finding import ensure_cause_finding
from tailback.diagnosis.confidence import HIDDEN_CAUSES, NO_CONTENTION_CAUSES, assess_confidence
from tailback.diagnosis.headline import (
    INTERRUPTED,
    NOT_RULED_OUT,
    HeadlineFacts,
    SampleFacts,
    SlowLinks,
    cost_despite_samples,
    cost_without_congestion,
    finding_costs_little,
    headline,
    link_rate,
    model_takes_longer,
    samples_sentence,
    slow_cables_explain,
    unexplained_time,
    verdict_follows_time,
)
from tailback.diagnosis.model import Cause, CauseShare, Diagnosis, Finding, Sampling, WaterfallBar
from tailback.diagnosis.rule_verdict import (
    MIN_WORTH,
    WORTH_FIXING,
    cause_of_rules,
    cause_without_contention,
)
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import MAX_UNSETTLED_SHARE, RunAnalysis
from tailback.diagnosis.slow_cables import SlowCableFit, find_slow_cables, slow_links
from tailback.diagnosis.waterfall import (
    NON_MINIMAL_RULES,
    Placements,
    Progress,
    build_waterfall,
    overshoot_share,
    unexplained_share,
)
from tailback.diagnosis.wording import (
    provenance,
    recorded_warnings,
    recording_contradiction,
    times_of,
)
from tailback.errors import RunError
from tailback.evaluate import Evaluate
from tailback.run import Run
from tailback.stages import stage

WORTH_OF_COMMUNICATION = 0.20
"""Smallest share of the communication time at which contention is more than a few short queues."""

MAX_UNSAMPLED_COST = 0.15
"""Share of the time below which contention without any congestion tree is attributed to short
queues or longer paths."""

TOP_LINKS = 20


MODEL_MISMATCH = 0.10
"""Excess of simulated over observed time, as a share, from which a model mismatch is reported."""


@stage("rules and waterfall")
def diagnose_cause(
    run: Run,
    evaluate: Evaluate | None = None,
    *,
    placements: Placements | None = None,
    rules: Sequence[str] = (),
    seeds: int = 3,
    progress: Progress | None = None,
    analyse: Callable[[Run], RunAnalysis] = RunAnalysis,
) -> Diagnosis:
    """Diagnose a run, without a search for remedies.

    Args:
        run: The run, simulated or measured.
        evaluate: Simulates changes for the waterfall; None omits the waterfall.
        placements: Candidate placements: node of each rank, shape (R,), by name. Without them,
            placement is charged with the full network cost of our job alone.
        rules: Routing rules to try for even spreading, in addition to the one in use.
        seeds: Repetitions of every re-simulation, at least 1.
        progress: Called with the current step and its progress, 0–1.
        analyse: Analyses a run; pass a caching function to reuse the analysis.

    Raises:
        RunError: ``seeds`` is below 1, or the run has no observed job.
    """
    _require_diagnosable(run, seeds)
    if progress is not None:
        progress("building congestion trees", 0.0)
    evidence = analyse(run)
    findings = _findings(evidence)
    bars, shares = list[WaterfallBar](), list[CauseShare]()
    if evaluate is not None:
        bars, shares = build_waterfall(run, evaluate, seeds, progress, placements, rules)
    slow = None
    if evaluate is not None and unexplained_share(bars) >= WORTH_FIXING:
        slow = find_slow_cables(evidence, evaluate)
    cost = cost_shares(shares, bars, findings, slow)
    cause, warnings = _reconcile(findings, bars, cost, evidence)
    against = recording_contradiction(run) if cause == "not-network" and evidence.crosses else ""
    if against:
        cause = "undetermined"
    warnings += _slow_cable_warnings(slow, evidence)
    assessed = assess_confidence(
        cause, findings, cost if bars else {}, unexplained_share(bars), slow, evidence,
        worth=WORTH_FIXING,
    )  # fmt: skip
    if not run.complete:
        warnings.append(INTERRUPTED)
    facts = _headline_facts(evidence, bars, slow, placements or {})
    text = NOT_RULED_OUT.format(against) if against else headline(cause, findings, cost, facts)
    return Diagnosis(
        cause=cause,
        headline=text,
        findings=ensure_cause_finding(cause, findings, cost if bars else None),
        waterfall=bars,
        remedy=None,
        top_links=evidence.top_links(TOP_LINKS),
        sampling=_sampling(findings, evidence),
        elapsed_ps=run.elapsed_ps,
        expected_ps=run.elapsed_ps,
        communication_fraction=evidence.communication_fraction,
        warnings=[*recorded_warnings(run), *run.notes, *warnings],
        confidence=0.0 if cause == "undetermined" else assessed.confidence,
        basis=assessed.basis,
        margin=assessed.margin,
        shares=shares,
        slow_links=slow_links(slow, evidence) if cause == "slow-link" else [],
        times=times_of(run),
        times_from=provenance(run),
        captured=evidence.captured,
    )


def _require_diagnosable(run: Run, seeds: int) -> None:
    if seeds < 1:
        raise RunError(f"seeds = {seeds}", remedy="give at least 1 repetition")
    if not run.tables["jobs"].filter("observed").height:
        raise RunError("no job of this run is observed", remedy="set observed = true for your job")


def _findings(evidence: RunAnalysis) -> list[Finding]:
    """Findings of all rules, largest share first."""
    findings = (entry.part(evidence) for entry in RULES)
    return sorted(filter(None, findings), key=lambda finding: (-finding.share, finding.code))


def _slow_cable_warnings(slow: SlowCableFit | None, evidence: RunAnalysis) -> list[str]:
    if slow is None or not slow.explains:
        return []
    rate, name = evidence.topology.rate_gbps, evidence.topology.name
    cables = [(name[link], gbps, float(rate[link])) for link, gbps, _ in slow.cables]
    return [slow_cables_explain(cables, slow.fit)]


def _reconcile(
    findings: list[Finding],
    bars: list[WaterfallBar],
    cost: dict[Cause, float],
    evidence: RunAnalysis,
) -> tuple[Cause, list[str]]:
    """Choose the main cause: by cost in time if re-simulated, else by congested packets."""
    by_rules = cause_of_rules(findings, evidence)
    if not bars:
        return by_rules, []
    heaviest = max(cost, key=lambda cause: cost[cause])
    warnings = [
        finding_costs_little(f, cost[f.cause])
        for f in findings
        if f.cause in cost and cost[f.cause] < WORTH_FIXING
    ]
    hidden = unexplained_share(bars)
    if overshoot_share(bars) >= MODEL_MISMATCH:
        warnings.append(model_takes_longer(overshoot_share(bars)))
    if hidden >= WORTH_FIXING and not any(f.cause in HIDDEN_CAUSES for f in findings):
        warnings.append(unexplained_time(hidden))
    if not is_worth_fixing(cost, evidence):
        return cause_without_contention(by_rules, evidence), warnings
    quiet = by_rules in NO_CONTENTION_CAUSES and not evidence.roots.height
    if quiet and cost[heaviest] < MAX_UNSAMPLED_COST and hidden < WORTH_FIXING:
        return cause_without_contention(by_rules, evidence), [
            cost_without_congestion(heaviest, cost[heaviest])
        ]
    if by_rules in cost and by_rules != heaviest:
        # If the cause of the trees contradicts the message log, ``cause_of_rules`` gives another.
        with_log = evidence.losses is not None
        warnings.append(verdict_follows_time(by_rules, heaviest, cost, with_log=with_log))
    if by_rules in NO_CONTENTION_CAUSES or any(
        finding.cause in NO_CONTENTION_CAUSES for finding in findings
    ):
        warnings.append(cost_despite_samples(heaviest, cost[heaviest]))
    return heaviest, warnings


def cost_shares(
    shares: list[CauseShare],
    bars: list[WaterfallBar],
    findings: list[Finding],
    slow: SlowCableFit | None,
) -> dict[Cause, float]:
    """Cost of each cause as a share of the observed time.

    Time not explained by re-simulating known causes is charged to slow links if they reproduce the
    times of our messages, else to other traffic. Without a message log it is divided between the
    two in proportion to the congested packets that the rules charge to them.
    """
    cost: dict[Cause, float] = {
        share.cause: share.charged * contention_scale(bars) for share in shares
    }
    hidden = unexplained_share(bars)
    weights: dict[Cause, float] = {"other-traffic": 1.0}
    if slow is not None:
        if slow.explains:
            weights = {"slow-link": 1.0}
    elif any(finding.cause in HIDDEN_CAUSES for finding in findings):
        weights = {f.cause: max(f.share, 1e-6) for f in findings if f.cause in HIDDEN_CAUSES}
    for cause, weight in weights.items():
        cost[cause] = cost.get(cause, 0.0) + hidden * weight / sum(weights.values())
    return cost


def contention_scale(bars: list[WaterfallBar]) -> float:
    """Share of the simulated contention that fits into the observed time, 0–1.

    The simulation may take longer than the run because its contention differs from the real one.
    Contention can cost at most the observed time minus the contention-free time of adapters and
    computation.
    """
    time = {bar.name: bar.elapsed_ps for bar in bars}
    if not bars or time["other traffic"] <= time["observed"]:
        return 1.0
    simulated = time["other traffic"] - time["injection"]
    return min(max(time["observed"] - time["injection"], 0) / max(simulated, 1), 1.0)


def is_worth_fixing(cost: dict[Cause, float], evidence: RunAnalysis) -> bool:
    """Whether contention costs enough of the total time or of the communication time."""
    largest = max(cost.values(), default=0.0)
    if largest >= WORTH_FIXING:
        return True
    busy = evidence.communication_fraction
    return largest >= MIN_WORTH and busy > 0 and sum(cost.values()) >= WORTH_OF_COMMUNICATION * busy


def _headline_facts(
    evidence: RunAnalysis,
    bars: list[WaterfallBar],
    slow: SlowCableFit | None,
    placements: Placements,
) -> HeadlineFacts:
    """Facts about the run for the headline."""
    run = evidence.run
    samples: Literal["decoded", "undecodable", "none"] = "decoded" if evidence.received else "none"
    recorded = run.scenario.telemetry.scheme != "off"
    return HeadlineFacts(
        elapsed_ps=run.elapsed_ps,
        times=times_of(run),
        simulated_again=bool(bars),
        wire_share=evidence.wire_share,
        congested_share=evidence.overall.value if recorded else None,
        communication_fraction=evidence.communication_fraction,
        captured=evidence.captured,
        congested=evidence.roots.height > 0,
        samples="undecodable" if evidence.undecoded else samples,
        detours=run.scenario.fabric.routes in NON_MINIMAL_RULES,
        best_placement=_best_placement(bars, evidence, placements),
        slow_links=_known_slow_links(slow, evidence),
        slow_tried=slow is not None,
    )


def _best_placement(
    bars: list[WaterfallBar], evidence: RunAnalysis, placements: Placements
) -> Literal["tried", "untried"] | None:
    """Whether other placements were tried, if the network costs time and the placement does not."""
    bar = {bar.name: bar for bar in bars}
    if "network" not in bar:
        return None
    threshold = MIN_WORTH * bar["observed"].elapsed_ps
    if not bar["placement"].delta_ps < threshold <= bar["network"].delta_ps:
        return None
    own = set(evidence.run.tables["jobs"].filter("observed")["placement"].to_list())
    return "untried" if own >= set(placements) else "tried"


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
