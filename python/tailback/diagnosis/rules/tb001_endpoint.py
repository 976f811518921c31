"""TB001: endpoint congestion."""

from __future__ import annotations

import polars as pl

from tailback.diagnosis.fanin import MIN_SENDERS, FanIn, fan_in
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import MIN_SHARE, RULES
from tailback.diagnosis.run_analysis import RunAnalysis, phases_of
from tailback.units import counted, percent


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
    Change what is sent, not where ranks run. Replace a loop of sends to one rank by the collective
    (`MPI_Reduce`, `MPI_Gather`); stagger the order in which ranks exchange, so that neighbours do
    not meet at the same node; wait for a missing neighbour instead of skipping it; or remove the
    synchronisation between phases. `tailback diagnose` applies every rewrite that fits the calls
    and phases named here (`tailback list rewrite`), re-simulates the program, and shows the
    proved results: docs/explanation/diagnosis.md, section 6.
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
        "to receive what is sent to them. The heaviest root, "
        f"{evidence.topology.name[link]}, carries your own messages at {percent(use)} of its line "
        "rate while it is congested. Moving the rank would move the congestion with it"
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
        "Endpoint congestion: nodes are sent more than they can receive",
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
            f"{call} {where} sends everything to rank {who.receiver}: choose a tree algorithm in "
            "the MPI library, or a call that does not need the whole result on one rank."
        )
    if who.senders >= MIN_SENDERS and not everywhere:
        return (
            f"Replace the sends to rank {who.receiver} by {call} {where} with the collective "
            "(MPI_Reduce, MPI_Gather), which combines data along the tree instead of on one node."
        )
    if who.ranks_on_node > 1:
        return (
            f"{who.ranks_on_node} ranks of one node receive at once from {who.senders} nodes by "
            f"{call} {where}: order the exchange so that they arrive spread over time, or "
            "send one message per node instead of one per rank."
        )
    if who.senders == 1:
        return (
            f"One node sends more by {call} {where} than the other can receive as phases overlap: "
            "let ranks wait for a missing neighbour instead of skipping it, so they stay in step."
        )
    return (
        f"{who.senders} nodes send to the same node at once by {call} {where}: order the exchange "
        "so that they take turns (wait for a missing neighbour instead of skipping it), or do not "
        "synchronise between the phases."
    )
