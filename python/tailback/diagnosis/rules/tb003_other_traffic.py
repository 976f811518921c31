"""TB003: congestion that our own traffic cannot have caused."""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.diagnosis.model import Finding
from tailback.diagnosis.root_utilization import FULL_UTILIZATION
from tailback.diagnosis.rules import MIN_SHARE, RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.units import counted, percent

OTHER_TRAFFIC: Final = "Other traffic: congested links that your job hardly uses"


GO_ELSEWHERE: Final = "Run again at another time, or request nodes away from the listed links."


@RULES.register("TB003")
def other_traffic(evidence: RunAnalysis) -> Finding | None:
    """Other traffic: congested links that your job hardly uses.

    ## What it does
    Fires when roots of congestion trees carry measurably less of your traffic than they could.
    While they were congested and your messages were in flight, the upper 95 % bound of your
    utilization is below 70 % of the line rate, and at least 30 % of your packets met congestion
    there. Links that may wait for another congested link of yours are left out.

    In the expected run of a measured one, the rule fires only if the evidence shows other jobs.

    ## Why it matters
    The root of a congestion tree is fully used (Taffet, 2019, theorem 4.2). If not by your job,
    then by traffic that was not recorded. The next run may be faster without any change.

    ## Example
    A ring exchange shares a tapered fat tree with a job of random traffic. Down into one leaf the
    congested fraction is high though the ring uses less than 30 Gb/s of each 100 Gb/s link: two
    nodes of that leaf belong to the other job and are sent more than they can receive.

    ## What to do
    Run again at another time or on other nodes, ask for whole switches, and show the list of links
    to the operators. `tailback diagnose` also tries the same hosts shifted, spare hosts away from
    congested leaves, and explicit rates, which only operators can set up.
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
    text = other_traffic_sentence(
        share,
        count,
        average,
        t.name[link],
        float(evidence.whole.fraction[link]),
        most,
        with_log=evidence.activity.known,
    )
    return evidence.finding("TB003", "other-traffic", OTHER_TRAFFIC, text, roots, GO_ELSEWHERE)


def other_traffic_sentence(
    share: float,
    links: int,
    use: float,
    heaviest: str,
    fraction: float,
    most: float,
    *,
    with_log: bool,
) -> str:
    """TB003: congested links that our job hardly uses.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        use: Mean utilization by our traffic while they are congested.
        heaviest: Name of the heaviest.
        fraction: Its congested fraction.
        most: Upper 95 % bound of its utilization by our traffic.
        with_log: Whether a message log shows bursts that are shorter than a window.
    """
    text = (
        f"{percent(share)} of the congested packets wait for {counted(links, 'link')} on which "
        f"your own traffic uses {percent(use)} of the line rate while they are congested. The "
        f"heaviest, {heaviest}, has a congested fraction of {percent(fraction)}, and with 95 % "
        f"confidence your job uses at most {percent(most)} of it (less than "
        f"{percent(FULL_UTILIZATION)} is not full). A congested root is full, so the rest must be "
        "other traffic."
    )
    if with_log:
        return text
    return (
        f"{text} Without a message log, bursts of your own traffic shorter than a time window "
        "would look the same."
    )
