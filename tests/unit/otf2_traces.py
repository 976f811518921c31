"""Traces to read: names of public data sets, and small ones written with the package `otf2`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EZTRACE16 = "eztrace-stencil16"
EZTRACE64 = "eztrace-stencil64"
SCOREP64 = "tracer-otf2-stencil4d/examples/stencil4d-otf/traces-64"


class Writer:
    """Writes traces with the Python package `otf2`."""

    def __init__(
        self, archive: Any, n_ranks: int, comms: dict[str, list[int]], threads: int
    ) -> None:
        from otf2.enums import GroupType, LocationGroupType, LocationType, Paradigm

        self.archive = archive
        self.definitions = d = archive.definitions
        self.paradigm = Paradigm
        tree = d.system_tree_node("machine", class_name="machine")
        self.locations = []
        for rank in range(n_ranks):
            process = d.location_group(
                f"rank {rank}",
                location_group_type=LocationGroupType.PROCESS,
                system_tree_parent=tree,
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

    def region(self, name: str) -> Any:
        if name not in self.regions:
            mpi = name.startswith("MPI_")
            paradigm = self.paradigm.MPI if mpi else self.paradigm.USER
            self.regions[name] = self.definitions.region(name, paradigm=paradigm)
        return self.regions[name]

    def play(self, location: int, script: list[tuple[Any, ...]]) -> None:
        """Write events `(time, what, *arguments)` of one location."""
        writer = self.archive.event_writer_from_location(self.locations[location])
        for time, what, *arguments in script:
            values = [
                self.comms[value] if isinstance(value, str) and value in self.comms else value
                for value in arguments
            ]
            if what in ("enter", "leave"):
                values = [self.region(arguments[0])]
            getattr(writer, what)(time, *values)


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
    ) -> Path:
        path = folder / f"trace{next(number)}"
        n_ranks = len(scripts) // threads
        world = {"MPI_COMM_WORLD": list(range(n_ranks))}
        with writer_module.open(str(path), timer_resolution=resolution) as archive:
            if creator:
                archive.creator = creator
            writer = Writer(archive, n_ranks, world | (comms or {}), threads)
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
