"""Launchers of MPI programs, and how each passes environment variables to the ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailback.recorder.rank_files import RecordError

_MPIRUN = ("mpirun", "mpiexec", "orterun", "prterun")


def with_variables(command: Sequence[str], variables: Mapping[str, str]) -> tuple[list[str], bool]:
    """The command with which every rank has the variables.

    Where the launcher has an option for that, it does not get them itself: only ranks load the
    recorder.

    Args:
        command: A launcher with its arguments and the program.
        variables: Variables of the ranks.

    Returns:
        The command, and whether the variables have to be in the environment it is started in.

    Raises:
        RecordError: The first word is no program.
    """
    found = shutil.which(command[0])
    if found is None:
        raise RecordError(f"{command[0]!r} is not a program",
                          remedy="give the launcher and the program after --, like: "
                          "-- mpirun -np 64 ./app")  # fmt: skip
    name = Path(found).name
    given = list(command)
    if name == "srun":
        return _srun(given, variables), False
    if not name.startswith(_MPIRUN):
        return given, True
    kind = _kind(found)
    if kind == "Open MPI":
        return _open_mpi(given, variables), False
    if kind != "Hydra":
        return given, True
    options = [part for key, value in variables.items() for part in ("-genv", key, value)]
    return [given[0], *options, *given[1:]], False


def _open_mpi(command: list[str], variables: Mapping[str, str]) -> list[str]:
    """Open MPI passes variables to the program before the next colon only.

    Ranks of a program that does not have them would not take part in the recorder's collectives,
    for which the others would wait for ever.
    """
    options = [part for key, value in variables.items() for part in ("-x", f"{key}={value}")]
    out = [command[0], *options]
    for word in command[1:]:
        out += [word, *options] if word == ":" else [word]
    return out


def _srun(command: list[str], variables: Mapping[str, str]) -> list[str]:
    pairs = ",".join(f"{key}={value}" for key, value in variables.items())
    for at, word in enumerate(command):
        if word.startswith("--export="):
            return [*command[:at], f"{word},{pairs}", *command[at + 1 :]]
        if word == "--export" and at + 1 < len(command):
            return [*command[: at + 1], f"{command[at + 1]},{pairs}", *command[at + 2 :]]
    return [command[0], f"--export=ALL,{pairs}", *command[1:]]


def _kind(launcher: str) -> str:
    shown = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    text = (shown.stdout + shown.stderr).lower()
    if "open mpi" in text or "open-mpi" in text or "openrte" in text or "prrte" in text:
        return "Open MPI"
    return "Hydra" if "hydra" in text else ""


def compiler_for(command: Sequence[str]) -> str:
    """The mpicc that belongs to a launcher: the one beside it, else the one in PATH."""
    found = shutil.which(command[0]) if command else None
    if found is not None:
        path = Path(found)
        for launcher in _MPIRUN:
            if path.name.startswith(launcher):
                beside = path.with_name("mpicc" + path.name.removeprefix(launcher))
                if os.access(beside, os.X_OK):
                    return str(beside)
    return "mpicc"
