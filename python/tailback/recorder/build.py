"""Compiles the recorder for the user's MPI library, once, into a cache folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailback.recorder.calls import MpiCall, calls
from tailback.recorder.rank_files import RecordError
from tailback.recorder.wrappers import source

_DECLARED = re.compile(r"\b(P?MPI_\w+)\s*\(")

_SOURCES = Path(__file__).parent / "c"
_VERSION = re.compile(
    r"#define ((?:MPI|OMPI_\w+|MPICH|MVAPICH\d?|I_MPI)_(?:SUB)?VERSION|MPICH_NAME) (.*)"
)


@dataclass(frozen=True)
class Built:
    """The compiled recorder.

    Attributes:
        recorder: Library that is preloaded into the ranks.
        converter: Library that converts what they leave.
        writes: Library that is preloaded, too, to record what is written to connections.
        fresh: Whether it was compiled now.
    """

    recorder: Path
    converter: Path
    writes: Path
    fresh: bool


def build(mpicc: str) -> Built:
    """Compile the recorder unless it is cached for this MPI library.

    Args:
        mpicc: The MPI library's compiler of C, a name or a path.

    Raises:
        RecordError: There is no such compiler, or it fails.
    """
    compiler = shutil.which(mpicc)
    if compiler is None:
        raise RecordError(
            f"{mpicc!r} is not a program: the recorder is compiled once with the compiler of your "
            "MPI library",
            remedy="load the module of your MPI library, or name its compiler with --mpicc",
        )
    key = hashlib.sha256()
    texts = (file.read_text() for file in sorted(_SOURCES.iterdir()))
    for part in (*_identity(compiler), source(), *texts):
        key.update(part.encode() + b"\0")
    place = _trusted_cache() / key.hexdigest()[:16]
    files = [place / f"lib{name}.so" for name in ("recorder", "convert", "writes")]
    recorder, converter, writes = files
    if all(file.is_file() for file in files):
        return Built(recorder, converter, writes, fresh=False)
    with tempfile.TemporaryDirectory(dir=place.parent) as work:
        _compile(compiler, Path(work))
        place.mkdir(exist_ok=True)
        for file in reversed(files):
            os.replace(Path(work) / file.name, file)
    return Built(recorder, converter, writes, fresh=True)


def _trusted_cache() -> Path:
    """Folder of the compiled recorder: the user's cache, which the hosts of a cluster share.

    Ranks load the library, so nobody else may have written it.

    Raises:
        RecordError: It cannot be created, or other users may write to it.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(base) / "tailback" / "recorder"
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.mkdir(mode=0o700, exist_ok=True)
        facts = cache.stat()
    except OSError as error:
        raise RecordError(
            f"cannot be written: {error.strerror}", file=cache, remedy=_OWN_CACHE
        ) from None
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise RecordError(
            "other users may write to it, so the recorder in it is not trusted",
            file=cache,
            remedy=_OWN_CACHE,
        )
    return cache


_OWN_CACHE = "set XDG_CACHE_HOME to a folder of your own that all hosts share"


def _identity(mpicc: str) -> tuple[str, str]:
    """The command that the compiler runs, and the versions of its MPI library."""
    shown = subprocess.run([mpicc, "-show"], capture_output=True, text=True, check=False).stdout
    defined = _run([mpicc, "-E", "-dM", "-x", "c", "-include", "mpi.h", "/dev/null"], mpicc)
    return shown, "\n".join(" ".join(pair) for pair in _VERSION.findall(defined))


def _compile(mpicc: str, work: Path) -> None:
    available = {call.name for call in available_calls(mpicc, calls(), work)}
    # Without any, the compiler is to say what is wrong.
    (work / "wrappers.c").write_text(source(available or None))
    parts = (
        "recorder",
        "gather",
        "clock",
        "comms",
        "messages",
        "collectives",
        "sizes",
        "neighbours",
        "counters",
        "ethtool",
        "copies",
        "streams",
    )
    common = ["-std=gnu11", "-O2", "-fPIC", "-shared", f"-I{_SOURCES}"]
    _run(
        [
            mpicc,
            *common,
            "-pthread",
            "-o",
            str(work / "librecorder.so"),
            str(work / "wrappers.c"),
            *(str(_SOURCES / f"{part}.c") for part in parts),
            "-ldl",
        ],
        mpicc,
    )
    for name in ("convert", "writes"):
        built = str(work / f"lib{name}.so")
        _run([mpicc, *common, "-o", built, str(_SOURCES / f"{name}.c"), "-ldl"], mpicc)


def _run(command: Sequence[str], mpicc: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr]
        raise RecordError(
            f"{mpicc} cannot compile the recorder: {lines[0].strip()[:300]}",
            remedy="check that it compiles other MPI programs; MPI 3 or later and a C11 compiler "
            "are needed",
        )
    return done.stdout


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
    candidates = [call for call in wanted if {call.name, f"P{call.name}"} <= declared]
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
