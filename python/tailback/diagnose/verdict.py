"""The verdict: what the rules found, reconciled with what re-simulation says it costs."""

from __future__ import annotations

from tailback.diagnose.evidence import Evidence
from tailback.diagnose.model import Bar, Cause, Diagnosis, Finding, Sampling
from tailback.diagnose.rules import RULES
from tailback.diagnose.rules.tb004_not_network import LITTLE_COMMUNICATION
from tailback.diagnose.waterfall import Progress, build, lost
from tailback.errors import RunError
from tailback.evaluate import Evaluate
from tailback.run import Run
from tailback.units import format_time

WORTH_FIXING = 0.05
"""Contention that costs less than this share of the whole time is not what to work on."""

UNSEEN = 0.15
"""Without any congestion tree, contention below this share comes from queues too short to count."""

TOP_LINKS = 20

_STEP_CAUSE: dict[str, Cause] = {
    "pattern": "pattern",
    "placement": "placement",
    "routing": "placement",
    "other traffic": "other-traffic",
}

_SAY: dict[Cause, str] = {
    "pattern": "The communication pattern overruns single nodes",
    "placement": "The placement of ranks overfills links inside the network",
    "other-traffic": "Traffic of others is in the way",
    "not-network": "The network is not what costs the time",
    "undetermined": "There are too few samples for a verdict",
}


def judge(
    run: Run, evaluate: Evaluate | None = None, *, seeds: int = 3, progress: Progress | None = None
) -> Diagnosis:
    """Diagnose a run, without looking for a remedy.

    Args:
        run: The run, simulated or measured.
        evaluate: Simulates changes for the waterfall; None leaves it out.
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
    evidence = Evidence(run)
    findings = [f for f in (entry.part(evidence) for entry in RULES) if f is not None]
    findings.sort(key=lambda finding: (-finding.share, finding.code))
    bars = build(run, evaluate, seeds, progress) if evaluate is not None else []
    cause, warnings = _reconcile(findings, bars, evidence)
    if not run.complete:
        warnings.append("The run was interrupted: its tables end there, and so does the diagnosis.")
    return Diagnosis(
        cause=cause,
        headline=_headline(cause, findings, bars, run, evidence),
        findings=findings,
        waterfall=bars,
        remedy=None,
        top_links=evidence.top_links(TOP_LINKS),
        sampling=_sampling(findings, evidence),
        elapsed_ps=run.elapsed_ps,
        communication_fraction=evidence.communication_fraction,
        warnings=[*run.notes, *warnings],
    )


def _reconcile(
    findings: list[Finding], bars: list[Bar], evidence: Evidence
) -> tuple[Cause, list[str]]:
    """Choose the main cause: time where it was re-simulated, congested packets where not."""
    codes = {finding.code for finding in findings}
    by_rules = _cause_of_rules(findings, codes, evidence)
    if not bars:
        return by_rules, []
    shares: dict[Cause, float] = {}
    for step, share in lost(bars).items():
        cause = _STEP_CAUSE[step]
        shares[cause] = shares.get(cause, 0.0) + share
    heaviest = max(shares, key=lambda cause: shares[cause])
    warnings = [
        f"{f.code} found congestion, but re-simulation finds that {f.cause} costs "
        f"{max(shares[f.cause], 0.0):.1%} of the time."
        for f in findings
        if f.cause in shares and shares[f.cause] < WORTH_FIXING
    ]
    if shares[heaviest] < WORTH_FIXING:
        return "not-network", warnings
    if by_rules == "not-network" and not evidence.roots.height and shares[heaviest] < UNSEEN:
        return "not-network", [
            f"Re-simulation charges {shares[heaviest]:.0%} of the time to {heaviest}, but no link "
            "is congested: it is spent in queues too short to count."
        ]
    if by_rules in shares and by_rules != heaviest:
        warnings.append(
            f"The congestion trees point to {by_rules} first, but re-simulation charges "
            f"{shares[heaviest]:.0%} of the time to {heaviest} and "
            f"{max(shares[by_rules], 0.0):.0%} to {by_rules}; the time decides."
        )
    if by_rules == "not-network":
        warnings.append(
            f"Little congestion was seen, yet re-simulation charges {shares[heaviest]:.0%} of the "
            f"time to {heaviest}."
        )
    return heaviest, warnings


def _cause_of_rules(findings: list[Finding], codes: set[str], evidence: Evidence) -> Cause:
    if "TB004" in codes and evidence.communication_fraction < LITTLE_COMMUNICATION:
        return "not-network"
    trees = {f.cause: f.share for f in findings if f.code in ("TB001", "TB002", "TB003")}
    if "TB005" in codes and max(trees.values(), default=0.0) <= evidence.unsure_share:
        # What stays open outweighs what is known.
        return "undetermined"
    if "TB004" in codes:
        return "not-network"
    if not trees:
        return "undetermined"
    return max(trees, key=lambda cause: trees[cause])


def _headline(
    cause: Cause, findings: list[Finding], bars: list[Bar], run: Run, evidence: Evidence
) -> str:
    say = _SAY[cause]
    total = format_time(run.elapsed_ps)
    steps = {name: share for name, share in lost(bars).items() if _STEP_CAUSE[name] == cause}
    if cause == "not-network":
        if not bars:
            return (
                f"{say}: ranks are blocked in communication for "
                f"{evidence.communication_fraction:.0%} of it, and {evidence.overall.value:.0%} of "
                "the packet-hops met congestion."
            )
        contended = sum(lost(bars).values())
        return f"{say}: contention adds {max(contended, 0.0):.1%} to {total}."
    if cause == "undetermined":
        return f"{say}: see what TB005 asks for." if findings else f"{say}."
    if cause == "placement" and steps.get("routing", 0.0) > steps.get("placement", 0.0):
        say = "Static routing puts several of our routes on one link"
    if steps and not any(finding.cause == cause for finding in findings):
        say = f"Re-simulation points to {cause}, in queues too short to count as congestion"
    if steps:
        return f"{say}: that takes {sum(steps.values()):.0%} of its time ({total} as observed)."
    share = sum(finding.share for finding in findings if finding.cause == cause)
    return f"{say}: {share:.0%} of the congested packets wait for that."


def _sampling(findings: list[Finding], evidence: Evidence) -> Sampling:
    open_ = next((finding for finding in findings if finding.code == "TB005"), None)
    note = (
        open_.advice
        if open_ is not None
        else f"The samples settle {evidence.links_sure} of {evidence.links_seen} links; "
        f"{evidence.unsure_share:.0%} of the congested packets are on links, or in trees, that "
        "stay open, too few to change the verdict."
    )
    return Sampling(
        packets=evidence.received,
        links_seen=evidence.links_seen,
        links_sure=evidence.links_sure,
        sufficient=open_ is None,
        note=note,
    )
