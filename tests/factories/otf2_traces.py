"""Traces to read: names of public data sets, and small ones written with the package `otf2`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailback.traffic.program import SENDS, Op, Program

EZTRACE16 = "eztrace-stencil16"
EZTRACE64 = "eztrace-stencil64"
SCOREP64 = "tracer-otf2-stencil4d/examples/stencil4d-otf/traces-64"


class Writer:
    """Writes traces with the Python package `otf2`."""

    def __init__(
        self,
        archive: Any,
        n_ranks: int,
        comms: dict[str, list[int]],
        threads: int,
        hosts: list[str] | None = None,
    ) -> None:
        from otf2.enums import GroupType, LocationGroupType, LocationType, Paradigm

        self.archive = archive
        self.definitions = d = archive.definitions
        self.paradigm = Paradigm
        tree = d.system_tree_node("machine", class_name="machine")
        nodes = {
            host: d.system_tree_node(host, class_name="node", parent=tree)
            for host in dict.fromkeys(hosts or [])
        }
        self.locations = []
        for rank in range(n_ranks):
            process = d.location_group(
                f"rank {rank}",
                location_group_type=LocationGroupType.PROCESS,
                system_tree_parent=nodes[hosts[rank]] if hosts else tree,
            )
            for thread in range(threads):
                name = f"thread {thread}"
                self.locations.append(d.location(name, type=LocationType.CPU_THREAD, group=process))
        mpi: dict[str, Any] = {"paradigm": Paradigm.MPI}
        masters = self.locations[::threads]
        d.group("all", group_type=GroupType.COMM_LOCATIONS, members=masters, **mpi)
        self.comms = {}
        for name, members in comms.items():
            group = d.group(name, group_type=GroupType.COMM_GROUP, members=members, **mpi)
            self.comms[name] = d.comm(name, group=group)
        self.regions: dict[str, Any] = {}
        self.attribute: Any = None

    def define_attribute(self, name: str, type_: str) -> None:
        """An attribute of events."""
        from otf2.enums import Type

        self.attribute = self.definitions.attribute(name, type=getattr(Type, type_))

    def region(self, name: str) -> Any:
        if name not in self.regions:
            mpi = name.startswith("MPI_")
            paradigm = self.paradigm.MPI if mpi else self.paradigm.USER
            self.regions[name] = self.definitions.region(name, paradigm=paradigm)
        return self.regions[name]

    def play(self, location: int, script: list[tuple[Any, ...]]) -> None:
        """Write events `(time, what, *arguments)` of one location.

        A dictionary as last argument has the value of the event's attribute.
        """
        writer = self.archive.event_writer_from_location(self.locations[location])
        for time, what, *arguments in script:
            values = [
                self.comms[value] if isinstance(value, str) and value in self.comms else value
                for value in arguments
            ]
            named: dict[str, Any] = {}
            if values and isinstance(values[-1], dict):
                named["attributes"] = {self.attribute: next(iter(values.pop().values()))}
            if what in ("enter", "leave"):
                values = [self.region(values[0])]
            getattr(writer, what)(time, *values, **named)

    def clock_offsets(self, location: int, offsets: list[tuple[int, int]]) -> None:
        """Write `(time of its own clock, what to add to it)` of one location, in ticks."""
        import _otf2

        # The package numbers locations from 0 in the order of their definition.
        writer = _otf2.Archive_GetDefWriter(self.archive.handle, location)
        for time, offset in offsets:
            _otf2.DefWriter_WriteClockOffset(writer, time, offset, 0.0)


Build = Callable[..., Path]


def writing(folder: Path) -> Build:
    """A function that writes a trace below `folder` from scripts, one for each location."""
    writer_module = pytest.importorskip("otf2.writer", reason="it writes the test traces")
    number = iter(range(1000))

    def write(
        scripts: list[list[tuple[Any, ...]]],
        comms: dict[str, list[int]] | None = None,
        resolution: int = 10**9,
        threads: int = 1,
        grid: tuple[int, ...] = (),
        creator: str = "",
        hosts: list[str] | None = None,
        offsets: list[list[tuple[int, int]]] | None = None,
        windows: dict[str, str] | None = None,
        attribute: str = "",
        attribute_type: str = "STRING",
        utc_ns: int | None = None,
    ) -> Path:
        path = folder / f"trace{next(number)}"
        n_ranks = len(scripts) // threads
        world = {"MPI_COMM_WORLD": list(range(n_ranks))}
        with writer_module.open(str(path), timer_resolution=resolution) as archive:
            if creator:
                archive.creator = creator
            writer = Writer(archive, n_ranks, world | (comms or {}), threads, hosts)
            for window, comm in (windows or {}).items():
                windowed = writer.comms[comm]
                writer.comms[window] = writer.definitions.rma_win(window, comm=windowed)
            if attribute:
                writer.define_attribute(attribute, attribute_type)
            if grid:
                sides = tuple(
                    writer.definitions.cart_dimension(f"d{at}", size=side)
                    for at, side in enumerate(grid)
                )
                writer.definitions.cart_topology(
                    "grid", communicator=writer.comms["MPI_COMM_WORLD"], dimensions=sides
                )
            for location, script in enumerate(scripts):
                writer.play(location, script)
            for location, recorded in enumerate(offsets or []):
                writer.clock_offsets(location, recorded)
            if utc_ns is not None:  # The package takes the time of writing.
                archive._realtime_timestamp = utc_ns / 1e9
        return path

    return write


def call(name: str, start: int, *records: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Events of one call: enter at `start`, a record each tick, leave."""
    events: list[tuple[Any, ...]] = [(start, "enter", name)]
    events += [(start + 1 + at, *record) for at, record in enumerate(records)]
    events.append((start + 1 + len(records), "leave", name))
    return events


def barrier(start: int, comm: str, operation: str = "ALLREDUCE") -> list[tuple[Any, ...]]:
    """Events of one collective call: enter at `start`, begin and end, leave."""
    from otf2.enums import CollectiveOp

    what = getattr(CollectiveOp, operation)
    end = ("mpi_collective_end", what, comm, 0 if operation == "BCAST" else 2**32 - 1, 8, 8)
    name = f"MPI_{operation.capitalize()}"
    return call(name, start, ("mpi_collective_begin",), end)


def ops(program: Program, rank: int) -> list[tuple[str, int, int]]:
    """(operation, peer or request of a WAIT, amount) of a rank."""
    out = []
    for at in range(int(program.rank_start[rank]), int(program.rank_start[rank + 1])):
        op = Op(int(program.kind[at]))
        which = program.request[at] if op == Op.WAIT else program.peer[at]
        out.append((op.name, int(which), int(program.amount[at])))
    return out


def assert_completes(program: Program) -> None:
    """Replay with unlimited buffers: every wait must end, every message must be taken."""
    program.check()
    n = program.n_ranks
    sent: Counter[tuple[int, int, int]] = Counter()
    wanted: Counter[tuple[int, int, int]] = Counter()
    at = program.rank_start[:-1].astype(int).tolist()
    end = program.rank_start[1:].astype(int).tolist()
    open_: list[dict[int, tuple[tuple[int, int, int], int]]] = [{} for _ in range(n)]
    kind, peer = program.kind.tolist(), program.peer.tolist()
    tag, request = program.tag.tolist(), program.request.tolist()

    def ready(rank: int, number: int) -> bool:
        key, turn = open_[rank].get(number, ((0, 0, 0), 0))
        return sent[key] >= turn

    moved = True
    while moved:
        moved = False
        for rank in range(n):
            while at[rank] < end[rank]:
                op = at[rank]
                if kind[op] in SENDS:
                    sent[rank, peer[op], tag[op]] += 1
                elif kind[op] == Op.IRECV:
                    key = (peer[op], rank, tag[op])
                    wanted[key] += 1
                    open_[rank][request[op]] = (key, wanted[key])
                elif kind[op] == Op.WAIT:
                    if not ready(rank, request[op]):
                        break
                    open_[rank].pop(request[op], None)
                elif kind[op] == Op.WAITALL:
                    if not all(ready(rank, number) for number in open_[rank]):
                        break
                    open_[rank].clear()
                at[rank] += 1
                moved = True
    assert at == end, f"ranks {[r for r in range(n) if at[r] < end[r]]} never finish"
    assert sent == wanted
