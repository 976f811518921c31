"""TB007: a link is slower than its equivalents, or than its own line rate."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import MIN_SHARE, RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.units import percent, rate_of_rate

SLOW_LINK: Final = "Slow link: a link runs slower than it should"


CHECK_NAMED_CABLES = (
    "Ask the operators to check the cables that the measured run shows to be slow (speed, width, "
    "error counters); avoid them until then."
)
"""TB007: advice for an expected run; several cables may fit the evidence."""


@RULES.register("TB007")
def slow_link(evidence: RunAnalysis) -> Finding | None:
    """Slow link: a link is slower than its equivalents or its line rate.

    ## What it does
    Fires when the root of a congestion tree carries measurably less of your traffic than it could
    (as in TB003), and its cable is proved to be slower than equivalent ones:

    - Inside the network, the equivalent links carry as much of your traffic and are congested at
      most a quarter as often. Chance would produce such a difference on any link in at most one
      run of twenty. A slow cable there explains at least 35 % of the squared lateness of your
      messages, and as much as any other cable.
    - At a node, no large message of the node reaches 60 % of the rate of the median node's, which
      reaches 80 % of the line rate.

    Also fires without congestion when all large messages of one node are that slow, sent and
    received, with at least three partners, and every other node reaches 80 %. Without a message
    log no cable is called slow. In the expected run of a measured one, only links fire that the
    evidence shows to be slow.

    ## Why it matters
    A cable with errors, fewer lanes or a lower speed delays all traffic on it, and the application
    sees only random slowness. One in a thousand slows down a job that waits for its last message.

    ## Example
    Seven of a leaf's eight up-links carry 60 Gb/s each without a queue; the eighth carries 25 Gb/s
    and nearly every packet meets congestion there.

    ## What to do
    Give the list to the operators: they should check speed, width and error counters of the cable
    (`tailback collect` reads them) and reseat or replace it. Until then exclude its node from the
    allocation.
    """
    roots = evidence.roots.filter(pl.col("verdict") == "slow")
    share = evidence.share(roots)
    node = evidence.slow_node
    if share < MIN_SHARE and node is None:
        return None
    t = evidence.topology
    if node is not None:
        name = str(evidence.run.tables["nodes"].sort("node")["name"][node])
        fastest = evidence.adapters.fastest
        text = slow_node(name, float(fastest[node]), float(np.nanmedian(fastest)))
    elif evidence.network is not None:
        link, count = int(roots["link"][0]), roots["link"].n_unique()
        name = t.name[link]
        text = filled_slow_link(
            share,
            count,
            name,
            evidence.network.slow_gbps[link],
            float(t.rate_gbps[link]),
            float(roots["utilization"][0]),
        )
    else:
        link, count = int(roots["link"][0]), roots["link"].n_unique()
        name = t.name[link]
        text = slow_link_sentence(
            share,
            count,
            name,
            float(evidence.whole.fraction[link]),
            min(float(roots["utilization_high"][0]), 1.0),
            None if t.to_node[link] else evidence.explained(link),
        )
    return evidence.finding(
        "TB007",
        "slow-link",
        SLOW_LINK,
        text,
        roots,
        check_cable(name, of_node=node is not None)
        if evidence.network is None
        else CHECK_NAMED_CABLES,
    )


def slow_node(name: str, fastest: float, median: float) -> str:
    """TB007: all large messages of one node are slow; rates as shares of the line rate."""
    return (
        f"No large message to or from {name} got more than {percent(fastest)} of the line rate, "
        f"though those of the median node reach {percent(median)}: its cable is slow."
    )


def slow_link_sentence(
    share: float, links: int, heaviest: str, fraction: float, most: float, explained: float | None
) -> str:
    """TB007: links that run slower than equivalent ones.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        heaviest: Name of the heaviest.
        fraction: Its congested fraction.
        most: Upper bound of its utilization by our traffic.
        explained: Share of the squared lateness that its cable explains; None if it leads into one
            of our nodes.
    """
    why = (
        "it leads into one of your nodes, to which no other job sends, and no large message of "
        "that node is fast, although those of other nodes are"
        if explained is None
        else "equivalent links carry as much of your traffic and are hardly congested, and this "
        f"cable alone explains {percent(explained)} of the squared lateness of your messages"
    )
    slow, which = (
        ("1 link that runs slower than it should", "This link")
        if links == 1
        else (f"{links:,} links that run slower than they should", "The heaviest")
    )
    return (
        f"{percent(share)} of the congested packets wait for {slow}. {which}, {heaviest}, has a "
        f"congested fraction of {percent(fraction)} but carries your traffic at no more than "
        f"{percent(most)} of its line rate. Other traffic is not the reason: {why}."
    )


def filled_slow_link(
    share: float, links: int, heaviest: str, gbps: float, nominal_gbps: float, use: float
) -> str:
    """TB007: links of an expected run that are slow according to the evidence.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        heaviest: Name of the heaviest.
        gbps: Rate at which it serves.
        nominal_gbps: Its nominal rate.
        use: Its utilization by our traffic, as a share of the rate at which it serves.
    """
    slow = "1 link that is" if links == 1 else f"{links:,} links that are"
    return (
        f"{percent(share)} of the congested packets wait for {slow} slow according to the "
        f"evidence: {heaviest} serves {rate_of_rate(gbps, nominal_gbps)}, and your own traffic "
        f"fills it to {percent(min(use, 1.0))} of that."
    )


def check_cable(name: str, *, of_node: bool) -> str:
    """TB007: advice for the cable of a node or of a link."""
    cable = f"cable of {name}" if of_node else f"cable {name}"
    return (
        f"Ask the operators to check the {cable} (speed, width, error counters); avoid it until "
        "then."
    )
