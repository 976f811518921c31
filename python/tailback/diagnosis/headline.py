"""The sentences of a verdict: its headline, and what is said of slow cables and short queues.

``verdict`` chooses the cause; nothing here changes it.
"""

from __future__ import annotations

from tailback.diagnosis.cause_wording import SENTENCES
from tailback.diagnosis.model import Cause, Finding, WaterfallBar
from tailback.diagnosis.rule_verdict import MIN_WORTH
from tailback.diagnosis.run_analysis import MAX_UNSETTLED_SHARE, RunAnalysis
from tailback.diagnosis.slow_cables import SlowCableFit, slow_links
from tailback.diagnosis.waterfall import NON_MINIMAL_RULES, Placements
from tailback.diagnosis.wording import times_of
from tailback.units import format_time, percent

NAMES_SHOWN = 3
"""Slow links that a headline names."""

NOT_RULED_OUT = (
    "The simulation finds hardly any contention, but {}. This does not rule out the network, "
    "and the trace cannot show what took the time."
)


def headline(
    cause: Cause, findings: list[Finding], bars: list[WaterfallBar], cost: dict[Cause, float],
    slow: SlowCableFit | None, evidence: RunAnalysis, placements: Placements,
) -> str:  # fmt: skip
    """What is wrong and what it costs, in one sentence."""
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
    say, total = SENTENCES[cause], format_time(evidence.run.elapsed_ps)
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
    if evidence.captured:
        return f"{say}: {met} in the {total} that were captured."
    return (
        f"{say}: ranks are blocked in communication for "
        f"{percent(evidence.communication_fraction)} of the time, and {met}."
    )


def _what_is_wrong(
    cause: Cause, bars: list[WaterfallBar], slow: SlowCableFit | None, evidence: RunAnalysis,
    placements: Placements,
) -> str:  # fmt: skip
    """The first half of the headline of a cause in the network."""
    say = SENTENCES[cause]
    if cause == "slow-link":
        named = _slow_cables_named(slow, evidence)
        if named is not None:
            return named
    if cause == "other-traffic" and slow is not None:
        return f"{say}, since neither your own job nor slow cables explain the time"
    if cause == "routing" and evidence.run.scenario.fabric.routes in NON_MINIMAL_RULES:
        return "Detours in the routes overload links while other links have capacity"
    if cause == "placement" and _any_placement(bars):
        own = set(evidence.run.tables["jobs"].filter("observed")["placement"].to_list())
        tried = "even under the best placement tried"
        if own >= set(placements):
            tried = "(no other placement was tried)"
        return f"Your own traffic overloads links inside the network {tried}"
    if bars and not evidence.roots.height:
        why = _time_without_congestion(cause)
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
        rates = [f"{_link_at(link, gbps, evidence)} Gb/s" for link, gbps in slow.cables]
        which = "; ".join(rates)
    elif stated := slow_links(slow, evidence):
        count = len(stated)
        which = f"{_listed(stated)}, according to the scenario"
    else:
        return None
    many = f"{count} links run slower than they should"
    return f"{many if count > 1 else SENTENCES['slow-link']} ({which})"


def slow_cables_explain(slow: SlowCableFit, evidence: RunAnalysis) -> str:
    """What slow cables explain of the time that was left over."""
    rate = evidence.topology.rate_gbps
    links = [
        f"{_link_at(link, gbps, evidence)} of {rate[link]:g} Gb/s" for link, gbps in slow.cables
    ]
    one = len(links) == 1
    which = "One slow cable explains" if one else f"{len(links)} slow cables explain"
    return (
        f"{which} the remaining time: {'; '.join(links)} reproduce{'s' * one} "
        f"{percent(slow.fit)} of the squared excess of your messages' times."
    )


def _time_without_congestion(cause: Cause) -> str:
    """On what the time that a cause costs is spent, when no link is congested.

    Placement may cost time on an empty network, too: more switches on the way are more latency.
    """
    if cause == "placement":
        return "on longer paths, or in queues too short to count as congestion"
    return "in queues too short to count as congestion"


def _any_placement(bars: list[WaterfallBar]) -> bool:
    """Whether the network costs our job its time, and the placement as it is adds nothing to it."""
    step = {bar.name: bar for bar in bars}
    if "network" not in step:
        return False
    least = MIN_WORTH * step["observed"].elapsed_ps
    return step["placement"].delta_ps < least <= step["network"].delta_ps


def _link_at(link: int, gbps: float, evidence: RunAnalysis) -> str:
    return f"{evidence.topology.name[link]} at about {gbps:.0f}"


def _listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return "; ".join(names[:NAMES_SHOWN]) + more


def finding_costs_little(finding: Finding, cost: float) -> str:
    """A rule found congestion that costs hardly any time."""
    return (
        f"{finding.code} found congestion in the simulation, where {finding.cause} costs only "
        f"{percent(cost, 1)} of the time."
    )


def model_takes_longer(share: float) -> str:
    """The simulated time exceeds that of the run by ``share``."""
    return (
        f"The simulation takes at least {percent(share)} longer than the run itself: the "
        "scenario's buffers, packet size or injection rate differ from the real network's, and the "
        "verdict may rest on contention that did not happen."
    )


def unexplained_time(share: float) -> str:
    """``share`` of the time has no known cause."""
    return (
        f"{percent(share)} of the time is unexplained. Possible reasons: other jobs, or a fabric "
        "that differs from its description."
    )


def cost_without_congestion(cause: Cause, cost: float) -> str:
    """A cause costs time although no link is congested."""
    return (
        f"Re-simulation attributes {percent(cost)} of the time to {cause}, but no link is "
        f"congested: the time is spent {_time_without_congestion(cause)}."
    )


def cost_despite_samples(cause: Cause, cost: float) -> str:
    """A cause costs time although the samples show little congestion."""
    return (
        f"The samples show little congestion, yet re-simulation attributes {percent(cost)} of the "
        f"time to {cause}."
    )


def verdict_follows_time(
    by_rules: Cause, by_time: Cause, cost: dict[Cause, float], *, with_log: bool
) -> str:
    """Congestion trees point to one cause and re-simulation to another."""
    seen = "Congestion trees and message log" if with_log else "Congestion trees"
    return (
        f"{seen} point to {by_rules}, but re-simulation attributes {percent(cost[by_time])} of the "
        f"time to {by_time} and {percent(cost[by_rules])} to {by_rules}. The verdict follows the "
        "time."
    )


def samples_sentence(evidence: RunAnalysis, carried: str, shortage: str | None) -> str:
    """How far the samples can be trusted.

    Args:
        evidence: The run.
        carried: Scheme and bits of the telemetry.
        shortage: What TB005 advises; None where there are enough samples.
    """
    if not evidence.crosses:
        return "None of your messages crosses the network, so there is nothing to sample."
    if shortage is not None:
        return f"{shortage} Telemetry: {carried}."
    return (
        f"The samples ({carried}) are conclusive for {evidence.links_sure} of "
        f"{evidence.links_seen} links; {percent(evidence.unsure_share)} of the congested packets "
        f"are on links or in trees where they are not, {_why_open_is_harmless(evidence)}."
    )


def _why_open_is_harmless(evidence: RunAnalysis) -> str:
    """Why TB005 does not report what the samples leave open."""
    if evidence.unsure_share <= MAX_UNSETTLED_SHARE:
        return "too few to matter"
    return "not enough to make another cause the heaviest"
