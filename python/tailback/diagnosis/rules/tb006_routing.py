"""TB006: your own traffic fills a link while equivalent links are idle."""

from __future__ import annotations

import polars as pl

from tailback.diagnosis import rule_wording as wording
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import MIN_SHARE, RULES
from tailback.diagnosis.run_analysis import RunAnalysis


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
    text = wording.routing(share, count, t.name[link], use, idle, int(mates.sum()) - 1)
    return evidence.finding(
        "TB006", "routing", wording.ROUTING, text, roots, wording.SPREAD_TRAFFIC
    )
