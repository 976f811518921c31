"""The finding of a verdict that no rule supports: from re-simulation or the message log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailback.diagnosis.cause_wording import (
    ADVICE,
    FROM_MESSAGE_TIMES,
    MEASURE_IT,
    TITLES,
    charged,
    contention_costs_little,
    within_hosts,
)
from tailback.diagnosis.confidence import NO_CONTENTION_CAUSES, in_network
from tailback.diagnosis.model import Cause, Finding

CODE = "TB000"
"""Code of a finding that does not come from a rule."""


def ensure_cause_finding(
    cause: Cause,
    findings: Sequence[Finding],
    cost: Mapping[Cause, float] | None,
    why: str = "",
    *,
    logged: bool = False,
) -> list[Finding]:
    """The findings with one for the main cause, and without TB004 if the network is the cause.

    Args:
        cause: The main cause.
        findings: Findings of the rules.
        cost: Share of the time that each cause costs by re-simulation; None without one.
        why: Evidence of the cause if no rule found it; derived from ``cost`` if empty.
        logged: Whether the run has a message log.
    """
    kept = list(findings)
    if cost is not None and cause not in NO_CONTENTION_CAUSES:
        # Re-simulation overrides TB004, which is based on congested packets only.
        kept = [finding for finding in findings if finding.cause != "not-network"]
    if cause == "capacity":
        # The rule that finds our own traffic inside the network does not know other placements.
        told = {"cause": cause, "title": TITLES[cause], "advice": ADVICE[cause]}
        kept = [one.model_copy(update=told) if one.cause == "placement" else one for one in kept]
    if any(finding.cause == cause for finding in kept):
        return kept
    own = Finding(
        code=CODE,
        cause=cause,
        title=TITLES[cause],
        explanation=why or _why(cause, cost),
        share=0.0,
        phases=[],
        links=[],
        advice=MEASURE_IT if cause == "undetermined" and logged else ADVICE[cause],
    )
    return [own, *kept]


def _why(cause: Cause, cost: Mapping[Cause, float] | None) -> str:
    if cost is None:
        return FROM_MESSAGE_TIMES
    if cause == "in-host":
        return within_hosts(cost.get(cause, 0.0))
    if cause in NO_CONTENTION_CAUSES:
        return contention_costs_little(max(in_network(cost).values(), default=0.0))
    return charged(cost.get(cause, 0.0))
