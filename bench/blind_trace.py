"""Writes what a tracer would have recorded of a blind case: OTF2, through the OTF2 library.

Events are those of Score-P. Every host has its own clock, with an offset and a drift; measurements
of the offset at the beginning and at the end are written if the case has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _cases import Definitions, write_clock_offsets
from blind_programs import Call, Script
from numpy.typing import NDArray

NS = 1000
"""Picoseconds of a tick: clocks of traces count nanoseconds."""

_BASE = 10**12
"""Clock readings at the start of the simulation, ticks: clocks run since their hosts booted."""

_BEFORE = 2000
"""Ticks from the first event of a rank to the end of its MPI_Init."""

NO_ROOT = 2**32 - 1


@dataclass(frozen=True)
class Clocks:
    """Clocks of the hosts.

    Attributes:
        offset_ps: How far each host's clock is ahead at the simulation's start, shape (hosts,).
        drift: How much faster each runs, seconds a second, shape (hosts,).
    """

    offset_ps: NDArray[np.int64]
    drift: NDArray[np.float64]

    def ticks(self, host: int, ps: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """What the clock of ``host`` shows at true times, ticks."""
        local_ps = np.asarray(ps, np.float64) * (1.0 + self.drift[host]) + self.offset_ps[host]
        return np.asarray(np.floor(local_ps / NS), np.int64) + _BASE


def write_trace(
    folder: Path,
    scripts: list[Script],
    times: list[NDArray[np.int64]],
    host_of_rank: list[int],
    host_name: list[str],
    clocks: Clocks,
    *,
    utc_ns: int,
    recorded_offsets: NDArray[np.int64] | None,
    chunks: tuple[int, int] = (1 << 20, 1 << 22),
) -> None:
    """Write an OTF2 archive.

    Args:
        folder: Made anew.
        scripts: What each rank called.
        times: Enter and leave of each call by the true clock, picoseconds, shape (calls, 2) each.
        host_of_rank: Index of each rank's host.
        host_name: Names of the hosts.
        clocks: Their clocks.
        utc_ns: UTC at which correct clocks show 0; hosts know it as accurately as their clocks run.
        recorded_offsets: Errors of the measurement of each host's offset at the beginning and at
            the end, picoseconds, shape (hosts, 2); None writes no offsets.
        chunks: Bytes that the writer reserves for events and for definitions of each rank; the
            least is 256 KiB.
    """
    import otf2

    events, definitions = chunks
    with otf2.writer.open(
        str(folder),
        timer_resolution=10**12 // NS,
        chunk_size_events=events,
        chunk_size_definitions=definitions,
    ) as archive:
        archive.creator = "Score-P 8.4"
        names = Definitions(archive, [host_name[host] for host in host_of_rank])
        for rank, script in enumerate(scripts):
            ticks = clocks.ticks(host_of_rank[rank], times[rank])
            writer = archive.event_writer_from_location(names.locations[rank])
            _play(writer, script, ticks, names, len(scripts))
        if recorded_offsets is not None:
            errors = recorded_offsets // NS
            write_clock_offsets(
                archive,
                host_of_rank,
                [(int(calls[0, 0]), int(calls[-1, 1])) for calls in times],
                lambda host, at: int(clocks.ticks(host, at)),
                lambda host, which: int(errors[host, which]),
            )
            # The beginning of such a trace is a time of its first rank's clock, to which all times
            # refer.
            first = min(int(calls[0, 0]) for calls in times)
            archive._first_timestamp = int(clocks.ticks(host_of_rank[0], first)) - _BEFORE
        # The package takes the time of writing; what is wanted is that of the recording.
        archive._realtime_timestamp = (utc_ns + archive._first_timestamp - _BASE) / 1e9


def _play(
    writer: Any, script: Script, ticks: NDArray[np.int64], names: Definitions, ranks: int
) -> None:
    """Write the events of one rank."""
    begin, end = int(ticks[0, 0]), int(ticks[-1, 1])
    # MPI_Init ends when the first call begins; its time is not part of the program's.
    writer.enter(begin - _BEFORE, names.region("main"))
    writer.enter(begin - 1000, names.region("MPI_Init"))
    writer.leave(begin, names.region("MPI_Init"))
    requests = _Requests()
    for call, (enter, leave) in zip(script, ticks.tolist(), strict=True):
        if call.name in ("enter", "leave"):
            getattr(writer, call.name)(enter, names.region(call.region))
        elif call.name.startswith("MPI_"):
            writer.enter(enter, names.region(call.name))
            _records(writer, call, enter, leave, names.world, requests, ranks)
            writer.leave(leave, names.region(call.name))
    writer.enter(end, names.region("MPI_Finalize"))
    writer.leave(end + 1000, names.region("MPI_Finalize"))
    writer.leave(end + 2000, names.region("main"))


class _Requests:
    """Open requests of a rank, in the order they were posted."""

    def __init__(self) -> None:
        self.next = 1
        self.open: list[tuple[int, Call]] = []

    def post(self, call: Call) -> int:
        self.open.append((self.next, call))
        self.next += 1
        return self.next - 1


def _records(
    writer: Any, call: Call, enter: int, leave: int, world: Any, requests: _Requests, ranks: int
) -> None:
    """What Score-P records between enter and leave of an MPI call."""
    from otf2.enums import CollectiveOp

    if call.name == "MPI_Send":
        writer.mpi_send(enter, call.peer, world, call.tag, call.size_bytes)
    elif call.name == "MPI_Recv":
        writer.mpi_recv(leave, call.peer, world, call.tag, call.size_bytes)
    elif call.name == "MPI_Isend":
        number = requests.post(call)
        writer.mpi_isend(enter, call.peer, world, call.tag, call.size_bytes, number)
    elif call.name == "MPI_Irecv":
        writer.mpi_irecv_request(leave, requests.post(call))
    elif call.name in ("MPI_Wait", "MPI_Waitall"):
        done = [requests.open.pop()] if call.name == "MPI_Wait" else requests.open
        for number, started in done:
            if started.name == "MPI_Isend":
                writer.mpi_isend_complete(leave, number)
            else:
                writer.mpi_irecv(
                    leave, started.peer, world, started.tag, started.size_bytes, number
                )
        if call.name == "MPI_Waitall":
            requests.open = []
    elif call.name == "MPI_Allreduce":
        # Score-P counts the vector as often as there are ranks.
        total = call.size_bytes * ranks
        writer.mpi_collective_begin(enter)
        writer.mpi_collective_end(leave, CollectiveOp.ALLREDUCE, world, NO_ROOT, total, total)
    else:
        raise ValueError(f"{call.name} is no call that blind cases make")
