"""TB003: congestion that our own traffic cannot have caused."""

from __future__ import annotations

import polars as pl

from tailback.diagnose.model import Finding
from tailback.diagnose.root_utilization import FULL_UTILIZATION
from tailback.diagnose.rules import MIN_SHARE, RULES
from tailback.diagnose.run_analysis import RunAnalysis
from tailback.units import counted, percent


@RULES.register("TB003")
def other_traffic(evidence: RunAnalysis) -> Finding | None:
    """Other traffic: links are congested that we hardly use.

    ## What it does
    Fires when roots of congestion trees, inside the network or at nodes, carry measurably less of
    our traffic than they could: the upper 95 % bound of their utilization by us, in the time they
    were congested and our messages were under way, is below 70 % of the line rate, while at least
    30 % of our packets met congestion there. Thin links with less congestion than that are left
    out: short bursts of our own look the same. So are links that may be waiting for another
    congested link of ours further on.

    ## Why it matters
    The root of a congestion tree is fully used (theorem 4.2 of the thesis). If not by us, then by
    somebody we cannot see: in a congested-fraction plot these are the dark and thin links. It may
    be better next time without any change to the application.

    ## Example
    A ring exchange with good locality shares a tapered fat tree with a job of random traffic. Down
    into one leaf the congested fraction is high though the ring uses under 30 Gb/s of each
    100 Gb/s link: two nodes of that leaf, which are not ours, are overrun.

    ## What to do
    Run again at another time or on other nodes, ask for an allocation of whole switches, and show
    the list of links to the operators. A placement that keeps off the links listed helps too:
    `tailback diagnose` tries the same hosts shifted, and without those of congested leaves where
    there are hosts to spare. Where it is full buffers that block us, explicit rates for all jobs'
    messages are proved as well; that is for operators.
    """
    roots = evidence.roots.filter(pl.col("verdict") == "others")
    share = evidence.share(roots)
    if share < MIN_SHARE:
        return None
    t = evidence.topology
    first = roots.row(0, named=True)
    link, count = int(first["link"]), roots["link"].n_unique()
    average = float((roots["utilization"] * roots["weight"]).sum()) / float(roots["weight"].sum())
    most = min(float(first["utilization_high"]), 1.0)
    text = (
        f"{percent(share)} of the congested packets wait for {counted(count, 'link')} "
        "of which our own "
        f"traffic takes {percent(average)} of the line rate while they are congested. The "
        f"heaviest, {t.name[link]}, has a congested fraction of "
        f"{percent(evidence.whole.fraction[link])}, and with 95 % confidence we use at most "
        f"{percent(most)} of it (< {percent(FULL_UTILIZATION)} is not full). A congested root is "
        "full, so "
        "the rest is not our traffic."
    )
    resolution = _resolution_note(evidence)
    return evidence.finding(
        "TB003",
        "other-traffic",
        "Other traffic: links are congested that we hardly use",
        text + resolution,
        roots,
        "Run again at another time, or ask for nodes away from the links listed.",
    )


def _resolution_note(evidence: RunAnalysis) -> str:
    """Warn where neither windows nor a message log could see short bursts."""
    if evidence.activity.known:
        return ""
    return (
        " Without a message log, bursts of our own that are shorter than a time window would look "
        "the same."
    )
