"""The main cause without re-simulation: findings of the rules, checked against the message log.

Congestion trees show where packets queued, not the cost: a burst into a node congests many packets
but is short; a slow cable congests few but delays all others. The message log shows which messages
were late, and whether one of their nodes was busy at the time
(:mod:`tailback.diagnosis.message_delays`). A cause must be consistent with both. The thresholds
below were chosen on the ``build`` split of the scenarios
(docs/measurements/diagnosis-accuracy.md).
"""

from __future__ import annotations

from tailback.diagnosis.confidence import LINE_BOUND, MIN_WORTH, WORTH_FIXING
from tailback.diagnosis.message_delays import MessageDelays
from tailback.diagnosis.model import Cause, Finding
from tailback.diagnosis.rules.tb004_not_network import LITTLE_COMMUNICATION
from tailback.diagnosis.run_analysis import RunAnalysis

CONGESTION_RULES = ("TB001", "TB002", "TB003", "TB006", "TB007")
"""Rules based on congestion trees; their shares are shares of the congested packets."""

MOSTLY_ENDPOINT_SHARE = 0.65
"""Smallest share of the lost time at nodes busy with our own messages for which endpoint congestion
can be the cause, however many packets it congests. For patterns, it was 70 % or more."""

ENDPOINT_ONLY_SHARE = 0.9
"""The same share, above which causes inside the network are not considered."""

BUSY_ADAPTER_SHARE = 0.5
"""Share of communication time with messages in flight below which our traffic cannot fill the
network: a few late messages delay the others. For placements, it was 58 % or more."""

FREQUENT_CONGESTION_SHARE = 0.6
"""Activity above which a good fit of a single cable is attributed to chance: no rank waits for
it."""

IDLE_ADAPTER_SHARE = 0.3
"""Activity below which a slow cable is the cause even without a congestion tree."""

SINGLE_CABLE_FIT = 0.65
"""A single cable is the cause if it explains this share of the squared lateness."""

FEW_LATE, ONE_OF_FEW = 0.10, 0.35
"""Share of late messages up to which they are few, and the fit then required of a single cable:
other traffic would delay more messages."""

MANY_LATE, NO_CABLE = 0.3, 0.45
"""With a larger share of late messages than the first value and a worse single-cable fit than the
second, a congested root that we hardly use is not a slow link, even if its equivalents are
uncongested."""

LARGE_LOSS_SHARE = 0.1
"""Smallest share of time lost inside the network at which our own traffic counts as the cause even
without a congested link."""


def cause_of_rules(findings: list[Finding], evidence: RunAnalysis) -> Cause:
    """The main cause, from the rules that fired and the message log.

    Args:
        findings: The rules that fired.
        evidence: The run analysis that the findings are based on.
    """
    codes = {finding.code for finding in findings}
    if "TB004" in codes and evidence.communication_fraction < LITTLE_COMMUNICATION:
        return "not-network"
    if evidence.slow_node is not None:
        return "slow-link"  # Visible in message times; it causes hardly any congestion.
    trees: dict[Cause, float] = {f.cause: f.share for f in findings if f.code in CONGESTION_RULES}
    if "TB005" in codes and max(trees.values(), default=0.0) <= evidence.unsure_share:
        # More congested packets are unsettled than any cause accounts for.
        return "undetermined"
    late = evidence.losses
    slowed = late is not None and late.inside >= MIN_WORTH
    if "TB008" in codes and not slowed:
        return "injection"
    if "TB004" in codes and not slowed and (late is None or late.endpoint < WORTH_FIXING):
        return "not-network"
    # The loss is bounded by the time not needed at line rate, and by the time with congestion.
    if trees and 1.0 - evidence.wire_share < WORTH_FIXING:
        return "injection"
    burden = {cause: evidence.burden(cause) for cause in trees}
    if late is None or late.total < MIN_WORTH:
        # The log cannot detect a delay that is the same for all messages.
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
    """The cause with the largest burden that is consistent with the message delays."""
    at_nodes = late.endpoint_share >= MOSTLY_ENDPOINT_SHARE
    one = evidence.one_cable
    # As a share of communication time, since the network is idle during computation.
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
    """The cause if there is no contention: the adapters' line rate, or not the network."""
    if by_rules == "injection" or evidence.wire_share >= LINE_BOUND:
        return "injection"
    return "not-network"
