"""Readers of traces of real applications: one format per module, compiled to a rank program.

A reader is a module with ``sniff(path)`` (is this its format?), ``read(path)`` and ``CAPABILITIES``
(what the format records). One whose traces have times of calls also has ``has_times(path)``,
``record(path)`` and ``system_tree(path)``, from which the measured run is made. To add a reader,
write one module and add one line below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from tailback.errors import TraceError, option
from tailback.io.manifest import require_unchanged
from tailback.registry import Registry
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import (
    caliper,
    chakra,
    foreign,
    goal,
    ipm,
    mpip,
    pipit,
    pml_monitoring,
    projections,
)
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.dumpi import reader as dumpi
from tailback.traffic.readers.flight_recorder import reader as flight_recorder
from tailback.traffic.readers.inspector import reader as nccl_inspector
from tailback.traffic.readers.kineto import reader as kineto
from tailback.traffic.readers.nccl import reader as nccl_log
from tailback.traffic.readers.nsight import reader as nsight
from tailback.traffic.readers.otf2 import reader as otf2
from tailback.traffic.readers.recorded_run import RecordedRun
from tailback.traffic.readers.simgrid import reader as simgrid_ti


class TraceReader(Protocol):
    """Interface of a reader module."""

    CAPABILITIES: Capabilities

    def sniff(self, path: Path) -> bool:
        """Whether ``path`` (an existing file or folder) looks like this format."""

    def read(self, path: Path) -> Program:
        """Compile ``path`` to a rank program; raises TraceError when it is damaged."""


@runtime_checkable
class TimedTraceReader(TraceReader, Protocol):
    """Interface of a reader whose traces have the times of calls."""

    def has_times(self, path: Path) -> bool:
        """Whether this trace has them; damaged files may raise TraceError."""

    def record(self, path: Path) -> RecordedRun:
        """The calls, messages and collectives with their times; raises TraceError."""

    def system_tree(self, path: Path) -> list[list[tuple[str, str]]]:
        """Name and class of what contains each rank, innermost first; class ``node`` is a host."""


READERS: Registry[TraceReader] = Registry("reader", "trace formats")

READERS.register("caliper")(caliper)
READERS.register("chakra")(chakra)
READERS.register("dumpi")(dumpi)
READERS.register("flight-recorder")(flight_recorder)
READERS.register("goal")(goal)
READERS.register("ipm")(ipm)
READERS.register("kineto")(kineto)
READERS.register("mpip")(mpip)
READERS.register("nccl-inspector")(nccl_inspector)
READERS.register("nsight")(nsight)
READERS.register("otf2")(otf2)
READERS.register("pipit")(pipit)
READERS.register("pml-monitoring")(pml_monitoring)
READERS.register("projections")(projections)
READERS.register("simgrid-ti")(simgrid_ti)
# A log may be beside any other trace.
READERS.register("nccl-log")(nccl_log)


def read_trace(path: Path, format: str | None = None, ranks: str = "") -> Program:
    """Read an MPI trace or profile.

    Args:
        path: A file or folder in one of the formats of :data:`READERS`.
        format: Name of the reader; detected when None.
        ranks: Number or grid of ranks to extrapolate an OTF2 trace to; empty for those recorded.

    Returns:
        The rank program.

    Raises:
        TraceError: ``path`` does not exist, no reader knows it, or it is damaged.
        TailbackError: ``format`` is not the name of a reader.
    """
    path = Path(path)
    try:
        exists = path.exists()
        folder = exists and path.is_dir()
        empty = exists and (
            next(path.iterdir(), None) is None
            if folder
            else path.is_file() and path.stat().st_size == 0
        )
    except (OSError, ValueError) as error:
        raise TraceError(f"cannot be read: {error}", file=path) from error
    if not exists:
        raise TraceError("no such file or folder", file=path, remedy="check the path of the trace")
    if empty:
        raise TraceError(f"the {'folder' if folder else 'file'} is empty", file=path, remedy=_KNOWN)
    _require_unchanged(path)
    if format is not None:
        return _read_program(READERS[format], path, ranks)
    for entry in READERS:
        if entry.part.sniff(path):
            return _read_program(entry.part, path, ranks)
    if folder and (path / "recording.json").is_file():
        raise TraceError(
            "the trace of this recording is missing (traces.otf2)",
            file=path,
            remedy="copy the whole folder that tailback record wrote, or record again",
        )
    other = foreign.recognise(path)
    if other is not None:
        file, name, remedy = other
        if name == foreign.JSON and (damage := foreign.json_damage(file)):
            raise TraceError(
                f"is damaged JSON: {damage}",
                file=file,
                remedy="the file may be cut: copy it or make it again",
            )
        raise TraceError(f"this is {name}, which Tailback does not read", file=file, remedy=remedy)
    raise TraceError("no reader recognises this format", file=path, remedy=_KNOWN)


def timed_reader(path: Path, format: str | None = None) -> TimedTraceReader | None:
    """The reader of a trace that has the times of calls.

    Args:
        path: A file or folder in one of the formats of :data:`READERS`.
        format: Name of the reader; detected when None.

    Returns:
        Its reader; None if ``path`` is no trace, or has no such times.

    Raises:
        TraceError: The trace is damaged.
        TailbackError: ``format`` is not the name of a reader.
    """
    if not path.exists():
        return None
    _require_unchanged(path)
    if format is not None:
        reader: TraceReader | None = READERS[format]
    else:
        reader = next((entry.part for entry in READERS if entry.part.sniff(path)), None)
    return reader if isinstance(reader, TimedTraceReader) and reader.has_times(path) else None


def _require_unchanged(path: Path) -> None:
    """Check a trace that Tailback wrote, with the files beside an anchor file."""
    require_unchanged(path if path.is_dir() else path.parent)


def _read_program(reader: TraceReader, path: Path, ranks: str) -> Program:
    """Read the program of a trace, with the steps common to all readers."""
    if ranks and reader is not READERS["otf2"]:
        raise TraceError(
            "only OTF2 traces can be extrapolated to other numbers of ranks",
            file=path,
            place=option("ranks"),
            remedy="record with tailback record, Score-P or EZTrace",
        )
    program = otf2.read(path, ranks) if ranks else reader.read(path)
    program = _with_synchronous_sends(program)
    program.lacks = program.lacks or reader.CAPABILITIES.lacks()
    return program


def _with_synchronous_sends(program: Program) -> Program:
    """The program with the sends of MPI_Ssend and MPI_Issend complete only on delivery.

    Readers name the call of every send in its label, so this holds for every format.
    """
    calls = [label.call.lower().rstrip("_") for label in program.labels]
    chosen = [i for i, call in enumerate(calls) if call in ("mpi_ssend", "mpi_issend")]
    if chosen:
        synchronous = (program.kind == Op.ISEND) & np.isin(program.label, chosen)
        program.kind = np.where(synchronous, np.uint8(Op.ISSEND), program.kind)
    return program


_KNOWN = (
    "give an OTF2 anchor file (.otf2), a GOAL schedule, a DUMPI, SimGrid, Chakra or Kineto trace, "
    "an export of Nsight Systems, a profile of IPM or mpiP, logs of Projections, NCCL or "
    "its Inspector, dumps of PyTorch's Flight Recorder, or the folder of Open MPI's "
    "prof.<rank>.prof files: tailback list reader"
)

__all__ = ["READERS", "TimedTraceReader", "TraceReader", "read_trace", "timed_reader"]
