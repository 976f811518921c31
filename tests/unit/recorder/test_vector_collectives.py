"""Collectives whose ranks move different amounts: bytes of each pair of ranks as they were sent."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tailback.recorder.session import record
from tailback.traffic.program import Program
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.otf2.reader import load
from tests.factories.otf2_traces import assert_completes
from tests.factories.unchecked_runs import without_manifest

HEAD = r"""
#include <mpi.h>
#include <stdlib.h>
#define N 64
static int rank, size, sends[N], receives[N], at[N];
static char a[1 << 20], b[1 << 20];
static MPI_Request q;
/* Elements from one rank to another: skewed, and some are none. */
static int elements(int from, int to) { return to == (from + 1) % 4 ? 0 : 5 + 100 * from + 7 * to; }
static void counts(int me, int n) {
  for (int i = 0; i < n; i++) {
    sends[i] = elements(me, i);
    receives[i] = elements(i, me);
  }
}
static void wait(void) { MPI_Wait(&q, MPI_STATUS_IGNORE); }
int main(int argc, char **argv) {
  MPI_Comm world = MPI_COMM_WORLD;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &size);
"""
TAIL = "  MPI_Finalize();\n  return 0;\n}\n"

EXCHANGES = (
    HEAD
    + r"""
  for (int i = 0; i < 3; i++) {
    counts(rank, size);
    MPI_Alltoallv(a, sends, at, MPI_INT, b, receives, at, MPI_INT, world);
    MPI_Ialltoallv(a, sends, at, MPI_BYTE, b, receives, at, MPI_BYTE, world, &q);
    wait();
  }
  MPI_Datatype types[4] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE}, in[4];
  for (int i = 0; i < 4; i++) in[i] = types[rank];
  counts(rank, size);
  MPI_Alltoallw(a, sends, at, types, b, receives, at, in, world);
  MPI_Ialltoallw(a, sends, at, types, b, receives, at, in, world, &q);
  wait();
  /* Symmetric, in place: no counts of sends. */
  for (int i = 0; i < size; i++) receives[i] = 10 + rank * i;
  MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, b, receives, at, MPI_SHORT, world);
  /* Equal to all by each rank, but not by all ranks. */
  for (int i = 0; i < size; i++) sends[i] = 3 + rank, receives[i] = 3 + i;
  MPI_Ialltoallv(a, sends, at, MPI_DOUBLE, b, receives, at, MPI_DOUBLE, world, &q);
  wait();
  /* Nothing at all, and one rank. */
  int none[4] = {0};
  MPI_Alltoallv(a, none, at, MPI_BYTE, b, none, at, MPI_BYTE, world);
  MPI_Alltoallv(a, sends, at, MPI_BYTE, b, sends, at, MPI_BYTE, MPI_COMM_SELF);
"""
    + TAIL
)

PARTS = (
    HEAD
    + r"""
  MPI_Comm half;
  int me, n;
  MPI_Comm_split(world, rank % 2, -rank, &half);
  MPI_Comm_rank(half, &me);
  MPI_Comm_size(half, &n);
  for (int i = 0; i < n; i++) {
    sends[i] = 10 + me + 5 * i + 1000 * (rank % 2);
    receives[i] = 10 + i + 5 * me + 1000 * (rank % 2);
  }
  MPI_Alltoallv(a, sends, at, MPI_BYTE, b, receives, at, MPI_BYTE, half);
"""
    + TAIL
)

SHARES = (
    HEAD
    + r"""
  int mine = 10 * rank * rank + 3;
  for (int i = 0; i < size; i++) receives[i] = 10 * i * i + 3;
  MPI_Gatherv(a, mine, MPI_SHORT, b, receives, at, MPI_SHORT, 2, world);
  MPI_Igatherv(a, mine, MPI_BYTE, b, receives, at, MPI_BYTE, 1, world, &q);
  wait();
  MPI_Scatterv(b, receives, at, MPI_INT, a, mine, MPI_INT, 3, world);
  MPI_Iscatterv(b, receives, at, MPI_BYTE, a, mine, MPI_BYTE, 0, world, &q);
  wait();
  MPI_Allgatherv(a, mine, MPI_INT, b, receives, at, MPI_INT, world);
  MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, receives, at, MPI_BYTE, world, &q);
  wait();
  MPI_Reduce_scatter(a, b, receives, MPI_BYTE, MPI_BOR, world);
"""
    + TAIL
)

STARTED = (
    HEAD
    + r"""
  MPI_Datatype types[4] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE}, in[4];
  MPI_Request r[3];
  for (int i = 0; i < 4; i++) in[i] = types[rank];
  counts(rank, size);
  MPI_Alltoallv_init(a, sends, at, MPI_INT, b, receives, at, MPI_INT, world, MPI_INFO_NULL, &r[0]);
  MPI_Alltoallw_init(a, sends, at, types, b, receives, at, in, world, MPI_INFO_NULL, &r[1]);
  MPI_Count wide_sends[4], wide_receives[4];
  MPI_Aint wide_at[4] = {0};
  for (int i = 0; i < size; i++) wide_sends[i] = sends[i], wide_receives[i] = receives[i];
  for (int i = 0; i < 2; i++) {
    MPI_Start(&r[0]);
    MPI_Wait(&r[0], MPI_STATUS_IGNORE);
  }
  MPI_Startall(2, r);
  MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
  MPI_Alltoallv_c(a, wide_sends, wide_at, MPI_SHORT, b, wide_receives, wide_at, MPI_SHORT, world);
"""
    + TAIL
)

FORTRAN = """program p
{head}
integer rank, e, i, sends(4), receives(4), at(4)
{types}
character a(4000), b(4000)
at = 0
call MPI_Init(e)
call MPI_Comm_rank(MPI_COMM_WORLD, rank, e)
do i = 0, 3
  sends(i + 1) = 1 + 10 * rank + i
  receives(i + 1) = 1 + 10 * i + rank
end do
call MPI_Alltoallv(a, sends, at, MPI_INTEGER, b, receives, at, MPI_INTEGER, MPI_COMM_WORLD, e)
do i = 0, 3
  receives(i + 1) = 5 + rank * i
end do
call MPI_Alltoallv(MPI_IN_PLACE, sends, at, MPI_BYTE, b, receives, at, MPI_BYTE, MPI_COMM_WORLD, e)
call MPI_Ialltoallv(a, receives, at, MPI_BYTE, b, receives, at, MPI_BYTE, MPI_COMM_WORLD, q, e)
call MPI_Wait(q, MPI_STATUS_IGNORE, e)
call MPI_Finalize(e)
end
"""

LIBRARIES = pytest.mark.parametrize("compiler", ["mpicc", "mpicc.mpich"])


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("needs Debian packages openmpi-bin, libopenmpi-dev")
    return tmp_path


def recorded(
    folder: Path, text: str, compiler: str = "mpicc", name: str = "app.c", ranks: int = 4
) -> Program:
    if not shutil.which(compiler):
        pytest.skip("needs Debian packages mpich, libmpich-dev, gfortran")
    (folder / name).write_text(text)
    subprocess.run([compiler, "-g", name, "-o", "app"], cwd=folder, check=True, capture_output=True)
    mpich = compiler.endswith(".mpich")
    start = ["mpirun.mpich"] if mpich else ["mpirun", "--oversubscribe"]
    record([*start, "-np", str(ranks), str(folder / "app")], folder / "evidence")
    # A machine with fewer cores than ranks has a note on that.
    (without_manifest(folder / "evidence") / "rank_host.csv").unlink()
    program = read_trace(folder / "evidence")
    assert_completes(program)
    assert program.notes == []
    return program


Pairs = Counter[tuple[int, int, int]]


def messages(program: Program, call: str) -> Pairs:
    """Messages of a call by sender, receiver and size; those of no bytes are left out."""
    return Counter(
        (int(program.op_rank[row]), int(program.peer[row]), int(program.amount[row]))
        for row in program.sends.nonzero()[0]
        if program.labels[program.label[row]].call == call and program.amount[row]
    )


def pairs(bytes_of: Callable[[int, int], int], times: int = 1) -> Pairs:
    """Messages between all ranks but of a rank with itself."""
    ends = [(a, b) for a in range(4) for b in range(4) if a != b and bytes_of(a, b)]
    return Counter({(a, b, bytes_of(a, b)): times for a, b in ends})


def elements(a: int, b: int) -> int:
    return 0 if b == (a + 1) % 4 else 5 + 100 * a + 7 * b


@pytest.mark.tools
@LIBRARIES
def test_bytes_of_pairs_are_those_sent(tools: Path, compiler: str) -> None:
    program = recorded(tools, EXCHANGES, compiler)
    width = [1, 2, 4, 8]
    skewed = pairs(lambda a, b: 4 * elements(a, b), 3)
    in_place = pairs(lambda a, b: 2 * (10 + a * b))
    assert messages(program, "MPI_Alltoallv") == skewed + in_place
    even_by_rank = pairs(lambda a, b: 8 * (3 + a))
    assert messages(program, "MPI_Ialltoallv") == pairs(elements, 3) + even_by_rank
    by_type = pairs(lambda a, b: width[b] * elements(a, b))
    assert messages(program, "MPI_Alltoallw") == messages(program, "MPI_Ialltoallw") == by_type
    # Equal vectors are one string, however often and by whichever rank they are used.
    trace = load(tools / "evidence")
    assert trace.sizes is not None
    assert len(trace.sizes.rows) > len(trace.sizes.texts) == len(set(trace.sizes.texts.values()))


@pytest.mark.tools
@LIBRARIES
def test_a_communicators_ranks_are_its_members(tools: Path, compiler: str) -> None:
    program = recorded(tools, PARTS, compiler)
    # Each half in the reverse order of the world: ranks 2, 0 and 3, 1.
    expected: Pairs = Counter()
    for parity, members in ((0, (2, 0)), (1, (3, 1))):
        for me, to in ((0, 1), (1, 0)):
            size = 10 + me + 5 * to + 1000 * parity
            expected[members[me], members[to], size] += 1
    assert messages(program, "MPI_Alltoallv") == expected


@pytest.mark.tools
@LIBRARIES
def test_shares_of_ranks_are_those_of_the_call(tools: Path, compiler: str) -> None:
    program = recorded(tools, SHARES, compiler)

    def share(rank: int) -> int:
        return 10 * rank * rank + 3

    def rooted(root: int, width: int, gather: bool) -> Pairs:
        others = [rank for rank in range(4) if rank != root]
        return Counter(
            (rank, root, width * share(rank)) if gather else (root, rank, width * share(rank))
            for rank in others
        )

    assert messages(program, "MPI_Gatherv") == rooted(2, 2, True)
    assert messages(program, "MPI_Igatherv") == rooted(1, 1, True)
    assert messages(program, "MPI_Scatterv") == rooted(3, 4, False)
    assert messages(program, "MPI_Iscatterv") == rooted(0, 1, False)
    # Around the ring every rank passes all shares on but that of its right neighbour.
    ring: Pairs = Counter(
        (rank, (rank + 1) % 4, share(member))
        for rank in range(4)
        for member in range(4)
        if member != (rank + 1) % 4
    )
    assert messages(program, "MPI_Iallgatherv") == ring
    assert messages(program, "MPI_Allgatherv") == Counter(
        {(a, b, 4 * size): times for (a, b, size), times in ring.items()}
    )
    # Recursive halving: first the shares of the other half, then that of the partner.
    halves: Pairs = Counter()
    for rank in range(4):
        far = rank ^ 2
        halves[rank, far, sum(share(member) for member in range(4) if member // 2 == far // 2)] += 1
        halves[rank, rank ^ 1, share(rank ^ 1)] += 1
    assert messages(program, "MPI_Reduce_scatter") == halves


@pytest.mark.tools
def test_started_exchanges_and_large_counts(tools: Path) -> None:
    # Open MPI 4 has neither.
    program = recorded(tools, STARTED, "mpicc.mpich")
    width = [1, 2, 4, 8]
    v, w = pairs(lambda a, b: 4 * elements(a, b)), pairs(lambda a, b: width[b] * elements(a, b))
    # Each start is labelled as the non-blocking call that it is.
    assert messages(program, "MPI_Ialltoallv") == v + v + v
    assert messages(program, "MPI_Ialltoallw") == w
    assert messages(program, "MPI_Alltoallv") == pairs(lambda a, b: 2 * elements(a, b))


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize(
    ("compiler", "head", "types"),
    [
        ("mpif90", "use mpi", "integer q"),
        ("mpif90", "use mpi_f08", "type(MPI_Request) q"),
        ("mpif90.mpich", "use mpi", "integer q"),
    ],
)
def test_exchanges_of_fortran(tools: Path, compiler: str, head: str, types: str) -> None:
    program = recorded(tools, FORTRAN.format(head=head, types=types), compiler, "app.f90")
    symmetric = pairs(lambda a, b: 5 + a * b)
    skewed = pairs(lambda a, b: 4 * (1 + 10 * a + b))
    assert messages(program, "MPI_Alltoallv") == skewed + symmetric
    assert messages(program, "MPI_Ialltoallv") == symmetric
