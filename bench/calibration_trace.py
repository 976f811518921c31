"""An OTF2 trace of a small application on a simulated machine, written as a tracer would.

Sixteen ranks, two on each of eight hosts, meet in pairs that change from step to step. One of a
pair sends first, the other answers; both compute before, so some receivers are late. Every rank has
a clock of its own, up to 10 ms off, with a resolution of 1 ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tailback.simulate.execute import execute
from tailback.simulate.prepare import PreparedScenario
from tailback.traffic.program import Label, Program, ProgramBuilder

RANKS, STEPS = 16, 120
SIZES = (8, 512, 2048, 4096, 8192, 12288, 16384, 20480, 24576, 32768, 65536, 262144, 1 << 20)
CLOCKS_NS = 10_000_000


@dataclass(frozen=True)
class Meeting:
    """Two ranks that meet: one sends and waits for the answer."""

    first: int
    second: int
    size: int
    computes_ps: tuple[int, int]


def meetings(rng: np.random.Generator) -> list[Meeting]:
    """Who meets whom, in the order of steps."""
    out = []
    for step in range(STEPS):
        order = rng.permutation(RANKS)
        if step % 4 == 0:
            # Every fourth time the two of a host.
            order = np.arange(RANKS)
        for a, b in order.reshape(-1, 2).tolist():
            size = int(rng.choice(SIZES))
            out.append(
                Meeting(a, b, size, (int(rng.integers(0, 60e6)), int(rng.integers(0, 60e6))))
            )
    return out


def program(met: list[Meeting]) -> Program:
    """The application."""
    build = ProgramBuilder("pairs", RANKS)
    label = build.label(Label("pairs", "MPI_Send"))
    for one in met:
        for rank, other, computes in zip(
            (one.first, one.second), (one.second, one.first), one.computes_ps, strict=True
        ):
            build.compute(rank, computes)
            for send in (rank == one.first, rank != one.first):
                post = build.isend if send else build.irecv
                build.wait(rank, post(rank, other, one.size, 1, label))
    return build.build()


def scripts(
    prepared: PreparedScenario, met: list[Meeting], noise: float, rng: np.random.Generator
) -> list[list[tuple[Any, ...]]]:
    """Events of each rank: ``(time in ns, what, arguments)``."""
    run = execute(prepared.with_program(program(met)))
    table = run.tables["messages"].sort("post_ps", "message")
    line = float(prepared.fabric.link_gbps[0])
    host = prepared.fabric.node_host[prepared.observed.node]
    queue: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for row in table.iter_rows(named=True):
        key = (row["src_rank"], row["dst_rank"])
        queue.setdefault(key, []).append((row["post_ps"], row["start_ps"], row["arrival_ps"]))
    engine = prepared.scenario.engine
    now, out = [0] * RANKS, [list[tuple[Any, ...]]() for _ in range(RANKS)]
    clock = rng.integers(-CLOCKS_NS, CLOCKS_NS, RANKS) + CLOCKS_NS

    def told(rank: int, ps: float) -> int:
        return round(ps / 1000) + int(clock[rank])

    def sends(rank: int, other: int, size: int) -> None:
        post, start, arrival = queue[rank, other].pop(0)
        packets = max(-(-size // engine.packet), 1)
        left = start + (size + packets * engine.header) * 8000 / line
        done = arrival if host[rank] == host[other] else left
        out[rank] += [
            (told(rank, post), "enter", "MPI_Send"),
            (told(rank, post), "mpi_send", other, "MPI_COMM_WORLD", 1, size),
            (told(rank, done), "leave", "MPI_Send"),
        ]
        answers[rank, other] = (post, arrival)
        now[rank] = int(done)

    def receives(rank: int, other: int, size: int) -> None:
        post, arrival = answers.pop((other, rank))
        # What a library and its system take longer once and again.
        late = arrival + (arrival - post) * noise * rng.standard_exponential()
        done = max(now[rank], late)
        out[rank] += [
            (told(rank, now[rank]), "enter", "MPI_Recv"),
            (told(rank, done), "mpi_recv", other, "MPI_COMM_WORLD", 1, size),
            (told(rank, done), "leave", "MPI_Recv"),
        ]
        now[rank] = int(max(now[rank], arrival))

    answers: dict[tuple[int, int], tuple[int, int]] = {}
    for one in met:
        now[one.first] += one.computes_ps[0]
        now[one.second] += one.computes_ps[1]
        sends(one.first, one.second, one.size)
        receives(one.second, one.first, one.size)
        sends(one.second, one.first, one.size)
        receives(one.first, one.second, one.size)
    return [sorted_events(events) for events in out]


def sorted_events(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Events whose times never run backwards: noise may end a call after the next began."""
    latest, out = 0, []
    for time, *rest in events:
        latest = max(latest, time)
        out.append((latest, *rest))
    return out


def write(path: Path, events: list[list[tuple[Any, ...]]], hosts: list[str]) -> Path:
    """Write the trace with the package `otf2`."""
    import otf2.writer
    from otf2.enums import GroupType, LocationGroupType, LocationType, Paradigm

    mpi: dict[str, Any] = {"paradigm": Paradigm.MPI}
    with otf2.writer.open(str(path), timer_resolution=10**9) as archive:
        d = archive.definitions
        tree = d.system_tree_node("machine", class_name="machine")
        nodes = {
            name: d.system_tree_node(name, class_name="node", parent=tree)
            for name in dict.fromkeys(hosts)
        }
        locations = [
            d.location("0", type=LocationType.CPU_THREAD, group=d.location_group(
                f"rank {rank}", location_group_type=LocationGroupType.PROCESS,
                system_tree_parent=nodes[host],
            ))
            for rank, host in enumerate(hosts)
        ]  # fmt: skip
        d.group("all", group_type=GroupType.COMM_LOCATIONS, members=locations, **mpi)
        group = d.group("world", group_type=GroupType.COMM_GROUP,
                        members=list(range(len(hosts))), **mpi)  # fmt: skip
        comm = d.comm("MPI_COMM_WORLD", group=group)
        regions = {name: d.region(name, **mpi) for name in ("MPI_Send", "MPI_Recv")}
        for location, script in zip(locations, events, strict=True):
            writer = archive.event_writer_from_location(location)
            for time, what, *arguments in script:
                values = [comm if value == "MPI_COMM_WORLD" else value for value in arguments]
                if what in ("enter", "leave"):
                    values = [regions[arguments[0]]]
                getattr(writer, what)(time, *values)
    return path / "traces.otf2"
