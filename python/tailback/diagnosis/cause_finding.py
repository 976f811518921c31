"""The finding behind a verdict that no rule speaks for: re-simulation or the message log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailback.diagnosis.confidence import NO_CONTENTION_CAUSES
from tailback.diagnosis.model import Cause, Finding
from tailback.units import percent

CODE = "TB000"
"""Code of a finding that no rule made."""

_TITLE: dict[Cause, str] = {
    "pattern": "Communication pattern: nodes are sent more than they can receive",
    "placement": "Placement: your own traffic fills links inside the network",
    "routing": "Routing: routes share links while other links have capacity",
    "slow-link": "Slow link: a slow cable explains which messages are late",
    "other-traffic": "Other traffic: messages are late, but not because of your own traffic",
    "injection": "Injection limit: the adapters' line rate limits the run",
    "not-network": "Not the network: contention costs too little to be worth fixing",
    "imbalance": "Imbalance: some ranks compute longer than others",
    "noise": "Noise: the same computation sometimes takes longer",
    "late-partner": "Late partner: ranks wait for others that compute before they send",
    "healthy": "No fault: no cause costs enough to be one",
    "undetermined": "Nothing in the data shows where the time goes",
}

_ADVICE: dict[Cause, str] = {
    "pattern": "Change the communication: spread the messages over receivers or time.",
    "placement": "Try other placements of the ranks.",
    "routing": "Spread the traffic over more paths.",
    "slow-link": "Ask the operators to check the cables on the paths of late messages: "
    "speed, width, error counters.",
    "other-traffic": "Run again at another time, or request whole switches.",
    "injection": "Send less, or use more adapters.",
    "not-network": "Look at computation, load balance and latency.",
    "imbalance": "Give every rank the same amount of computation.",
    "noise": "Find out what else runs on the hosts: daemons, other ranks on the same core.",
    "late-partner": "Send before computing, or overlap: the program makes ranks take turns.",
    "healthy": "Nothing needs to be fixed; only a faster network or less traffic would help.",
    "undetermined": "Run longer, or with a message log.",
}


def ensure_cause_finding(
    cause: Cause, findings: Sequence[Finding], cost: Mapping[Cause, float] | None, why: str = ""
) -> list[Finding]:
    """The findings, among them one of the main cause, and none that says the network is not it.

    Args:
        cause: The main cause.
        findings: What the rules found.
        cost: Share of the time that each cause costs by re-simulation; None without one.
        why: What shows the cause, where no rule says it; found from ``cost`` when empty.
    """
    kept = list(findings)
    if cost is not None and cause not in NO_CONTENTION_CAUSES:
        # The time decided: TB004, which knew congested packets alone, was wrong.
        kept = [finding for finding in findings if finding.cause != "not-network"]
    if any(finding.cause == cause for finding in kept):
        return kept
    own = Finding(
        code=CODE, cause=cause, title=_TITLE[cause], explanation=why or _why(cause, cost),
        share=0.0, phases=[], links=[], advice=_ADVICE[cause],
    )  # fmt: skip
    return [own, *kept]


def _why(cause: Cause, cost: Mapping[Cause, float] | None) -> str:
    if cost is None:
        return (
            "No congestion tree shows it; it follows from the times at which messages were "
            "sent and received."
        )
    if cause in NO_CONTENTION_CAUSES:
        most = percent(max(cost.values(), default=0.0), 1)
        return f"By re-simulation no cause of contention costs more than {most} of the time."
    return (
        "No congestion tree shows it; re-simulation charges "
        f"{percent(cost.get(cause, 0.0))} of the time to it."
    )
