"""OTF2 traces compiled while they are read: the same programs as of the columns of the trace."""

from __future__ import annotations

import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.traffic.program import Program
from tailback.traffic.readers.otf2.compile import compile_trace
from tailback.traffic.readers.otf2.posts import read_posts
from tailback.traffic.readers.otf2.reader import find_anchor, library_path, load
from tests.factories.otf2_traces import SCOREP64, Build, barrier, call, writing
from tests.factories.public_data import real

WORLD, HALF = "MPI_COMM_WORLD", "half"
NOBODY = 2**32 - 2


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return writing(tmp_path)


def streamed(path: Path) -> Program | None:
    return read_posts(library_path(), find_anchor(path), 2, None)


def of_columns(path: Path) -> Program:
    anchor = find_anchor(path)
    return compile_trace(load(anchor), name=anchor.stem, file=anchor)


def assert_equal(first: Program | None, other: Program) -> None:
    assert first is not None
    for field in fields(Program):
        mine, its = getattr(first, field.name), getattr(other, field.name)
        if isinstance(its, np.ndarray):
            assert mine.dtype == its.dtype and np.array_equal(mine, its), field.name
        else:
            assert mine == its, field.name


class RandomRun:
    """Calls of random kinds; every message is sent and received in the order of its stream."""

    def __init__(self, seed: int, n_ranks: int) -> None:
        self.draw = random.Random(seed)
        self.scripts: list[list[tuple[Any, ...]]] = [[] for _ in range(n_ranks)]
        self.time = [self.draw.randrange(5) for _ in range(n_ranks)]
        self.open: list[list[tuple[int, tuple[Any, ...]]]] = [[] for _ in range(n_ranks)]
        self.request = 0

    def add(self, rank: int, name: str | None, *records: tuple[Any, ...]) -> None:
        start = self.time[rank] + self.draw.choice((0, 0, 1, 30))
        if name is None:
            self.scripts[rank] += [(start + at, *record) for at, record in enumerate(records)]
            self.time[rank] = start + len(records)
        else:
            self.scripts[rank] += call(name, start, *records)
            self.time[rank] = self.scripts[rank][-1][0]

    def message(self) -> None:
        """One message, by blocking or non-blocking calls, in a call or outside of any."""
        ranks = range(len(self.scripts))
        source, target = self.draw.sample(ranks, 2)
        comm = self.draw.choice((WORLD, WORLD, HALF)) if max(source, target) < 3 else WORLD
        tag, size = self.draw.choice((3, 4, 900_000)), self.draw.randrange(100)
        received = size + (self.draw.random() < 0.1)
        to = target if self.draw.random() < 0.9 else NOBODY
        lost = self.draw.random() < 0.05
        if self.draw.random() < 0.5:
            name = self.draw.choice(("MPI_Send", "MPI_Ssend", None))
            self.add(source, name, ("mpi_send", to, comm, tag, size))
        else:
            self.request += 1
            self.add(source, "MPI_Isend", ("mpi_isend", to, comm, tag, size, self.request))
            self.open[source].append((self.request, ("mpi_isend_complete", self.request)))
        if lost:
            return
        source_stated = source if to != NOBODY else NOBODY
        if self.draw.random() < 0.5:
            self.add(
                target,
                self.draw.choice(("MPI_Recv", None)),
                ("mpi_recv", source_stated, comm, tag, received),
            )
        else:
            self.request += 1
            self.add(target, "MPI_Irecv", ("mpi_irecv_request", self.request))
            done = ("mpi_irecv", source_stated, comm, tag, received, self.request)
            self.open[target].append((self.request, done))

    def complete(self, rank: int) -> None:
        waiting = self.open[rank]
        self.draw.shuffle(waiting)
        number = self.draw.randrange(len(waiting) + 1)
        records = [record for _, record in waiting[:number]]
        if waiting[number:]:
            self.add(rank, "MPI_Test", ("mpi_request_test", waiting[number][0]))
        del waiting[:number]
        if records:
            self.add(rank, self.draw.choice(("MPI_Waitall", "MPI_Testsome")), *records)

    def step(self) -> None:
        what = self.draw.randrange(8)
        rank = self.draw.randrange(len(self.scripts))
        if what < 4:
            self.message()
        elif what == 4:
            self.complete(rank)
        elif what == 5:
            for member in range(len(self.scripts)):
                self.scripts[member] += barrier(self.time[member] + 1, WORLD)
                self.time[member] = self.scripts[member][-1][0]
        elif what == 6:
            name = self.draw.choice(("solve", "exchange"))
            self.scripts[rank].append((self.time[rank], "enter", name))
            self.message()
            self.scripts[rank].append((self.time[rank], "leave", name))
        else:
            self.add(rank, self.draw.choice(("MPI_Comm_rank", "MPI_Put", "MPI_Bsend")))

    def finished(self) -> list[list[tuple[Any, ...]]]:
        for rank, waiting in enumerate(self.open):
            self.add(rank, "MPI_Waitall", *[record for _, record in waiting])
        return self.scripts


@pytest.mark.parametrize("seed", range(40))
def test_the_program_is_that_of_the_columns(build: Build, seed: int) -> None:
    run = RandomRun(seed, 3 + seed % 3)
    for _ in range(60):
        run.step()
    creator = ("", "Score-P 8.0", "Tailback 1")[seed % 3]
    path = build(run.finished(), comms={HALF: [2, 0, 1]}, creator=creator)
    assert_equal(streamed(path), of_columns(path))


def test_a_truncated_call_ends_with_the_trace(build: Build) -> None:
    send = call("MPI_Send", 1, ("mpi_send", 1, WORLD, 5, 8))
    receive = call("MPI_Recv", 7, ("mpi_recv", 0, WORLD, 5, 8))[:-1]
    path = build([send, receive])
    assert_equal(streamed(path), of_columns(path))


def test_a_pause_of_the_recording_is_not_computation(build: Build) -> None:
    pause = [(10, "measurement_on_off", _mode("OFF")), (90, "measurement_on_off", _mode("ON"))]
    receive = call("MPI_Recv", 1, ("mpi_recv", 0, WORLD, 5, 8))
    path = build(
        [
            call("MPI_Send", 1, ("mpi_send", 1, WORLD, 5, 8)),
            receive + pause + call("MPI_Comm_rank", 95),
        ]
    )
    assert_equal(streamed(path), of_columns(path))


def _mode(name: str) -> Any:
    from otf2.enums import MeasurementMode

    return getattr(MeasurementMode, name)


@pytest.mark.parametrize(
    "unusual",
    [
        call("MPI_Irecv", 1, ("mpi_irecv_request", 3)),
        call("MPI_Wait", 1, ("mpi_isend_complete", 3)),
        call("MPI_Cancel", 1, ("mpi_request_cancelled", 3)),
        call("MPI_Ibarrier", 1, ("non_blocking_collective_request", 3)),
        call("MPI_Recv", 1, ("mpi_recv", 9, WORLD, 5, 8)),
        call("MPI_Barrier", 1),
    ],
    ids=["open", "completed twice", "cancelled", "collective", "no such rank", "no record"],
)
def test_an_unusual_trace_is_left_to_the_columns(build: Build, unusual: Any) -> None:
    assert streamed(build([unusual, []])) is None


def test_two_mpi_threads_are_left_to_columns(build: Build) -> None:
    send = call("MPI_Send", 1, ("mpi_send", 0, WORLD, 5, 8))
    assert streamed(build([send, send], threads=2)) is None
    assert streamed(build([send, []], threads=2)) is not None


@pytest.mark.data
def test_a_real_trace_is_the_same_either_way() -> None:
    path = real(SCOREP64)
    assert_equal(streamed(path), of_columns(path))
