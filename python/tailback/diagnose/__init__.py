"""Diagnosis: from the tables of a run to a verdict with a cause, its cost and a remedy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tailback.diagnose.model import Diagnosis
from tailback.diagnose.verdict import judge
from tailback.diagnose.waterfall import Progress
from tailback.evaluate import Evaluate
from tailback.run import Run

__all__ = ["Diagnosis", "diagnose", "judge"]


def diagnose(
    run: Run,
    evaluate: Evaluate | None = None,
    *,
    placements: Mapping[str, NDArray[np.uint32]] | None = None,
    seeds: int = 3,
    progress: Progress | None = None,
    files: Mapping[str, str] | None = None,
    commands: list[str] | None = None,
) -> Diagnosis:
    """Say what is wrong with a run, what it costs and what to do.

    Args:
        run: The run, simulated or measured.
        evaluate: Simulates changes: needed for the waterfall and for the remedy's proof.
        placements: Placements to try, by name: node of each rank, shape (R,).
        seeds: Repetitions of every re-simulation, at least 1.
        progress: Told what is being done and the share of that part done, 0–1.
        files: Files the caller writes for the remedy: name → what it is for.
        commands: Commands to run with them.

    Raises:
        RunError: ``seeds`` is below 1, or the run has no observed job.
    """
    # Remedies build on the diagnosis' model, so this package can import them only when called.
    from tailback.remedy import recommend, try_placements

    diagnosis = judge(run, evaluate, placements=placements, seeds=seeds, progress=progress)
    if diagnosis.cause in ("not-network", "injection"):
        return diagnosis
    candidates = []
    if evaluate is not None and placements:
        candidates = try_placements(run, evaluate, placements, seeds=seeds, progress=progress)
    remedy = recommend(run, diagnosis, candidates, files=files, commands=commands)
    return diagnosis.model_copy(update={"remedy": remedy})
