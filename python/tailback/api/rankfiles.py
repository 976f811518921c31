"""Rank files of a placement in every launcher's format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError
from tailback.io.folders import AtomicDirectory
from tailback.placement import WRITERS, RankFile, assignment_for, write
from tailback.simulation import PreparedScenario
from tailback.sources.recording import recorded_binding

FILE_NAME = {
    "torchrun": "hosts.torchrun",
    "openmpi-seq": "hosts.openmpi-seq",
    "openmpi": "rankfile.openmpi",
    "slurm": "hosts.slurm",
    "mpich": "hosts.mpich",
    "cray": "MPICH_RANK_ORDER",
}
"""Names of the files, those of common launchers first."""


def write_with_rank_files(
    folder: str | Path, files: Sequence[RankFile], name: str, facts: Any, *, force: bool
) -> Path:
    """Write rank files, and facts as JSON beside them.

    Args:
        folder: A new folder; written completely or not at all.
        files: The rank files.
        name: Name of the JSON file.
        facts: What it holds.
        force: Replace that folder if Tailback wrote it.

    Raises:
        RunError: The folder exists (without ``force``) or cannot be written.
    """
    with AtomicDirectory(folder, force=force) as part:
        for file in files:
            (part / file.file).write_text(file.text, encoding="utf-8")
        (part / name).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def rank_files(
    prepared: PreparedScenario, node: NDArray[np.uint32]
) -> tuple[list[RankFile], dict[str, str]]:
    """The placement in every format that can express it, and why others cannot.

    Ranks get the cores and threads of the recorded job. Where these are unknown, launchers are told
    not to bind ranks, since each may have threads. The format of torchrun is for programs that call
    NCCL.

    Returns:
        The files, those of common launchers first; and by the name of a writer, why it cannot
        express this placement.

    Raises:
        PlacementError: No format can express the name of some host.
    """
    binding = recorded_binding(prepared.scenario)
    assignment = replace(assignment_for(prepared.fabric, node), binding=binding)
    files: list[RankFile] = []
    problems: dict[str, PlacementError] = {}
    accelerated = prepared.observed.program.recompile is not None
    for name in WRITERS.names():
        if name == "torchrun" and not accelerated:
            continue
        try:
            files.append(write(name, assignment, FILE_NAME.get(name, name)))
        except PlacementError as error:
            problems[name] = error
    if not files and problems:
        raise next(iter(problems.values()))
    order = list(FILE_NAME)
    files.sort(key=lambda file: order.index(file.writer) if file.writer in order else 99)
    return files, {name: error.message for name, error in problems.items()}
