"""Programs that the recorder's tests run, and libraries that redirect what it reads."""

from __future__ import annotations

import subprocess
from pathlib import Path


def idle_program(folder: Path, microseconds: int) -> Path:
    """Compile an MPI program that only waits between MPI_Init and MPI_Finalize."""
    (folder / "app.c").write_text(
        "#include <mpi.h>\n#include <unistd.h>\nint main(int c, char **v) {\n"
        f"  MPI_Init(&c, &v);\n  usleep({microseconds});\n  MPI_Finalize();\n  return 0;\n}}\n"
    )
    subprocess.run(["mpicc", "app.c", "-o", "app"], cwd=folder, check=True)
    return folder / "app"


def library_to_preload(folder: Path, source: str) -> Path:
    """Compile C source to a library for LD_PRELOAD."""
    (folder / "preload.c").write_text(source)
    command = ["cc", "-shared", "-fPIC", "preload.c", "-o", "preload.so", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "preload.so"
