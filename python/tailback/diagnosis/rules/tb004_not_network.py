"""TB004: the network is not the cause."""

from __future__ import annotations

from tailback.diagnosis import rule_wording as wording
from tailback.diagnosis.confidence import LINE_BOUND
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.rules.tb008_injection import is_quiet
from tailback.diagnosis.run_analysis import RunAnalysis

LITTLE_COMMUNICATION = 0.05
"""Share of rank time in communication below which the network cannot be the cause."""


@RULES.register("TB004")
def not_network(evidence: RunAnalysis) -> Finding | None:
    """Not the network: nothing significant is congested, or little time is spent communicating.

    ## What it does
    Fires in one of four cases:

    - No link is significantly congested.
    - Few are (under 1 % of the links you use), and less than 2 % of your packet-hops met
      congestion (the upper 95 % bound counts).
    - Ranks are blocked in communication for less than 5 % of their time.
    - None of your messages crosses a switch.

    Does not fire where sending at line rate takes at least half of the time: that is TB008.

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
    met = wording.met_congestion(overall.value, overall.high)
    if busy < LITTLE_COMMUNICATION:
        text = wording.little_communication(busy, None if quiet else overall.value)
        advice = wording.LOOK_AT_COMPUTATION
    elif evidence.captured:
        text, advice = wording.quiet_capture(met), wording.LOOK_AT_PROGRAMS
    else:
        text, advice = wording.quiet_network(met, busy), wording.LOOK_AT_LATENCY
    return evidence.finding("TB004", "not-network", wording.NO_COST, text, roots.clear(), advice)


def _within_hosts(evidence: RunAnalysis) -> Finding:
    """Ranks that communicate share hosts, so the network cannot delay them."""
    return evidence.finding(
        "TB004",
        "not-network",
        wording.WITHIN_HOSTS,
        wording.STAYS_WITHIN_HOSTS,
        evidence.roots.clear(),
        wording.LOOK_WITHIN_HOSTS,
    )
