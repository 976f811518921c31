"""MPI_Isendrecv of MPI 4: one request for a send and a receive."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tailback.recorder.session import record
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.otf2.links import IRECV, IRECV_REQUEST, ISEND, ISEND_COMPLETE
from tailback.traffic.readers.otf2.reader import load
from tests.factories.unchecked_runs import without_manifest

PAIRS = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, size, next, last, flag = 0;
  char a[256] = {0}, b[256];
  MPI_Request q[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  next = (rank + 1) % size;
  last = (rank + size - 1) % size;
  MPI_Isendrecv(a, 60, MPI_BYTE, next, 1, b, 60, MPI_BYTE, last, 1, MPI_COMM_WORLD, &q[0]);
  MPI_Isendrecv_replace(a, 9, MPI_INT, last, 2, next, 2, MPI_COMM_WORLD, &q[1]);
  MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
  /* Another partner for each direction, and a receive that is complete by an ordinary send. */
  MPI_Isendrecv(a, 10 + rank, MPI_BYTE, next, 3, b, 10 + last, MPI_BYTE, last, 3, MPI_COMM_WORLD,
                &q[0]);
  while (!flag) MPI_Test(&q[0], &flag, MPI_STATUS_IGNORE);
  MPI_Isendrecv(a, 7, MPI_BYTE, next, 4, b, 8, MPI_BYTE, last, 5, MPI_COMM_WORLD, &q[0]);
  MPI_Irecv(b + 100, 7, MPI_BYTE, last, 4, MPI_COMM_WORLD, &q[1]);
  MPI_Send(a + 100, 8, MPI_BYTE, next, 5, MPI_COMM_WORLD);
  MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
  MPI_Finalize();
  return 0;
}
"""


@pytest.mark.tools
def test_partners_sizes_and_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Open MPI 4 has no such call.
    if not shutil.which("mpicc.mpich") or not shutil.which("mpirun.mpich"):
        pytest.skip("needs Debian packages mpich, libmpich-dev")
    (tmp_path / "app.c").write_text(PAIRS)
    subprocess.run(["mpicc.mpich", "app.c", "-o", "app"], cwd=tmp_path, check=True)
    record(["mpirun.mpich", "-np", "4", str(tmp_path / "app")], tmp_path / "evidence")
    kinds = Counter(load(tmp_path / "evidence").messages.kind.tolist())
    assert (kinds[ISEND], kinds[ISEND_COMPLETE]) == (16, 16)
    assert (kinds[IRECV_REQUEST], kinds[IRECV]) == (20, 20)
    (without_manifest(tmp_path / "evidence") / "rank_host.csv").unlink()
    program = read_trace(tmp_path / "evidence")
    sends = Counter(
        (
            program.labels[program.label[row]].call,
            int(program.op_rank[row]),
            int(program.peer[row]),
            int(program.amount[row]),
        )
        for row in program.sends.nonzero()[0]
    )
    expected: Counter[tuple[str, int, int, int]] = Counter()
    for rank in range(4):
        to, back = (rank + 1) % 4, (rank + 3) % 4
        for size in (60, 10 + rank, 7):
            expected["MPI_Isendrecv", rank, to, size] += 1
        expected["MPI_Isendrecv_replace", rank, back, 36] += 1
        expected["MPI_Send", rank, to, 8] += 1
    assert sends == expected
    assert program.notes == []
    assert program.lacks == ()
