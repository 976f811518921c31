"""A diagnosis with its remedy, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis import Diagnosis, weigh_causes
from tailback.evaluate import Evaluate
from tailback.io.progress import Progress
from tailback.remedy.advice import recommend
from tailback.remedy.proposal import RemedyContext
from tailback.remedy.search import diagnose_and_cure
from tailback.run.run import Run
from tailback.traffic.program import Program


def diagnose(
    run: Run,
    evaluate: Evaluate | None = None,
    *,
    placements: Mapping[str, NDArray[np.uint32]] | None = None,
    program: Program | None = None,
    quick: Evaluate | None = None,
    rules: Sequence[str] = (),
    kinds: frozenset[str] | None = None,
    seeds: int = 3,
    progress: Progress | None = None,
    files: Mapping[str, str] | None = None,
    commands: list[str] | None = None,
) -> Diagnosis:
    """Diagnose a run: the cause, its cost and the remedy.

    Args:
        run: The run, simulated or measured.
        evaluate: Simulates changes: needed for the waterfall and for the remedy's proof.
        placements: Placements to try, by name: node of each rank, shape (R,).
        program: Traffic of the observed job, for remedies that change it.
        quick: Simulates changes in the fluid model, for estimates before the proof.
        rules: Routing rules that the topology has besides the one in use.
        kinds: Kinds of remedies to try (``tailback list remedy``); None for all.
        seeds: Repetitions of every re-simulation, at least 1.
        progress: Called with the current step and its progress, 0–1.
        files: Files the caller writes for the remedy: name → purpose.
        commands: Commands to run with them.

    Raises:
        RunError: ``seeds`` is below 1, or the run has no observed job.
    """
    causes = weigh_causes(
        run,
        evaluate,
        placements=placements,
        rules=rules,
        seeds=seeds,
        progress=progress,
        program=program,
    )
    if evaluate is None:
        diagnosis = causes.diagnosis()
        remedy = recommend(run, diagnosis, [], files=files, commands=commands)
        return diagnosis.model_copy(update={"remedy": remedy})
    context = RemedyContext(
        evaluate, quick, placements or {}, program=program, rules=rules, kinds=kinds
    )
    return diagnose_and_cure(
        causes, context, seeds=seeds, progress=progress, files=files, commands=commands
    )[0]
