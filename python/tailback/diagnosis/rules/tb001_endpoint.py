"""TB001: endpoint congestion."""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.diagnosis.fanin import MIN_SENDERS, FanIn, fan_in
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import MIN_SHARE, RULES
from tailback.diagnosis.run_analysis import RunAnalysis, phases_of
from tailback.units import counted, percent

ENDPOINT: Final = "Endpoint congestion: nodes are sent more than they can receive"


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
    text = endpoint_sentence(share, count, evidence.topology.name[link], use, who)
    return evidence.finding("TB001", "pattern", ENDPOINT, text, roots, _advice(who, phases, count))


def _advice(who: FanIn | None, phases: list[str], roots: int) -> str:
    where = f"in phase {phases[0]!r}" if phases and phases[0] else "there"
    if who is None:
        return spread_messages(where)
    call = who.call or "the sends"
    everywhere = roots > who.senders // 2
    # Senders with as many receivers as there are senders form an all-to-all.
    widely = who.peers >= max(MIN_SENDERS, who.senders // 2)
    if who.senders >= MIN_SENDERS and (widely or (who.peers >= MIN_SENDERS and everywhere)):
        return different_partners(call, where)
    if who.senders >= MIN_SENDERS and who.collective and not everywhere:
        return tree_algorithm(call, where, who.receiver)
    if who.senders >= MIN_SENDERS and not everywhere:
        return use_collective(call, where, who.receiver)
    if who.ranks_on_node > 1:
        return order_exchange(call, where, who)
    if who.senders == 1:
        return stay_in_step(call, where)
    return take_turns(call, where, who.senders)


def endpoint_sentence(share: float, nodes: int, root: str, use: float, who: FanIn | None) -> str:
    """TB001: nodes are sent more than they can receive.

    Args:
        share: Share of the congested packets that wait for them.
        nodes: How many nodes.
        root: Name of the heaviest root.
        use: Its utilization by our messages while it is congested, 0–1.
        who: Senders to its node; None if unknown.
    """
    text = (
        f"{percent(share)} of the congested packets wait for {counted(nodes, 'node')} to receive "
        f"what is sent to them. The heaviest root, {root}, carries your own messages at "
        f"{percent(use)} of its line rate while it is congested. Moving the rank would move the "
        "congestion with it"
    )
    if who is not None:
        text += (
            f". {counted(who.sender_ranks, 'rank')} on {counted(who.senders, 'node')} "
            f"{'sends' if who.sender_ranks == 1 else 'send'} to it"
            + (f" ({who.ranks_on_node} ranks share it)" if who.ranks_on_node > 1 else "")
            + (f", mostly by {who.call}" if who.call else "")
        )
    return f"{text}."


def spread_messages(where: str) -> str:
    """TB001, senders unknown; ``where``: a phase, or 'there'."""
    return f"Change the communication {where}: spread the messages over receivers or time."


def different_partners(call: str, where: str) -> str:
    """TB001, an all-to-all."""
    return (
        f"Let every rank start {call} {where} at a different partner (rank + i, not i), so that "
        "they do not all send to the same node at once."
    )


def tree_algorithm(call: str, where: str, receiver: int) -> str:
    """TB001, a collective with a root."""
    return (
        f"{call} {where} sends everything to rank {receiver}: choose a tree algorithm in the MPI "
        "library, or a call that does not need the whole result on one rank."
    )


def use_collective(call: str, where: str, receiver: int) -> str:
    """TB001, a loop of sends to one rank."""
    return (
        f"Replace the sends to rank {receiver} by {call} {where} with the collective (MPI_Reduce, "
        "MPI_Gather), which combines data along the tree instead of on one node."
    )


def order_exchange(call: str, where: str, who: FanIn) -> str:
    """TB001, several ranks of a node receive at once."""
    return (
        f"{who.ranks_on_node} ranks of one node receive at once from {who.senders} nodes by {call} "
        f"{where}: order the exchange so that they arrive spread over time, or send one message "
        "per node instead of one per rank."
    )


def stay_in_step(call: str, where: str) -> str:
    """TB001, one sender whose phases overlap."""
    return (
        f"One node sends more by {call} {where} than the other can receive as phases overlap: let "
        "ranks wait for a missing neighbour instead of skipping it, so they stay in step."
    )


def take_turns(call: str, where: str, senders: int) -> str:
    """TB001, a few neighbours that send at once."""
    return (
        f"{senders} nodes send to the same node at once by {call} {where}: order the exchange so "
        "that they take turns (wait for a missing neighbour instead of skipping it), or do not "
        "synchronise between the phases."
    )
