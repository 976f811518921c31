"""The verdict: what the rules found, reconciled with what re-simulation says it costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailback.diagnosis.cause_finding import ensure_cause_finding
from tailback.diagnosis.confidence import HIDDEN_CAUSES, NO_CONTENTION_CAUSES, assess_confidence
from tailback.diagnosis.model import Cause, CauseShare, Diagnosis, Finding, Sampling, WaterfallBar
from tailback.diagnosis.rule_verdict import (
    MIN_WORTH,
    WORTH_FIXING,
    cause_of_rules,
    cause_without_contention,
)
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import MAX_UNSETTLED_SHARE, RunAnalysis
from tailback.diagnosis.slow_cables import SlowCableFit, find_slow_cables
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
from tailback.telemetry.header_counts import header_bits
from tailback.units import format_time, percent

WORTH_OF_COMMUNICATION = 0.20
"""Share of the communication time from which contention is more than a few short queues."""

MAX_UNSAMPLED_COST = 0.15
"""Without any congestion tree, contention below this share comes from queues too short to count, or
from longer paths."""

TOP_LINKS = 20

NAMES_SHOWN = 3
"""Slow links that a headline names."""

MODEL_MISMATCH = 0.10
"""Excess of the simulated time over that of the run from which the model is called wrong."""

_HEADLINES: dict[Cause, str] = {
    "pattern": "Your communication pattern sends some nodes more than they can receive",
    "placement": "Your ranks are placed so that links inside the network are overloaded",
    "other-traffic": "Traffic of other jobs slows yours down",
    "routing": "Static routing sends several of your flows over the same link",
    "slow-link": "A link runs slower than it should",
    "injection": "Your adapters send at line rate and the network does not hold them up",
    "not-network": "The network is not the bottleneck",
    "undetermined": "There are too few samples for a verdict",
}


_UNCLEARED = (
    "The simulation finds hardly any contention, but {}. This does not rule out the network, "
    "and the trace cannot show what took the time."
)


def diagnose_cause(
    run: Run,
    evaluate: Evaluate | None = None,
    *,
    placements: Placements | None = None,
    rules: Sequence[str] = (),
    seeds: int = 3,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose a run, without looking for a remedy.

    Args:
        run: The run, simulated or measured.
        evaluate: Simulates changes for the waterfall; None leaves it out.
        placements: Placements the ideal one is chosen from: node of each rank, shape (R,), by name;
            without them placement is charged with all that the network costs our job alone.
        rules: Routing rules of the topology that even spreading may use, besides the one in use.
        seeds: Repetitions of every re-simulation, at least 1.
        progress: Told what is being done and the share done, 0–1.

    Raises:
        RunError: ``seeds`` is below 1, or the run has no observed job.
    """
    if seeds < 1:
        raise RunError(f"seeds = {seeds}", remedy="give at least 1 repetition")
    if not run.tables["jobs"].filter("observed").height:
        raise RunError("no job of this run is observed", remedy="set observed = true for your job")
    if progress is not None:
        progress("growing congestion trees", 0.0)
    evidence = RunAnalysis(run)
    findings = [f for f in (entry.part(evidence) for entry in RULES) if f is not None]
    findings.sort(key=lambda finding: (-finding.share, finding.code))
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
    if slow is not None and slow.explains:
        warnings.append(_explained_by(slow, evidence))
    told = assess_confidence(
        cause, findings, cost if bars else {}, unexplained_share(bars), slow, evidence,
        worth=WORTH_FIXING,
    )  # fmt: skip
    if not run.complete:
        warnings.append("The run was interrupted: the diagnosis covers only the part before that.")
    return Diagnosis(
        cause=cause,
        headline=_UNCLEARED.format(against)
        if against
        else _headline(cause, findings, bars, cost, slow, evidence, placements or {}),
        findings=ensure_cause_finding(cause, findings, cost if bars else None),
        waterfall=bars,
        remedy=None,
        top_links=evidence.top_links(TOP_LINKS),
        sampling=_sampling(findings, evidence),
        elapsed_ps=run.elapsed_ps,
        expected_ps=run.elapsed_ps,
        communication_fraction=evidence.communication_fraction,
        warnings=[*recorded_warnings(run), *run.notes, *warnings],
        confidence=0.0 if cause == "undetermined" else told.confidence,
        basis=told.basis,
        margin=told.margin,
        shares=shares,
        slow_links=_slow_links(slow, evidence) if cause == "slow-link" else [],
        times=times_of(run),
        times_from=provenance(run),
    )


def _reconcile(
    findings: list[Finding],
    bars: list[WaterfallBar],
    cost: dict[Cause, float],
    evidence: RunAnalysis,
) -> tuple[Cause, list[str]]:
    """Choose the main cause: time where it was re-simulated, congested packets where not."""
    by_rules = cause_of_rules(findings, evidence)
    if not bars:
        return by_rules, []
    heaviest = max(cost, key=lambda cause: cost[cause])
    warnings = [
        f"{f.code} found congestion in the simulation, where {f.cause} costs only "
        f"{percent(cost[f.cause], 1)} of the time."
        for f in findings
        if f.cause in cost and cost[f.cause] < WORTH_FIXING
    ]
    hidden = unexplained_share(bars)
    if overshoot_share(bars) >= MODEL_MISMATCH:
        warnings.append(
            f"The simulation takes at least {percent(overshoot_share(bars))} longer than the "
            "run itself: the scenario's buffers, packet size or injection rate differ from the "
            "real network's, and the verdict may rest on contention that did not happen."
        )
    if hidden >= WORTH_FIXING and not any(f.cause in HIDDEN_CAUSES for f in findings):
        warnings.append(
            f"{percent(hidden)} of the time is unexplained. Possible reasons: other jobs, or a "
            "fabric that differs from its description."
        )
    if not is_worth_fixing(cost, evidence):
        return cause_without_contention(by_rules, evidence), warnings
    quiet = by_rules in NO_CONTENTION_CAUSES and not evidence.roots.height
    if quiet and cost[heaviest] < MAX_UNSAMPLED_COST and hidden < WORTH_FIXING:
        return cause_without_contention(by_rules, evidence), [
            f"Re-simulation attributes {percent(cost[heaviest])} of the time to {heaviest}, but no "
            f"link is congested: the time is spent {_uncongested(heaviest)}."
        ]
    if by_rules in cost and by_rules != heaviest:
        # Where the trees' own cause does not fit the message log, that names another.
        seen = "Congestion trees" if evidence.losses is None else "Congestion trees and message log"
        warnings.append(
            f"{seen} point to {by_rules}, but re-simulation attributes "
            f"{percent(cost[heaviest])} of the time to {heaviest} and {percent(cost[by_rules])} to "
            f"{by_rules}. The verdict follows the time."
        )
    if by_rules in NO_CONTENTION_CAUSES or any(
        finding.cause in NO_CONTENTION_CAUSES for finding in findings
    ):
        warnings.append(
            f"The samples show little congestion, yet re-simulation attributes "
            f"{percent(cost[heaviest])} of the time to {heaviest}."
        )
    return heaviest, warnings


def cost_shares(
    shares: list[CauseShare],
    bars: list[WaterfallBar],
    findings: list[Finding],
    slow: SlowCableFit | None,
) -> dict[Cause, float]:
    """Share of the observed time that each cause costs.

    What re-simulation of everything known does not explain goes to a slow link if one reproduces
    the times of our messages, else to other traffic; where that could not be tried (no message
    log), to the two in proportion to the congested packets that the rules charge them with.
    """
    cost: dict[Cause, float] = {
        share.cause: share.charged * contention_scale(bars) for share in shares
    }
    hidden = unexplained_share(bars)
    seen: dict[Cause, float] = {"other-traffic": 1.0}
    if slow is not None:
        if slow.explains:
            seen = {"slow-link": 1.0}
    elif any(finding.cause in HIDDEN_CAUSES for finding in findings):
        seen = {f.cause: max(f.share, 1e-6) for f in findings if f.cause in HIDDEN_CAUSES}
    for cause, share in seen.items():
        cost[cause] = cost.get(cause, 0.0) + hidden * share / sum(seen.values())
    return cost


def contention_scale(bars: list[WaterfallBar]) -> float:
    """Share of the simulated contention that the observed time has room for, 0–1.

    What is simulated may take longer than the run did, for the model's contention is not the real
    one's. No more can have been lost than the observed time exceeds what adapters and computation
    need by themselves.
    """
    time = {bar.name: bar.elapsed_ps for bar in bars}
    if not bars or time["other traffic"] <= time["observed"]:
        return 1.0
    simulated = time["other traffic"] - time["injection"]
    return min(max(time["observed"] - time["injection"], 0) / max(simulated, 1), 1.0)


def _explained_by(slow: SlowCableFit, evidence: RunAnalysis) -> str:
    rate = evidence.topology.rate_gbps
    links = [f"{_named(link, gbps, evidence)} of {rate[link]:g} Gb/s" for link, gbps in slow.cables]
    one = len(links) == 1
    which = "One slow cable explains" if one else f"{len(links)} slow cables explain"
    return (
        f"{which} the remaining time: {'; '.join(links)} reproduce{'s' * one} "
        f"{percent(slow.fit)} of the squared excess of your messages' times."
    )


def _named(link: int, gbps: float, evidence: RunAnalysis) -> str:
    return f"{evidence.topology.name[link]} at about {gbps:.0f}"


def _slow_links(slow: SlowCableFit | None, evidence: RunAnalysis) -> list[str]:
    """Links known to be slow: those that re-simulation found, else those that the scenario states.

    Of the latter those that carry traffic of ours, where any does.
    """
    topology = evidence.topology
    if slow is not None and slow.explains:
        return [topology.name[link] for link, _ in slow.cables]
    port = {name.partition(" → ")[0]: link for link, name in enumerate(topology.name)}
    given = [(s.cable or s.link or "").strip() for s in evidence.run.scenario.fabric.degraded]
    stated = [port[name] for name in given if name in port]
    # Injection is not sampled: there our own nodes count.
    jobs = evidence.run.tables["jobs"].filter("observed").select("job")
    nodes = evidence.run.tables["ranks"].join(jobs, on="job", how="semi")["node"].to_numpy()
    carried = (evidence.whole.packets > 0) | np.isin(topology.src, nodes)
    used = [n for n in stated if carried[n] or carried[evidence.reverse(n)]]
    return [topology.name[link] for link in used or stated]


def is_worth_fixing(cost: dict[Cause, float], evidence: RunAnalysis) -> bool:
    """Whether contention costs enough: of the whole time, or of the time spent communicating."""
    most = max(cost.values(), default=0.0)
    if most >= WORTH_FIXING:
        return True
    busy = evidence.communication_fraction
    return most >= MIN_WORTH and busy > 0 and sum(cost.values()) >= WORTH_OF_COMMUNICATION * busy


def _headline(
    cause: Cause, findings: list[Finding], bars: list[WaterfallBar], cost: dict[Cause, float],
    slow: SlowCableFit | None, evidence: RunAnalysis, placements: Placements,
) -> str:  # fmt: skip
    if cause in ("not-network", "injection", "undetermined"):
        return _headline_without_contention(cause, findings, bars, cost, evidence)
    say = _what_is_wrong(cause, bars, slow, evidence, placements)
    if bars:
        part, total = percent(cost[cause]), format_time(evidence.run.elapsed_ps)
        return f"{say}: this costs {part} of the run time ({total} {times_of(evidence.run)})."
    share = sum(finding.share for finding in findings if finding.cause == cause)
    if not share:
        return f"{say}."
    return f"{say}: {percent(share)} of the congested packets wait because of this."


def _headline_without_contention(
    cause: Cause, findings: list[Finding], bars: list[WaterfallBar], cost: dict[Cause, float],
    evidence: RunAnalysis,
) -> str:  # fmt: skip
    """The headline where the network is not the cause, or nothing is known to be."""
    say, total = _HEADLINES[cause], format_time(evidence.run.elapsed_ps)
    if cause == "injection":
        needs = percent(evidence.wire_share)
        return f"{say}: the busiest one needs {needs} of the {total} just to send its data."
    if cause == "undetermined":
        return f"{say}: see TB005 for how many more are needed." if findings else f"{say}."
    if bars:
        return f"{say}: contention accounts for only {percent(sum(cost.values()), 1)} of {total}."
    met = f"{percent(evidence.overall.value)} of packet-hops met congestion"
    if evidence.run.scenario.telemetry.scheme == "off":
        met = "congestion was not recorded"
    return (
        f"{say}: ranks are blocked in communication for "
        f"{percent(evidence.communication_fraction)} of the time, and {met}."
    )


def _what_is_wrong(
    cause: Cause, bars: list[WaterfallBar], slow: SlowCableFit | None, evidence: RunAnalysis,
    placements: Placements,
) -> str:  # fmt: skip
    """The first half of the headline of a cause in the network."""
    say = _HEADLINES[cause]
    if cause == "slow-link":
        named = _slow_cables_named(slow, evidence)
        if named is not None:
            return named
    if cause == "other-traffic" and slow is not None:
        return f"{say}, since neither your own job nor slow cables explain the time"
    if cause == "routing" and evidence.run.scenario.fabric.routes in NON_MINIMAL_RULES:
        return "Detours in the routes overload links while others have room"
    if cause == "placement" and _whatever_placement(bars):
        own = set(evidence.run.tables["jobs"].filter("observed")["placement"].to_list())
        tried = "even under the best placement tried"
        if own >= set(placements):
            tried = "(no placement but the one in use was tried)"
        return f"Your own traffic overloads links inside the network {tried}"
    if bars and not evidence.roots.height:
        why = _uncongested(cause)
        if evidence.undecoded:
            why = "but the packet headers cannot be decoded, so they do not show where"
        elif not evidence.received:
            why = "but no packet carried a sample that could show where"
        return f"Re-simulation points to {cause}, {why}"
    return say


def _slow_cables_named(slow: SlowCableFit | None, evidence: RunAnalysis) -> str | None:
    """Which links are slow: those found, else those stated; None where neither names any."""
    if slow is not None and slow.explains:
        count = len(slow.cables)
        rates = [f"{_named(link, gbps, evidence)} Gb/s" for link, gbps in slow.cables]
        which = "; ".join(rates)
    elif stated := _slow_links(slow, evidence):
        count = len(stated)
        which = f"{_listed(stated)}, according to the scenario"
    else:
        return None
    many = f"{count} links run slower than they should"
    return f"{many if count > 1 else _HEADLINES['slow-link']} ({which})"


def _uncongested(cause: Cause) -> str:
    """On what the time that a cause costs is spent, when no link is congested.

    Placement may cost time on an empty network, too: more switches on the way are more latency.
    """
    if cause == "placement":
        return "on longer paths, or in queues too short to count as congestion"
    return "in queues too short to count as congestion"


def _whatever_placement(bars: list[WaterfallBar]) -> bool:
    """Whether the network costs our job its time, and the placement as it is adds nothing to it."""
    step = {bar.name: bar for bar in bars}
    if "network" not in step:
        return False
    least = MIN_WORTH * step["observed"].elapsed_ps
    return step["placement"].delta_ps < least <= step["network"].delta_ps


def _listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return "; ".join(names[:NAMES_SHOWN]) + more


def _why_open_is_harmless(evidence: RunAnalysis) -> str:
    """Why TB005 does not report what the samples leave open."""
    if evidence.unsure_share <= MAX_UNSETTLED_SHARE:
        return "too few to matter"
    return "not enough to make another cause the heaviest"


def _sampling(findings: list[Finding], evidence: RunAnalysis) -> Sampling:
    telemetry = evidence.run.scenario.telemetry
    bits = header_bits(telemetry)
    carried = f"{telemetry.scheme}, {bits} bits" if bits else telemetry.scheme
    open_ = next((finding for finding in findings if finding.code == "TB005"), None)
    note = (
        "None of your messages crosses the network, so there is nothing to sample."
        if not evidence.crosses
        else f"{open_.advice} Telemetry: {carried}."
        if open_ is not None
        else f"The samples ({carried}) are conclusive for {evidence.links_sure} of "
        f"{evidence.links_seen} links; {percent(evidence.unsure_share)} of the congested packets "
        f"are on links or in trees where they are not, {_why_open_is_harmless(evidence)}."
    )
    return Sampling(
        scheme=telemetry.scheme,
        header_bits=bits,
        packets=evidence.received,
        links_seen=evidence.links_seen,
        links_sure=evidence.links_sure,
        sufficient=open_ is None,
        note=note,
    )
