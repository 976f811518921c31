"""Other routing, if packets or flows have more paths than they use."""

from __future__ import annotations

from tailback.diagnosis.model import Diagnosis
from tailback.evaluate import Change
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.run.run import Run

UP_DOWN = "up-down"
"""Shortest paths up and down a tree, in place of forwarding tables."""

QUEUE_PAIRS = (4, 16)
"""Numbers of queue pairs a connection that are tried."""

_RULES = {
    "minimal": "shortest paths only",
    "dimension-order": "shortest paths only, dimension by dimension",
    "horizontal": "horizontal links, too",
    "ugal": "the shortest path or a detour, whichever queue is shorter (UGAL)",
    "valiant": "a detour via a random switch (Valiant)",
}


@REMEDIES.register("routing")
def routing(run: Run, diagnosis: Diagnosis, context: RemedyContext) -> list[Proposal]:
    """Adaptive, VC or static routing, or another rule of the topology, if not in use."""
    now = run.scenario.engine.routing
    hashed = now == "adaptive" and run.scenario.engine.adaptive.per == "flow"
    rule = run.scenario.fabric.routes
    proposals = []
    if now != "adaptive":
        proposals.append(
            Proposal(
                "routing",
                "adaptive-routing",
                Change(routing="adaptive"),
                f"Turn on adaptive routing instead of {now} routing.",
                "receivers restore the order of packets, which adaptive routing does not keep",
            )
        )
    if now == "ecmp":
        pairs = run.scenario.engine.queue_pairs
        proposals += [_queue_pairs(number) for number in QUEUE_PAIRS if number > pairs]
    if now == "deterministic":
        proposals.append(
            Proposal(
                "routing",
                "vc-routing",
                Change(routing="vc"),
                "Let the first packet of each message choose its path by local load (VC routing; "
                "Birk and Zdornov, 2009); packets stay in order.",
                f"switches have {run.scenario.engine.vc_entries} entries for virtual circuits",
            )
        )
    if run.scenario.fabric.forwarding is not None:
        proposals.append(
            Proposal(
                "routing",
                "d-mod-k-tables",
                Change(routing="deterministic", rule=UP_DOWN),
                "Load forwarding tables that spread destinations evenly over the up-links "
                "(D-mod-k; Zahavi, 2010).",
            )
        )
    elif now != "deterministic":
        proposals.append(
            Proposal(
                "routing",
                "static-routing",
                Change(routing="deterministic"),
                f"Turn off {'hashing of flows' if hashed else f'{now} routing'}: give all packets "
                "of a source and destination one path.",
            )
        )
    for name in context.rules:
        how = _RULES.get(name, f"rule {name!r} of the topology")
        instead = f" instead of {rule!r}" if rule else ""
        proposals.append(
            Proposal(
                "routing",
                f"{name}-routes",
                Change(routing="adaptive", rule=name),
                f"Route on {how}{instead}, choosing adaptively among the candidates.",
            )
        )
    return proposals


def _queue_pairs(number: int) -> Proposal:
    """Several queue pairs for each connection of NCCL: hashing spreads what one flow had."""
    variables = f"NCCL_IB_QPS_PER_CONNECTION={number} NCCL_IB_SPLIT_DATA_ON_QPS=1"
    return Proposal(
        "routing",
        f"{number}-queue-pairs",
        Change(queue_pairs=number),
        f"Set {variables} in the environment of the job: switches hash each queue pair to a path "
        "of its own.",
        "switches hash the UDP source port, which differs between queue pairs",
    )
