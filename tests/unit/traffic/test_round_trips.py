"""Traces that the tools of their formats write or print here; skipped where a tool is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tailback.recorder.session import record
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.otf2.reader import load
from tests.factories.public_data import real

PROGRAM = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, size, in[1000], out[1000] = {0};
  MPI_Request r[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 3; i++) {
    MPI_Irecv(in, 1000, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD, &r[0]);
    MPI_Isend(out, 1000, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD, &r[1]);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
  }
  if (rank == 0) MPI_Send(out, 5, MPI_DOUBLE, 1, 9, MPI_COMM_WORLD);
  if (rank == 1) MPI_Recv(in, 5, MPI_DOUBLE, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
"""
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
<cluster id="c" prefix="h" suffix="" radical="0-3" speed="1Gf" bw="10Gbps" lat="1us"/>
</platform>
"""


def needs(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")


def test_simgrid_records_a_programs_messages(tmp_path: Path) -> None:
    needs("smpicc", "smpirun")
    (tmp_path / "ring.c").write_text(PROGRAM)
    (tmp_path / "platform.xml").write_text(PLATFORM)
    (tmp_path / "hosts").write_text("h0\nh1\nh2\nh3\n")
    for command in (
        ["smpicc", "ring.c", "-o", "ring"],
        [
            "smpirun",
            "-np",
            "4",
            "-platform",
            "platform.xml",
            "-hostfile",
            "hosts",
            "-trace-ti",
            "-trace-file",
            "ring.ti",
            "--cfg=smpi/simulate-computation:no",
            "./ring",
        ],
    ):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    program = read_trace(tmp_path / "ring.ti")
    sends = program.sends & (program.tag >= 0)
    rows = [row for row in sends.nonzero()[0] if program.labels[int(program.label[row])].tag >= 0]
    rank = program.op_rank
    sent_messages = Counter(
        (
            int(rank[row]),
            int(program.peer[row]),
            int(program.amount[row]),
            program.labels[int(program.label[row])].tag,
        )
        for row in rows
    )
    assert sent_messages == {**{(r, (r + 1) % 4, 4000, 7): 3 for r in range(4)}, (0, 1, 40, 9): 1}


@pytest.mark.data
@pytest.mark.parametrize("name", ["eztrace-stencil16/eztrace_log.otf2"])
def test_otf2_print_prints_the_events_that_are_read(name: str) -> None:
    needs("otf2-print")
    anchor = real(name)
    printed = subprocess.run(["otf2-print", anchor], check=True, capture_output=True, text=True)
    words = Counter(re.findall(r"^([A-Z][A-Z0-9_]+) ", printed.stdout, re.MULTILINE))
    trace = load(anchor)
    assert (trace.enters, trace.leaves) == (words["ENTER"], words["LEAVE"])
    sends = int((trace.messages.kind <= 1).sum())
    assert sends == words["MPI_SEND"] + words["MPI_ISEND"] > 0
    bytes_printed = sum(
        int(size)
        for size in re.findall(r"^MPI_I?SEND .*Length: (\d+)", printed.stdout, re.MULTILINE)
    )
    assert int(trace.messages.bytes[trace.messages.kind <= 1].sum()) == bytes_printed


def messages(path: Path) -> Counter[tuple[int, int, int, str]]:
    """Messages that a trace contains: sender, receiver, bytes and call."""
    program = read_trace(path)
    return Counter(
        (
            int(program.op_rank[row]),
            int(program.peer[row]),
            int(program.amount[row]),
            program.labels[int(program.label[row])].call,
        )
        for row in program.sends.nonzero()[0]
    )


@pytest.mark.data
def test_dumpi_traces_survive_their_own_tools(tmp_path: Path) -> None:
    """Binary to text by ``dumpi2ascii``, and back by ``ascii2dumpi``."""
    needs("dumpi2ascii", "ascii2dumpi")
    folder = real("dumpi-testtrace/tests/traces/testtrace-0000.bin").parent
    text, binary = tmp_path / "text", tmp_path / "binary"
    text.mkdir()
    binary.mkdir()
    ranks = sorted(folder.glob("testtrace-*.bin"))
    for rank in ranks:
        printed = subprocess.run(["dumpi2ascii", "-S", rank], check=True, capture_output=True)
        (text / f"{rank.stem}.txt").write_bytes(printed.stdout)
        subprocess.run(
            ["ascii2dumpi", "-o", binary / rank.name, text / f"{rank.stem}.txt"],
            check=True,
            capture_output=True,
        )
    shutil.copy(folder / "testtrace.meta", binary)
    first = messages(folder / "testtrace.meta")
    assert len(ranks) == 4 and first.total() > 0
    assert messages(text) == first
    assert messages(binary) == first


@pytest.mark.tools
def test_pipits_frame_has_the_recordings_messages(tmp_path: Path) -> None:
    """pipit of the HPC group (Maryland), which is not on PyPI: a checkout on PYTHONPATH."""
    pipit = pytest.importorskip("pipit")
    if not hasattr(pipit, "Trace"):
        pytest.skip("pipit is another package of this name")
    needs("mpicc", "mpirun")
    (tmp_path / "ring.c").write_text(PROGRAM)
    subprocess.run(["mpicc", "ring.c", "-o", "ring"], cwd=tmp_path, check=True)
    evidence = tmp_path / "evidence"
    record(["mpirun", "--oversubscribe", "-np", "4", str(tmp_path / "ring")], evidence)
    frame = pipit.Trace.from_otf2(str(evidence), num_processes=1).events
    frame.to_csv(tmp_path / "frame.csv", index=False)

    def totals(path: Path) -> Counter[tuple[int, int]]:
        sent_bytes: Counter[tuple[int, int]] = Counter()
        for (sender, receiver, size, call), count in messages(path).items():
            if call != "MPI_Barrier":
                sent_bytes[sender, receiver] += count * size
        return sent_bytes

    assert totals(tmp_path / "frame.csv") == totals(evidence)
    assert totals(evidence).total() == 12 * 4000 + 40
