"""Lines of one file of NCCL Inspector, each with its communicator and process.

Up to v4.2 every record has its ``header`` and ``metadata``; from v4.3 on, those of the
``dump_stats`` marker hold for as many records after it as it counts
(``plugins/profiler/inspector/README.md`` of NVIDIA/nccl).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Final

from tailback.errors import TraceError
from tailback.io.delimited import NotUsed, shown
from tailback.io.input_files import TRACE_MEMORY, content
from tailback.units import counted

_MOST: Final = 1 << 53
_MAX_RANKS: Final = 1 << 20
_NAMED: Final = 3
_BODIES: Final = ("coll_perf", "p2p_perf", "proxy_trace")
_DROPS: Final = {
    "coll_dropped_total": "collectives",
    "p2p_dropped_total": "sends and receives",
    "proxy_dropped_total": "network steps",
    "proxy_ops_dropped_total": "network operations with their steps",
    "proxy_pxn_skipped_process_total": "network operations for other processes (PXN)",
}
_RINGS: Final = "NCCL_INSPECTOR_DUMP_{COLL,P2P,PROXY}_RING_SIZE"
_AGAIN: Final = "the file is damaged: copy it again or record it again"
_OWN_HEADERS: Final = ("v4.0", "v4.1", "v4.2")
VERSIONS: Final = (*_OWN_HEADERS, "v4.3")
"""Versions of the format that are known."""
_VERSION: Final = "inspector_output_format_version"
_MEASURED: Final = ("_us", "_ts")
"""Ends of the names of times, which may have fractions."""
CALLS: Final = {
    name.lower(): name
    for name in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AllToAll")
} | {"gather": "Gather", "scatter": "Scatter"}
"""Names of calls by those in records, in lower case."""
PER_RANK: Final = ("AllGather", "ReduceScatter", "AllToAll", "Gather", "Scatter")
"""Calls whose size is that of one rank's part."""


@dataclass(frozen=True)
class CommunicatorRank:
    """A communicator as one of its ranks names it.

    Attributes:
        id: Its hash, the same for all ranks.
        name: Its name; empty if it has none.
        rank: This rank in it.
        n_ranks: Number of its ranks.
        n_hosts: Number of their hosts, 0 if unknown.
    """

    id: str
    name: str
    rank: int
    n_ranks: int
    n_hosts: int


_Source = tuple[CommunicatorRank, tuple[str, int], int]
"""A communicator, the host and number of a process, and when it wrote, µs since 1970."""


@dataclass(frozen=True)
class Record:
    """A record of an operation.

    Attributes:
        comm: Its communicator.
        process: Host and process.
        dumped_us: When it was written, µs since 1970.
        kind: ``coll_perf``, ``p2p_perf`` or ``proxy_trace``.
        body: Its fields.
        file: Where it is from.
        line: Line of the file, from 1.
    """

    comm: CommunicatorRank
    process: tuple[str, int]
    dumped_us: int
    kind: str
    body: Mapping[str, Any]
    file: Path
    line: int

    def integer(self, key: str, default: int | None = None, body: Any = None) -> int:
        """A whole number of the record; raises TraceError if it is missing or impossible."""
        return _integer(self.body if body is None else body, key, self.file, self.line, default)


@dataclass
class InspectorFile:
    """The records of a file.

    Attributes:
        records: In the order of the file.
        dropped: Largest count of what the plugin dropped, by communicator (or process) and kind.
        orphans: Records without a communicator, as the marker before them is missing.
        missing: Records that markers count and the file lacks.
        damaged: Records and markers with impossible values in their headers.
        cut: Whether the last line is cut short.
        counts_drops: Whether it counts what the plugin dropped, from v4.1 on.
        unreadable: File and line of each line that is no JSON object.
        versions: Versions of the format that it states and that are not known.
    """

    records: list[Record] = field(default_factory=list)
    dropped: dict[tuple[object, str], int] = field(default_factory=dict)
    orphans: int = 0
    missing: int = 0
    cut: bool = False
    counts_drops: bool = False
    unreadable: list[str] = field(default_factory=list)
    damaged: list[TraceError] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)


def read_records(file: Path) -> InspectorFile:
    """Read a file of Inspector; raises TraceError if it cannot be opened."""
    out = InspectorFile()
    context: _Source | None = None
    remaining = 0
    for line, entry in _objects(file, out):
        if entry is None:
            remaining = max(remaining - 1, 0)
            continue
        stats = entry.get("dump_stats")
        if "header" in entry:
            if isinstance(stats, dict):
                out.missing += remaining
                context, remaining = None, 0
            try:
                source = _context(entry, file, line)
                if isinstance(stats, dict):
                    context, remaining = _read_marker(out, entry, source, file, line)
                    continue
            except TraceError as error:
                out.damaged.append(error)
                remaining = max(remaining - 1, 0)
                continue
            _note_version(out, entry)
            remaining = max(remaining - 1, 0)
        elif context is not None and remaining:
            source = context
            remaining -= 1
        else:
            out.orphans += 1
            continue
        kinds = [kind for kind in _BODIES if isinstance(entry.get(kind), dict)]
        out.records += [Record(*source, kind, entry[kind], file, line) for kind in kinds]
        out.unreadable += [] if kinds else [f"{file.name} line {line}"]
    out.missing += remaining
    return out


def _note_version(out: InspectorFile, entry: Mapping[str, Any]) -> None:
    version = str(entry.get("metadata", {}).get(_VERSION, VERSIONS[0]))
    if version not in VERSIONS:
        out.versions.add(shown(version))


def _read_marker(
    out: InspectorFile,
    entry: Mapping[str, Any],
    source: _Source,
    file: Path,
    line: int,
) -> tuple[_Source | None, int]:
    """Count what a marker says was dropped.

    Returns:
        Communicator and process of the records after it, None if these have their own; and their
        number.
    """
    stats = entry["dump_stats"]
    _note_version(out, entry)
    _count_drops(out, source, stats, file, line)
    out.counts_drops = True
    if _has_own_headers(entry.get("metadata")):
        return None, 0
    keys = ("coll_records", "p2p_records", "proxy_records")
    return source, sum(_integer(stats, key, file, line, 0) for key in keys)


def notes_on_losses(files: list[InspectorFile]) -> list[str]:
    """A line for everything that the plugin dropped, or that files lack."""
    notes = []
    for key, what in _DROPS.items():
        total = sum(
            number for each in files for (_, name), number in each.dropped.items() if name == key
        )
        if total:
            remedy = "" if "pxn" in key else f": raise {_RINGS}"
            notes.append(f"the plugin dropped {total:,} {what}{remedy}")
    orphans, missing = (
        sum(getattr(each, name) for each in files) for name in ("orphans", "missing")
    )
    if orphans:
        notes.append(
            f"{counted(orphans, 'record')} without the marker that names their communicator "
            "are left out"
        )
    if missing:
        notes.append(f"{counted(missing, 'record')} that markers count are not in the files")
    unreadable = [place for each in files for place in each.unreadable]
    if unreadable:
        notes.append(
            f"{counted(len(unreadable), 'line')} without a readable record: "
            f"{', '.join(unreadable[:3])}{' …' if len(unreadable) > 3 else ''}"
        )
    cut = sum(each.cut for each in files)
    if cut:
        notes.append(f"the last line of {counted(cut, 'file')} is cut short and left out")
    return [NotUsed(note) for note in notes]


def notes_on_versions(files: list[InspectorFile]) -> list[str]:
    """A line on versions of the format that are not known."""
    versions = sorted(set().union(*(each.versions for each in files)))
    if not versions:
        return []
    return [
        NotUsed(
            f"the format version {', '.join(versions)} is not among those known ({VERSIONS[0]} to "
            f"{VERSIONS[-1]}): it is read as {VERSIONS[-1]}, and fields may mean something else"
        )
    ]


def _objects(file: Path, out: InspectorFile) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The JSON objects of a file, one a line, with the number of the line.

    None stands for a line that is none.
    """
    lines = content(file, TraceError, TRACE_MEMORY).split(b"\n")
    last = max((k for k, text in enumerate(lines) if text.strip()), default=-1)
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            # The process may end while it writes.
            if number - 1 == last > 0:
                out.cut = True
                return
            entry = None
        if not isinstance(entry, dict):
            out.unreadable.append(f"{file.name} line {number}")
            entry = None
        yield number, entry


def _has_own_headers(metadata: Any) -> bool:
    """Whether records of this version have headers of their source."""
    return bool(metadata) and metadata.get(_VERSION) in _OWN_HEADERS


def _context(entry: dict[str, Any], file: Path, line: int) -> _Source:
    header, metadata = entry["header"], entry.get("metadata", {})
    for name, value in (("header", header), ("metadata", metadata)):
        if not isinstance(value, dict):
            raise _wrong(file, line, f"{name} is {shown(str(value))}, not an object")
    name = str(header.get("comm_name", ""))
    # Plugins that write the same without metadata have one file a process, too.
    host = str(metadata.get("hostname", "") or file.name)
    n_ranks, rank = (_integer(header, key, file, line) for key in ("n_ranks", "rank"))
    if rank >= n_ranks or n_ranks > _MAX_RANKS:
        raise _wrong(file, line, f"rank {rank:,} of {n_ranks:,}")
    comm = CommunicatorRank(
        str(header.get("id", ""))[:80],
        "" if name == "unknown" else name[:80],
        rank,
        n_ranks,
        _integer(header, "nnodes", file, line, 0),
    )
    process = host[:255], _integer(metadata, "pid", file, line, 0)
    return comm, process, _integer(metadata, "dump_timestamp_us", file, line, 0)


def _count_drops(
    out: InspectorFile,
    source: _Source,
    stats: Mapping[str, Any],
    file: Path,
    line: int,
) -> None:
    for key in _DROPS:
        # Skips of PXN are counted once for the process, and repeated by every communicator.
        subject = source[1] if "process" in key else (source[0].id, source[0].rank)
        try:
            number = _integer(stats, key, file, line, 0)
        except TraceError as error:
            out.damaged.append(error)
            continue
        if number:
            out.dropped[subject, key] = max(out.dropped.get((subject, key), 0), number)


def _integer(
    values: Mapping[str, Any], key: str, file: Path, line: int, default: int | None = None
) -> int:
    value = values.get(key, default)
    if isinstance(value, float) and isfinite(value):
        if not key.endswith(_MEASURED) and not value.is_integer():
            raise _wrong(file, line, f"{key} is {shown(str(value))}, not a whole number")
        value = round(value)
    if value is None:
        raise _wrong(file, line, f"{key} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise _wrong(file, line, f"{key} is {shown(str(value))}, not a number from 0 to 2^53")
    return value


def damaged_value(record: Record, message: str) -> TraceError:
    """The error for a value of a record."""
    return _wrong(record.file, record.line, message)


def notes_on_damage(damaged: Sequence[TraceError]) -> list[str]:
    """A line on records that are left out, with file, line, field and value of the first."""
    if not damaged:
        return []
    named = "; ".join(
        f"{error.file.name if error.file else ''}, {error.place}: {error.message}"
        for error in damaged[:_NAMED]
    )
    more = " …" if len(damaged) > _NAMED else ""
    return [NotUsed(f"{counted(len(damaged), 'damaged record')}: {named}{more}")]


def _wrong(file: Path, line: int, message: str) -> TraceError:
    return TraceError(message, file=file, place=f"line {line}", remedy=_AGAIN)
