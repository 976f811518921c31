"""Bytes that calls write to TCP connections, and the packets of a capture that carry them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from tailback.errors import RunError
from tailback.fabric.model import Fabric
from tailback.recorder.session import record
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tailback.simulation.captures import read_captured
from tailback.telemetry.call_times import call_bytes
from tailback.telemetry.captured import labelled, read_contexts
from tailback.traffic.readers.recorded_bytes import BYTE_RANGES
from tests.factories import captures as made
from tests.factories.cli import tailback
from tests.factories.recorded_programs import library_to_preload

# Each call sends bytes of a value of its own, so a packet's contents say whose it is.
PROGRAM = r"""
#include <arpa/inet.h>
#include <mpi.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static char data[300000];
/* A connection of the program's own, one byte of which no wrapper of the C library sees. */
static void write_past_the_library(void) {
  struct sockaddr_in end = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof end;
  int listening = socket(AF_INET, SOCK_STREAM, 0), ours = socket(AF_INET, SOCK_STREAM, 0);
  bind(listening, (struct sockaddr *)&end, size);
  listen(listening, 1);
  getsockname(listening, (struct sockaddr *)&end, &size);
  connect(ours, (struct sockaddr *)&end, size);
  if (write(ours, "a", 1) != 1 || syscall(SYS_write, ours, "b", 1) != 1) _exit(1);
}
int main(int argc, char **argv) {
  int rank;
  MPI_Request request;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 20; i++) {
    memset(data, 0xA1, sizeof data);
    if (rank == 0) MPI_Send(data, 3000, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    else MPI_Recv(data, 3000, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    memset(data, 0xA2, sizeof data);
    MPI_Bcast(data, sizeof data, MPI_CHAR, 0, MPI_COMM_WORLD);
    memset(data, 0xA3, sizeof data);
    if (rank == 0) MPI_Isend(data, 3000, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request);
    else MPI_Irecv(data, 3000, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (argc > 1 && rank == 0) write_past_the_library();
  MPI_Finalize();
  return 0;
}
"""
CALLS = {0xA1: "MPI_Send", 0xA2: "MPI_Bcast", 0xA3: "MPI_Isend"}

# Two ranks of one host that claim to be on two.
HOSTS = r"""
#include <stdlib.h>
#include <string.h>
int gethostname(char *name, size_t bytes) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) rank = getenv("PMI_RANK");
  strncpy(name, rank && *rank == '1' ? RIGHT : LEFT, bytes);
  return 0;
}
"""


def mpirun(program: Path, *arguments: str) -> list[str]:
    if program.suffix == ".mpich":
        settings = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "MPIR_CVAR_NOLOCAL": "1"}
        over_tcp = [word for pair in settings.items() for word in ("-genv", *pair)]
        return ["mpirun.mpich", "-np", "2", *over_tcp, str(program), *arguments]
    over_tcp = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    start = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2"]
    return [*start, *over_tcp, str(program), *arguments]


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    """Where ranks share a core, the recorder does not time messages of many megabytes first."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


def compiled(folder: Path, compiler: str, packages: str) -> Path:
    """The program, its suffix that of the compiler."""
    if not shutil.which(compiler) or not shutil.which(compiler.replace("mpicc", "mpirun")):
        pytest.skip(f"needs Debian packages {packages}")
    program = folder / compiler.replace("mpicc", "app")
    (folder / "app.c").write_text(PROGRAM)
    subprocess.run([compiler, "-g", "app.c", "-o", str(program)], cwd=folder, check=True)
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("program"), "mpicc", "openmpi-bin, libopenmpi-dev")


@pytest.fixture(scope="module")
def mpich_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("program"), "mpicc.mpich", "mpich, libmpich-dev")


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    job = {"pattern": {"kind": "ring", "ranks": 4, "size": "1 KiB"}}
    tree = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 1}
    return prepare(parse({"fabric": {"fat_tree": tree}, "job": [job]})).fabric


@contextmanager
def captured_loopback() -> Iterator[made.Frames]:
    """TCP packets of the loopback interface meanwhile, as it receives them."""
    frames: made.Frames = []
    try:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
    except PermissionError:
        pytest.skip("needs the right to capture packets")
    buffer_forced = 33
    tap.setsockopt(socket.SOL_SOCKET, buffer_forced, 64 << 20)
    tap.bind(("lo", 0x0003))
    tap.settimeout(0.2)
    ended = threading.Event()

    def take() -> None:
        while True:
            try:
                frame, (_, _, kind, *_) = tap.recvfrom(1 << 17)
            except TimeoutError:
                if ended.is_set():
                    return
                continue
            if kind == socket.PACKET_HOST and frame[23] == socket.IPPROTO_TCP:
                frames.append((time.time_ns(), frame))

    reader = threading.Thread(target=take)
    reader.start()
    try:
        yield frames
    finally:
        ended.set()
        reader.join()
        tap.close()


@pytest.mark.tools
@pytest.mark.parametrize("library", ["program", "mpich_program"])
def test_captured_packets_belong_to_their_calls(
    library: str,
    request: pytest.FixtureRequest,
    fabric: Fabric,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = request.getfixturevalue(library)
    left, right = fabric.node_name[0], fabric.node_name[2]
    hosts = HOSTS.replace("LEFT", f'"{left}"').replace("RIGHT", f'"{right}"')
    monkeypatch.setenv("LD_PRELOAD", str(library_to_preload(tmp_path, hosts)))
    # On a busy core, MPICH may poll for its peer in MPI_Finalize without end. All is recorded then.
    monkeypatch.setenv("MPIEXEC_TIMEOUT", "60")
    with captured_loopback() as frames:
        record(mpirun(program), tmp_path / "evidence", byte_ranges=True)
    contexts = tmp_path / "contexts"
    contexts.mkdir()
    target = str(contexts / "calls.csv")
    assert tailback(["export", "contexts", str(tmp_path / "evidence"), target]) == 0
    rows = pl.read_csv(target)
    assert {left, right} == set(rows["source"]) and not rows["destination"].null_count()
    port = rows.filter(pl.col("source") == left)["source_port"].unique().to_list()
    packets = read_captured([made.pcap(tmp_path / "lo.pcap", frames, 1)], tcp=True).packets
    # The ends have one address: ports tell the nodes.
    from_left = pl.col("entropy").is_in(port)
    packets = packets.with_columns(
        src_node=pl.when(from_left).then(0).otherwise(2),
        dst_node=pl.when(from_left).then(2).otherwise(0),
        sequence="psn",
    )
    read = read_contexts(contexts, fabric)
    labels = [read.labels[label][1] for label in labelled(packets, read)]
    checked = Counter[str]()
    for (_, frame), byte, label in zip(frames, packets["stream_byte"], labels, strict=True):
        # TCP may put messages of two calls into one packet: then both values are in it.
        values = {value for value in CALLS if bytes([value]) * 16 in frame}
        if len(values) == 1:
            assert byte >= 0 and label == CALLS[values.pop()]
            checked[label] += 1
    assert set(checked) == set(CALLS.values()) and min(checked.values()) > 10
    outside = packets.with_columns(port=pl.lit(1, pl.UInt16))
    assert not labelled(outside, read).any()


@pytest.mark.tools
def test_ranges_are_recorded_only_if_asked(program: Path, tmp_path: Path) -> None:
    record(mpirun(program), tmp_path / "evidence")
    assert not (tmp_path / "evidence" / BYTE_RANGES).exists()
    assert call_bytes(tmp_path / "evidence") is None


@pytest.mark.tools
def test_connections_within_a_host_are_none(program: Path, tmp_path: Path) -> None:
    recording = record(mpirun(program), tmp_path / "evidence", byte_ranges=True)
    ranges = pl.read_parquet(tmp_path / "evidence" / BYTE_RANGES)
    sent = ranges.filter(pl.col("rank") == 0).group_by("call").agg(pl.col("bytes").sum())
    sizes = dict(sent.iter_rows())
    # Headers of the library are in the connection, too.
    for call, least in (("MPI_Send", 60_000), ("MPI_Bcast", 6_000_000), ("MPI_Isend", 60_000)):
        assert least < sizes[call] < least * 1.02
    assert ranges["path"].str.contains(r"main\(\) \(app.c:\d+\)").all()
    assert not any("byte ranges" in note for note in recording.notes)
    with pytest.raises(RunError, match="no byte range is of a connection between two hosts"):
        call_bytes(tmp_path / "evidence")


@pytest.mark.tools
def test_writes_past_the_library_are_told(program: Path, tmp_path: Path) -> None:
    recording = record(mpirun(program, "past"), tmp_path / "evidence", byte_ranges=True)
    (note,) = [note for note in recording.notes if "byte ranges" in note]
    assert note.startswith("1 TCP connection without byte ranges: something was written")
    ranges = pl.read_parquet(tmp_path / "evidence" / BYTE_RANGES)
    assert set(CALLS.values()) <= set(ranges["call"])


@pytest.mark.tools
def test_ranks_without_connections_are_told(program: Path, tmp_path: Path) -> None:
    alone = ["mpirun", "--oversubscribe", "-np", "2", "--mca", "btl", "vader,self", str(program)]
    recording = record(alone, tmp_path / "evidence", byte_ranges=True)
    assert any(note.startswith("no byte ranges: in no MPI call") for note in recording.notes)
    assert not (tmp_path / "evidence" / BYTE_RANGES).exists()
