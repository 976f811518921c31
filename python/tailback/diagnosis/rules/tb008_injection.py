"""TB008: the adapters send at line rate, and the network does not slow them down."""

from __future__ import annotations

from typing import Final

from tailback.diagnosis.confidence import LINE_BOUND
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.wording import met_congestion
from tailback.units import percent

INJECTION: Final = "Injection limit: adapters send at line rate"


SEND_LESS: Final = "Send less, keep more traffic within the node, or overlap it with computation."

NEGLIGIBLE = 0.02
"""Congested packet-hops below this share of all packet-hops count as few."""

FEW_LINKS = 0.01
"""Congested links below this share of the links we use count as few."""


@RULES.register("TB008")
def injection(evidence: RunAnalysis) -> Finding | None:
    """Injection limit: adapters send at line rate all the time, and nothing is congested.

    ## What it does
    Fires when your busiest adapter needs at least half of the run time to send its bytes at line
    rate, and no link is significantly congested (as in TB004). It needs the message log.

    ## Why it matters
    The run takes as long as its data needs at line rate. Another placement, other routes or quieter
    neighbours do not make an adapter faster.

    ## Example
    Every rank sends 1 MiB to its neighbour in a ring: 84 µs at 100 Gb/s, and the exchange takes
    86 µs. No packet waits in a switch.

    ## What to do
    Send less (smaller halos, lower precision, compression), keep more traffic within the node,
    overlap it with computation, or use more adapters or nodes.
    """
    if evidence.wire_share < LINE_BOUND or not evidence.received or not is_quiet(evidence):
        return None
    sent = evidence.adapters.wire_ps
    node = int(sent.argmax())
    name = str(evidence.run.tables["nodes"].sort("node")["name"][node])
    rate = float(evidence.adapters.rate_gbps[node])
    met = met_congestion(evidence.overall.value, evidence.overall.high)
    return evidence.finding(
        "TB008",
        "injection",
        INJECTION,
        injection_sentence(name, evidence.wire_share, rate, met),
        evidence.roots.clear(),
        SEND_LESS,
    )


def is_quiet(evidence: RunAnalysis) -> bool:
    """Whether no link is significantly congested, or too few to matter."""
    hot = int(evidence.whole.congested.sum())
    few = evidence.overall.high < NEGLIGIBLE and hot < FEW_LINKS * evidence.links_seen
    return few or (not evidence.roots.height and not evidence.uncertainty_matters)


def injection_sentence(adapter: str, share: float, rate_gbps: float, met: str) -> str:
    """TB008: the busiest adapter, its share of the run time, its rate."""
    return (
        f"Adapter {adapter} needs {percent(share)} of the time to send its data at {rate_gbps:g} "
        f"Gb/s, and {met}: the network does not slow it down."
    )
