"""The main cause without a simulator: what the rules found, checked against the message log.

Congestion trees tell where packets queued, not what that cost: a burst into a node marks most of
them and is over soon, a slow cable marks few and makes all others wait. The message log tells who
was late, and whether a node of theirs was busy meanwhile
(:mod:`tailback.diagnosis.message_delays`). So a
cause must fit both. The shares below were chosen on the scenarios to build on
(docs/measurements/diagnosis-accuracy.md).
"""

from __future__ import annotations

from tailback.diagnosis.message_delays import MessageDelays
from tailback.diagnosis.model import Cause, Finding
from tailback.diagnosis.rules.tb004_not_network import LITTLE_COMMUNICATION
from tailback.diagnosis.rules.tb008_injection import LINE_BOUND
from tailback.diagnosis.run_analysis import RunAnalysis

WORTH_FIXING = 0.05
"""A cause that costs this share of the whole time is worth fixing, whatever the rest is."""

MIN_WORTH = 0.02
"""So is one that costs this much (the gain from which a placement is recommended), where contention
takes :data:`WORTH_OF_COMMUNICATION` of the time spent communicating: then it is the network that is
slow, and computation only hides how much. Under it, repetitions differ by as much."""

CONGESTION_RULES = ("TB001", "TB002", "TB003", "TB006", "TB007")
"""Rules that rest on congestion trees; their shares are of the congested packets."""

MOSTLY_ENDPOINT_SHARE = 0.65
"""Share of the lost time that messages lost while a node of theirs was busy with our own messages,
under which nodes are not the cause, whatever they mark. Patterns had 70 % or more."""

ENDPOINT_ONLY_SHARE = 0.9
"""The same from which nothing further inside is looked for."""

BUSY_ADAPTER_SHARE = 0.5
"""Share of the communication time in which a node has messages under way, under which ours does not
fill the network: a few late messages keep the others waiting. Placements had 58 % or more."""

FREQUENT_CONGESTION_SHARE = 0.6
"""Activity from which one cable that explains much is chance: nobody waits for it."""

IDLE_ADAPTER_SHARE = 0.3
"""Activity under which it is a slow cable where no congestion tree says anything."""

SINGLE_CABLE_FIT = 0.65
"""Share of the squared lateness that one cable explains, from which it is that cable."""

FEW_LATE, ONE_OF_FEW = 0.10, 0.35
"""The same where only so few messages are late: other traffic holds up more of them."""

MANY_LATE, NO_CABLE = 0.3, 0.45
"""With more messages late than this and less explained by one cable, a congested root that we
hardly use is no slow link, even if its equivalents are not congested."""

LARGE_LOSS_SHARE = 0.1
"""Share of the time lost inside the network from which, without any congested link, our own traffic
counts as the cause."""


def cause_of_rules(findings: list[Finding], evidence: RunAnalysis) -> Cause:
    """The main cause, from the rules that fired and the message log.

    Args:
        findings: The rules that fired.
        evidence: What they rest on.
    """
    codes = {finding.code for finding in findings}
    if "TB004" in codes and evidence.communication_fraction < LITTLE_COMMUNICATION:
        return "not-network"
    if evidence.slow_node is not None:
        return "slow-link"  # Its messages tell, and what they cost hardly shows in congestion.
    trees: dict[Cause, float] = {f.cause: f.share for f in findings if f.code in CONGESTION_RULES}
    if "TB005" in codes and max(trees.values(), default=0.0) <= evidence.unsure_share:
        # What stays open outweighs what is known.
        return "undetermined"
    late = evidence.losses
    slowed = late is not None and late.inside >= MIN_WORTH
    if "TB008" in codes and not slowed:
        return "injection"
    if "TB004" in codes and not slowed and (late is None or late.endpoint < WORTH_FIXING):
        return "not-network"
    # No more can be lost than the adapters leave, nor for longer than something was congested.
    if trees and 1.0 - evidence.wire_share < WORTH_FIXING:
        return "injection"
    burden = {cause: evidence.burden(cause) for cause in trees}
    if late is None or late.total < MIN_WORTH:
        # Where all messages are late alike, their log does not show it.
        if not trees:
            return (
                "undetermined"
                if late is None
                else cause_without_contention("not-network", evidence)
            )
        if max(longest for _, longest in burden.values()) < WORTH_FIXING:
            return cause_without_contention("not-network", evidence)
        return max(trees, key=lambda cause: burden[cause][0])
    return _by_message_delays(late, {c: b for c, (b, _) in burden.items()}, evidence)


def _by_message_delays(
    late: MessageDelays, burden: dict[Cause, float], evidence: RunAnalysis
) -> Cause:
    """The cause that burdens most, of those that fit where, when and which messages lost time."""
    at_nodes = late.endpoint_share >= MOSTLY_ENDPOINT_SHARE
    one = evidence.one_cable
    # Of the time spent communicating: computation keeps nobody waiting for the network.
    active = min(late.active / max(evidence.communication_fraction, MIN_WORTH), 1.0)
    if late.endpoint_share < ENDPOINT_ONLY_SHARE and late.inside >= MIN_WORTH / 2:
        few = late.late <= FEW_LATE and one >= ONE_OF_FEW
        if few or (one >= SINGLE_CABLE_FIT and active < FREQUENT_CONGESTION_SHARE):
            return "slow-link"
    fitting = dict(burden)
    if not at_nodes:
        fitting.pop("pattern", None)
    if active < BUSY_ADAPTER_SHARE:
        fitting.pop("placement", None)
    if late.late > MANY_LATE and one < NO_CABLE and "slow-link" in fitting:
        others = fitting.get("other-traffic", 0.0)
        fitting["other-traffic"] = max(fitting.pop("slow-link"), others)
    if fitting:
        return max(fitting, key=lambda cause: fitting[cause])
    if at_nodes:
        return "pattern"
    if active < IDLE_ADAPTER_SHARE:
        return "slow-link"
    if evidence.run.scenario.engine.routing == "deterministic":
        return "routing"
    return (
        "placement"
        if active >= BUSY_ADAPTER_SHARE and late.inside >= LARGE_LOSS_SHARE
        else "other-traffic"
    )


def cause_without_contention(by_rules: Cause, evidence: RunAnalysis) -> Cause:
    """What takes the time when contention does not: the adapters' own rate, or no network."""
    if by_rules == "injection" or evidence.wire_share >= LINE_BOUND:
        return "injection"
    return "not-network"
