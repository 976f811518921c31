"""TB007: a link is slower than its equivalents, or than its own line rate."""

from __future__ import annotations

import numpy as np
import polars as pl

from tailback.diagnosis import rule_wording as wording
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import MIN_SHARE, RULES
from tailback.diagnosis.run_analysis import RunAnalysis


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
        text = wording.slow_node(name, float(fastest[node]), float(np.nanmedian(fastest)))
    elif evidence.network is not None:
        link, count = int(roots["link"][0]), roots["link"].n_unique()
        name = t.name[link]
        text = wording.filled_slow_link(
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
        text = wording.slow_link(
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
        wording.SLOW_LINK,
        text,
        roots,
        wording.check_cable(name, of_node=node is not None)
        if evidence.network is None
        else wording.CHECK_NAMED_CABLES,
    )
