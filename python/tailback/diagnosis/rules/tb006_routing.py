"""TB006: your own traffic fills a link while equivalent links are idle."""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.diagnosis.model import Finding
from tailback.diagnosis.root_utilization import FULL_UTILIZATION
from tailback.diagnosis.rules import MIN_SHARE, RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.units import counted, percent

ROUTING: Final = "Routing imbalance: links are full while equivalent ones are not"


SPREAD_TRAFFIC: Final = "Spread this traffic over the equivalent links with multipath routing."


@RULES.register("TB006")
def routing(evidence: RunAnalysis) -> Finding | None:
    """Routing imbalance: a link is full while equivalent links are not.

    ## What it does
    Fires when roots of congestion trees are inside the network, your own traffic fills them (at
    least 70 % of the line rate while they were congested), and their bundle, the links that could
    carry the same traffic, is not full as a whole.

    ## Why it matters
    There is capacity, but the routes do not use it: several flows share one link. The placement is
    not at fault, though another one may avoid the collisions by chance.

    ## Example
    A random permutation on a full-bisection fat tree with static routes: two or three flows of a
    leaf share one up-link at line rate, next to up-links that carry nothing.

    ## What to do
    Ask for another set of routes, or adaptive routing. Neither is certain to help: next to other
    jobs, adaptive routing spreads their full buffers to all paths. `tailback diagnose` simulates
    adaptive routing, VC routing and other rules of the topology with the traffic of all jobs, and
    recommends only what is faster. Otherwise try other placements.
    """
    roots = evidence.roots.filter(pl.col("verdict") == "routing")
    share = evidence.share(roots)
    if share < MIN_SHARE:
        return None
    t = evidence.topology
    link, count = int(roots["link"][0]), roots["link"].n_unique()
    use = min(float(roots["utilization"][0]), 1.0)
    mates = t.bundle == t.bundle[link]
    packets = evidence.whole.packets
    idle = int((packets[mates] < 0.5 * packets[link]).sum())
    text = routing_sentence(share, count, t.name[link], use, idle, int(mates.sum()) - 1)
    return evidence.finding("TB006", "routing", ROUTING, text, roots, SPREAD_TRAFFIC)


def routing_sentence(
    share: float, links: int, heaviest: str, use: float, idle: int, equivalents: int
) -> str:
    """TB006: links are full while equivalent links are not.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        heaviest: Name of the heaviest.
        use: Its utilization by our traffic.
        idle: Its equivalents with less than half of its packets.
        equivalents: All its equivalents.
    """
    return (
        f"{percent(share)} of the congested packets wait for {counted(links, 'link')} inside the "
        f"network that your own traffic fills while equivalent links are not full. The heaviest, "
        f"{heaviest}, is {percent(use)} used (≥ {percent(FULL_UTILIZATION)} counts as full); "
        f"{idle} of its {equivalents} equivalents carried less than half as many of your packets."
    )
