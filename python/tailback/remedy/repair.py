"""Repair of slow cables."""

from __future__ import annotations

from tailback.diagnosis.model import Diagnosis
from tailback.diagnosis.topology import LinkTopology
from tailback.evaluate import Change
from tailback.remedy.advice import AVOIDED_LINKS_SHOWN, check_cables
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.run.run import Run


@REMEDIES.register("repair")
def repair(run: Run, diagnosis: Diagnosis, context: RemedyContext) -> list[Proposal]:
    """Every link at its nominal rate, if some are slow and cost time."""
    ports = [(s.cable or s.link or "").strip() for s in run.scenario.fabric.degraded]
    costs = any(s.cause == "slow-link" and s.removed for s in diagnosis.shares)
    if not ports or not costs:
        return []
    topology = LinkTopology.of(run)
    leaving = topology.leaving
    stated = [topology.name[leaving[port]] if port in leaving else port for port in ports]
    names = diagnosis.slow_links or stated
    action = check_cables(names[:AVOIDED_LINKS_SHOWN], single=len(names) == 1)
    return [Proposal("repair", "repaired-cables", Change(network="healthy"), action)]
