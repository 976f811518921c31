"""Times of DUMPI traces: a run recorded as OTF2 and as DUMPI is the same measured run."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import polars as pl
import pytest

from tailback.errors import TraceError
from tailback.evidence import has_times, measure
from tailback.traffic.readers import read_trace, timed_reader
from tests.factories.dumpi_of_otf2 import dumpi_scripts, with_init_and_finalize
from tests.factories.dumpi_traces import WORLD as WORLD_HANDLE
from tests.factories.dumpi_traces import Recorder, binary, write
from tests.factories.evidence_traces import collective, receive, send
from tests.factories.exchange_events import COMMS, Exchange, comparable
from tests.factories.otf2_traces import Build, writing
from tests.factories.public_data import real

US = 10**6


@pytest.fixture
def otf2(tmp_path: Path) -> Build:
    return writing(tmp_path)


@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
@pytest.mark.parametrize("any_source", [False, True], ids=["named", "any source"])
@pytest.mark.parametrize("seed", range(3))
def test_otf2_and_dumpi_give_the_same_run(
    tmp_path: Path, otf2: Build, seed: int, any_source: bool, as_text: bool
) -> None:
    scripts = Exchange(seed).scripts
    hosts = ["h0", "h1", "h2", "h3"]
    of_otf2 = measure(
        otf2([with_init_and_finalize(script) for script in scripts], COMMS, hosts=hosts),
        environment={},
    )
    (tmp_path / "dumpi").mkdir()
    made = dumpi_scripts(scripts, COMMS, any_source=any_source)
    folder = write(
        tmp_path / "dumpi", *made, of=[Recorder(host) for host in hosts], as_text=as_text
    )
    of_dumpi = measure(folder, environment={})
    expected, dumpi_tables = comparable(of_otf2), comparable(of_dumpi)
    for name in ("calls", "transfers", "collectives", "waits", "split", "hosts"):
        assert dumpi_tables[name] == expected[name], name
    assert len(of_otf2.tables["transfers"]) == 6 * (4 + 8 + 2 + 4)
    assert set(of_dumpi.tables["transfers"]["source"]) == {"measured"}
    left = of_otf2.measured.model_copy(update={"notes": []})
    assert of_dumpi.measured.model_copy(update={"notes": []}) == left


def two_ranks(tmp_path: Path, *of: Recorder, as_text: bool = False) -> Path:
    """Two barriers, 1 ms apart, and a message between them."""
    barriers = [collective(20, 1_000), collective(1_001_000, 1_002_000)]
    scripts = [
        [*barriers[0], *send(901_000, 902_000, to=1), *barriers[1]],
        [*barriers[0], *receive(1_000, 903_000, source=0), *barriers[1]],
    ]
    folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return write(folder, *dumpi_scripts(scripts), of=of, as_text=as_text)


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
def test_a_clock_in_utc_tells_the_start(tmp_path: Path, as_text: bool, compressed: bool) -> None:
    start = 1_700_000_000
    path = two_ranks(tmp_path, *[Recorder("h", start, start)] * 2, as_text=as_text)
    for file in list(path.glob("run-*")) if compressed else []:
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    run = measure(path, environment={})
    # When MPI_Init is left.
    assert run.origin_unix_ns == start * 10**9 + 10
    assert run.measured.elapsed_ps == 1_002_000 * 1000 - 10_000
    assert run.tables["hosts"]["host"].to_list() == ["h", "h"]


@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
def test_clocks_started_years_apart_are_compared(tmp_path: Path, as_text: bool) -> None:
    start = 1_700_000_000
    path = two_ranks(
        tmp_path, Recorder("a", start, 777), Recorder("b", start, 150_000_000), as_text=as_text
    )
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
    measured = measure(path, environment={}).measured
    assert (measured.clocks.clocks, measured.clocks.error_ps, measured.clocks.violated) == (1, 0, 0)
    assert measured.elapsed_ps == 1_002_000 * 1000 - 10_000


def test_a_shared_hostname_proves_no_shared_clock(tmp_path: Path) -> None:
    path = two_ranks(tmp_path, *[Recorder("localhost", 1_700_000_000, 777)] * 2)
    report = measure(path, environment={}).measured.clocks
    assert report.clocks == 2 and report.error_ps


@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
def test_processor_time_is_no_time_of_the_run(tmp_path: Path, as_text: bool) -> None:
    path = two_ranks(tmp_path, *[Recorder(wall=False)] * 2, as_text=as_text)
    assert not has_times(path)
    assert timed_reader(path) is None
    with pytest.raises(TraceError, match="has no times of calls"):
        measure(path)
    assert read_trace(path).recording is not None


@pytest.mark.parametrize("as_text", [False, True], ids=["binary", "text"])
def test_the_busiest_threads_time_is_split(tmp_path: Path, as_text: bool) -> None:
    message = {"count": 3, "datatype": 2, "comm": WORLD_HANDLE, "tag": 4}
    there = [
        (at, at + 50, "MPI_Send", {**message, "dest": 1, "thread": thread})
        for at, thread in ((20, 0), (60, 1), (80, 0), (200, 0))
    ]
    here = [
        (at, at + 50, "MPI_Recv", {**message, "source": 0, "status": []})
        for at in (20, 80, 140, 200)
    ]
    run = measure(write(tmp_path, there, here, as_text=as_text), environment={})
    assert any("1 ranks call MPI from several threads" in note for note in run.measured.notes)
    calls = run.tables["calls"].filter(pl.col("rank") == 0)
    assert calls["enter_ps"].to_list() == [10_000, 70_000, 190_000]
    # The other message arrives, and nobody in the table has sent it.
    assert run.tables["transfers"]["send_call"].to_list() == [0, None, 1, 2]


def test_receives_without_status_are_matched_and_marked(tmp_path: Path) -> None:
    message = {"count": 3, "datatype": 2, "comm": WORLD_HANDLE, "tag": 4}
    sends = [
        (20, 30, "MPI_Send", {**message, "dest": 1}),
        (40, 50, "MPI_Send", {**message, "dest": 1, "tag": 5}),
    ]
    receives = [(20, 40, "MPI_Recv", {**message, "source": -1, "tag": -1, "status": []})]
    run = measure(write(tmp_path, sends, receives), environment={})
    assert run.tables["transfers"]["source"].to_list() == ["inferred"]
    assert any("does not record the source of 1 receives" in note for note in run.measured.notes)
    assert any("1 sends and receives have no other end" in note for note in run.measured.notes)


@pytest.mark.slow
def test_damaged_files_end_in_error_or_program(tmp_path: Path) -> None:
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
        with pytest.raises(TraceError) as caught:
            read(path)  # type: ignore[operator]
        messages.append((str(caught.value), caught.value.place, caught.value.remedy))
    assert messages[0] == messages[1]


@pytest.mark.data
def test_the_dumpi_test_trace_is_measured() -> None:
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
