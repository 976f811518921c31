"""Clocks of hosts that drift apart unevenly, compared again while a program runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tailback.recorder.archive import _offset
from tailback.recorder.rank_files import RankRecord, read_rank_files
from tailback.recorder.session import record
from tailback.traffic.readers.otf2.reader import load

DRIFTING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
/* Rank 1 has a clock that is 3 s ahead and gains ever faster: 40 ms in 2 s. */
int clock_gettime(clockid_t id, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  static double begin;
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(id, time);
  const char *rank = getenv("PMI_RANK");
  if (id == CLOCK_MONOTONIC_RAW && rank && *rank == '1') {
    double now = time->tv_sec + time->tv_nsec * 1e-9;
    if (!begin) begin = now;
    long ns = time->tv_nsec + (long)(1e9 * (3 + 1e-2 * (now - begin) * (now - begin)));
    time->tv_sec += ns / 1000000000;
    time->tv_nsec = ns % 1000000000;
  }
  return result;
}
"""

BARRIERS = r"""
#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  for (int i = 0; i < 400; i++) {
    usleep(5000);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
"""


@pytest.mark.slow
@pytest.mark.tools
def test_clocks_are_compared_again_where_they_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("mpirun.mpich") or not shutil.which("mpicc.mpich"):
        pytest.skip("needs Debian packages mpich, libmpich-dev")
    # MPICH takes the two ranks for those of two hosts.
    monkeypatch.setenv("MPIR_CVAR_NUM_CLIQUES", "2")
    (tmp_path / "drift.c").write_text(DRIFTING)
    (tmp_path / "app.c").write_text(BARRIERS)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "drift.c", "-o", "drift.so", "-ldl"], cwd=tmp_path, check=True
    )
    subprocess.run(["mpicc.mpich", "app.c", "-o", "app"], cwd=tmp_path, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "drift.so"))
    apart = {}
    for every in (30.0, 0.2):
        out = tmp_path / f"every-{every}"
        command = ["mpirun.mpich", "-np", "2", str(tmp_path / "app")]
        recording = record(command, out, clocks_every_s=every)
        assert (recording.clock_measurements > 2) == (every < 1)
        calls = load(out).calls
        ends = [calls.leave[calls.rank == rank][100:300].astype(np.int64) for rank in (0, 1)]
        apart[every] = abs(float(np.median(ends[0] - ends[1])))
    # Ticks are nanoseconds. A line from start to end is 10 ms off in the middle.
    assert apart[30.0] > 5e6
    # On a loaded machine comparisons come late, so the error is not always a small part of it.
    assert apart[0.2] < apart[30.0] / 2


def test_disturbed_measurements_are_left_out(tmp_path: Path) -> None:
    head = "tailback-recording 1\nrank 0 1\n"
    lines = {(1, 2, 9000): False, (5, 3, 100): True, (7, 90, 5000): False, (9, 4, 110): True}
    text = "".join(f"offset {time} {more} {trip}\n" for time, more, trip in lines)
    (tmp_path / "rank-000000.meta").write_text(head + text)
    kept = [line for line, wanted in lines.items() if wanted]
    assert read_rank_files(tmp_path)[0].offsets == kept
    # The clock drifted by more than a long round trip leaves open.
    (tmp_path / "rank-000000.meta").write_text(head + text.replace("7 90 ", "7 9000 "))
    offsets = read_rank_files(tmp_path)[0].offsets
    assert offsets == [(5, 3, 100), (7, 9000, 5000), (9, 4, 110)]
    # Two are needed for a line.
    (tmp_path / "rank-000000.meta").write_text(head + "offset 1 2 9000\noffset 5 3 100\n")
    assert len(read_rank_files(tmp_path)[0].offsets) == 2


def test_times_between_comparisons_are_interpolated() -> None:
    rank = RankRecord(1, size=2, offsets=[(0, 0, 5), (100, 10, 5), (200, 110, 5)])
    assert [_offset(rank, time) for time in (-10, 0, 50, 100, 150, 300)] == [-1, 0, 5, 10, 60, 210]
    assert _offset(RankRecord(1, size=2, offsets=[(7, 3, 5)]), 1000) == 3
