"""TB001: endpoint congestion."""

from __future__ import annotations

import polars as pl

from tailback.diagnose.fanin import MIN_SENDERS, FanIn, fan_in
from tailback.diagnose.model import Finding
from tailback.diagnose.rules import MIN_SHARE, RULES
from tailback.diagnose.run_analysis import RunAnalysis, phases_of
from tailback.units import counted, percent


@RULES.register("TB001")
def endpoint(evidence: RunAnalysis) -> Finding | None:
    """Endpoint congestion: the communication pattern asks too much of single nodes.

    ## What it does
    Fires when congestion trees end at nodes: the root is the link from a switch into a node, and
    our own messages fill it (at least 70 % of its line rate while it was congested, or not
    measurably less). Several ranks that share the node count together.

    ## Why it matters
    A node is sent more than its adapter can take. Whichever node the receiving rank is put on,
    the same messages follow it there, so no placement removes the congestion (theorem 4.1 of the
    thesis). Meanwhile the queue reaches back through the network and holds up messages that go
    elsewhere.

    ## Example
    1023 ranks send their part of a reduction to rank 0, one message after the other. The ejection
    link of rank 0's node runs at line rate with a congested fraction near 1, and the tree covers
    most up-links.

    ## What to do
    Change what is sent, not where ranks run. Replace a loop of sends to one rank by the collective
    (`MPI_Reduce`, `MPI_Gather`); stagger the order in which ranks exchange, so that neighbours do
    not meet at the same node; wait instead of skipping a missing neighbour; or take the
    synchronisation out between the phases. `tailback diagnose` rewrites the calls and phases named
    here in each way that applies (`tailback list rewrite`), re-simulates the program, and shows
    what is proved: docs/diagnosis.md, section 6.
    """
    roots = evidence.roots.filter(pl.col("endpoint") & (pl.col("verdict") == "ours"))
    share = evidence.share(roots)
    if share < MIN_SHARE:
        return None
    top = roots.row(0, named=True)
    link = int(top["link"])
    phases = phases_of(roots, evidence)
    # Who sends in the heaviest root's own phase: other phases' partners would blur the picture.
    if str(top["phase"]) in evidence.phase_weight:
        phases = [str(top["phase"])]
    who = fan_in(evidence.run, int(evidence.topology.dst[link]), phases)
    count = roots["link"].n_unique()
    use = min(float(top["utilization"]), 1.0)
    text = (
        f"{percent(share)} of the congested packets wait for {counted(count, 'node')} "
        "to take what is sent to them. The heaviest root, "
        f"{evidence.topology.name[link]}, is filled to {percent(use)} of its line rate by our own "
        "messages while it is congested, and moving the rank moves the congestion with it"
    )
    if who is not None:
        text += (
            f". {counted(who.sender_ranks, 'rank')} on {counted(who.senders, 'node')} "
            f"{'sends' if who.sender_ranks == 1 else 'send'} to it"
            + (f" ({who.ranks_on_node} ranks share it)" if who.ranks_on_node > 1 else "")
            + (f", mostly by {who.call}" if who.call else "")
        )
    return evidence.finding(
        "TB001",
        "pattern",
        "Endpoint congestion: nodes are sent more than they can take",
        text + ".",
        roots,
        _advice(who, phases, count),
    )


def _advice(who: FanIn | None, phases: list[str], roots: int) -> str:
    where = f"in phase {phases[0]!r}" if phases and phases[0] else "there"
    if who is None:
        return f"Change the communication {where}: spread the messages over receivers or time."
    call = who.call or "the sends"
    everywhere = roots > who.senders // 2
    # Senders that send as widely as they come from are an all-to-all, met at the node of the day.
    widely = who.peers >= max(MIN_SENDERS, who.senders // 2)
    if who.senders >= MIN_SENDERS and (widely or (who.peers >= MIN_SENDERS and everywhere)):
        return (
            f"Let every rank start {call} {where} at a different partner (rank + i, not i), so "
            "that they do not all send to the same node at once."
        )
    if who.senders >= MIN_SENDERS and who.collective and not everywhere:
        return (
            f"{call} {where} makes rank {who.receiver} take everything: choose a tree algorithm in "
            "the MPI library, or a call that does not need the whole result on one rank."
        )
    if who.senders >= MIN_SENDERS and not everywhere:
        return (
            f"Replace the sends to rank {who.receiver} by {call} {where} with the collective "
            "(MPI_Reduce, MPI_Gather): it combines on the way instead of on one node."
        )
    if who.ranks_on_node > 1:
        return (
            f"{who.ranks_on_node} ranks of one node receive at once from {who.senders} nodes by "
            f"{call} {where}: exchange in an order that spreads them over time, or send one "
            "message a node instead of one a rank."
        )
    if who.senders == 1:
        return (
            f"One node sends more by {call} {where} than the other can take while phases overlap: "
            "let ranks wait instead of skipping a missing neighbour, so that they stay in step."
        )
    return (
        f"{who.senders} nodes send to the same node at once by {call} {where}: order the exchange "
        "so that they take turns (wait instead of skipping a missing neighbour), or do not "
        "synchronise between the phases."
    )
