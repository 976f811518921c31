"""TB004: the network is not what takes the time."""

from __future__ import annotations

from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.rules.tb008_injection import LINE_BOUND, is_quiet, met_congestion
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.units import percent

LITTLE_COMMUNICATION = 0.05
"""Below this share of rank time in communication, the network cannot be what costs the time."""


@RULES.register("TB004")
def not_network(evidence: RunAnalysis) -> Finding | None:
    """Not the network: nothing significant is congested, or little time is spent communicating.

    ## What it does
    Fires when no link is significantly congested; when few are (under 1 % of the links you use) and
    less than 2 % of your packet-hops met congestion (the upper 95 % bound counts); when ranks are
    blocked in communication for less than 5 % of their time; or when none of your messages crosses
    a switch. A small share of packets alone is not enough: a job waits for its last packet. Does
    not fire where sending at line rate takes at least half of the time: that is TB008.

    ## Why it matters
    A waiting rank does not prove that the network is slow: it may be waiting for a late partner.
    Tuning placement or traffic then gains nothing.

    ## Example
    Ranks compute for 10 ms and exchange for 0.1 ms; or the exchange takes long although no packet
    had to queue, because one rank computes longer than the others.

    ## What to do
    Look at computation, load balance and message latency (many small messages) instead.
    """
    busy, overall = evidence.communication_fraction, evidence.overall
    if not evidence.crosses:
        return _within_hosts(evidence)
    if not evidence.received:
        return None
    roots = evidence.roots
    if evidence.wire_share >= LINE_BOUND and busy >= LITTLE_COMMUNICATION:
        return None
    quiet = is_quiet(evidence)
    if not quiet and busy >= LITTLE_COMMUNICATION:
        return None
    if busy < LITTLE_COMMUNICATION:
        text = f"Ranks are blocked in communication for {percent(busy, 1)} of their time"
        if not quiet:
            text += (
                f"; {percent(overall.value, 1)} of the packet-hops met congestion, which can cost "
                "no more than that"
            )
        advice = "Look at computation and load balance."
    elif evidence.captured:
        text = f"{met_congestion(evidence)} while packets were captured"
        advice = "Look at the programs: their messages did not wait for the network."
    else:
        text = (
            f"{met_congestion(evidence)}, while ranks are blocked for {percent(busy)} of their "
            "time: they wait for each other, or are limited by latency and line rate, not by "
            "congestion"
        )
        advice = "Look at load balance, data volume and the latency of small messages."
    return evidence.finding(
        "TB004", "not-network", "Not the network: congestion does not cost the time", text + ".",
        roots.clear(), advice,
    )  # fmt: skip


def _within_hosts(evidence: RunAnalysis) -> Finding:
    """Ranks that talk share hosts: there is nothing that the network could hold up."""
    return evidence.finding(
        "TB004", "not-network", "Not the network: none of your messages crosses it",
        "No message of an observed job crosses a switch: all communication stays within hosts, or "
        "there is none.",
        evidence.roots.clear(),
        "Look at load balance and within the hosts: memory, sockets, processors.",
    )  # fmt: skip
