"""Score-P as a peer of ``tailback record``: only measured where ``scorep`` is on PATH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

TRACING = {
    "SCOREP_ENABLE_TRACING": "true",
    "SCOREP_ENABLE_PROFILING": "false",
    "SCOREP_TOTAL_MEMORY": "400M",
}
"""Environment of a traced program: MPI calls to OTF2, without a profile; its buffer is not
written before MPI_Finalize."""


def compiled(work: Path, source: str, *options: str) -> Path | None:
    """A C program linked with Score-P's MPI adapter; None where Score-P is absent.

    Functions of the program are not instrumented, so that only MPI calls are recorded.
    """
    if shutil.which("scorep") is None:
        return None
    program = work / f"{Path(source).stem}-scorep"
    command = [
        "scorep",
        "--nocompiler",
        "--mpp=mpi",
        "mpicc",
        "-O2",
        *options,
        source,
        "-o",
        str(program),
        "-lm",
    ]
    subprocess.run(command, cwd=work, check=True, capture_output=True)
    return program


def environment(folder: Path) -> dict[str, str]:
    """Variables with which a compiled program writes its trace to a folder that is not there."""
    return {**TRACING, "SCOREP_EXPERIMENT_DIRECTORY": str(folder)}
