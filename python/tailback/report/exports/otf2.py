"""An OTF2 archive of a simulated run, for Vampir, Scalasca, Cube and every other reader of OTF2.

With the programs of its jobs, the archive is what a tracer would have recorded of the observed ones
(:mod:`tailback.report.rank_events`), and can be diagnosed like a recording. Messages of a
collective are those that it consists of.

Without them, as where a trace is gone or steps were left out, calls are points in time: a message
is sent in the call that its label names, when the simulation posts it, and received in ``MPI_Recv``
when its last byte arrives.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from ctypes import c_uint64
from itertools import groupby
from pathlib import Path

import polars as pl

from tailback.errors import TailbackError
from tailback.report.exports.model import EXPORTS, OURS, Exported, Result
from tailback.report.operation_times import operation_times
from tailback.report.rank_events import Event, RankEvents
from tailback.run.run import Run
from tailback.traffic.otf2_library import (
    COMM_GROUP,
    COMM_LOCATIONS,
    CPU_THREAD,
    FUNCTION,
    MPI,
    POINTS,
    PROCESS,
    SIMULATED,
    UNDEFINED,
    USER,
    Otf2Library,
    StringNumbers,
)
from tailback.traffic.readers.otf2.reader import library_path
from tailback.version import version

_TICKS_PER_SECOND = 10**12
RECEIVE = "MPI_Recv"
"""The call that receives, whichever it was, of calls that are points in time."""
_NO_TAG = 1 << 30
"""Tag of messages that have none, out of the way of the tags of programs."""

RankStream = Mapping[int, Iterable[Event]]
"""Events of each rank, by its number."""


@EXPORTS.register("otf2")
def otf2(result: Result) -> Exported:
    """Calls and messages of a simulated run by rank and host, as an OTF2 archive (a folder)."""
    tables = result.run.tables
    regions = _Regions()
    try:
        ranks = _timed_events(result, regions)
        mark, why = SIMULATED, ""
    except TailbackError as error:
        ranks, mark, why = _point_events(result.run, regions), POINTS, error.message
    ours = tables["ranks"].filter(pl.col("rank").is_in([*ranks]))
    sent = tables["messages"].join(ours, left_on="src_rank", right_on="rank", how="semi")
    contents = f"{sent.height:,} messages of {ours.height:,} ranks, simulated time"
    opened = "open traces.otf2 there in Vampir, or print it by otf2-print"
    return Exported(
        f"{contents}; calls are points in time, as {why}" if why else contents,
        f"{opened}; to diagnose, give the run" if why else f"{opened}; or diagnose the folder",
        fill=lambda folder: _write(folder, result, ranks, regions, mark),
    )


class _Regions:
    """Numbers of the regions of an archive, in the order in which they are asked for."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, bool], int] = {}

    def __call__(self, name: str, is_call: bool = True) -> int:
        return self.numbers.setdefault((name, is_call), len(self.numbers))


def _timed_events(result: Result, regions: _Regions) -> RankStream:
    """The events of the ranks of observed jobs, with times of calls.

    Raises:
        TailbackError: There are no programs, or they are not those of the run.
    """
    run, out = result.run, dict[int, Iterable[Event]]()
    programs = result.programs()
    for job in run.tables["jobs"].filter(OURS)["job"].sort().to_list():
        program = programs[job]
        events = RankEvents(program, operation_times(run, job, program), job, regions)
        ranks = run.tables["ranks"].filter(pl.col("job") == job).sort("job_rank")["rank"]
        out |= {rank: events.of_rank(at) for at, rank in enumerate(ranks.to_list())}
    return out


def _point_events(run: Run, regions: _Regions) -> RankStream:
    """The events of all ranks: a call without duration for each end of each message."""
    rows = message_events(delivered_messages(run)).select(
        *("rank", "time_ps", "event", "call", "partner", "job", "tag", "size_bytes")
    )
    of_rank = {rank: list(each) for rank, each in groupby(rows.iter_rows(), lambda row: row[0])}

    def events(rank: int) -> Iterator[Event]:
        for _, time, event, call, partner, job, tag, size in of_rank.get(rank, ()):
            yield "Enter", time, regions(call)
            yield event, time, partner, job, tag, size
            yield "Leave", time, regions(call)

    return {rank: events(rank) for rank in run.tables["ranks"]["rank"].sort().to_list()}


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


def _write(folder: Path, result: Result, ranks: RankStream, regions: _Regions, mark: str) -> None:
    """Write the archive ``traces.otf2`` into a folder."""
    library = Otf2Library(Path(library_path()))
    handle = library.open(folder, "traces")
    library.archive("SetCreator", handle, f"Tailback {version()}, {mark}".encode())
    library.archive("OpenEvtFiles", handle)
    counts = {}
    for rank, events in ranks.items():
        writer, counts[rank] = library.writer("GetEvtWriter", handle, rank), 0
        for name, *arguments in events:
            library.event(name, writer, *arguments)
            counts[rank] += 1
        library.archive("CloseEvtWriter", handle, writer)
    library.archive("CloseEvtFiles", handle)
    library.archive("OpenDefFiles", handle)
    for rank in counts:
        library.archive("CloseDefWriter", handle, library.writer("GetDefWriter", handle, rank))
    library.archive("CloseDefFiles", handle)
    _define(library, handle, result, regions, counts)
    library.archive("Close", handle)


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
    library: Otf2Library, handle: int, result: Result, regions: _Regions, counts: dict[int, int]
) -> None:
    """Write what the events refer to: clock, machine, ranks, regions and communicators."""
    writer = library.writer("GetGlobalDefWriter", handle)
    strings = StringNumbers(library, writer)
    end = result.run.elapsed_ps
    library.define("ClockProperties", writer, _TICKS_PER_SECOND, 0, end, 2**64 - 1)
    tables = result.run.tables
    ranks = tables["ranks"].filter(pl.col("rank").is_in([*counts]))
    ranks = ranks.join(tables["nodes"], on="node", maintain_order="left").sort("rank")
    machine = strings("machine")
    library.define("SystemTreeNode", writer, 0, machine, machine, UNDEFINED)
    hosts = {name: i for i, name in enumerate(ranks["host_name"].unique(maintain_order=True), 1)}
    for host, number in hosts.items():
        library.define("SystemTreeNode", writer, number, strings(host), strings("node"), 0)
    # A reader numbers ranks by their place in the list of locations.
    for row in ranks.iter_rows(named=True):
        rank, host = row["rank"], hosts[row["host_name"]]
        name = strings(f"MPI Rank {row['job_rank']}")
        library.define("LocationGroup", writer, rank, name, PROCESS, host, UNDEFINED)
        thread = strings("Master thread")
        library.define("Location", writer, rank, thread, CPU_THREAD, counts[rank], rank)
    _define_regions(library, writer, strings, regions)
    everyone = ranks["rank"].to_list()
    place = {rank: at for at, rank in enumerate(everyone)}
    _define_group(library, writer, 0, strings("MPI ranks"), COMM_LOCATIONS, everyone)
    jobs = tables["jobs"].join(ranks, on="job", how="semi").sort("job")
    for row in jobs.iter_rows(named=True):
        members = ranks.filter(pl.col("job") == row["job"]).sort("job_rank")["rank"].to_list()
        of_job = f" of {row['name']}" if jobs.height > 1 else ""
        name = strings(f"MPI_COMM_WORLD{of_job}")
        places = [place[rank] for rank in members]
        _define_group(library, writer, row["job"] + 1, name, COMM_GROUP, places)
        library.define("Comm", writer, row["job"], name, row["job"] + 1, UNDEFINED, 0)
    library.archive("CloseGlobalDefWriter", handle, writer)


def _define_regions(
    library: Otf2Library, writer: int, strings: StringNumbers, regions: _Regions
) -> None:
    none = strings("")
    for (text, is_call), number in regions.numbers.items():
        name, paradigm = strings(text), MPI if is_call else USER
        library.define(
            *("Region", writer, number, name, name, none, FUNCTION, paradigm, 0, UNDEFINED, 0, 0)
        )


def _define_group(
    library: Otf2Library, writer: int, number: int, name: int, kind: int, members: list[int]
) -> None:
    """A group of ranks; those of a communicator are places in the list of all ranks."""
    array = (c_uint64 * max(len(members), 1))(*members)
    library.define(
        *("Group", writer, number, name, kind, MPI, 0, len(members), ctypes.addressof(array))
    )
