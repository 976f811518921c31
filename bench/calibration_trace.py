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
import polars as pl
from _cases import Definitions

from tailback.calibration.routes import Machine
from tailback.simulation import PreparedScenario, execute
from tailback.traffic import Label, Program, ProgramBuilder

RANKS, STEPS = 16, 80
SIZES = (8, 512, 2048, 4096, 8192, 12288, 16384, 20480, 24576, 32768, 65536, 262144, 1 << 20)
CLOCKS_NS = 10_000_000
LATE_PS = 5e6
"""The extra time of a rank to receive is exponential, with the noise times this as its mean."""
WORLD = "MPI_COMM_WORLD"


@dataclass(frozen=True)
class Meeting:
    """Two ranks that meet: one sends and waits for the answer.

    Both compute first, and each takes a little longer to receive than the network alone would.
    """

    first: int
    second: int
    size: int
    computes_ps: tuple[int, int]
    late_ps: tuple[int, int]


def meetings(noise: float, rng: np.random.Generator) -> list[Meeting]:
    """Who meets whom, in the order of steps."""
    out = []
    for step in range(STEPS):
        order = rng.permutation(RANKS)
        if step % 4 == 0:
            # Every fourth time the two ranks of a host meet.
            order = np.arange(RANKS)
        for a, b in order.reshape(-1, 2).tolist():
            size = int(rng.choice(SIZES))
            late = np.rint(noise * LATE_PS * rng.standard_exponential(2)).astype(int).tolist()
            computes = rng.integers(0, 60_000_000, 2).tolist()
            out.append(Meeting(a, b, size, (computes[0], computes[1]), (late[0], late[1])))
    return out


def program(met: list[Meeting]) -> Program:
    """The application."""
    build = ProgramBuilder("pairs", RANKS)
    label = build.label(Label("pairs", "MPI_Send"))
    for meeting in met:
        for rank, other, computes, late in zip(
            (meeting.first, meeting.second),
            (meeting.second, meeting.first),
            meeting.computes_ps,
            meeting.late_ps,
            strict=True,
        ):
            build.compute(rank, computes)
            for send in (rank == meeting.first, rank != meeting.first):
                post = build.isend if send else build.irecv
                build.wait(rank, post(rank, other, meeting.size, 1, label))
                if not send:
                    build.compute(rank, late)
    return build.build()


def scripts(
    prepared: PreparedScenario, met: list[Meeting], rng: np.random.Generator
) -> list[list[tuple[Any, ...]]]:
    """Events of each rank: ``(time in ns, what, arguments)``."""
    table = execute(prepared.with_program(program(met))).tables["messages"]
    return _Timeline(prepared, table.sort("post_ps", "message"), rng).play(met)


class _Timeline:
    """What each rank does when, from the messages of the run."""

    def __init__(
        self, prepared: PreparedScenario, table: pl.DataFrame, rng: np.random.Generator
    ) -> None:
        self.machine = Machine(prepared.fabric)
        self.switch_ps = prepared.scenario.engine.switch_delay
        self.host = prepared.fabric.node_host[prepared.observed.node].tolist()
        self.clock = (rng.integers(-CLOCKS_NS, CLOCKS_NS, RANKS) + CLOCKS_NS).tolist()
        self.sent: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.posts: list[list[int]] = [[] for _ in range(RANKS)]
        for src, dst, post, arrival in table.select(
            "src_rank", "dst_rank", "post_ps", "arrival_ps"
        ).iter_rows():
            self.sent.setdefault((src, dst), []).append((post, arrival))
            self.posts[src].append(post)
        self.now = [0] * RANKS
        self.arrivals: dict[tuple[int, int], int] = {}
        self.events: list[list[tuple[Any, ...]]] = [[] for _ in range(RANKS)]

    def play(self, met: list[Meeting]) -> list[list[tuple[Any, ...]]]:
        """Events of all ranks."""
        for meeting in met:
            for rank, computes in zip(
                (meeting.first, meeting.second), meeting.computes_ps, strict=True
            ):
                self.now[rank] += computes
            self._send(meeting.first, meeting.second, meeting.size)
            self._receive(meeting.second, meeting.first, meeting.size, meeting.late_ps[1])
            self._send(meeting.second, meeting.first, meeting.size)
            self._receive(meeting.first, meeting.second, meeting.size, meeting.late_ps[0])
        return self.events

    def _call(self, rank: int, name: str, enter: int, leave: int, at: int, *record: Any) -> None:
        enter, leave, at = (round(ps / 1000) + self.clock[rank] for ps in (enter, leave, at))
        self.events[rank] += [(enter, "enter", name), (at, *record), (leave, "leave", name)]

    def _send(self, rank: int, other: int, size: int) -> None:
        post, arrival = self.sent[rank, other].pop(0)
        self.posts[rank].pop(0)
        route = self.machine.route(self.host[rank], self.host[other])
        # Its last byte left so long before it arrived, and earlier if it had to wait on the way.
        left = round(arrival - route.cable_ps - route.switches * self.switch_ps)
        if self.posts[rank]:
            left = min(left, self.posts[rank][0])
        self._call(rank, "MPI_Send", post, left, post, "mpi_send", other, WORLD, 1, size)
        self.arrivals[rank, other] = arrival
        self.now[rank] = left

    def _receive(self, rank: int, other: int, size: int, late: int) -> None:
        # What it sends next was posted after it had received this.
        latest = self.posts[rank][0] if self.posts[rank] else 1 << 62
        enter = min(self.now[rank], latest)
        done = min(max(enter, self.arrivals.pop((other, rank))) + late, latest)
        self._call(rank, "MPI_Recv", enter, done, done, "mpi_recv", other, WORLD, 1, size)
        self.now[rank] = done


def write(path: Path, events: list[list[tuple[Any, ...]]], hosts: list[str]) -> Path:
    """Write the trace with the package `otf2`."""
    import otf2.writer

    with otf2.writer.open(str(path), timer_resolution=10**9) as archive:
        names = Definitions(archive, hosts)
        for location, script in zip(names.locations, events, strict=True):
            writer = archive.event_writer_from_location(location)
            for time, what, *arguments in script:
                values = [names.world if value == WORLD else value for value in arguments]
                if what in ("enter", "leave"):
                    values = [names.region(arguments[0])]
                getattr(writer, what)(time, *values)
    return path / "traces.otf2"
