"""Traces of SST DUMPI, binary or as text from dumpi2ascii, one file per rank.

A folder holds ``NAME.meta`` and ``NAME-0000.bin`` (or ``.txt``) for every rank.
"""

from __future__ import annotations

import re
from pathlib import Path

from tailback.errors import TraceError
from tailback.io.input_files import head, head_bytes
from tailback.traffic.program import Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.dumpi.compile import compile_files
from tailback.traffic.readers.dumpi.header import MAGIC, read_header
from tailback.traffic.readers.dumpi.times import hosts_of, record_files
from tailback.traffic.readers.recorded_run import RecordedRun

CAPABILITIES = Capabilities(
    times="yes, of each rank's own clock",
    sources="yes, of MPI_ANY_SOURCE where statuses were recorded",
    completion="yes",
    call_site="no",
    compute="time between calls",
)

_FILE = re.compile(r"^(?P<stem>.+)-(?P<rank>\d{1,9})\.(?P<kind>bin|txt|ascii)(?:\.gz)?$")
_TEXT = re.compile(
    rb"\A(?:version=\d+\.\d+\.\d+\nstarttime=|MPI_Init(?:_thread)? entering at walltime)"
)
_META = re.compile(r"\Ahostname=[^\n]*\nnumprocs=(\d{1,9})\n")
_PREFIX = re.compile(r"^fileprefix=(.+)$", re.MULTILINE)


def sniff(path: Path) -> bool:
    """The file of a rank, the ``.meta`` file, or the folder that holds them."""
    if path.is_dir():
        return bool(_files(path))
    return _is_rank(path) or _META.match(head(path)) is not None


def read(path: Path) -> Program:
    """Compile the files of all ranks to a rank program.

    Args:
        path: The folder, the ``.meta`` file, or the file of one rank, which stands for all of its
            kind.

    Returns:
        The program, with the time that the calls took.

    Raises:
        TraceError: The file of a rank is missing, damaged or cut short.
    """
    stem, files = _run_of(path)
    return compile_files(stem, files, path)


def has_times(path: Path) -> bool:
    """Whether calls have times by the wall clock, and not only by the processor's."""
    return read_header(_run_of(path)[1][0]).clock_s is not None


def record(path: Path) -> RecordedRun:
    """The recorded run, for the arguments of :func:`read`; raises TraceError as that does."""
    return record_files(_run_of(path)[1])


def system_tree(path: Path) -> list[list[tuple[str, str]]]:
    """Name and class of each rank's host, from the headers of the files."""
    return hosts_of(_run_of(path)[1])


def _run_of(path: Path) -> tuple[str, list[Path]]:
    """Name of the run, and the files of its ranks in order."""
    if path.is_dir():
        sets = _files(path)
        folder = path
    else:
        folder = path.parent
        sets = _files(folder, *_stem_and_kind(path))
    if len(sets) != 1:
        names = ", ".join(sorted(f"{stem!r} (.{kind})" for stem, kind in sets))
        raise TraceError(
            f"holds the files of {len(sets)} runs: {names}" if sets else "holds no DUMPI files",
            file=path,
            remedy="name a file of the run you mean",
        )
    (((stem, _), files),) = sets.items()
    for expected, rank in enumerate(sorted(files)):
        if rank != expected:
            raise TraceError(
                f"the file of rank {expected} is missing",
                file=folder,
                remedy="copy the files of all ranks into one folder",
            )
    _check_file_count(folder / f"{stem}.meta", len(files))
    return stem, [files[rank] for rank in sorted(files)]


def _stem_and_kind(path: Path) -> tuple[str | None, str | None]:
    """Stem and kind of the files to which a file belongs."""
    if match := _FILE.match(path.name):
        return match["stem"], match["kind"]
    prefix = _PREFIX.search(head(path))
    return (prefix[1].strip() if prefix else path.stem), None


def _files(
    folder: Path, stem: str | None = None, kind: str | None = None
) -> dict[tuple[str, str], dict[int, Path]]:
    """Files by stem and kind, then by rank; text files are ignored if there are binary ones."""
    sets: dict[tuple[str, str], dict[int, Path]] = {}
    for entry in sorted(folder.iterdir()):
        match = _FILE.match(entry.name)
        if match and stem in (None, match["stem"]) and kind in (None, match["kind"]):
            sets.setdefault((match["stem"], match["kind"]), {})[int(match["rank"])] = entry
    # Keep damaged files in their set; drop sets of other tools, which number their files too.
    sets = {key: files for key, files in sets.items() if any(map(_is_rank, files.values()))}
    return {
        key: files
        for key, files in sets.items()
        if key[1] == "bin" or kind is not None or (key[0], "bin") not in sets
    }


def _is_rank(path: Path) -> bool:
    beginning = head_bytes(path)
    return beginning.startswith(MAGIC) or _TEXT.match(beginning) is not None


def _check_file_count(meta: Path, files: int) -> None:
    """Compare the number of files with that in the ``.meta`` file."""
    match = _META.match(head(meta)) if meta.is_file() else None
    if match and int(match[1]) != files:
        raise TraceError(
            f"says numprocs={match[1]}, and there are files of {files} ranks",
            file=meta,
            place="line 2",
            remedy="copy the files of all ranks into one folder",
        )
