"""Rewrites of the communication, if the pattern overloads nodes."""

from __future__ import annotations

from tailback.diagnosis.model import Diagnosis
from tailback.evaluate import Change
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.run.run import Run
from tailback.traffic.rewrites import REWRITES, DoesNotApplyError, labels_of_phases

MIN_CHARGE = 0.02
"""Minimum share of the time that re-simulation attributes to the pattern, as for any remedy."""


@REMEDIES.register("pattern")
def patterns(run: Run, diagnosis: Diagnosis, context: RemedyContext) -> list[Proposal]:
    """Every rewrite of the program that applies to the calls and phases that overload nodes."""
    finding = next((f for f in diagnosis.findings if f.cause == "pattern"), None)
    charged = max((s.charged for s in diagnosis.shares if s.cause == "pattern"), default=0.0)
    if context.program is None or (diagnosis.cause != "pattern" and charged < MIN_CHARGE):
        return []
    if finding is None and diagnosis.cause != "pattern":
        return []
    phases = finding.phases if finding is not None else []
    focus = labels_of_phases(context.program, phases)
    proposals = []
    for entry in REWRITES:
        try:
            rewrite = entry.part(context.program, focus)
        except DoesNotApplyError as why:
            proposals.append(Proposal("pattern", entry.name, not_applicable=why.message))
            continue
        change = Change(program=rewrite.program)
        proposals.append(Proposal("pattern", entry.name, change, rewrite.action, rewrite.assumes))
    return proposals
