"""Rewrites of the communication, if the pattern overloads nodes."""

from __future__ import annotations

from tailback.diagnosis.model import Diagnosis
from tailback.evaluate import Change
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.run.run import Run
from tailback.traffic.rewrites import REWRITES, DoesNotApplyError, labels_of_phases
from tailback.traffic.rewrites.other_collectives import ALGORITHMS

MIN_CHARGE = 0.02
"""Minimum share of the time that re-simulation attributes to the pattern, as for any remedy."""


ANYWHERE = (*ALGORITHMS, "mirrored-order", "small-phases")
"""Rewrites that may help where no node is overloaded: other algorithms of collectives, and orders
and sizes of messages, which change when links are full."""


@REMEDIES.register("pattern")
def patterns(run: Run, diagnosis: Diagnosis, context: RemedyContext) -> list[Proposal]:
    """Every rewrite of the program that applies to the calls and phases that overload nodes.

    If no node is overloaded, only those of :data:`ANYWHERE` are proposed; without estimates by the
    fluid model only other algorithms of the collectives.
    """
    finding = next((f for f in diagnosis.findings if f.cause == "pattern"), None)
    charged = max((s.charged for s in diagnosis.shares if s.cause == "pattern"), default=0.0)
    if context.program is None:
        return []
    overloaded = diagnosis.cause == "pattern" or (finding is not None and charged >= MIN_CHARGE)
    elsewhere = ALGORITHMS if context.quick is None else ANYWHERE
    entries = [entry for entry in REWRITES if overloaded or entry.name in elsewhere]
    phases = finding.phases if finding is not None and overloaded else []
    focus = labels_of_phases(context.program, phases)
    proposals = []
    for entry in entries:
        try:
            rewrite = entry.part(context.program, focus)
        except DoesNotApplyError as why:
            if not overloaded:
                continue
            proposals.append(Proposal("pattern", entry.name, not_applicable=why.message))
            continue
        change = Change(program=rewrite.program)
        proposals.append(
            Proposal(
                "pattern",
                entry.name,
                change,
                rewrite.action,
                rewrite.assumes,
                openmpi=rewrite.openmpi,
            )
        )
    return proposals
