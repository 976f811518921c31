"""TB001: endpoint congestion."""

from __future__ import annotations

import polars as pl

from tailback.diagnosis import rule_wording as wording
from tailback.diagnosis.fanin import MIN_SENDERS, FanIn, fan_in
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import MIN_SHARE, RULES
from tailback.diagnosis.run_analysis import RunAnalysis, phases_of


@RULES.register("TB001")
def endpoint(evidence: RunAnalysis) -> Finding | None:
    """Endpoint congestion: the communication pattern sends nodes more than they can receive.

    ## What it does
    Fires when the root of a congestion tree is the link from a switch into a node, and your own
    messages fill that link (at least 70 % of its line rate while it was congested, or not
    measurably less). Ranks on the same node count together.

    ## Why it matters
    A node is sent more than its adapter can receive. Wherever you place the receiving rank, the
    same messages follow it, so no placement removes the congestion (Taffet, 2019, theorem 4.1).
    Meanwhile the queue grows back into the network and delays messages to other nodes.

    ## Example
    1023 ranks send their part of a reduction to rank 0, one message after the other. The ejection
    link of rank 0's node runs at line rate with a congested fraction near 1, and the tree covers
    most up-links.

    ## What to do
    Change what is sent, not where ranks run: replace a loop of sends to one rank by the collective
    (`MPI_Reduce`, `MPI_Gather`), stagger the order in which ranks exchange, or remove the
    synchronisation between phases. `tailback diagnose` re-simulates every rewrite that fits
    (`tailback list rewrite`).
    """
    roots = evidence.roots.filter(pl.col("endpoint") & (pl.col("verdict") == "ours"))
    share = evidence.share(roots)
    if share < MIN_SHARE:
        return None
    top = roots.row(0, named=True)
    link = int(top["link"])
    phases = phases_of(roots, evidence)
    # Senders in the heaviest root's own phase only; partners in other phases are unrelated.
    if str(top["phase"]) in evidence.phase_weight:
        phases = [str(top["phase"])]
    who = fan_in(evidence.run, int(evidence.topology.dst[link]), phases)
    count = roots["link"].n_unique()
    use = min(float(top["utilization"]), 1.0)
    text = wording.endpoint(share, count, evidence.topology.name[link], use, who)
    return evidence.finding(
        "TB001", "pattern", wording.ENDPOINT, text, roots, _advice(who, phases, count)
    )


def _advice(who: FanIn | None, phases: list[str], roots: int) -> str:
    where = f"in phase {phases[0]!r}" if phases and phases[0] else "there"
    if who is None:
        return wording.spread_messages(where)
    call = who.call or "the sends"
    everywhere = roots > who.senders // 2
    # Senders with as many receivers as there are senders form an all-to-all.
    widely = who.peers >= max(MIN_SENDERS, who.senders // 2)
    if who.senders >= MIN_SENDERS and (widely or (who.peers >= MIN_SENDERS and everywhere)):
        return wording.different_partners(call, where)
    if who.senders >= MIN_SENDERS and who.collective and not everywhere:
        return wording.tree_algorithm(call, where, who.receiver)
    if who.senders >= MIN_SENDERS and not everywhere:
        return wording.use_collective(call, where, who.receiver)
    if who.ranks_on_node > 1:
        return wording.order_exchange(call, where, who)
    if who.senders == 1:
        return wording.stay_in_step(call, where)
    return wording.take_turns(call, where, who.senders)
