"""OTF2 traces of MPI programs, as Score-P and EZTrace write them.

The OTF2 C library is part of Tailback's wheels; in a checkout ``make setup`` installs it. Its
Python bindings are not used, as they cannot open EZTrace's archives: ``tailback._core`` loads the
library and reads the locations one by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import tailback._core as _core
from tailback.errors import TraceError
from tailback.io import progress as reading
from tailback.io.input_files import head_bytes, record_files
from tailback.traffic.otf2_library import POINTS, SIMULATED
from tailback.traffic.program import Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.narrow_columns import return_freed_memory
from tailback.traffic.readers.otf2 import times as otf2_times
from tailback.traffic.readers.otf2.columns import Trace
from tailback.traffic.readers.otf2.compile import compile_trace
from tailback.traffic.readers.otf2.extrapolation import extrapolated
from tailback.traffic.readers.otf2.posts import read_posts
from tailback.traffic.readers.recorded_cores import common_clocks, note_on_times, sharing_ranks
from tailback.traffic.readers.recorded_run import RecordedRun

CAPABILITIES = Capabilities(
    times="yes, with clock offsets where the tracer measured them",
    sources="yes; EZTrace not of non-blocking receives",
    completion="yes; EZTrace no",
    call_site="yes; EZTrace no",
    compute="time between calls",
)

_MAGIC = b"OTF2"
_LIBRARY = Path(__file__).parents[3] / "_otf2" / "libotf2.so"


def sniff(path: Path) -> bool:
    """An OTF2 anchor file, or a folder with anchor files or with event files alone."""
    if path.is_dir():
        return any(entry.suffix == ".otf2" for entry in path.iterdir()) or _unfinished(path)
    if not path.is_file():
        return False
    # Two bytes of frame and byte order come first.
    return head_bytes(path, 6)[2:] == _MAGIC


def read(path: Path, ranks: str = "") -> Program:
    """Compile a trace to a rank program.

    Args:
        path: The anchor file (``traces.otf2``), or the folder that holds it.
        ranks: Number or grid of ranks to extrapolate the program to; empty for those recorded.

    Returns:
        The program; its notes say what the trace lacks and what was assumed instead.

    Raises:
        TraceError: There is no OTF2 library, or a file of the trace is missing, cut short or
            damaged.
    """
    anchor = _read_by_library(path)
    head = head_bytes(anchor, 1 << 10)
    if f", {POINTS}".encode() in head:
        raise TraceError(
            "is the export of a simulated run, whose calls are points in time",
            file=anchor,
            remedy="diagnose the run that it was exported from: tailback diagnose RUN",
        )
    if ranks:
        return _with_sharing(extrapolated(load(anchor), ranks, anchor.stem, anchor), anchor)
    program = read_posts(library_path(), anchor, _threads(None), _progress(anchor))
    if program is None:
        program = compile_trace(load(anchor), name=anchor.stem, file=anchor)
    if f", {SIMULATED}".encode() in head:
        program.notes.append("the trace is the export of a simulated run: its times are simulated")
    return _with_sharing(program, anchor)


def _with_sharing(program: Program, anchor: Path) -> Program:
    """The program with what the recording says of ranks that share cores."""
    if program.recording is not None:
        program.recording = replace(program.recording, sharing=sharing_ranks(anchor.parent))
        program.notes += filter(None, [note_on_times(program.recording)])
    return program


def has_times(path: Path) -> bool:
    """Whether calls have times: all traces of this format do."""
    return sniff(path)


def record(path: Path) -> RecordedRun:
    """The recorded run, with the tracer's clock offsets applied; raises TraceError as `read`."""
    anchor = find_anchor(path)
    recorded = otf2_times.record(_loaded(anchor), anchor)
    return replace(recorded, common_clock=common_clocks(anchor.parent, recorded.n_ranks))


def _loaded(anchor: Path) -> Trace:
    """The columns of a trace; the memory that reading took is freed."""
    trace = load(anchor)
    return_freed_memory()
    return trace


def load(path: Path, threads: int | None = None) -> Trace:
    """Read a trace to columns without compiling it.

    Args:
        path: The anchor file, or the folder that holds it.
        threads: Number of reading threads; by default one per core available to the process.

    Returns:
        Definitions, MPI calls and message records of all locations.

    Raises:
        TraceError: As :func:`read`.
    """
    anchor = _read_by_library(path)
    try:
        raw = _core.read_otf2(library_path(), anchor, _threads(threads), _progress(anchor))
    except ValueError as error:
        raise _damaged(error, anchor) from None
    return Trace.from_core(raw)


def system_tree(path: Path) -> list[list[tuple[str, str]]]:
    """Name and class of the system tree nodes that contain each rank, innermost first.

    Reads no events.

    Args:
        path: The anchor file, or the folder that holds it.

    Raises:
        TraceError: As :func:`read`, for the anchor and the definitions.
    """
    anchor = _read_by_library(path)
    try:
        raw = _core.read_otf2_definitions(library_path(), anchor)
    except ValueError as error:
        raise _damaged(error, anchor) from None
    return raw["definitions"]["system"]


def _damaged(error: ValueError, anchor: Path) -> TraceError:
    """The error of the core as one of Tailback."""
    if len(error.args) != 3:
        return TraceError(str(error), file=anchor)
    message, file, place = error.args
    return TraceError(
        message,
        file=file,
        place=place,
        remedy="the trace is damaged or cut short: copy it again, or record it again and "
        "let the program end normally",
    )


def _threads(wanted: int | None) -> int:
    """Number of reading threads; by default one per core available to the process."""
    return len(os.sched_getaffinity(0)) if wanted is None else max(wanted, 1)


def _progress(anchor: Path) -> Callable[[float], None] | None:
    """What shows the share of locations that have been read."""
    step = reading.step()
    if step is None:
        return None
    return lambda share: step(f"reading {anchor.name}", share)


def _read_by_library(path: Path) -> Path:
    """The anchor file of a trace, all of whose files the OTF2 library reads."""
    anchor = find_anchor(path)
    events = sorted(file for file in anchor.with_suffix("").glob("*") if file.is_file())
    record_files([anchor, anchor.with_suffix(".def"), *events])
    return anchor


def find_anchor(path: Path) -> Path:
    """The anchor file that ``path`` is or holds; raises TraceError for none or several."""
    path = Path(path)
    if not path.is_dir():
        if not path.is_file():
            raise TraceError("no such file", file=path, remedy="name the .otf2 file of the trace")
        if path.suffix != ".otf2":
            raise TraceError(
                "is not an OTF2 anchor file",
                file=path,
                remedy="name the .otf2 file of the trace, or the folder that holds it",
            )
        return path
    anchors = sorted(entry for entry in path.iterdir() if entry.suffix == ".otf2")
    if len(anchors) == 1:
        return anchors[0]
    if not anchors and _unfinished(path):
        raise TraceError(
            "holds events and no OTF2 anchor file: the program ended before its tracer had "
            "written it",
            file=path,
            remedy="record it again and let it end normally, with MPI_Finalize; or copy the "
            ".otf2 and .def files too",
        )
    if not anchors:
        raise TraceError(
            "holds no OTF2 anchor file", file=path, remedy="name the folder with the .otf2 file"
        )
    names = ", ".join(repr(anchor.name) for anchor in anchors[:5])
    raise TraceError(
        f"holds {len(anchors)} OTF2 anchor files", file=path, remedy=f"name one of {names}"
    )


def _unfinished(folder: Path) -> bool:
    """Whether a folder holds the event files of a trace, one level below its anchor file."""
    return any(True for _ in folder.glob("*/*.evt"))


def library_path() -> Path:
    """The OTF2 C library included in Tailback; raises TraceError if it is missing."""
    if not _LIBRARY.is_file():
        raise TraceError(
            "the OTF2 library is missing from this installation of Tailback",
            file=_LIBRARY,
            remedy="in a checkout: make setup; else install Tailback again, from a wheel",
        )
    return _LIBRARY
