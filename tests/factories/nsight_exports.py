"""Small SQLite exports of Nsight Systems, with the tables that its exporter documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

WORLD = 0x44000000

_TABLES = """
PRAGMA page_size = 512;
CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT);
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE MPI_RANKS (globalTid INTEGER NOT NULL, rank INTEGER NOT NULL);
CREATE TABLE MPI_P2P_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER,
    textId INTEGER, commHandle INTEGER, tag INTEGER, remoteRank INTEGER, size INTEGER,
    requestHandle INTEGER);
CREATE TABLE MPI_COLLECTIVES_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER,
    textId INTEGER, commHandle INTEGER, rootRank INTEGER, size INTEGER, recvSize INTEGER,
    requestHandle INTEGER);
CREATE TABLE MPI_START_WAIT_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER,
    textId INTEGER, requestHandle INTEGER);
CREATE TABLE MPI_OTHER_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER,
    textId INTEGER);
"""

_SESSION = "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)"
_ENVIRONMENT = "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)"

Call = tuple[int, int, str, dict[str, int]]
"""Beginning and end in ns, name, and the columns of its table that are not NULL."""


def thread(rank: int, number: int = 0) -> int:
    """``globalTid`` of a thread of a rank."""
    return (0x1_0000_0000_0000 + ((1000 + rank) << 24)) + 1000 + rank + number


def _table(name: str, columns: dict[str, int]) -> str:
    if name.startswith(("MPI_Wait", "MPI_Start", "MPI_Test")):
        return "MPI_START_WAIT_EVENTS"
    if "remoteRank" in columns:
        return "MPI_P2P_EVENTS"
    return "MPI_COLLECTIVES_EVENTS" if "size" in columns else "MPI_OTHER_EVENTS"


def write_export(path: Path, ranks: dict[int, Sequence[Call]], extra: Iterable[str] = ()) -> Path:
    """Write the calls of some ranks, and statements of SQL after them."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(_TABLES)
        texts: dict[str, int] = {}
        for rank, calls in ranks.items():
            database.execute("INSERT INTO MPI_RANKS VALUES (?, ?)", (thread(rank), rank))
            for start, end, name, columns in calls:
                text = texts.setdefault(name, len(texts) + 7)
                # Calls of another thread of the rank's process are the rank's too.
                row = {"start": start, "end": end, "globalTid": thread(rank, 1), "textId": text}
                row |= columns
                marks = ", ".join("?" * len(row))
                names = ", ".join(row)
                database.execute(
                    f"INSERT INTO {_table(name, columns)} ({names}) VALUES ({marks})",
                    list(row.values()),
                )
        database.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(key, name) for name, key in texts.items()]
        )
        for statement in extra:
            database.execute(statement)
        database.commit()
    return path


def describing(host: str, start_ns: int) -> list[str]:
    """Statements that write the host of an export and when its session began."""
    return [
        _SESSION,
        f"INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({start_ns})",
        _ENVIRONMENT,
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('CpuCores', '4')",
        f"INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', '{host}')",
    ]


def sample(folder: Path) -> Path:
    """An export for each of two ranks: a message each way and a broadcast of 30 B."""
    to = {"commHandle": WORLD, "tag": 3}
    bcast = {"commHandle": WORLD, "rootRank": 0, "size": 30}
    write_export(
        folder / "rank0.sqlite",
        {
            0: [
                (0, 90, "MPI_Init", {}),
                (100, 120, "MPI_Irecv", {**to, "remoteRank": 1, "size": 40, "requestHandle": 5}),
                (130, 150, "MPI_Isend", {**to, "remoteRank": 1, "size": 50, "requestHandle": 6}),
                (160, 190, "MPI_Waitall", {"requestHandle": 5}),
                (160, 190, "MPI_Waitall", {"requestHandle": 6}),
                (195, 200, "MPI_Bcast", bcast),
            ]
        },
    )
    write_export(
        folder / "rank1.sqlite",
        {
            1: [
                (1000, 1090, "MPI_Init", {}),
                (1100, 1150, "MPI_Recv", {**to, "remoteRank": 0, "size": 50}),
                (1150, 1160, "MPI_Send", {**to, "remoteRank": 0, "size": 40}),
                (1170, 1200, "MPI_Bcast", bcast),
            ]
        },
    )
    return folder
