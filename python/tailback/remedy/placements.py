"""Try placements by re-simulation."""

from __future__ import annotations

from tailback.diagnose.model import Candidate, Diagnosis
from tailback.errors import RunError
from tailback.evaluate import Change, Evaluate
from tailback.remedy.proof import current_placement, prove
from tailback.remedy.proposal import REMEDIES, Placements, Progress, Proposal, RemedyContext
from tailback.run import Run


@REMEDIES.register("placement")
def placements(run: Run, diagnosis: Diagnosis, means: RemedyContext) -> list[Proposal]:
    """Other placements of the ranks, among them the same nodes shifted."""
    return _ideas(means.placements, current_placement(run))


def _ideas(candidates: Placements, now: str) -> list[Proposal]:
    return [
        Proposal("placement", name, Change(placement=nodes, placement_name=name))
        for name, nodes in candidates.items()
        if name != now
    ]


def try_placements(
    run: Run,
    evaluate: Evaluate,
    candidates: Placements,
    *,
    seeds: int = 3,
    progress: Progress | None = None,
) -> list[Candidate]:
    """Simulate our job under each placement, in the same conditions, and under the one it had.

    Args:
        run: The run as observed.
        evaluate: Simulates a change.
        candidates: Node of each rank, shape (R,), by name of the placement.
        seeds: Repetitions with other random choices, at least 1.
        progress: Told the placement and the share done, 0–1.

    Returns:
        All of them, fastest first; those that could not be tried last, with their error. The
        placement as it is is among them under its own name.

    Raises:
        RunError: ``seeds`` is below 1.
    """
    if seeds < 1:
        raise RunError(f"seeds = {seeds}", remedy="give at least 1 repetition")
    now = current_placement(run)
    ideas = [Proposal("placement", now), *_ideas(candidates, now)]
    return prove(ideas, evaluate, seeds=seeds, progress=progress)
