"""Which MPI calls a library has, found by its compiler and linker.

The version that a library states does not tell: Open MPI 5 states MPI 3.1 and has the persistent
collectives and partitioned communication of MPI 4.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tailback.recorder.calls import MpiCall

_DECLARED = re.compile(r"\b(P?MPI_\w+)\s*\(")


def available_calls(mpicc: str, wanted: Sequence[MpiCall], work: Path) -> list[MpiCall]:
    """The calls that a library declares as the standard does, and has an entry point of.

    Args:
        mpicc: The MPI library's compiler of C.
        wanted: Calls to look for.
        work: Folder for temporary files.

    Returns:
        Those of ``wanted`` that it has, in the same order; none if the compiler fails without them.
    """
    declared = _declared(mpicc)
    candidates = [one for one in wanted if {one.name, f"P{one.name}"} <= declared]
    if not _links(mpicc, [], work):
        return []
    return _linked(mpicc, candidates, work)


def _declared(mpicc: str) -> set[str]:
    command = [mpicc, "-E", "-x", "c", "-include", "mpi.h", "/dev/null"]
    shown = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return set(_DECLARED.findall(shown.stdout))


def _linked(mpicc: str, some: list[MpiCall], work: Path) -> list[MpiCall]:
    """All of them if a program that refers to all links, else those of each half."""
    if not some or _links(mpicc, some, work):
        return some
    if len(some) == 1:
        return []
    half = len(some) // 2
    return _linked(mpicc, some[:half], work) + _linked(mpicc, some[half:], work)


def _links(mpicc: str, some: Sequence[MpiCall], work: Path) -> bool:
    lines = ["#include <mpi.h>"]
    # A declaration that differs from the library's is an error.
    for call in some:
        arguments = ", ".join(argument.declared for argument in call.arguments)
        lines += [f"int {call.name}({arguments});", f"int P{call.name}({arguments});"]
    names = ", ".join(f"(entry)P{call.name}" for call in some)
    lines += [
        "typedef void (*entry)(void);",
        f"volatile entry all[] = {{{names or '0'}}};",
        "int main(void) { return all[0] == 0; }",
    ]
    (work / "probe.c").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [mpicc, "-w", "-o", str(work / "probe"), str(work / "probe.c")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
