"""The main cause without a simulator: what the rules found, checked against the message log.

Congestion trees tell where packets queued, not what that cost: a burst into a node marks most of
them and is over soon, a slow cable marks few and makes all others wait. The message log tells who
was late, and whether a node of theirs was busy meanwhile (:mod:`tailback.diagnose.losses`). So a
cause must fit both. The shares below were chosen on the scenarios to build on
(docs/diagnosis-accuracy.md).
"""

from __future__ import annotations

from tailback.diagnose.evidence import Evidence
from tailback.diagnose.losses import Losses
from tailback.diagnose.model import Cause, Finding
from tailback.diagnose.rules.tb004_not_network import LITTLE_COMMUNICATION
from tailback.diagnose.rules.tb008_injection import LINE_BOUND

WORTH_FIXING = 0.05
"""A cause that costs this share of the whole time is worth fixing, whatever the rest is."""

MIN_WORTH = 0.02
"""So is one that costs this much (the gain from which a placement is recommended), where contention
takes :data:`WORTH_OF_COMMUNICATION` of the time spent communicating: then it is the network that is
slow, and computation only hides how much. Under it, repetitions differ by as much."""

TREES = ("TB001", "TB002", "TB003", "TB006", "TB007")
"""Rules that rest on congestion trees; their shares are of the congested packets."""

MOSTLY_AT_NODES = 0.65
"""Share of the lost time that messages lost while a node of theirs was busy with our own messages,
under which nodes are not the cause, whatever they mark. Patterns had 70 % or more."""

ONLY_AT_NODES = 0.9
"""The same from which nothing further inside is looked for."""

BUSY = 0.5
"""Share of the communication time in which a node has messages under way, under which ours does not
fill the network: a few late messages keep the others waiting. Placements had 58 % or more."""

OFTEN = 0.6
"""Activity from which one cable that explains much is chance: nobody waits for it."""

IDLE = 0.3
"""Activity under which it is a slow cable where no congestion tree says anything."""

ONE_CABLE = 0.65
"""Share of the squared lateness that one cable explains, from which it is that cable."""

FEW_LATE, ONE_OF_FEW = 0.10, 0.35
"""The same where only so few messages are late: other traffic holds up more of them."""

MANY_LATE, NO_CABLE = 0.3, 0.45
"""With more messages late than this and less explained by one cable, a dark and thin root is no
slow link, though its equivalents are not dark."""

MUCH = 0.1
"""Share of the time lost inside the network from which, without any congested link, our own traffic
is put down for it."""


def cause_of_rules(findings: list[Finding], evidence: Evidence) -> Cause:
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
    trees: dict[Cause, float] = {f.cause: f.share for f in findings if f.code in TREES}
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
            return "undetermined" if late is None else at_rest("not-network", evidence)
        if max(longest for _, longest in burden.values()) < WORTH_FIXING:
            return at_rest("not-network", evidence)
        return max(trees, key=lambda cause: burden[cause][0])
    return _by_losses(late, {c: b for c, (b, _) in burden.items()}, evidence)


def _by_losses(late: Losses, burden: dict[Cause, float], evidence: Evidence) -> Cause:
    """The cause that burdens most, of those that fit where, when and which messages lost time."""
    at_nodes = late.at_nodes >= MOSTLY_AT_NODES
    one = evidence.one_cable
    # Of the time spent communicating: computation keeps nobody waiting for the network.
    active = min(late.active / max(evidence.communication_fraction, MIN_WORTH), 1.0)
    if late.at_nodes < ONLY_AT_NODES and late.inside >= MIN_WORTH / 2:
        few = late.late <= FEW_LATE and one >= ONE_OF_FEW
        if few or (one >= ONE_CABLE and active < OFTEN):
            return "slow-link"
    fitting = dict(burden)
    if not at_nodes:
        fitting.pop("pattern", None)
    if active < BUSY:
        fitting.pop("placement", None)
    if late.late > MANY_LATE and one < NO_CABLE and "slow-link" in fitting:
        others = fitting.get("other-traffic", 0.0)
        fitting["other-traffic"] = max(fitting.pop("slow-link"), others)
    if fitting:
        return max(fitting, key=lambda cause: fitting[cause])
    if at_nodes:
        return "pattern"
    if active < IDLE:
        return "slow-link"
    if evidence.run.scenario.engine.routing == "deterministic":
        return "routing"
    return "placement" if active >= BUSY and late.inside >= MUCH else "other-traffic"


def at_rest(by_rules: Cause, evidence: Evidence) -> Cause:
    """What takes the time when contention does not: the adapters' own rate, or no network."""
    if by_rules == "injection" or evidence.wire_share >= LINE_BOUND:
        return "injection"
    return "not-network"
