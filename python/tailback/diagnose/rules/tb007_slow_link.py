"""TB007: a link serves less than its equivalents, or than its own line rate."""

from __future__ import annotations

import numpy as np
import polars as pl

from tailback.diagnose.model import Finding
from tailback.diagnose.rules import MIN_SHARE, RULES
from tailback.diagnose.run_analysis import RunAnalysis
from tailback.units import percent


@RULES.register("TB007")
def slow_link(evidence: RunAnalysis) -> Finding | None:
    """Slow link: a link serves less than its equivalents or its line rate.

    ## What it does
    Fires when the root of a congestion tree carries measurably less of our traffic than it could
    (as in TB003), and there is proof that its cable serves less than equal cables do. Inside the
    network three things must hold: the links that could take its place carry as much of our traffic
    and are congested at most a quarter as often; chance would show such a difference on any link of
    the run in at most one run of twenty; and one slow cable there explains at least 35 % of the
    squared lateness of our messages, and as much as any other cable. Into a node of ours nobody
    else sends: there no large message of the node may reach 60 % of what the median node's do, and
    those must reach 80 % of the line rate. Without a message log no cable is called slow.

    It also fires, without any congestion, when all large messages of one node, out and in, to at
    least three partners, are slow: the fastest reaches under 60 % of what the median node's does,
    while every other node reaches 80 % of that. With static routing the cable of that node must
    explain the lateness of our messages, too.

    ## Why it matters
    A cable with errors, or one that came up with fewer lanes or at a lower speed, holds up everyone
    who is routed over it, and looks to the application like bad luck. One such cable in a thousand
    is enough to slow down a job that waits for its last message.

    ## Example
    Of eight up-links of a leaf seven take 60 Gb/s each without a queue; the eighth takes 25 Gb/s
    and nearly every packet meets congestion there.

    ## What to do
    Give the list to the operators: look at speed, width and error counters of the cable
    (`tailback collect` reads them), reseat or replace it, and until then keep its node out of the
    allocation.
    """
    roots = evidence.roots.filter(pl.col("verdict") == "slow")
    share = evidence.share(roots)
    node = evidence.slow_node
    if share < MIN_SHARE and node is None:
        return None
    t = evidence.topology
    if node is not None:
        name = evidence.run.tables["nodes"].sort("node")["name"]
        text = (
            f"No large message to or from {name[node]} got more than "
            f"{percent(evidence.adapters.fastest[node])} of the line rate, though those of the "
            f"median node reach {percent(float(np.nanmedian(evidence.adapters.fastest)))}: its own "
            f"cable serves less"
        )
        where = f"the cable of {name[node]}"
    else:
        link, count = int(roots["link"][0]), roots["link"].n_unique()
        most = min(float(roots["utilization_high"][0]), 1.0)
        dark = evidence.whole.fraction[link]
        why = (
            "it leads into a node of ours, to which nobody else sends, and no large message of "
            "that node is fast, though other nodes' are"
            if t.to_node[link]
            else "the links that could take its place carry as much of our traffic and are hardly "
            f"congested, and this cable alone explains {percent(evidence.explained(link))} of the "
            "squared lateness of our messages"
        )
        text = (
            f"{percent(share)} of the congested packets wait for {count} "
            f"{'link' if count == 1 else 'links'} that take less than they should. The heaviest, "
            f"{t.name[link]}, has a congested fraction of {percent(dark)} and takes at most "
            f"{percent(most)} of its line rate from us; that is not the traffic of others, for "
            f"{why}"
        )
        where = f"the cable {t.name[link]}"
    return evidence.finding(
        "TB007",
        "slow-link",
        "Slow link: a link serves less than it should",
        text + ".",
        roots,
        f"Have {where} looked at: speed, width, error counters; keep off it until then.",
    )
