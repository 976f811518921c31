"""Other placements as remedies."""

from __future__ import annotations

from tailback.diagnosis.model import Diagnosis
from tailback.evaluate import Change
from tailback.remedy.proof import current_placement
from tailback.remedy.proposal import REMEDIES, Placements, Proposal, RemedyContext
from tailback.run.run import Run


@REMEDIES.register("placement")
def placements(run: Run, diagnosis: Diagnosis, context: RemedyContext) -> list[Proposal]:
    """Other placements of the ranks, including shifts on the same nodes."""
    return propose_placements(context.placements, context, current_placement(run))


def propose_placements(placements: Placements, context: RemedyContext, now: str) -> list[Proposal]:
    """A proposal for each placement except the current one, ``now``."""
    return [
        Proposal(
            "placement",
            name,
            Change(placement=nodes, placement_name=name),
            variant=context.variants.get(name),
        )
        for name, nodes in placements.items()
        if name != now
    ]
