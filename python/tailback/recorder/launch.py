"""Launchers of MPI programs, and how each passes environment variables to the ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from tailback.recorder.rank_files import RecordError

FOLDER = "TAILBACK_RECORD"
"""Variable that names the folder of the ranks."""

PROGRAMS = "programs.app"
"""A file of programs with the variables, in the folder."""

_MPIRUN = ("mpirun", "mpiexec", "orterun", "prterun")


def with_variables(command: Sequence[str], variables: Mapping[str, str]) -> tuple[list[str], bool]:
    """The command with which every rank has the variables.

    Where the launcher has an option for that, it does not get them itself: only ranks load the
    recorder.

    Args:
        command: A launcher with its arguments and the program.
        variables: Variables of the ranks, :data:`FOLDER` among them; none to check the command.

    Returns:
        The command, and whether the variables have to be in the environment it is started in.

    Raises:
        RecordError: The first word is no program, or a file of programs cannot be read.
    """
    launcher = shutil.which(command[0])
    if launcher is None:
        raise RecordError(
            f"{command[0]!r} is not a program",
            remedy="give the launcher and the program after --, like: -- mpirun -np 64 ./app",
        )
    name = Path(launcher).name
    words = list(command)
    if name == "srun":
        return _srun(words, variables), False
    if not name.startswith(_MPIRUN):
        return words, True
    kind = _kind(launcher)
    if kind == "Open MPI":
        return _open_mpi(words, variables), False
    if kind != "Hydra":
        return words, True
    options = [part for key, value in variables.items() for part in ("-genv", key, value)]
    return [words[0], *options, *words[1:]], False


def _open_mpi(command: list[str], variables: Mapping[str, str]) -> list[str]:
    """Open MPI passes variables to the program before the next colon only, or of the same line."""
    options = [part for key, value in variables.items() for part in ("-x", f"{key}={value}")]
    out = [command[0], *options]
    for before, word in pairwise(command):
        if before in ("--app", "-app") and variables:
            word = str(_programs_with(Path(word), options, Path(variables[FOLDER])))
        out += [word, *options] if word == ":" else [word]
    return out


def _programs_with(file: Path, options: Sequence[str], folder: Path) -> Path:
    """A copy of a file of programs, one a line, that gives each of them the options."""
    try:
        lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise RecordError(
            f"cannot be read: {error.strerror}",
            file=file,
            remedy="give the programs in the command, like: -- mpirun -np 2 ./a : -np 2 ./b",
        ) from None
    if any(option.split() != [option] for option in options):
        raise RecordError(
            "Open MPI's files of programs allow no spaces in options",
            file=file,
            remedy="choose an --out without spaces in its path, or give the programs in the "
            "command, like: -- mpirun -np 2 ./a : -np 2 ./b",
        )
    start = " ".join(options)
    text = "".join(
        line + "\n" if line.lstrip().startswith("#") or not line.strip() else f"{start} {line}\n"
        for line in lines
    )
    copy = folder / PROGRAMS
    copy.write_text(text, encoding="utf-8", errors="surrogateescape")
    return copy


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
    launcher_path = shutil.which(command[0]) if command else None
    if launcher_path is not None:
        path = Path(launcher_path)
        for launcher in _MPIRUN:
            if path.name.startswith(launcher):
                beside = path.with_name("mpicc" + path.name.removeprefix(launcher))
                if os.access(beside, os.X_OK):
                    return str(beside)
    return "mpicc"
