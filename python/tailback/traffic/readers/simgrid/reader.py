"""SimGrid's time-independent traces, written by ``smpirun -trace-ti``.

A line is ``rank call arguments…``; counts of elements are followed by the number of their type.
There is one file for all ranks, or one per rank and an index file. There are no times: computation
is in flops (converted at :data:`FLOPS_PER_SECOND`). Collectives name no communicator: all are
assumed to be on MPI_COMM_WORLD.
"""

from __future__ import annotations

import re
from pathlib import Path

from tailback.errors import TraceError
from tailback.io.input_files import content, head
from tailback.traffic.program import Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.simgrid.compile import FLOPS_PER_SECOND, compile_text
from tailback.traffic.readers.text_lines import read_text

CAPABILITIES = Capabilities(
    times="no",
    sources="yes",
    completion="yes, of MPI_Test only where a wait follows",
    call_site="no",
    compute=f"in flops, taken at {FLOPS_PER_SECOND / 1e9:g} Gflop/s",
)

_CALLS = (
    "init|finalize|compute|sleep|comm_size|comm_split|comm_dup|i?send|i?recv|sendrecv|test|testall|"
    "testany|wait|waitall|waitany|waitsome|probe|iprobe|barrier|i?bcast|i?reduce|i?allreduce|"
    "i?alltoallv?|i?allgatherv?|i?gatherv?|i?scatterv?|i?reducescatter|i?scan|i?exscan"
)
_FIRST_LINE = re.compile(
    rf"\A(?:\s*#[^\n]*\n|\s)*p?\d{{1,9}}[ \t]+(?:{_CALLS})\b(?![^\n]*\bpid\b)", re.IGNORECASE
)
_INDEX = re.compile(r"\A(?:[^\n\0]{1,400}\.txt(?:\.gz)?[ \t\r]*(?:\n|\Z))")
_SUFFIXES = (".txt", ".gz", ".ti", ".trace")


def sniff(path: Path) -> bool:
    """A file that begins with a call, an index of such files, or a folder with either."""
    if path.is_dir():
        return bool(_files_in(path))
    return _is_trace(path) or bool(_read_index(path))


def read(path: Path) -> Program:
    """Compile a trace to a rank program.

    Args:
        path: The trace of all ranks, the index of the files of ranks, or the folder of either.

    Returns:
        The program; its notes say what the trace lacks.

    Raises:
        TraceError: A file is missing, cut short, or has a line that is not of this format.
    """
    return compile_text(read_text(_files(path)), path)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = _files_in(path)
        if not files:
            raise TraceError(
                "holds no time-independent trace",
                file=path,
                remedy="name the trace, or the index file that smpirun wrote beside its folder",
            )
        return files
    if _is_trace(path):
        return [path]
    listed = _read_index(path)
    for name, file in listed:
        if file is None:
            raise TraceError(
                f"names the file {name!r}, which is not there",
                file=path,
                remedy="copy the files of all ranks next to the index",
            )
    # A file that is not a trace is refused when its first line is parsed.
    return [file for _, file in listed if file is not None] or [path]


def _files_in(folder: Path) -> list[Path]:
    """Files of the trace in a folder: those of an index there, else all that are traces."""
    files = sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES)
    files = [file for file in files if file.is_file()]
    indexes = [file for file in files[:64] if _read_index(file)]
    if len(indexes) == 1:
        return _files(indexes[0])
    return [file for file in files if _is_trace(file)]


def _is_trace(path: Path) -> bool:
    return _FIRST_LINE.match(head(path)) is not None


def _read_index(path: Path) -> list[tuple[str, Path | None]]:
    """The files that an index names and their paths; empty if it is not an index.

    Names are relative to where the program ran: the folder of the index, or one above it.
    """
    beginning = head(path)
    if not _INDEX.match(beginning) or path.suffix == ".gz":
        return []
    names = [
        name.strip() for name in content(path, TraceError).decode("utf-8", "replace").split("\n")
    ]
    out: list[tuple[str, Path | None]] = []
    for name in names:
        if not name or "\0" in name:
            continue
        places = (path.parent / name, path.parent.parent / name, path.parent / Path(name).name)
        out.append((name, next((place for place in places if place.is_file()), None)))
    files = [file for _, file in out if file is not None]
    return out if files and _is_trace(files[0]) else []
