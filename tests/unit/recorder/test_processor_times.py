"""Processor times of ranks that share cores, as they are recorded and read."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tailback.recorder.session import record
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.otf2.compile import compile_trace
from tailback.traffic.readers.otf2.reader import load

RANKS, STEPS = 4, 30

# Each rank computes between barriers, and prints the processor time that it used for that.
COMPUTING = r"""
#include <mpi.h>
#include <stdio.h>
#include <time.h>
static long long now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * 1000000000ll + time.tv_nsec;
}
int main(int argc, char **argv) {
  int rank;
  long long processor = 0, wall = 0;
  double sum = argc;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int step = 0; step < STEPS; step++) {
    MPI_Barrier(MPI_COMM_WORLD);
    long long processor_from = now(CLOCK_THREAD_CPUTIME_ID), from = now(CLOCK_MONOTONIC);
    for (int i = 0; i < 2000000; i++) sum = sum * 1.0000001 + i;
    wall += now(CLOCK_MONOTONIC) - from;
    processor += now(CLOCK_THREAD_CPUTIME_ID) - processor_from;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  printf("%d %lld %lld\n", rank, processor, sum > 0 ? wall : 0);
  MPI_Finalize();
  return 0;
}
"""


def recorded(folder: Path, cores: set[int], capfd: pytest.CaptureFixture[str]) -> np.ndarray:
    """Records the program on some cores; processor and wall time that each rank printed, ns."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        record(["mpirun.mpich", "-n", str(RANKS), str(folder / "app")], folder / "out")
    finally:
        os.sched_setaffinity(0, before)
    lines = [line.split() for line in capfd.readouterr().out.splitlines() if line[:1].isdigit()]
    table = np.array(sorted(lines, key=lambda line: int(line[0])), np.int64)
    return table[:, 1:]


def computed_ns(program: Program) -> np.ndarray:
    """Computation of each rank, ns."""
    compute = program.kind == Op.COMPUTE
    total = np.bincount(program.op_rank[compute], program.amount[compute], program.n_ranks)
    return total / 1000


@pytest.mark.tools
@pytest.mark.slow
def test_ranks_on_one_core_compute_their_processor_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not shutil.which("mpirun.mpich") or not shutil.which("mpicc.mpich"):
        pytest.skip("needs Debian packages mpich, libmpich-dev")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "app.c").write_text(COMPUTING)
    command = ["mpicc.mpich", "-O1", f"-DSTEPS={STEPS}", "app.c", "-o", "app"]
    subprocess.run(command, cwd=tmp_path, check=True)
    processor, wall = recorded(tmp_path, {min(os.sched_getaffinity(0))}, capfd).T
    program = read_trace(tmp_path / "out")
    assert program.recording is not None and program.recording.processor_time
    assert program.recording.sharing == f"{RANKS} ranks share 1 core on {os.uname().nodename}"
    computed = computed_ns(program)
    # What the program measures, and what it does outside: a few µs a step for its own clocks.
    assert (computed >= processor).all() and (computed <= processor * 1.1 + 50_000 * STEPS).all()
    # Ranks wait for one another's processor time within their computations.
    assert wall.sum() > 1.5 * processor.sum()
    both = compile_trace(load(tmp_path / "out"), "traces", tmp_path / "out")
    assert np.array_equal(both.kind, program.kind)
    assert np.array_equal(both.amount, program.amount)
