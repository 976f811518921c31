"""IPM's full reports (XML): calls, sizes and partners of every rank, without times or order.

``IPM_REPORT=full`` writes one file with a ``task`` for every rank, whose ``hent`` entries count the
calls of one name, size (``bytes``) and partner (``orank``). Entries of sends become messages.
Collectives name no communicator, and MPI_Sendrecv and persistent requests no direction.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from tailback.errors import TraceError
from tailback.io.delimited import shown
from tailback.io.input_files import content, head
from tailback.traffic.program import Label, Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.pair_totals import program_of_totals

CAPABILITIES = Capabilities(
    times="no",
    sources="totals of every pair of ranks, call and size",
    completion="no",
    call_site="no",
    compute="no",
)

_HEAD = re.compile(r"\A\s*(?:<\?xml[^>]*\?>\s*)?<ipm_job_profile[\s>]")
_NUMBER = re.compile(r"-?[0-9]{1,18}\Z")
_SENDS = {
    f"MPI_{name}"
    for name in ("Send", "Bsend", "Ssend", "Rsend", "Isend", "Ibsend", "Issend", "Irsend")
}
_NOT_SENDS = re.compile(r"MPI_I?(?:M?recv|M?probe|wait|test|comm_|init|finalize)", re.IGNORECASE)
_MAX_RANKS = 1 << 24
_AGAIN = "copy it again, or run again with IPM_REPORT=full and let the program end normally"


@dataclass
class _Report:
    """What is read of a file.

    Attributes:
        n_ranks: Number of ranks as the first task states it, 0 before.
        task: The rank of the open task, -1 outside of one.
        seen: Ranks with a task.
        sends: Messages by (source, destination, call, size).
        left_out: Calls that are left out, by name.
        entries: Number of entries of any kind.
    """

    n_ranks: int = 0
    task: int = -1
    seen: set[int] = field(default_factory=set)
    sends: Counter[tuple[int, int, str, int]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    entries: int = 0

    def begin(self, name: str, values: dict[str, str]) -> None:
        """An element begins; raises ValueError if it does not fit."""
        if name == "task":
            self._begin_task(values)
        elif name == "hent" and self.task >= 0:
            self.entries += 1
            self._entry(values)

    def end(self, name: str) -> None:
        """An element ends."""
        if name == "task":
            self.task = -1

    def _begin_task(self, values: dict[str, str]) -> None:
        rank, n_ranks = _whole(values, "mpi_rank"), _whole(values, "mpi_size")
        if not 0 <= rank < n_ranks <= _MAX_RANKS or n_ranks != (self.n_ranks or n_ranks):
            raise ValueError(f"rank {rank} of a run of {n_ranks} ranks")
        if rank in self.seen:
            raise ValueError(f"a second task of rank {rank}")
        self.n_ranks, self.task = n_ranks, rank
        self.seen.add(rank)

    def _entry(self, values: dict[str, str]) -> None:
        call, count = values.get("call", ""), _whole(values, "count")
        if not call.startswith("MPI_"):
            return
        if call not in _SENDS:
            if not _NOT_SENDS.match(call):
                self.left_out[call[:40]] += count
            return
        peer, size = _whole(values, "orank"), _whole(values, "bytes")
        if not 0 <= peer < self.n_ranks or size < 0 or count < 0:
            raise ValueError(f"{count} calls of {size} B to rank {peer} of {self.n_ranks}")
        self.sends[self.task, peer, call, size] += count


def sniff(path: Path) -> bool:
    """A report, or a folder with one."""
    return len(_reports(path)) == 1 if path.is_dir() else _HEAD.match(head(path)) is not None


def read(path: Path) -> Program:
    """Compile a report to a program of messages.

    Args:
        path: The report, plain or gzip, or the folder that holds it.

    Returns:
        The program; phases are the calls.

    Raises:
        TraceError: It is damaged or cut short, lacks a rank, or has no entries of sends.
    """
    if path.is_dir():
        reports = _reports(path)
        if len(reports) != 1:
            raise TraceError(
                f"holds {len(reports)} reports of IPM", file=path, remedy="name the report"
            )
        path = reports[0]
    report = _parse(path)
    missing = next((rank for rank in range(report.n_ranks) if rank not in report.seen), None)
    if missing is not None:
        raise TraceError(
            f"has no task of rank {missing} of {report.n_ranks}", file=path, remedy=_AGAIN
        )
    if not report.entries:
        raise TraceError(
            "states no partners of calls, only totals of each rank: it is a terse report",
            file=path,
            remedy="run again with IPM_REPORT=full, or record the program as OTF2: "
            "docs/reference/traffic.md",
        )
    notes = []
    if report.left_out:
        listed = ", ".join(f"{count:,} {call}" for call, count in report.left_out.most_common(4))
        notes.append(
            "calls of which IPM records no partner or communicator are left out: " + listed
        )
    calls = sorted({key[2] for key in report.sends})
    labels = [Label(call, call) for call in calls] or [Label("point-to-point", "point-to-point")]
    rows = [
        (source, target, calls.index(call), size * count, count)
        for (source, target, call, size), count in sorted(report.sends.items())
        if count
    ]
    try:
        return program_of_totals(path.name.split(".")[0], report.n_ranks, rows, labels, notes)
    except TraceError as error:
        raise error.located(path) from None


def _reports(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if ".xml" in entry.suffixes)
    return [file for file in files if file.is_file() and _HEAD.match(head(file))]


def _parse(path: Path) -> _Report:
    report = _Report()
    parser = expat.ParserCreate()
    parser.StartElementHandler = report.begin
    parser.EndElementHandler = report.end
    # No writer declares entities; in a hostile file they multiply without end.
    parser.EntityDeclHandler = _no_entities
    try:
        parser.Parse(content(path, TraceError), True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise TraceError(
            f"cannot be read: {error}",
            file=path,
            place=f"line {parser.CurrentLineNumber}",
            remedy=_AGAIN,
        ) from None
    if not report.seen:
        raise TraceError("has no task with a rank", file=path, remedy=_AGAIN)
    return report


def _no_entities(*_: object) -> None:
    raise ValueError("declares an entity, which IPM does not")


def _whole(values: dict[str, str], name: str) -> int:
    text = values.get(name, "")
    if not _NUMBER.match(text):
        raise ValueError(f"{name}={shown(text)} is not a whole number")
    return int(text)
