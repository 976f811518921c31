"""TB004: the network is not the cause."""

from __future__ import annotations

from typing import Final

from tailback.diagnosis.confidence import LINE_BOUND
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.rules.tb008_injection import is_quiet
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.wording import met_congestion
from tailback.units import percent

NO_COST: Final = "Not the network: congestion does not cost the time"


WITHIN_HOSTS: Final = "Not the network: none of your messages crosses it"


LOOK_AT_COMPUTATION: Final = "Look at computation and load balance."


LOOK_AT_PROGRAMS: Final = "Look at the programs: their messages did not wait for the network."


LOOK_AT_LATENCY: Final = "Look at load balance, data volume and the latency of small messages."


LOOK_WITHIN_HOSTS: Final = "Look at load balance and within the hosts: memory, sockets, processors."


STAYS_WITHIN_HOSTS: Final = (
    "No message of an observed job crosses a switch: all communication stays within hosts, or "
    "there is none."
)

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
    met = met_congestion(overall.value, overall.high)
    if busy < LITTLE_COMMUNICATION:
        text = little_communication(busy, None if quiet else overall.value)
        advice = LOOK_AT_COMPUTATION
    elif evidence.captured:
        text, advice = quiet_capture(met), LOOK_AT_PROGRAMS
    else:
        text, advice = quiet_network(met, busy), LOOK_AT_LATENCY
    return evidence.finding("TB004", "not-network", NO_COST, text, roots.clear(), advice)


def _within_hosts(evidence: RunAnalysis) -> Finding:
    """Ranks that communicate share hosts, so the network cannot delay them."""
    return evidence.finding(
        "TB004",
        "not-network",
        WITHIN_HOSTS,
        STAYS_WITHIN_HOSTS,
        evidence.roots.clear(),
        LOOK_WITHIN_HOSTS,
    )


def little_communication(busy: float, met: float | None) -> str:
    """TB004: ranks are rarely blocked; ``met``: share of packet-hops that met congestion."""
    text = f"Ranks are blocked in communication for {percent(busy, 1)} of their time"
    if met is None:
        return f"{text}."
    return (
        f"{text}; {percent(met, 1)} of the packet-hops met congestion, which can cost no more than "
        "that."
    )


def quiet_capture(met: str) -> str:
    """TB004: nothing is congested in captured packets; ``met`` from :func:`met_congestion`."""
    return f"{met} while packets were captured."


def quiet_network(met: str, busy: float) -> str:
    """TB004: nothing is congested, though ranks wait."""
    return (
        f"{met}, while ranks are blocked for {percent(busy)} of their time: they wait for each "
        "other, or are limited by latency and line rate, not by congestion."
    )
