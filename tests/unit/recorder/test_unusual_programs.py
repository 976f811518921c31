"""Programs that use MPI in less common ways, recorded by ``tailback record``."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tailback.recorder.session import record
from tailback.traffic.program import Program
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.otf2.reader import load
from tests.factories.unchecked_runs import without_manifest

THREADS = r"""
#include <mpi.h>
#include <pthread.h>
static int rank, size;
static void *work(void *p) {
  long t = (long)p;
  int a = 0, b;
  for (int i = 0; i < 1000; i++) {
    MPI_Request r[2];
    MPI_Irecv(&b, 1, MPI_INT, (rank + size - 1) % size, 100 + t, MPI_COMM_WORLD, &r[0]);
    MPI_Isend(&a, 1, MPI_INT, (rank + 1) % size, 100 + t, MPI_COMM_WORLD, &r[1]);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
  }
  return 0;
}
int main(int argc, char **argv) {
  int got;
  pthread_t thread[4];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &got);
  if (got < MPI_THREAD_MULTIPLE) MPI_Abort(MPI_COMM_WORLD, 9);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (long t = 0; t < 4; t++) pthread_create(&thread[t], 0, work, (void *)t);
  for (int t = 0; t < 4; t++) pthread_join(thread[t], 0);
  MPI_Finalize();
  return 0;
}
"""

NULL_AND_ZERO = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, size, x = 1, y, v[8] = {0};
  MPI_Comm half, copy;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Comm_dup(half, &copy);
  int me, n;
  MPI_Comm_rank(half, &me);
  MPI_Comm_size(half, &n);
  /* The same tags on two communicators with the same members, received in the other order. */
  MPI_Request q[4];
  MPI_Irecv(&y, 1, MPI_INT, (me + n - 1) % n, 7, half, &q[0]);
  MPI_Irecv(v, 2, MPI_INT, (me + n - 1) % n, 7, copy, &q[1]);
  MPI_Isend(v, 2, MPI_INT, (me + 1) % n, 7, copy, &q[2]);
  MPI_Isend(&x, 1, MPI_INT, (me + 1) % n, 7, half, &q[3]);
  MPI_Waitall(4, q, MPI_STATUSES_IGNORE);
  MPI_Send(&x, 1, MPI_INT, MPI_PROC_NULL, 0, half);
  MPI_Recv(&x, 1, MPI_INT, MPI_PROC_NULL, 0, half, MPI_STATUS_IGNORE);
  MPI_Sendrecv(0, 0, MPI_INT, (rank + 1) % size, 9, 0, 0, MPI_INT, (rank + size - 1) % size, 9,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Allreduce(MPI_IN_PLACE, v, size, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Win win;
  MPI_Win_create(v, sizeof v, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_fence(0, win);
  MPI_Put(&x, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win);
  MPI_Win_fence(0, win);
  MPI_Win_free(&win);
  if (argc > 1 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 3);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
"""

MPI_4 = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, size, next, last;
  char a[256] = {0}, b[256];
  MPI_Request q[2], c;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  next = (rank + 1) % size;
  last = (rank + size - 1) % size;
  MPI_Sendrecv_c(a, 100, MPI_BYTE, next, 1, b, 100, MPI_BYTE, last, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  MPI_Psend_init(a, 4, 50, MPI_BYTE, next, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &q[0]);
  MPI_Precv_init(b, 4, 50, MPI_BYTE, last, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &q[1]);
  for (int i = 0; i < 2; i++) {
    MPI_Startall(2, q);
    int some[2] = {1, 3};
    MPI_Pready(0, q[0]);
    MPI_Pready(2, q[0]);
    MPI_Pready_list(2, some, q[0]);
    MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
  }
  MPI_Allreduce_init(a, b, 8, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD, MPI_INFO_NULL, &c);
  for (int i = 0; i < 3; i++) {
    MPI_Start(&c);
    MPI_Wait(&c, MPI_STATUS_IGNORE);
  }
  MPI_Isendrecv(a, 60, MPI_BYTE, next, 1, b, 60, MPI_BYTE, last, 1, MPI_COMM_WORLD, &c);
  MPI_Wait(&c, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}
"""

FORTRAN = """program p
{head}
integer rank, n, e, a, b
{status}
call MPI_Init(e)
call MPI_Comm_rank(MPI_COMM_WORLD, rank, e)
call MPI_Comm_size(MPI_COMM_WORLD, n, e)
a = rank
call MPI_Irecv(b, 1, MPI_INTEGER, mod(rank + n - 1, n), 5, MPI_COMM_WORLD, q(1), e)
call MPI_Isend(a, 1, MPI_INTEGER, mod(rank + 1, n), 5, MPI_COMM_WORLD, q(2), e)
call MPI_Waitall(2, q, s, e)
call MPI_Finalize(e)
end
"""
PLAIN = "integer q(2), s(MPI_STATUS_SIZE, 2)"
TYPED = "type(MPI_Status) s(2)\ntype(MPI_Request) q(2)"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("needs Debian packages openmpi-bin, libopenmpi-dev")
    return tmp_path


def recorded(folder: Path, compiler: str, name: str, text: str, *options: str) -> Program:
    (folder / name).write_text(text)
    subprocess.run(
        [compiler, "-g", name, "-o", "app", "-lpthread"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    mpich = compiler.endswith(".mpich")
    start = ["mpirun.mpich"] if mpich else ["mpirun", "--oversubscribe"]
    record([*start, "-np", "4", str(folder / "app"), *options], folder / "evidence")
    # A machine with fewer cores than ranks has a note on that.
    (without_manifest(folder / "evidence") / "rank_host.csv").unlink()
    return read_trace(folder / "evidence")


def sends(program: Program, call: str) -> Counter[int]:
    """Number of messages of a call by size."""
    rows = program.sends.nonzero()[0]
    return Counter(
        int(program.amount[row]) for row in rows if program.labels[program.label[row]].call == call
    )


@pytest.mark.slow
@pytest.mark.tools
def test_four_threads_a_rank_keep_their_messages_apart(tools: Path) -> None:
    """A library gives the handle of a request that is done to the next one of any thread."""
    program = recorded(tools, "mpicc", "threads.c", THREADS)
    assert sends(program, "MPI_Isend") == {4: 4 * 4 * 1000}
    assert program.notes == []
    assert program.lacks == ()


@pytest.mark.tools
def test_null_partners_empty_messages_and_equal_tags(tools: Path) -> None:
    program = recorded(tools, "mpicc", "null.c", NULL_AND_ZERO)
    assert sends(program, "MPI_Isend") == {4: 4, 8: 4}
    assert sends(program, "MPI_Sendrecv") == {0: 4}
    assert sends(program, "MPI_Put") == {4: 4}
    # Calls with MPI_PROC_NULL are no gap of the recording.
    assert program.notes == []


@pytest.mark.tools
def test_an_aborting_rank_keeps_its_calls(tools: Path) -> None:
    (tools / "app.c").write_text(NULL_AND_ZERO)
    subprocess.run(["mpicc", "app.c", "-o", "app"], cwd=tools, check=True, capture_output=True)
    command = ["mpirun", "--oversubscribe", "-np", "4", str(tools / "app"), "abort"]
    recording = record(command, tools / "evidence")
    assert (recording.exit_code, recording.unfinished) == (3, 4)
    trace = load(tools / "evidence")
    assert (trace.calls.rank == 1).sum() > 10


@pytest.mark.tools
@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("include 'mpif.h'", PLAIN),
        pytest.param("use mpi", PLAIN, marks=pytest.mark.slow),
        ("use mpi_f08", TYPED),
    ],
)
def test_the_three_interfaces_of_fortran(tools: Path, head: str, status: str) -> None:
    if not shutil.which("gfortran"):
        pytest.skip("gfortran not installed")
    text = FORTRAN.format(head=head, status=status)
    program = recorded(tools, "mpif90", "ring.f90", text)
    assert sends(program, "MPI_Isend") == {4: 4}
    assert program.notes == []


def needs_mpich(*tools: str) -> None:
    missing = [tool for tool in ("mpicc.mpich", "mpirun.mpich", *tools) if not shutil.which(tool)]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed (Debian packages mpich, gfortran)")


@pytest.mark.slow
@pytest.mark.tools
def test_calls_of_mpi_4_are_recorded_where_available(tools: Path) -> None:
    needs_mpich()
    program = recorded(tools, "mpicc.mpich", "four.c", MPI_4)
    assert sends(program, "MPI_Sendrecv_c") == {100: 4}
    # All partitions of a message are one.
    assert sends(program, "MPI_Startall") == {200: 2 * 4}
    # Three all-reduces of 4 ranks: recursive doubling.
    assert sends(program, "MPI_Iallreduce") == {8: 3 * 2 * 4}
    assert sends(program, "MPI_Isendrecv") == {60: 4}
    assert program.notes == []


@pytest.mark.tools
@pytest.mark.slow
def test_threads_of_mpich_keep_their_messages_apart(tools: Path) -> None:
    needs_mpich()
    program = recorded(tools, "mpicc.mpich", "threads.c", THREADS.replace("1000", "50"))
    assert sends(program, "MPI_Isend") == {4: 4 * 4 * 50}
    assert program.notes == []


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize(("head", "status"), [("use mpi", PLAIN), ("use mpi_f08", TYPED)])
def test_fortran_with_mpich(tools: Path, head: str, status: str) -> None:
    """MPICH has no PMPI entry points of mpi_f08: some calls are recorded where it calls C."""
    needs_mpich("mpif90.mpich")
    text = FORTRAN.format(head=head, status=status)
    program = recorded(tools, "mpif90.mpich", "ring.f90", text)
    assert sends(program, "MPI_Isend") == {4: 4}
    assert program.notes == [] and program.lacks == ()
