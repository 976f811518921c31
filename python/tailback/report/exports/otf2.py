"""An OTF2 archive of a simulated run, for Vampir, Scalasca, Cube and every other reader of OTF2.

Each rank is a process on its host. A message is sent in the call that its label names, when the
simulation posts it, and received in ``MPI_Recv`` when its last byte arrives. The times that calls
take are not in the tables of a run, so calls are points in time. Messages of a collective are those
that it consists of.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import c_uint64
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from tailback.report.exports.model import EXPORTS, Exported, Result
from tailback.run.run import Run
from tailback.traffic.otf2_library import (
    COMM_GROUP,
    COMM_LOCATIONS,
    CPU_THREAD,
    FUNCTION,
    MPI,
    PROCESS,
    SIMULATED,
    UNDEFINED,
    Otf2Library,
    StringNumbers,
)
from tailback.traffic.readers.otf2.reader import library_path
from tailback.version import version

_TICKS_PER_SECOND = 10**12
RECEIVE = "MPI_Recv"
"""The call that receives, whichever it was."""
_NO_TAG = 1 << 30
"""Tag of messages that have none, out of the way of the tags of programs."""


@EXPORTS.register("otf2")
def otf2(result: Result) -> Exported:
    """Messages of a simulated run by rank, host and call, as an OTF2 archive to look at (a folder).

    It cannot be diagnosed again, as its calls take no time.
    """
    messages = delivered_messages(result.run)
    ranks = result.run.tables["ranks"].height
    return Exported(
        f"{messages.height:,} messages of {ranks:,} ranks, simulated time",
        "open traces.otf2 there in Vampir, or print it by otf2-print; to diagnose, give the run",
        fill=lambda folder: _write(folder, result, messages),
    )


def delivered_messages(run: Run) -> pl.DataFrame:
    """Messages that arrived, in the order of their posting, with ``received_ps``.

    Readers of OTF2 join messages of one sender, receiver and tag in their order, as MPI does: one
    that overtakes another in the network is received after it.
    """
    tables = run.tables
    ranks = tables["ranks"].select("rank", "job", "job_rank")
    envelope = ["src_rank", "dst_rank", "tag"]
    return (
        tables["messages"]
        .filter(pl.col("arrival_ps").is_not_null())
        .join(tables["labels"].drop("job"), on="label", how="left")
        .join(ranks.rename({"rank": "src_rank", "job_rank": "sender"}), on="src_rank")
        .join(ranks.drop("job").rename({"rank": "dst_rank", "job_rank": "receiver"}), on="dst_rank")
        .sort("post_ps", "message")
        .with_row_index("sequence")
        .with_columns(
            pl.col("arrival_ps").cum_max().over(envelope).alias("received_ps"),
            pl.when(pl.col("tag") >= 0).then("tag").otherwise(_NO_TAG).alias("tag"),
            pl.col("call").fill_null("message"),
        )
    )


def _write(folder: Path, result: Result, messages: pl.DataFrame) -> None:
    """Write the archive ``traces.otf2`` into a folder."""
    library = Otf2Library(Path(library_path()))
    handle = library.open(folder, "traces")
    library.archive("SetCreator", handle, f"Tailback {version()}, {SIMULATED}".encode())
    ranks = result.run.tables["ranks"].sort("rank")
    regions = {name: number for number, name in enumerate(_region_names(messages))}
    counts = _write_events(library, handle, ranks["rank"].to_list(), messages, regions)
    library.archive("OpenDefFiles", handle)
    for rank in counts:
        library.archive("CloseDefWriter", handle, library.writer("GetDefWriter", handle, rank))
    library.archive("CloseDefFiles", handle)
    _define(library, handle, result, regions, counts)
    library.archive("Close", handle)


def _region_names(messages: pl.DataFrame) -> list[str]:
    return [RECEIVE, *sorted(set(messages["call"].unique()) - {RECEIVE})]


def _write_events(
    library: Otf2Library,
    handle: int,
    ranks: list[int],
    messages: pl.DataFrame,
    regions: dict[str, int],
) -> dict[int, int]:
    """Write the events of every rank; returns their numbers."""
    library.archive("OpenEvtFiles", handle)
    of_rank = {rank: list(rows) for rank, rows in groupby(_rows(messages), lambda row: row[0])}
    counts = {}
    for rank in ranks:
        writer = library.writer("GetEvtWriter", handle, rank)
        for _, time, event, call, partner, job, tag, size in of_rank.get(rank, ()):
            library.event("Enter", writer, time, regions[call])
            library.event(event, writer, time, partner, job, tag, size)
            library.event("Leave", writer, time, regions[call])
        library.archive("CloseEvtWriter", handle, writer)
        counts[rank] = 3 * len(of_rank.get(rank, ()))
    library.archive("CloseEvtFiles", handle)
    return counts


def _rows(messages: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Rank, time, event, call, partner in the job, job, tag and bytes of :func:`message_events`."""
    columns = ("rank", "time_ps", "event", "call", "partner", "job", "tag", "size_bytes")
    yield from message_events(messages).select(columns).iter_rows()


def message_events(messages: pl.DataFrame) -> pl.DataFrame:
    """A row for every send and receive, by rank and time; of equal times sends come first.

    Args:
        messages: As :func:`delivered_messages` returns them.

    Returns:
        ``rank, time_ps, event`` (``MpiSend`` or ``MpiRecv``), ``call, partner_rank``, ``partner``
        (its rank in the job), ``job, tag, size_bytes``.
    """
    columns = ["job", "tag", "size_bytes", "sequence"]
    ends = [
        ("MpiSend", "src_rank", "post_ps", pl.col("call"), "dst_rank", "receiver"),
        ("MpiRecv", "dst_rank", "received_ps", pl.lit(RECEIVE), "src_rank", "sender"),
    ]
    events = pl.concat(
        messages.select(
            pl.col(rank).alias("rank"),
            pl.col(time).alias("time_ps"),
            pl.lit(event).alias("event"),
            call.alias("call"),
            pl.col(partner).alias("partner_rank"),
            pl.col(in_job).alias("partner"),
            *columns,
            pl.lit(order).alias("order"),
        )
        for order, (event, rank, time, call, partner, in_job) in enumerate(ends)
    )
    return events.sort("rank", "time_ps", "order", "sequence").drop("order", "sequence")


def _define(
    library: Otf2Library,
    handle: int,
    result: Result,
    regions: dict[str, int],
    counts: dict[int, int],
) -> None:
    """Write what the events refer to: clock, machine, ranks, calls and communicators."""
    writer = library.writer("GetGlobalDefWriter", handle)
    strings = StringNumbers(library, writer)
    end = result.run.elapsed_ps
    library.define("ClockProperties", writer, _TICKS_PER_SECOND, 0, end, 2**64 - 1)
    tables = result.run.tables
    ranks = tables["ranks"].join(tables["nodes"], on="node", maintain_order="left").sort("rank")
    machine = strings("machine")
    library.define("SystemTreeNode", writer, 0, machine, machine, UNDEFINED)
    hosts = {name: i for i, name in enumerate(ranks["host_name"].unique(maintain_order=True), 1)}
    for host, number in hosts.items():
        library.define("SystemTreeNode", writer, number, strings(host), strings("node"), 0)
    for row in ranks.iter_rows(named=True):
        rank, host = row["rank"], hosts[row["host_name"]]
        name = strings(f"MPI Rank {row['job_rank']}")
        library.define("LocationGroup", writer, rank, name, PROCESS, host, UNDEFINED)
        thread = strings("Master thread")
        library.define("Location", writer, rank, thread, CPU_THREAD, counts[rank], rank)
    none = strings("")
    for call, number in regions.items():
        name = strings(call)
        library.define(
            *("Region", writer, number, name, name, none, FUNCTION, MPI, 0, UNDEFINED, 0, 0)
        )
    everyone = ranks["rank"].to_list()
    _define_group(library, writer, 0, strings("MPI ranks"), COMM_LOCATIONS, everyone)
    for row in tables["jobs"].sort("job").iter_rows(named=True):
        members = ranks.filter(pl.col("job") == row["job"]).sort("job_rank")["rank"].to_list()
        name = strings(f"MPI_COMM_WORLD of {row['name']}")
        _define_group(library, writer, row["job"] + 1, name, COMM_GROUP, members)
        library.define("Comm", writer, row["job"], name, row["job"] + 1, UNDEFINED, 0)
    library.archive("CloseGlobalDefWriter", handle, writer)


def _define_group(
    library: Otf2Library, writer: int, number: int, name: int, kind: int, members: list[int]
) -> None:
    """A group of ranks; those of a communicator are places in the list of all ranks."""
    array = (c_uint64 * max(len(members), 1))(*members)
    library.define(
        *("Group", writer, number, name, kind, MPI, 0, len(members), ctypes.addressof(array))
    )
