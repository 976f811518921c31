"""Writes what a tracer would have recorded of a blind case: OTF2, through the OTF2 library.

Events are those of Score-P. Every host has its own clock, with an offset and a drift; measurements
of the offset at the beginning and at the end are written if the case has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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
    """
    import otf2

    with otf2.writer.open(str(folder), timer_resolution=10**12 // NS) as archive:
        archive.creator = "Score-P 8.4"
        names = _Definitions(archive, host_of_rank, host_name)
        for rank, script in enumerate(scripts):
            ticks = clocks.ticks(host_of_rank[rank], times[rank])
            writer = archive.event_writer_from_location(names.locations[rank])
            _play(writer, script, ticks, names, len(scripts))
        if recorded_offsets is not None:
            _write_offsets(archive, times, host_of_rank, clocks, recorded_offsets)
            # The beginning of such a trace is a time of its first rank's clock, to which all times
            # refer.
            first = min(int(calls[0, 0]) for calls in times)
            archive._first_timestamp = int(clocks.ticks(host_of_rank[0], first)) - _BEFORE
        # The package takes the time of writing; what is wanted is that of the recording.
        archive._realtime_timestamp = (utc_ns + archive._first_timestamp - _BASE) / 1e9


class _Definitions:
    """System tree, locations, communicator and regions of a trace."""

    def __init__(self, archive: Any, host_of_rank: list[int], host_name: list[str]) -> None:
        from otf2.enums import GroupType, LocationGroupType, LocationType, Paradigm

        self._definitions = d = archive.definitions
        self._paradigm = Paradigm
        machine = d.system_tree_node("cluster", class_name="machine")
        nodes = {
            host: d.system_tree_node(host_name[host], class_name="node", parent=machine)
            for host in dict.fromkeys(host_of_rank)
        }
        self.locations = []
        for rank, host in enumerate(host_of_rank):
            process = d.location_group(
                f"MPI Rank {rank}",
                location_group_type=LocationGroupType.PROCESS,
                system_tree_parent=nodes[host],
            )
            self.locations.append(
                d.location("Master thread", type=LocationType.CPU_THREAD, group=process)
            )
        mpi = {"paradigm": Paradigm.MPI}
        d.group("", group_type=GroupType.COMM_LOCATIONS, members=self.locations, **mpi)
        ranks = list(range(len(host_of_rank)))
        group = d.group("", group_type=GroupType.COMM_GROUP, members=ranks, **mpi)
        self.world = d.comm("MPI_COMM_WORLD", group=group)
        self._regions: dict[str, Any] = {}

    def region(self, name: str) -> Any:
        """A region by its name."""
        if name not in self._regions:
            mpi = name.startswith("MPI_")
            paradigm = self._paradigm.MPI if mpi else self._paradigm.COMPILER
            self._regions[name] = self._definitions.region(name, paradigm=paradigm)
        return self._regions[name]


def _play(
    writer: Any, script: Script, ticks: NDArray[np.int64], names: _Definitions, ranks: int
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


def _write_offsets(
    archive: Any,
    times: list[NDArray[np.int64]],
    host_of_rank: list[int],
    clocks: Clocks,
    errors: NDArray[np.int64],
) -> None:
    """Write the offset of every clock from that of rank 0, measured at both ends of the run."""
    import _otf2

    for rank, host in enumerate(host_of_rank):
        # The package numbers locations from 0 in the order of their definition.
        writer = _otf2.Archive_GetDefWriter(archive.handle, rank)
        for which, at in enumerate((int(times[rank][0, 0]), int(times[rank][-1, 1]))):
            local, master = clocks.ticks(host, at), clocks.ticks(host_of_rank[0], at)
            error = 0 if host == host_of_rank[0] else int(errors[host, which]) // NS
            _otf2.DefWriter_WriteClockOffset(writer, int(local), int(master - local) + error, 0.0)
