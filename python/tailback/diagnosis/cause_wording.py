"""Texts for causes: headline clauses, names, finding titles and advice.

The verdict modules choose the cause; this module only words it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailback.diagnosis.confidence import NO_CONTENTION_CAUSES, in_network
from tailback.diagnosis.model import Cause, Finding
from tailback.errors import option
from tailback.units import percent

SENTENCES: dict[Cause, str] = {
    "pattern": "Your communication pattern sends some nodes more than they can receive",
    "placement": "Your ranks are placed so that links inside the network are overloaded",
    "capacity": "Your own traffic needs more capacity between switches than the network has",
    "other-traffic": "Traffic of other jobs slows yours down",
    "routing": "Static routing sends several of your flows over the same link",
    "slow-link": "A link runs slower than it should",
    "injection": "The line rate of your adapters limits the run, not the network between them",
    "in-host": "Transfers within hosts limit the run, not the network between them",
    "not-network": "The network is not the bottleneck",
    "imbalance": "Some ranks compute longer than others, which wait for them",
    "late-partner": "Ranks wait for partners that compute before they send",
    "noise": "Some repetitions of the same computation take longer than others (system noise, or "
    "work that moves between ranks), and ranks wait for them",
    "undetermined": "There are too few samples for a verdict",
}
"""First half of the headline for each cause."""

UNEVEN_ROUTING = (
    "Routing sends several of your flows over the same link while other links have capacity"
)
"""The same for routing of any kind, static or not."""

NAMES: dict[str, str] = {
    "pattern": "communication pattern",
    "placement": "placement",
    "capacity": "network capacity",
    "routing": "routing",
    "slow-link": "slow link",
    "other-traffic": "other traffic",
    "imbalance": "imbalance",
    "noise": "noise",
    "in-host": "transfers within hosts",
    "late-partner": "late partner",
    "healthy": "no fault",
}
"""Names of causes within a sentence or a table."""

INSTEAD: dict[Cause, str] = {
    "pattern": "another program",
    "placement": "another placement",
    "routing": "other routing",
    "slow-link": "repaired links",
    "other-traffic": "a run without the other jobs",
    "in-host": "faster transfers within hosts",
    "imbalance": "balanced computation",
}
"""What removes each cause that can be removed alone, within a sentence."""

VERDICTS: dict[Cause, str] = {
    "pattern": "Communication pattern",
    "placement": "Placement",
    "capacity": "Network capacity",
    "routing": "Routing imbalance",
    "slow-link": "Slow link",
    "other-traffic": "Other traffic",
    "injection": "Injection limit",
    "in-host": "In-host limit",
    "not-network": "Not the network",
    "imbalance": "Computation imbalance",
    "noise": "Noise in computation",
    "late-partner": "Late partner",
    "healthy": "Healthy",
    "undetermined": "Undetermined",
}
"""Names of verdicts on the screen and in the report."""


def verdict_name(cause: Cause, alternatives: Sequence[Cause]) -> str:
    """Name of a verdict with its alternatives."""
    first, *others = (VERDICTS[each] for each in (cause, *alternatives))
    return " or ".join([first, *map(str.lower, others)])


TITLES: dict[Cause, str] = {
    "pattern": "Communication pattern: nodes are sent more than they can receive",
    "placement": "Placement: your own traffic fills links inside the network",
    "capacity": "Network capacity: your own traffic fills links under every placement tried",
    "routing": "Routing: routes share links while other links have capacity",
    "slow-link": "Slow link: a slow cable explains which messages are late",
    "other-traffic": "Other traffic: messages are late, but not because of your own traffic",
    "injection": "Injection limit: the adapters' line rate limits the run",
    "in-host": "In-host limit: transfers within hosts take the time",
    "not-network": "Not the network: contention costs too little to be worth fixing",
    "imbalance": "Imbalance: some ranks compute longer than others",
    "noise": "Noise: some repetitions of the same computation take longer than others",
    "late-partner": "Late partner: ranks wait for others that compute before they send",
    "healthy": "No fault: no cause costs enough to be one",
    "undetermined": "Nothing in the data shows where the time goes",
}
"""Title of the finding for a cause that no rule found."""

ADVICE: dict[Cause, str] = {
    "pattern": "Change the communication: spread the messages over receivers or time.",
    "placement": "Try other placements of the ranks.",
    "capacity": "Send less between switches, or overlap it with computation. A network with more "
    "links between its switches would help, too.",
    "routing": "Spread the traffic over more paths.",
    "slow-link": "Ask the operators to check the cables on the paths of late messages: "
    "speed, width, error counters.",
    "other-traffic": "Run again at another time, or request whole switches.",
    "injection": "Send less, or use more adapters.",
    "in-host": "Send less within hosts, overlap it with computation, or use a faster switch there.",
    "not-network": "Look at computation, load balance and latency.",
    "imbalance": "Give every rank the same amount of computation.",
    "noise": "Find out what else runs on the hosts (daemons, other ranks on the same core), and "
    "whether the program gives single steps more work.",
    "late-partner": "Send before computing, if the data is ready by then, or overlap: the program "
    "makes ranks take turns.",
    "healthy": "Nothing needs to be fixed; only a faster network, less traffic or another order of "
    "the program would help.",
    "undetermined": "Run longer, or with a message log.",
}
"""Advice of that finding."""

NOT_SIMULATED = "This was not simulated."
"""What advice says of itself unless a candidate with its gain proves it."""

MEASURE_IT = (
    "Record the run on the network itself, with the times of its calls (tailback record) and port "
    "counters (tailback collect): a simulation cannot show what it lacks."
)
"""The same for an undetermined cause if there is a message log already."""

TRY_CHANGES = (
    "Try the changes below that gain most: each is simulated. More repetitions ({}) tell causes "
    "apart whose costs vary from run to run."
)
"""The same if re-simulation leaves several causes open; with the option of the repetitions."""

FROM_MESSAGE_TIMES = (
    "No congestion tree shows this; it follows from the times at which messages were sent and "
    "received."
)
"""Reason for the cause if nothing was simulated."""


def charged(share: float) -> str:
    """Reason for the cause: its cost by re-simulation."""
    return f"No congestion tree shows it; re-simulation charges {percent(share)} of the time to it."


def within_hosts(share: float) -> str:
    """Reason for the cause ``in-host``."""
    return (
        f"With transfers within hosts that take no time, the run without contention is shorter by "
        f"{percent(share)} of the run time."
    )


def contention_costs_little(most: float) -> str:
    """Reason why contention is not the cause: ``most`` is the largest cost share of any cause."""
    return (
        f"By re-simulation no cause of contention costs more than {percent(most, 1)} of the time."
    )


def beside_cost(gain: float, cost: float) -> str:
    """Clause on a change that removes more, or less, than the cause; empty if it gains the same.

    Args:
        gain: Share of the time that it saves.
        cost: Share of the time that the cause costs.
    """
    if percent(gain) == percent(cost):
        return ""
    return ", more than the cause alone costs" if gain > cost else ", less than the cause costs"


# --- the finding of a verdict without a rule ---------------------------------------------------

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
    if cost is not None and cause == "undetermined":
        return [_open_causes(why), *kept]
    if cause == "capacity":
        # The rule that finds our own traffic inside the network does not know other placements.
        capacity = {"cause": cause, "title": TITLES[cause], "advice": ADVICE[cause]}
        kept = [
            finding.model_copy(update=capacity) if finding.cause == "placement" else finding
            for finding in kept
        ]
    if any(finding.cause == cause for finding in kept):
        return kept
    cause_finding = Finding(
        code=CODE,
        cause=cause,
        title=TITLES[cause],
        explanation=why or _why(cause, cost),
        share=0.0,
        phases=[],
        links=[],
        advice=MEASURE_IT if cause == "undetermined" and logged else ADVICE[cause],
    )
    return [cause_finding, *kept]


def _open_causes(why: str) -> Finding:
    """The finding of a re-simulated run of which no cause is sure."""
    return Finding(
        code=CODE,
        cause="undetermined",
        title="Several causes fit the costs about equally well",
        explanation=why,
        share=0.0,
        phases=[],
        links=[],
        advice=TRY_CHANGES.format(option("seeds", 10)),
    )


def _why(cause: Cause, cost: Mapping[Cause, float] | None) -> str:
    if cost is None:
        return FROM_MESSAGE_TIMES
    if cause == "in-host":
        return within_hosts(cost.get(cause, 0.0))
    if cause in NO_CONTENTION_CAUSES:
        return contention_costs_little(max(in_network(cost).values(), default=0.0))
    return charged(cost.get(cause, 0.0))
