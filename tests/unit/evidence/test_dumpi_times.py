"""Times of DUMPI traces: a run recorded as OTF2 and as DUMPI is the same measured run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.errors import TraceError
from tailback.evidence import MeasuredRun, has_times, measure
from tailback.traffic.readers import read_trace, timed_reader
from tests.factories.dumpi_of_otf2 import dumpi_scripts, whole
from tests.factories.dumpi_traces import WORLD as WORLD_HANDLE
from tests.factories.dumpi_traces import Recorder, binary, write
from tests.factories.evidence_traces import WORLD, Script, collective, receive, send
from tests.factories.otf2_traces import Build, writing
from tests.factories.public_data import real

COMMS = {"even": [2, 0], "odd": [1, 3]}
US = 10**6


@pytest.fixture
def otf2(tmp_path: Path) -> Build:
    return writing(tmp_path)


class Exchange:
    """Events of four ranks that use every kind of call, after computations of random length."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._request = 0
        self.scripts: list[Script] = [[] for _ in range(4)]
        self._now = [20] * 4
        for rank in range(4):
            name = "even" if rank % 2 == 0 else "odd"
            self._call(rank, "MPI_Comm_split", [], name)
        for turn in range(6):
            for exchange in (self._blocking, self._waits, self._tests, self._pairs):
                exchange(turn)
            self._collectives(turn)

    def _call(self, rank: int, name: str, records: list[Any], *more: Any) -> None:
        """A call with records, each ``(is at the end, what, *arguments)``."""
        enter = self._now[rank] + self._draw.randrange(1, 30_000)
        leave = self._now[rank] = enter + self._draw.randrange(1, 20_000)
        self.scripts[rank] += [
            (enter, "enter", name, *more),
            *((leave if late else enter, *record) for late, *record in records),
            (leave, "leave", name),
        ]

    def _next(self) -> int:
        self._request += 1
        return self._request

    def _blocking(self, turn: int) -> None:
        for rank in range(4):
            to, size = (rank + 1) % 4, 100 + turn
            source = (rank - 1) % 4
            calls = [("MPI_Send", (False, "mpi_send", to, WORLD, turn, size)),
                     ("MPI_Recv", (True, "mpi_recv", source, WORLD, turn, size))]  # fmt: skip
            for name, record in calls if rank % 2 else calls[::-1]:
                self._call(rank, name, [record])

    def _waits(self, turn: int) -> None:
        """Two receives and two sends of each rank, completed out of order, in two calls."""
        for rank in range(4):
            comm, peer = ("even" if rank % 2 == 0 else "odd"), 1 - (rank // 2 ^ (rank % 2 == 0))
            asked = [(self._next(), tag) for tag in (50, 51)]
            for request, _ in asked:
                self._call(rank, "MPI_Irecv", [(True, "mpi_irecv_request", request)])
            sent = [self._next() for _ in asked]
            for request, (_, tag) in zip(sent, asked, strict=True):
                self._call(rank, "MPI_Isend", [
                    (False, "mpi_isend", peer, comm, tag, 3000 + tag, request)
                ])  # fmt: skip
            came = [(True, "mpi_irecv", peer, comm, tag, 3000 + tag, request)
                    for request, tag in asked]  # fmt: skip
            self._call(rank, "MPI_Wait", [came[1]])
            self._call(rank, "MPI_Waitall", [
                came[0], *((True, "mpi_isend_complete", request) for request in sent)
            ])  # fmt: skip

    def _tests(self, turn: int) -> None:
        for rank in range(4):
            if rank % 2:
                self._call(rank, "MPI_Send", [(False, "mpi_send", rank - 1, WORLD, 9, 77)])
                continue
            request = self._next()
            self._call(rank, "MPI_Irecv", [(True, "mpi_irecv_request", request)])
            self._call(rank, "MPI_Test", [], request)
            came = (True, "mpi_irecv", rank + 1, WORLD, 9, 77, request)
            self._call(rank, "MPI_Test", [came], request)

    def _pairs(self, turn: int) -> None:
        for rank in range(4):
            peer = rank ^ 1
            self._call(rank, "MPI_Sendrecv", [
                (False, "mpi_send", peer, WORLD, 70, 40 + rank),
                (True, "mpi_recv", peer, WORLD, 70, 40 + peer),
            ])  # fmt: skip

    def _collectives(self, turn: int) -> None:
        from otf2.enums import CollectiveOp

        none = 2**32 - 1
        for name, comm_of, root in (
            ("BARRIER", {}, none), ("ALLREDUCE", {}, none), ("BCAST", {}, 2), ("REDUCE", {}, 1),
            ("GATHER", {}, 3), ("SCATTER", {}, 0), ("ALLTOALL", COMMS, none),
            ("ALLGATHER", COMMS, none), ("BCAST", COMMS, 1),
        ):  # fmt: skip
            for rank in range(4):
                comm, members = next(
                    ((comm, group) for comm, group in comm_of.items() if rank in group),
                    (WORLD, list(range(4))),
                )
                is_root, size = members.index(rank) == root, 64 * (name != "BARRIER")
                sends = is_root if name == "BCAST" else name != "SCATTER" or is_root
                receives = (
                    not is_root
                    if name == "BCAST"
                    else (is_root if name in ("REDUCE", "GATHER") else True)
                )
                end = (True, "mpi_collective_end", getattr(CollectiveOp, name), comm, root,
                       size * sends, size * receives)  # fmt: skip
                self._call(rank, f"MPI_{name.capitalize()}",
                           [(False, "mpi_collective_begin"), end])  # fmt: skip


def same_names(table: pl.DataFrame) -> pl.DataFrame:
    """With the names of communicators of OTF2, which DUMPI does not record."""
    if "communicator" not in table.columns:
        return table
    names = {f"communicator 0.{WORLD_HANDLE + 5 + at}": name
             for at, name in enumerate(COMMS, 1)}  # fmt: skip
    return table.with_columns(pl.col("communicator").replace(names))


def comparable(run: MeasuredRun) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of all tables; the numbers of collectives depend on the order of reading."""
    tables = {name: same_names(table) for name, table in run.tables.items()}
    first = tables["collectives"].group_by("instance").agg(pl.col("call").min().alias("first"))
    tables["collectives"] = (
        tables["collectives"].join(first, on="instance").drop("instance").sort("first", "rank")
    )
    tables["waits"] = tables["waits"].sort("call", "kind")
    tables["split"] = tables["split"].sort("rank", "phase", "part")
    return {name: table.rows() for name, table in tables.items()}


@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
@pytest.mark.parametrize("any_source", [False, True], ids=["named", "any source"])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_the_same_from_otf2_and_from_dumpi(
    tmp_path: Path, otf2: Build, seed: int, any_source: bool, as_text: bool
) -> None:
    scripts = Exchange(seed).scripts
    hosts = ["h0", "h0", "h1", "h1"]
    one = measure(otf2([whole(script) for script in scripts], COMMS, hosts=hosts), environment={})
    (tmp_path / "dumpi").mkdir()
    made = dumpi_scripts(scripts, COMMS, any_source=any_source)
    folder = write(tmp_path / "dumpi", *made, of=[Recorder(host) for host in hosts],
                   as_text=as_text)  # fmt: skip
    two = measure(folder, environment={})
    expected, found = comparable(one), comparable(two)
    for name in ("calls", "transfers", "collectives", "waits", "split", "hosts"):
        assert found[name] == expected[name], name
    assert len(one.tables["transfers"]) == 6 * (4 + 8 + 2 + 4)
    assert set(two.tables["transfers"]["source"]) == {"measured"}
    left = one.measured.model_copy(update={"notes": []})
    assert two.measured.model_copy(update={"notes": []}) == left


def two_ranks(tmp_path: Path, *of: Recorder, as_text: bool = False) -> Path:
    """Two barriers, 1 ms apart, and a message between them."""
    barriers = [collective(20, 1_000), collective(1_001_000, 1_002_000)]
    scripts = [[*barriers[0], *send(901_000, 902_000, to=1), *barriers[1]],
               [*barriers[0], *receive(1_000, 903_000, source=0), *barriers[1]]]  # fmt: skip
    folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return write(folder, *dumpi_scripts(scripts), of=of, as_text=as_text)


@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
def test_a_clock_that_shows_utc_tells_when_the_run_began(tmp_path: Path, as_text: bool) -> None:
    start = 1_700_000_000
    path = two_ranks(tmp_path, *[Recorder("h", start, start)] * 2, as_text=as_text)
    run = measure(path, environment={})
    # When MPI_Init is left.
    assert run.origin_unix_ns == start * 10**9 + 10
    assert run.measured.elapsed_ps == 1_002_000 * 1000 - 10_000
    assert run.tables["hosts"]["host"].to_list() == ["h", "h"]


@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
def test_clocks_of_hosts_that_were_started_years_apart_are_compared(
    tmp_path: Path, as_text: bool
) -> None:
    start = 1_700_000_000
    path = two_ranks(tmp_path, Recorder("a", start, 777), Recorder("b", start, 150_000_000),
                     as_text=as_text)  # fmt: skip
    run = measure(path, environment={})
    assert run.origin_unix_ns is None
    assert run.measured.elapsed_ps == 1_002_000 * 1000 - 10_000
    # Without a start, too: then both begin at the same time.
    lines = sorted(path.glob("*.txt"))
    for file in lines:
        file.write_text(file.read_text().split("\n", 4)[-1])
    assert len(lines) == 2 * as_text
    assert measure(path, environment={}).measured.elapsed_ps == 1_002_000 * 1000 - 10_000


def test_ranks_of_a_host_have_one_clock(tmp_path: Path) -> None:
    """Starts are whole seconds, which may pass between two ranks."""
    path = two_ranks(tmp_path, Recorder("a", 1_700_000_000, 777), Recorder("a", 1_700_000_001, 777))
    assert measure(path, environment={}).measured.clocks.violated == 0
    assert measure(path, environment={}).measured.elapsed_ps == 1_002_000 * 1000 - 10_000


@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
def test_processor_time_is_no_time_of_the_run(tmp_path: Path, as_text: bool) -> None:
    path = two_ranks(tmp_path, *[Recorder(wall=False)] * 2, as_text=as_text)
    assert not has_times(path)
    assert timed_reader(path) is None
    with pytest.raises(TraceError, match="has no times of calls"):
        measure(path)
    assert read_trace(path).recording is not None


@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
def test_the_time_of_the_thread_with_most_calls_is_split(tmp_path: Path, as_text: bool) -> None:
    message = {"count": 3, "datatype": 2, "comm": WORLD_HANDLE, "tag": 4}
    there = [(at, at + 50, "MPI_Send", {**message, "dest": 1, "thread": thread})
             for at, thread in ((20, 0), (60, 1), (80, 0), (200, 0))]  # fmt: skip
    here = [(at, at + 50, "MPI_Recv", {**message, "source": 0, "status": []})
            for at in (20, 80, 140, 200)]  # fmt: skip
    run = measure(write(tmp_path, there, here, as_text=as_text), environment={})
    assert any("1 ranks call MPI from several threads" in note for note in run.measured.notes)
    calls = run.tables["calls"].filter(pl.col("rank") == 0)
    assert calls["enter_ps"].to_list() == [10_000, 70_000, 190_000]
    # The other message arrives, and nobody in the table has sent it.
    assert run.tables["transfers"]["send_call"].to_list() == [0, None, 1, 2]


def test_receives_without_status_are_matched_and_marked(tmp_path: Path) -> None:
    message = {"count": 3, "datatype": 2, "comm": WORLD_HANDLE, "tag": 4}
    one = [(20, 30, "MPI_Send", {**message, "dest": 1}),
           (40, 50, "MPI_Send", {**message, "dest": 1, "tag": 5})]  # fmt: skip
    two = [(20, 40, "MPI_Recv", {**message, "source": -1, "tag": -1, "status": []})]
    run = measure(write(tmp_path, one, two), environment={})
    assert run.tables["transfers"]["source"].to_list() == ["inferred"]
    assert any("does not record the source of 1 receives" in note for note in run.measured.notes)
    assert any("1 sends and receives have no other end" in note for note in run.measured.notes)


def test_damaged_files_are_refused_or_read_and_never_end_otherwise(tmp_path: Path) -> None:
    """Headers, which reading the calls does not need, are damaged as well."""
    path = two_ranks(tmp_path, *[Recorder("host-7", 1_700_000_000, 5)] * 2)
    draw = random.Random(5)
    file = path / "run-0001.bin"
    whole_file = file.read_bytes()
    header = whole_file.index(b"host-7") - 20
    refused = 0
    for turn in range(600):
        data = bytearray(whole_file)
        for _ in range(draw.randrange(1, 4)):
            low = header if turn % 2 else 0
            data[draw.randrange(low, len(data))] = draw.choice((0, 1, 127, 128, 255))
        file.write_bytes(data[: len(data) - draw.choice((0, 0, 0, 1, 60))])
        try:
            assert timed_reader(path, "dumpi") is not None
            run = measure(path, environment={}, format="dumpi")
            assert run.measured.elapsed_ps >= 0
        except TraceError:
            refused += 1
    assert 100 < refused < 600


def test_what_compiling_refuses_measuring_refuses(tmp_path: Path) -> None:
    path = two_ranks(tmp_path)
    (path / "run-0001.bin").write_bytes(binary([])[:-9])
    messages = []
    for read in (read_trace, measure):
        with pytest.raises(TraceError) as got:
            read(path)  # type: ignore[operator]
        messages.append((str(got.value), got.value.place, got.value.remedy))
    assert messages[0] == messages[1]


@pytest.mark.data
def test_the_test_trace_of_dumpi_is_a_measured_run() -> None:
    run = measure(real("dumpi-testtrace/tests/traces"), environment={})
    # Text of rank 0: MPI_Init is left at 1296777956.737670, and it is the first.
    assert run.origin_unix_ns == 1_296_777_956_737_670_000
    first = run.tables["calls"].filter(pl.col("rank") == 0)
    assert first["enter_ps"].to_list()[:3] == [24 * US, 34 * US, 42 * US]
    assert first["leave_ps"].to_list()[-1] == 2262 * US
    assert run.measured.clocks.violated == 0
    assert len(run.tables["transfers"]) == 4
    assert len(run.tables["collectives"]) == 8
    assert set(run.tables["hosts"]["host"]) == {"hadalst-mbp.ca.sandia.gov"}
    assert run.measured.notes == []
