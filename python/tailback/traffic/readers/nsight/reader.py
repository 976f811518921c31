"""Nsight Systems exports (SQLite): MPI calls with times, partners, sizes and requests.

``nsys profile --trace=mpi`` records them, and ``nsys export --type=sqlite`` writes, as its
documentation says, ``MPI_RANKS`` (thread, rank), ``MPI_P2P_EVENTS`` (partner, tag, size,
communicator, request), ``MPI_COLLECTIVES_EVENTS``, ``MPI_START_WAIT_EVENTS`` (one row for each
request that a call waits for) and ``MPI_OTHER_EVENTS``. One export holds the ranks that one
``nsys`` recorded: all, those of a node, or one. Exports of Nsight Systems 2022.2 have the names and
times of calls only.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.errors import TraceError
from tailback.io.input_files import head_bytes, regular_file
from tailback.traffic.program import Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.nsight.compile import KINDS, CallTable, compile_calls
from tailback.traffic.readers.nsight.times import record_calls
from tailback.traffic.readers.recorded_run import RecordedRun
from tailback.units import LONGEST_PS

CAPABILITIES = Capabilities(
    times="yes, of each export's own clock",
    sources="yes, not of MPI_ANY_SOURCE",
    completion="yes, by request; MPI_Test no",
    call_site="no",
    compute="time between MPI calls",
)

_MAGIC = b"SQLite format 3\0"
_EXPORT = ("EXPORT_META_DATA", "TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS")
"""Tables that every export has; old versions of the exporter lack some."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_SUFFIXES = (".sqlite", ".sqlite3", ".db")
_PROCESS = 1 << 24
"""The lowest 24 bits of ``globalTid`` number the thread, the others its process."""
_CHUNK = 1 << 16
_AGAIN = "export the report again: nsys export --type=sqlite REPORT.nsys-rep"
_RECORD = (
    "record the ranks with nsys profile --trace=mpi of a newer Nsight Systems (2022.2 does not "
    "export partners and sizes) and export it: nsys export --type=sqlite REPORT.nsys-rep; or "
    "record the program as OTF2: docs/reference/traffic.md"
)


def sniff(path: Path) -> bool:
    """A database with the tables of an export, or a folder with some."""
    return bool(_exports(path)) if path.is_dir() else _is_export(path)


def read(path: Path) -> Program:
    """Compile the exports of all ranks to a rank program.

    Args:
        path: The export, or the folder with the exports of all ranks.

    Returns:
        The program, with the time that the calls took.

    Raises:
        TraceError: An export is damaged or cut short, holds no MPI calls with partners and sizes,
            or a rank is missing.
    """
    n_ranks, table = _join_calls(path, _files(path))
    return compile_calls(path.name.split(".")[0], n_ranks, table, path)


def has_times(path: Path) -> bool:
    """Whether calls have times: all exports do."""
    return sniff(path)


def record(path: Path) -> RecordedRun:
    """The recorded run, for the arguments of :func:`read`; raises TraceError as that does.

    Times are UTC if all exports state when their session began; else each counts from its own. The
    ranks of an export have one clock, that of the session.
    """
    files = _files(path)
    sessions = [_session(file) for file in files]
    starts = [session.start_ns for session in sessions if session.start_ns is not None]
    shows_utc = len(starts) == len(files)
    n_ranks, table = _join_calls(path, files, starts if shows_utc else [])
    hosts: list[str | None] = [None] * n_ranks
    clock = np.arange(n_ranks)
    for session in sessions:
        with_calls = [rank for rank in session.ranks if rank < n_ranks]
        for rank in with_calls:
            hosts[rank] = session.host
            clock[rank] = min(with_calls)
    recorded = record_calls(n_ranks, table, hosts, path, shows_utc=shows_utc)
    return replace(recorded, common_clock=clock)


def system_tree(path: Path) -> list[list[tuple[str, str]]]:
    """Name and class of each rank's host, where exports state it; raises TraceError."""
    host = {rank: session.host for session in map(_session, _files(path)) for rank in session.ranks}
    return [
        [(name, "node")] if (name := host.get(rank)) else []
        for rank in range(max(host, default=-1) + 1)
    ]


def _files(path: Path) -> list[Path]:
    files = _exports(path) if path.is_dir() else [path]
    if not files:
        raise TraceError("holds no export of Nsight Systems", file=path, remedy=_AGAIN)
    return files


def _join_calls(
    path: Path, files: Sequence[Path], starts_ns: Sequence[int] = ()
) -> tuple[int, CallTable]:
    """Number of ranks, and the calls of all; ``starts_ns`` is added to the times of each file."""
    tables = [_calls_of(file) for file in files]
    for table, start in zip(tables, starts_ns, strict=False):
        table.start, table.end = table.start + start, table.end + start
    owner: dict[int, Path] = {}
    for file, table in zip(files, tables, strict=True):
        for rank in np.unique(table.rank).tolist():
            if rank in owner:
                raise TraceError(
                    f"holds rank {rank}, and so does {owner[rank].name!r}",
                    file=file,
                    remedy="keep the exports of one run in a folder, each rank once",
                )
            owner[rank] = file
    table = CallTable.join(tables)
    partners = table.peer[table.kind == KINDS.index("MPI_P2P_EVENTS")]
    n_ranks = max(max(owner), int(partners.max(initial=0))) + 1
    missing = next((rank for rank in range(n_ranks) if rank not in owner), None)
    if missing is not None:
        raise TraceError(
            f"the calls of rank {missing} are missing: rank {max(owner)} is the last recorded, and "
            f"{n_ranks - 1} the last that a call names",
            file=path,
            remedy="give the folder with the exports of all ranks",
        )
    return n_ranks, table


class _Session(NamedTuple):
    """What an export says besides its calls: start, nanoseconds since 1970, host and ranks."""

    start_ns: int | None
    host: str | None
    ranks: list[int]


def _session(path: Path) -> _Session:
    with _open(path) as database:
        names = _table_names(database)
        if "MPI_RANKS" not in names:
            return _Session(None, None, [])
        ranks = _rows(database, "SELECT DISTINCT rank FROM MPI_RANKS", 1)[0]
        start = _value(database, names, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "")
        host = _value(database, names, "TARGET_INFO_SYSTEM_ENV", "value", "name = 'Hostname'")
    return _Session(
        start if isinstance(start, int) and 0 < start < 1 << 61 else None,
        host if isinstance(host, str) and _HOST.fullmatch(host) else None,
        [rank for rank in ranks.tolist() if 0 <= rank < 1 << 24],
    )


def _value(
    database: sqlite3.Connection, names: set[str], table: str, column: str, where: str
) -> object:
    """The first value of a column; None if the table or the column is missing."""
    if table not in names:
        return None
    try:
        row = database.execute(
            f"SELECT {column} FROM {table}" + (f" WHERE {where}" if where else "") + " LIMIT 1"
        ).fetchone()
    except sqlite3.OperationalError:
        return None
    return row[0] if row else None


def _exports(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if entry.suffix in _SUFFIXES)
    return [file for file in files if file.is_file() and _is_export(file)]


def _is_export(path: Path) -> bool:
    if not head_bytes(path, 16).startswith(_MAGIC):
        return False
    try:
        with _open(path) as database:
            names = _table_names(database)
    except TraceError:
        # A damaged database still has the text of its schema.
        beginning = head_bytes(path)
        return any(name.encode() in beginning for name in (*_EXPORT, *KINDS))
    return bool(names & {*_EXPORT, *KINDS})


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, read-only and without its journal; damage becomes a TraceError."""
    _require_whole(path)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            yield database
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, TypeError) as error:
        raise TraceError(f"is damaged: {error}", file=path, remedy=_AGAIN) from None


def _require_whole(path: Path) -> None:
    """Compare the size of the file with the pages that its header counts."""
    size = regular_file(path, TraceError).st_size
    header = head_bytes(path, 100)
    page = int.from_bytes(header[16:18], "big")
    promised = (65_536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    if len(header) < 100 or not header.startswith(_MAGIC) or size < promised:
        raise TraceError(
            f"is not a whole SQLite database: {size:,} of {max(promised, 100):,} B",
            file=path,
            remedy="copy it again, or " + _AGAIN,
        )


def _table_names(database: sqlite3.Connection) -> set[str]:
    """Names of ordinary tables: views and virtual tables of a hostile file are not read."""
    rows = database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    )
    return {str(name) for (name,) in rows.fetchmany(10_000)}


def _calls_of(path: Path) -> CallTable:
    """The MPI calls of an export."""
    with _open(path) as database:
        names = _table_names(database)
        present = [table for table in KINDS if table in names]
        if not {"MPI_RANKS", "StringIds"} <= names or not {*present} & {*KINDS[:2]}:
            raise _no_mpi_error(database, path, names)
        processes, ranks = _rows(
            database, "SELECT DISTINCT globalTid / 16777216, rank FROM MPI_RANKS", 2
        )
        texts = database.execute("SELECT id, value FROM StringIds WHERE value LIKE 'mpi%'")
        calls = {int(number): str(text)[:80] for number, text in texts}
        parts = [_table(database, table) for table in present]
    columns = np.concatenate(parts, axis=1)
    order = np.argsort(processes)
    at = np.searchsorted(processes[order], columns[3] // _PROCESS)
    at = np.minimum(at, len(processes) - 1)
    if not len(processes) or (processes[order][at] != columns[3] // _PROCESS).any():
        raise TraceError(
            "has MPI calls of a process without a rank",
            file=path,
            place="table MPI_RANKS",
            remedy=_AGAIN,
        )
    rank = ranks[order][at]
    if rank.min(initial=0) < 0 or rank.max(initial=0) >= 1 << 24:
        raise TraceError(
            f"has rank {int(rank.min())} … {int(rank.max())}",
            file=path,
            place="table MPI_RANKS",
            remedy=_AGAIN,
        )
    if (
        (columns[2] < columns[1]).any()
        or columns[1].min(initial=0) < 0
        or (columns[2].max(initial=0) > LONGEST_PS // 1000)
    ):
        raise TraceError("has calls at impossible times", file=path, remedy=_AGAIN)
    thread = columns[3] % _PROCESS
    columns[3] = rank
    return CallTable(calls, *np.concatenate([columns, thread[None]]))


_DEFAULTS = {"remoteRank": -1, "tag": -1}


def _table(database: sqlite3.Connection, name: str) -> NDArray[np.int64]:
    """Columns of a table of MPI calls in the order of :class:`CallTable`, 0 for absent ones."""
    has = {str(row[1]) for row in database.execute(f"PRAGMA table_info({name})")}
    peer = "remoteRank" if "remoteRank" in has else "rootRank"
    wanted = ["commHandle", "tag", peer, "size", "recvSize", "requestHandle"]
    chosen = [
        f"COALESCE({column}, {_DEFAULTS.get(column, 0)})"
        if column in has
        else str(_DEFAULTS.get(column, 0))
        for column in wanted
    ]
    query = f'SELECT start, COALESCE("end", start), globalTid, textId, {", ".join(chosen)}'
    columns = _rows(database, f"{query} FROM {name}", 10)
    return np.concatenate([np.full((1, columns.shape[1]), KINDS.index(name)), columns])


def _rows(database: sqlite3.Connection, query: str, width: int) -> NDArray[np.int64]:
    """The columns of a query, all integers, shape (width, rows)."""
    cursor = database.execute(query)
    parts = [np.zeros((width, 0), np.int64)]
    while rows := cursor.fetchmany(_CHUNK):
        part = np.array(rows)
        if part.dtype != np.int64:
            raise ValueError("a column of numbers holds something else")
        parts.append(part.T)
    return np.concatenate(parts, axis=1)


def _no_mpi_error(database: sqlite3.Connection, path: Path, names: set[str]) -> TraceError:
    """The error for an export whose calls have no partners: says what it does hold."""
    listed = []
    if {"NVTX_EVENTS", "StringIds"} <= names:
        calls = database.execute(
            "SELECT s.value, COUNT(*) FROM NVTX_EVENTS e JOIN StringIds s ON s.id = e.textId "
            "WHERE s.value LIKE 'MPI\\__%' ESCAPE '\\' GROUP BY s.value ORDER BY 2 DESC LIMIT 4"
        )
        listed = [f"{int(count):,} {str(name)[:40]}" for name, count in calls]
    if listed:
        message = f"has the names and times of MPI calls ({', '.join(listed)}), not their partners"
        return TraceError(message + " and sizes", file=path, remedy=_RECORD)
    kernels = 0
    if {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"} <= names:
        ((kernels,),) = database.execute(
            "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s "
            "ON s.id = k.shortName WHERE s.value LIKE 'nccl%'"
        )
    if kernels:
        return TraceError(
            f"has {int(kernels):,} kernels of NCCL, whose ranks and sizes it does not hold",
            file=path,
            remedy="record a Kineto trace (PyTorch's profiler), or NCCL's log with "
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,COLL,TUNING: docs/reference/traffic.md",
        )
    return TraceError("holds no calls of MPI", file=path, remedy=_RECORD)
