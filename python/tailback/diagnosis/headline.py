"""The sentences of a verdict: its headline, and those about slow cables and short queues.

``verdict`` chooses the cause; this module only words it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tailback.diagnosis.cause_wording import INSTEAD, NAMES, SENTENCES, VERDICTS
from tailback.diagnosis.confidence import LINE_BOUND, MIN_WORTH, in_network
from tailback.diagnosis.model import Cause, Finding, Times
from tailback.units import format_time, percent

NAMES_SHOWN = 3
"""Maximum number of slow links listed in a headline."""

NOT_RULED_OUT = (
    "The simulation finds hardly any contention, but {}. This does not rule out the network, "
    "and the trace cannot show what took the time."
)

OTHERS_OR_SLOW = (
    "Links on your paths are congested, but not by your own traffic: other jobs send over them, or "
    "they run slower than they should. The samples of a capture do not tell which."
)

MARKS_ALONE = (
    "Marks show that packets met congestion, but where it fills all paths they do not tell its "
    "links apart (TB005)."
)

INTERRUPTED = "The run was interrupted: the diagnosis covers only the part before that."


@dataclass(frozen=True)
class SlowLinks:
    """Links known to be slow.

    Attributes:
        named: The links; those found by re-simulation include their rate.
        stated: Whether they are listed in the scenario; otherwise re-simulation found them.
    """

    named: list[str]
    stated: bool


@dataclass(frozen=True)
class HeadlineFacts:
    """Facts about the run for the headline, in addition to the cause and its cost.

    Attributes:
        elapsed_ps: Time of the run.
        times: Whether ``elapsed_ps`` was measured.
        simulated_again: Whether changes were re-simulated, so that causes have a cost in time.
        wire_share: Share of the time that the busiest adapter needs at its line rate to send or to
            receive its data, 0–1.
        receives: Whether that adapter receives.
        congested_share: Share of congested packet-hops, 0–1; None if it was not recorded.
        communication_fraction: Share of rank time blocked in communication, 0–1.
        captured: Whether the run is a packet capture.
        congested: Whether a link is the root of a congestion tree.
        samples: State of the samples in packets: ``decoded``, ``undecodable`` or ``none``.
        detours: Whether the routing rule uses non-minimal paths.
        longer_paths: How some of our messages have longer paths than others, in words; empty if
            all visit one switch.
        placements_tried: Whether other placements were simulated.
        gains: Share of the time that the run saves without each cause, where it was simulated.
        best_change: Name of the change that gains most, and its gain; no name if none helps, None
            if there was no search for remedies.
        slow_links: Links known to be slow, if any are.
        slow_tried: Whether slow cables were simulated to explain the time.
        accused: Links that samples show congested, most first, where no cause is sure.
        marks_alone: Whether packets are marked, but do not say by which hop.
        late_ranks: Ranks that compute longer than others, in words; empty if none does.
        total_name: What ``elapsed_ps`` is: the time of the run, or of its communication alone.
        alternatives: Causes whose removal saves mostly the same time as that of the cause.
    """

    elapsed_ps: int
    times: Times
    simulated_again: bool
    wire_share: float
    receives: bool
    congested_share: float | None
    communication_fraction: float
    captured: bool
    congested: bool
    samples: Literal["decoded", "undecodable", "none"]
    detours: bool
    longer_paths: str
    placements_tried: bool
    gains: Mapping[Cause, float]
    slow_links: SlowLinks | None
    slow_tried: bool
    accused: tuple[str, ...] = ()
    marks_alone: bool = False
    late_ranks: str = ""
    best_change: tuple[str, float] | None = None
    total_name: Literal["run time", "communication time"] = "run time"
    alternatives: tuple[Cause, ...] = ()


@dataclass(frozen=True)
class SampleFacts:
    """Facts about the quality of a run's samples.

    Attributes:
        crosses: Whether any of our messages crosses the network.
        carried: Scheme and bits of the telemetry.
        links_seen: Number of links with samples.
        links_sure: Number of these links with enough samples.
        unsure_share: Share of congested packets that remains unsettled, 0–1.
        few_unsure: Whether that share is too small to matter.
        shortage: Advice of TB005; None if there are enough samples.
    """

    crosses: bool
    carried: str
    links_seen: int
    links_sure: int
    unsure_share: float
    few_unsure: bool
    shortage: str | None


def headline(
    cause: Cause, findings: list[Finding], cost: dict[Cause, float], facts: HeadlineFacts
) -> str:
    """One sentence with the cause and its cost."""
    if cause in ("not-network", "injection", "in-host", "undetermined"):
        return _headline_without_contention(cause, findings, cost, facts)
    lead = _main_clause(cause, facts)
    if facts.simulated_again:
        part, total = percent(cost[cause]), f"{format_time(facts.elapsed_ps)} {facts.times}"
        gain = facts.gains.get(cause)
        if gain is not None and percent(gain) != percent(0.0):
            saved = f"{percent(gain)} of the {facts.total_name}"
            text = f"{lead}: without this, {saved} is saved ({total})."
            return text + _alternatives(facts) + _best_change(facts, gain)
        alone = "" if gain is None else ", but no change that was tried saves any of it"
        text = f"{lead}: this costs {part} of the {facts.total_name} ({total}){alone}."
        return text + _best_change(facts, 0.0)
    share = sum(finding.share for finding in findings if finding.cause == cause)
    if not share:
        return f"{lead}."
    return f"{lead}: {percent(share)} of the congested packets wait because of this."


LISTED = 0.05
"""Smallest probability of a candidate to be listed, beside the most probable one."""


def open_causes(chances: Mapping[Cause, float], facts: HeadlineFacts) -> str:
    """The sentence of a run of which no cause is sure: candidates, probabilities and gains."""
    likely = sorted(chances, key=lambda cause: (-chances[cause], cause))
    listed = [cause for cause in likely if chances[cause] >= LISTED] or likely[:1]
    candidates = []
    for cause in listed:
        saved = percent(facts.gains.get(cause, 0.0))
        gain = f", saves {saved}" if saved != percent(0.0) else ""
        candidates.append(f"{VERDICTS[cause].lower()} ({percent(chances[cause])}{gain})")
    total = f"{format_time(facts.elapsed_ps)} {facts.times}"
    most = max(facts.gains.get(cause, 0.0) for cause in listed)
    text = f"No cause of the time is sure ({total}): {', '.join(candidates)}."
    return text + _best_change(facts, most) + (_where(facts) if facts.marks_alone else "")


def _where(facts: HeadlineFacts) -> str:
    """Sentence on the links that samples surely show congested; empty if there are none."""
    return f" Most congested: {'; '.join(facts.accused)}." if facts.accused else ""


def _headline_without_contention(
    cause: Cause, findings: list[Finding], cost: dict[Cause, float], facts: HeadlineFacts
) -> str:
    """Headline if there is no contention, or the cause is undetermined."""
    lead, total = SENTENCES[cause], format_time(facts.elapsed_ps)
    if cause == "in-host":
        if not facts.simulated_again:
            return f"{lead}."
        part = percent(cost[cause])
        return f"{lead}: they cost {part} of the {facts.total_name} ({total} {facts.times})."
    if cause == "injection":
        needs, does = percent(facts.wire_share), "to receive" if facts.receives else "for"
        text = f"{lead}: the busiest one needs {needs} of the {total} just {does} its data."
        return text + _best_change(facts, 0.0)
    if cause == "undetermined":
        where = _where(facts)
        if any(finding.code == "TB005" for finding in findings):
            if facts.marks_alone:
                return f"{MARKS_ALONE}{where}"
            return f"{lead}: see TB005 for how many more are needed."
        if facts.captured and any(finding.cause == "other-traffic" for finding in findings):
            return f"{OTHERS_OR_SLOW}{where}"
        return f"{lead}."
    if facts.simulated_again:
        part = percent(sum(in_network(cost).values()), 1)
        text = f"contention accounts for only {part} of {total}"
        if facts.communication_fraction < LINE_BOUND:
            return f"{lead}: {text}."
        return (
            f"Contention is not what limits the run: {text}. Ranks are in communication for "
            f"{percent(facts.communication_fraction)} of the time, and it takes as long on an idle "
            "network: only faster links, fewer bytes, or messages that overlap would shorten it."
        )
    met = "congestion was not recorded"
    if facts.congested_share is not None:
        met = f"{percent(facts.congested_share)} of packet-hops met congestion"
    if facts.captured:
        return f"{lead}: {met} in the {total} that were captured."
    return (
        f"{lead}: ranks are blocked in communication for "
        f"{percent(facts.communication_fraction)} of the time, and {met}."
    )


def _alternatives(facts: HeadlineFacts) -> str:
    """Sentence on what else may be removed to save mostly the same time; empty if nothing."""
    named = [
        f"{INSTEAD[cause]} ({percent(facts.gains.get(cause, 0.0))})" for cause in facts.alternatives
    ]
    return f" Mostly the same time is saved by {' or '.join(named)} instead." if named else ""


def _best_change(facts: HeadlineFacts, gain: float) -> str:
    """Sentence on the change that saves most, if that is clearly more than ``gain``; else empty."""
    if facts.best_change is None:
        changes: tuple[Cause, ...] = ("placement", "routing")
        cause = max(changes, key=lambda cause: facts.gains.get(cause, 0.0))
        name, saved = f"Another {NAMES[cause]}", facts.gains.get(cause, 0.0)
    else:
        name, saved = f"Of the changes tried, {facts.best_change[0]}", facts.best_change[1]
    worth = saved >= gain + MIN_WORTH
    return (
        f" {name} saves {'most: ' * (facts.best_change is not None)}{percent(saved)}."
        if worth
        else ""
    )


def _main_clause(cause: Cause, facts: HeadlineFacts) -> str:
    """First half of the headline for a cause in the network."""
    lead = SENTENCES[cause]
    if cause == "slow-link" and facts.slow_links is not None:
        return _slow_links_named(facts.slow_links)
    if cause == "imbalance":
        return f"{lead} ({facts.late_ranks})"
    if cause == "other-traffic" and facts.slow_tried:
        return f"{lead}, since neither your own job nor slow cables explain the time"
    if cause == "routing" and facts.detours:
        return "Detours in the routes overload links while other links have capacity"
    if cause == "capacity":
        tried = "under the best placement tried, too"
        if not facts.placements_tried:
            tried = "no other placement was tried"
        return f"{lead} ({tried})"
    if facts.simulated_again and not facts.congested:
        why = _time_without_congestion(cause, facts.longer_paths)
        if facts.samples == "undecodable":
            why = "but the packet headers cannot be decoded, so they do not show where"
        elif facts.samples == "none":
            why = "but no packet carried a sample that could show where"
        return f"Re-simulation points to {cause}, {why}"
    return lead


def _slow_links_named(links: SlowLinks) -> str:
    """Which links are slow."""
    count = len(links.named)
    which = "; ".join(links.named)
    if links.stated:
        which = f"{_listed(links.named)}, as the fabric states"
    many = f"{count} links run slower than they should"
    return f"{many if count > 1 else SENTENCES['slow-link']} ({which})"


def link_rate(name: str, gbps: float) -> str:
    """A slow link and the rate that re-simulation gives it."""
    return f"{name} at about {gbps:.0f}"


def slow_cables_explain(links: list[tuple[str, float, float]], fit: float) -> str:
    """How much of the unexplained time slow cables explain.

    Args:
        links: Name, rate found and rate that the fabric states, in Gb/s, of each.
        fit: Share of the squared excess of our messages' times that they reproduce, 0–1.
    """
    shown = [f"{link_rate(name, gbps)} of {rate:g} Gb/s" for name, gbps, rate in links]
    single = len(shown) == 1
    which = "One slow cable explains" if single else f"{len(shown)} slow cables explain"
    return (
        f"{which} the remaining time: {'; '.join(shown)} reproduce{'s' * single} "
        f"{percent(fit)} of the squared excess of your messages' times."
    )


def _time_without_congestion(cause: Cause, longer_paths: str) -> str:
    """Where the time of a cause is spent if no link is congested.

    Placement costs time even on an empty network: more switches on the path add latency.
    """
    if cause == "placement" and longer_paths:
        return f"{longer_paths}, or in queues too short to count as congestion"
    return "in queues too short to count as congestion"


def _listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return "; ".join(names[:NAMES_SHOWN]) + more


def finding_costs_little(finding: Finding, cost: float) -> str:
    """A rule found congestion, but it costs hardly any time."""
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


def samples_sentence(samples: SampleFacts) -> str:
    """One sentence on the quality of the samples."""
    if not samples.crosses:
        return "None of your messages crosses the network, so there is nothing to sample."
    if samples.shortage is not None:
        return f"{samples.shortage} Telemetry: {samples.carried}."
    # Why TB005 does not report the uncertain links.
    harmless = "not enough to make another cause the heaviest"
    if samples.few_unsure:
        harmless = "too few to matter"
    return (
        f"The samples ({samples.carried}) are conclusive for {samples.links_sure} of "
        f"{samples.links_seen} links; {percent(samples.unsure_share)} of the congested packets "
        f"are on other links or in unsettled trees, {harmless}."
    )
