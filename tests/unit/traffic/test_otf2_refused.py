"""What the OTF2 reader refuses: damaged traces, and what is none."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tailback.errors import TailbackError, TraceError
from tailback.traffic.readers import READERS, read_trace
from tailback.traffic.readers.otf2.reader import find_anchor
from tests.factories.otf2_traces import EZTRACE16, Build, barrier, call, writing
from tests.factories.public_data import real


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return writing(tmp_path)


def small(build: Build) -> Path:
    world = "MPI_COMM_WORLD"
    return build(
        [
            call("MPI_Send", 10, ("mpi_send", 1, world, 7, 4096)) + barrier(20, world),
            call("MPI_Recv", 10, ("mpi_recv", 0, world, 7, 4096)) + barrier(20, world),
        ]
    )


# Damage ------------------------------------------------------------------------------------------


def test_a_truncated_event_file_is_an_error(build: Build) -> None:
    path = small(build)
    file = path / "traces" / "1.evt"
    contents = file.read_bytes()
    assert read_trace(path).n_ranks == 2
    used = len(contents.rstrip(b"\0"))
    for length in range(used - 1):
        file.write_bytes(contents[:length])
        with pytest.raises(TraceError) as caught:
            read_trace(path)
        assert caught.value.file == file
        assert caught.value.place is not None
        assert caught.value.place.startswith("location 1, event ")


def test_an_anchor_cut_short_is_an_error(build: Build) -> None:
    path = small(build)
    file = path / "traces.otf2"
    contents = file.read_bytes()
    assert read_trace(file).n_ranks == 2
    for length in range(len(contents.rstrip(b"\0")) - 1):
        file.write_bytes(contents[:length])
        with pytest.raises(TraceError, match=r"OTF2|possible"):
            read_trace(file, format="otf2")


def test_a_missing_file_of_events_is_named(build: Build) -> None:
    path = small(build)
    (path / "traces" / "0.evt").unlink()
    with pytest.raises(TraceError, match="No such file") as caught:
        read_trace(path)
    assert caught.value.file == path / "traces" / "0.evt"


def test_a_trace_that_was_never_finished_says_so(build: Build) -> None:
    """What a program that was killed leaves behind: events without an anchor file."""
    path = small(build)
    (path / "traces.otf2").unlink()
    with pytest.raises(TraceError, match="no OTF2 anchor file: the program ended") as caught:
        read_trace(path)
    assert caught.value.file == path and "MPI_Finalize" in (caught.value.remedy or "")


def test_definitions_cut_short_are_an_error(build: Build) -> None:
    path = small(build)
    file = path / "traces.def"
    contents = file.read_bytes()
    # The last byte only marks the end: without it all definitions are still there.
    for length in range(len(contents.rstrip(b"\0")) - 1):
        file.write_bytes(contents[:length])
        with pytest.raises(TraceError):
            read_trace(path)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_never_do_worse_than_an_error(build: Build, seed: int) -> None:
    path = small(build)
    rng = random.Random(seed)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    outcomes: Counter[str] = Counter()
    for _ in range(60):
        file = rng.choice(files)
        contents = file.read_bytes()
        damaged = bytearray(contents)
        for _ in range(rng.choice((1, 1, 8))):
            damaged[rng.randrange(len(contents.rstrip(b"\0")))] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        try:
            read_trace(path)
            outcomes["read"] += 1
        except TraceError as error:
            assert str(error)
            outcomes["refused"] += 1
        file.write_bytes(contents)
    assert outcomes["refused"] > 10


@pytest.mark.data
@pytest.mark.slow
def test_a_damaged_real_trace_is_refused_or_read(tmp_path: Path) -> None:
    shutil.copytree(real(EZTRACE16), tmp_path / "copy")
    files = sorted((tmp_path / "copy").rglob("*.evt"))
    for file in (*files, files[0].parent):
        file.chmod(0o755)
    rng = random.Random(5)
    refused = 0
    for _ in range(40):
        file = rng.choice(files)
        contents = file.read_bytes()
        at = rng.randrange(len(contents))
        file.write_bytes(contents[:at] + bytes([contents[at] ^ 0x55]) + contents[at + 1 :])
        try:
            read_trace(tmp_path / "copy")
        except TraceError as error:
            assert error.file == file or error.file == tmp_path / "copy" / "eztrace_log.otf2"
            refused += 1
        file.write_bytes(contents)
    assert refused > 10


# What is not a trace -----------------------------------------------------------------------------


def test_what_is_not_a_trace_is_refused_clearly(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file or folder"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="empty"):
        read_trace(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(TraceError, match="no reader recognises") as caught:
            read_trace(path)
        assert caught.value.remedy is not None and ".otf2" in caught.value.remedy
    (tmp_path / "fake.otf2").write_text("hello")
    with pytest.raises(TraceError, match="not an OTF2 anchor"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="not an OTF2 anchor"):
        read_trace(tmp_path / "notes.txt", format="otf2")
    (tmp_path / "other.otf2").write_text("hello")
    with pytest.raises(TraceError, match="holds 2 OTF2 anchor files"):
        find_anchor(tmp_path)


def test_an_unknown_format_names_the_valid_ones(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with pytest.raises(TailbackError, match="otf2"):
        read_trace(tmp_path, format="otf")
    assert {"otf2", "pml-monitoring"} <= set(READERS.names())
