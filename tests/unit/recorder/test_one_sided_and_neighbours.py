"""One-sided calls and neighbourhood collectives of real programs, recorded and compiled."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from tailback.evidence import measure
from tailback.recorder.session import record
from tailback.traffic.program import Program
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.otf2.reader import load
from tests.factories.otf2_traces import assert_completes
from tests.factories.unchecked_runs import without_manifest

ONE_SIDED = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, size, next, previous;
  static char memory[100000], local[100000];
  MPI_Win win;
  MPI_Request request;
  MPI_Group world, to, from;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  next = (rank + 1) % size;
  previous = (rank + size - 1) % size;
  MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_fence(0, win);
  for (int i = 0; i < 3; i++) {
    MPI_Put(local, 70000, MPI_BYTE, next, 0, 70000, MPI_BYTE, win);
    MPI_Get(local, 300, MPI_BYTE, previous, 0, 300, MPI_BYTE, win);
    MPI_Accumulate(local, 40, MPI_BYTE, next, 0, 40, MPI_BYTE, MPI_BOR, win);
    MPI_Win_fence(0, win);
  }
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &next, &to);
  MPI_Group_incl(world, 1, &previous, &from);
  for (int i = 0; i < 2; i++) {
    MPI_Win_post(from, 0, win);
    MPI_Win_start(to, 0, win);
    MPI_Put(local, 60000, MPI_BYTE, next, 0, 60000, MPI_BYTE, win);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
  }
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
  MPI_Put(local, 5, MPI_BYTE, 0, rank, 5, MPI_BYTE, win);
  MPI_Win_flush(0, win);
  MPI_Fetch_and_op(local, local + 8, MPI_BYTE, 0, 50, MPI_BOR, win);
  MPI_Rget_accumulate(local, 3, MPI_BYTE, local + 8, 3, MPI_BYTE, 0, 60, 3, MPI_BYTE, MPI_BOR, win,
                      &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Win_unlock(0, win);
  MPI_Win_free(&win);
  MPI_Finalize();
  return 0;
}
"""

NEIGHBOURS = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, dims[2] = {2, 2}, wraps[2] = {1, 0}, counts[4] = {10, 20, 30, 40}, at[4] = {0};
  int back[4] = {20, 10, 40, 30};
  char out[400] = {0}, in[400];
  MPI_Comm grid, graph;
  MPI_Request r;
  MPI_Init(&argc, &argv);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, wraps, 0, &grid);
  MPI_Comm_rank(grid, &rank);
  for (int i = 0; i < 3; i++)
    MPI_Neighbor_alltoallv(out, counts, at, MPI_BYTE, in, back, at, MPI_BYTE, grid);
  MPI_Neighbor_alltoall(out, 7, MPI_BYTE, in, 7, MPI_BYTE, grid);
  int from = (rank + 3) % 4, to = (rank + 1) % 4, weight = 1;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from, &weight, 1, &to, &weight,
                                 MPI_INFO_NULL, 0, &graph);
  MPI_Neighbor_allgather(out, 9, MPI_BYTE, in, 9, MPI_BYTE, graph);
  MPI_Ineighbor_allgather(out, 9, MPI_BYTE, in, 9, MPI_BYTE, graph, &r);
  MPI_Wait(&r, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}
"""

STARTED = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, dims[2] = {2, 2}, wraps[2] = {1, 0}, counts[4] = {20, 20, 30, 40}, at[4] = {0};
  int back[4] = {20, 20, 40, 30};
  MPI_Aint far[4] = {0};
  MPI_Datatype types[4] = {MPI_SHORT, MPI_SHORT, MPI_INT, MPI_DOUBLE};
  MPI_Datatype others[4] = {MPI_SHORT, MPI_SHORT, MPI_DOUBLE, MPI_INT};
  static char out[1000], in[1000];
  int flag = 0;
  MPI_Comm grid, graph;
  MPI_Request r[5];
  MPI_Init(&argc, &argv);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, wraps, 0, &grid);
  MPI_Comm_rank(grid, &rank);
  MPI_Neighbor_alltoallw(out, counts, far, types, in, back, far, others, grid);
  /* Open at once, and completed in another order than they were started. */
  MPI_Ineighbor_alltoallw(out, counts, far, types, in, back, far, others, grid, &r[0]);
  MPI_Ineighbor_alltoallv(out, counts, at, MPI_BYTE, in, back, at, MPI_BYTE, grid, &r[1]);
  MPI_Ineighbor_alltoall(out, 7, MPI_BYTE, in, 7, MPI_BYTE, grid, &r[2]);
  while (!flag) MPI_Test(&r[2], &flag, MPI_STATUS_IGNORE);
  MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
  int from = (rank + 3) % 4, to = (rank + 1) % 4, weight = 1, receives = 9 + from;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from, &weight, 1, &to, &weight,
                                 MPI_INFO_NULL, 0, &graph);
  MPI_Ineighbor_allgatherv(out, 9 + rank, MPI_BYTE, in, &receives, at, MPI_BYTE, graph, &r[3]);
  MPI_Ineighbor_allgather(out, 6, MPI_BYTE, in, 6, MPI_BYTE, graph, &r[4]);
  MPI_Waitall(2, r + 3, MPI_STATUSES_IGNORE);
#if MPI_VERSION >= 4
  MPI_Neighbor_alltoallw_init(out, counts, far, types, in, back, far, others, grid, MPI_INFO_NULL,
                              &r[0]);
  MPI_Neighbor_allgather_init(out, 5, MPI_BYTE, in, 5, MPI_BYTE, graph, MPI_INFO_NULL, &r[1]);
  for (int i = 0; i < 3; i++) {
    MPI_Startall(2, r);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
  }
  MPI_Request_free(&r[0]);
  MPI_Request_free(&r[1]);
#endif
  MPI_Finalize();
  return 0;
}
"""

STARTED_FORTRAN = """program p
{head}
integer rank, e, counts(4), back(4), at(4)
logical wraps(2)
integer(MPI_ADDRESS_KIND) far(4)
{types}
character out(1000), in(1000)
counts = (/ 20, 20, 30, 40 /)
back = (/ 20, 20, 40, 30 /)
at = 0
far = 0
wraps = (/ .true., .false. /)
call MPI_Init(e)
types = (/ MPI_INTEGER2, MPI_INTEGER2, MPI_INTEGER, MPI_DOUBLE_PRECISION /)
others = (/ MPI_INTEGER2, MPI_INTEGER2, MPI_DOUBLE_PRECISION, MPI_INTEGER /)
call MPI_Cart_create(MPI_COMM_WORLD, 2, (/ 2, 2 /), wraps, .false., grid, e)
call MPI_Neighbor_alltoallw(out, counts, far, types, in, back, far, others, grid, e)
call MPI_Ineighbor_alltoallw(out, counts, far, types, in, back, far, others, grid, q(1), e)
call MPI_Ineighbor_alltoallv(out, counts, at, MPI_BYTE, in, back, at, MPI_BYTE, grid, q(2), e)
call MPI_Waitall(2, q, s, e)
call MPI_Finalize(e)
end
"""
PLAIN = "integer types(4), others(4), grid, q(2), s(MPI_STATUS_SIZE, 2)"
TYPED = (
    "type(MPI_Datatype) types(4), others(4)\ntype(MPI_Comm) grid\n"
    "type(MPI_Request) q(2)\ntype(MPI_Status) s(2)"
)

EVERY = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, size, sends[4], receives[4], at[4] = {0};
  MPI_Datatype out[4], in[4], types[4] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE};
  static char a[1000], b[1000];
  MPI_Request r;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 4; i++) {
    sends[i] = 1 + rank + 4 * i;
    receives[i] = 1 + i + 4 * rank;
    out[i] = types[i];
    in[i] = types[rank];
  }
  MPI_Alltoallw(a, sends, at, out, b, receives, at, in, MPI_COMM_WORLD);
  MPI_Ialltoallw(a, sends, at, out, b, receives, at, in, MPI_COMM_WORLD, &r);
  MPI_Wait(&r, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}
"""


WINDOWS = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank;
  static char memory[3][1000], local[1000];
  MPI_Comm row;
  MPI_Win all, first, second;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &row);
  MPI_Win_create(memory[0], 1000, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &all);
  MPI_Win_create(memory[1], 1000, 1, MPI_INFO_NULL, row, &first);
  MPI_Win_create(memory[2], 1000, 1, MPI_INFO_NULL, row, &second);
  MPI_Win_fence(0, all);
  MPI_Win_fence(0, first);
  /* The second row fences more often than the first. */
  for (int i = 0; i < 1 + rank / 2; i++) {
    MPI_Put(local, 100, MPI_BYTE, 1 - rank % 2, 0, 100, MPI_BYTE, first);
    MPI_Win_fence(0, first);
  }
  MPI_Put(local, 200, MPI_BYTE, (rank + 1) % 4, 0, 200, MPI_BYTE, all);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, second);
  MPI_Put(local, 300, MPI_BYTE, 0, 0, 300, MPI_BYTE, second);
  MPI_Win_unlock(0, second);
  MPI_Win_fence(0, all);
  MPI_Win_free(&second);
  MPI_Win_free(&first);
  MPI_Win_free(&all);
  MPI_Finalize();
  return 0;
}
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("needs Debian packages openmpi-bin, libopenmpi-dev")
    return tmp_path


def recorded(folder: Path, text: str, compiler: str = "mpicc", name: str = "app.c") -> Program:
    (folder / name).write_text(text)
    subprocess.run([compiler, "-g", name, "-o", "app"], cwd=folder, check=True, capture_output=True)
    mpich = compiler.endswith(".mpich")
    start = ["mpirun.mpich"] if mpich else ["mpirun", "--oversubscribe"]
    # Open MPI's one-sided communication over shared memory needs no network.
    record([*start, "-np", "4", str(folder / "app")], folder / "evidence")
    # A machine with fewer cores than ranks has a note on that.
    (without_manifest(folder / "evidence") / "rank_host.csv").unlink()
    program = read_trace(folder / "evidence")
    assert_completes(program)
    return program


def messages(program: Program, call: str) -> Counter[tuple[int, int, int]]:
    """Messages of a call by sender, receiver and size."""
    rank = program.op_rank
    return Counter(
        (int(rank[row]), int(program.peer[row]), int(program.amount[row]))
        for row in program.sends.nonzero()[0]
        if program.labels[program.label[row]].call == call
    )


@pytest.mark.tools
def test_one_sided_calls_become_messages(tools: Path) -> None:
    program = recorded(tools, ONE_SIDED)
    ring = [(rank, (rank + 1) % 4) for rank in range(4)]
    puts = messages(program, "MPI_Put")
    assert all(puts[*pair, 70000] == 3 and puts[*pair, 60000] == 2 for pair in ring)
    assert sum(count for (_, to, size), count in puts.items() if (to, size) == (0, 5)) == 4
    # What a get moves comes from the rank before, like what is put.
    assert messages(program, "MPI_Get") == {(*pair, 300): 3 for pair in ring}
    assert messages(program, "MPI_Accumulate") == {(*pair, 40): 3 for pair in ring}
    fetched = messages(program, "MPI_Fetch_and_op")
    assert fetched[1, 0, 1] == fetched[0, 1, 1] == 1
    fetched = messages(program, "MPI_Rget_accumulate")
    assert fetched[1, 0, 3] == fetched[0, 1, 3] == 1
    assert program.notes == []


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("compiler", ["mpicc", "mpicc.mpich"])
def test_epochs_of_several_windows_are_distinguished(
    tools: Path, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip("needs Debian packages mpich, libmpich-dev")
    # Open MPI 4 names the shared memory of a window by its communicator's number, which both
    # halves of a split have: now and then one removes the file of the other.
    monkeypatch.setenv("OMPI_MCA_osc", "^sm")
    program = recorded(tools, WINDOWS, compiler)
    expected = {(rank, (rank + 1) % 4, 200): 1 for rank in range(4)}
    expected |= {(rank, rank ^ 1, 100): 1 + rank // 2 for rank in range(4)}
    expected |= {(rank, rank // 2 * 2, 300): 1 for rank in range(4)}
    assert messages(program, "MPI_Put") == expected
    # Every fence has an epoch, although ranks call it two, three and four times.
    assert program.notes == []
    split = measure(tools / "evidence").tables["split"].filter(pl.col("part") == "one_sided")
    # Only the lock and its unlock are left: what is in fences is a wait or a transfer.
    assert set(split["phase"].to_list()) <= {"main() (app.c:22)", "main() (app.c:24)"}


@pytest.mark.tools
@pytest.mark.parametrize("compiler", ["mpicc", pytest.param("mpicc.mpich", marks=pytest.mark.slow)])
def test_neighbourhood_collectives_become_messages(tools: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip("needs Debian packages mpich, libmpich-dev")
    program = recorded(tools, NEIGHBOURS, compiler)
    # Along the first dimension both neighbours are the same rank; along the second, one is none.
    expected: Counter[tuple[int, int, int]] = Counter()
    for rank in range(4):
        expected[rank, (rank + 2) % 4, 10] += 3
        expected[rank, (rank + 2) % 4, 20] += 3
        expected[rank, rank ^ 1, 30 if rank % 2 else 40] += 3
    assert messages(program, "MPI_Neighbor_alltoallv") == expected
    assert sum(messages(program, "MPI_Neighbor_alltoall").values()) == 12
    ring = {(rank, (rank + 1) % 4, 9): 1 for rank in range(4)}
    assert messages(program, "MPI_Neighbor_allgather") == ring
    assert messages(program, "MPI_Ineighbor_allgather") == ring
    assert program.notes == []


# Sizes to the neighbours of a rank of the grid. Both along the first dimension are the same rank,
# and get the same size: started collectives of Open MPI 4 confuse them.
ALLTOALLV = (20, 20, 30, 40)
ALLTOALLW = (20 * 2, 20 * 2, 30 * 4, 40 * 8)


def on_the_grid(sizes: tuple[int, int, int, int], times: int = 1) -> Counter[tuple[int, int, int]]:
    """Messages of a grid of 2 x 2 ranks that wraps around in the first dimension only."""
    out: Counter[tuple[int, int, int]] = Counter()
    for rank in range(4):
        out[rank, rank ^ 2, sizes[0]] += times
        out[rank, rank ^ 2, sizes[1]] += times
        out[rank, rank ^ 1, sizes[2] if rank % 2 else sizes[3]] += times
    return out


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("compiler", ["mpicc", "mpicc.mpich"])
def test_started_neighbourhood_collectives_become_messages(tools: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip("needs Debian packages mpich, libmpich-dev")
    program = recorded(tools, STARTED, compiler)
    ring = [(rank, (rank + 1) % 4) for rank in range(4)]
    assert messages(program, "MPI_Neighbor_alltoallw") == on_the_grid(ALLTOALLW)
    assert messages(program, "MPI_Ineighbor_alltoallw") == on_the_grid(ALLTOALLW)
    assert messages(program, "MPI_Ineighbor_alltoallv") == on_the_grid(ALLTOALLV)
    assert messages(program, "MPI_Ineighbor_alltoall") == on_the_grid((7, 7, 7, 7))
    assert messages(program, "MPI_Ineighbor_allgatherv") == {
        (*pair, 9 + pair[0]): 1 for pair in ring
    }
    assert messages(program, "MPI_Ineighbor_allgather") == {(*pair, 6): 1 for pair in ring}
    persistent = on_the_grid(ALLTOALLW, 3) + Counter({(*pair, 5): 3 for pair in ring})
    # Open MPI 4 has no persistent collectives.
    mpich = compiler.endswith(".mpich")
    assert messages(program, "MPI_Startall") == (persistent if mpich else Counter())
    assert program.notes == []
    assert program.lacks == ()


@pytest.mark.tools
@pytest.mark.parametrize(
    ("compiler", "head", "variables"),
    [
        pytest.param("mpif90", "include 'mpif.h'", PLAIN, marks=pytest.mark.slow),
        ("mpif90", "use mpi_f08", TYPED),
        pytest.param("mpif90.mpich", "include 'mpif.h'", PLAIN, marks=pytest.mark.slow),
    ],
)
def test_started_neighbourhood_collectives_of_fortran(
    tools: Path, compiler: str, head: str, variables: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip("needs Debian packages gfortran, mpich, libmpich-dev")
    text = STARTED_FORTRAN.format(head=head, types=variables)
    program = recorded(tools, text, compiler, "app.f90")
    assert messages(program, "MPI_Neighbor_alltoallw") == on_the_grid(ALLTOALLW)
    assert messages(program, "MPI_Ineighbor_alltoallw") == on_the_grid(ALLTOALLW)
    assert messages(program, "MPI_Ineighbor_alltoallv") == on_the_grid(ALLTOALLV)
    assert program.notes == []


@pytest.mark.tools
@pytest.mark.parametrize("compiler", ["mpicc", pytest.param("mpicc.mpich", marks=pytest.mark.slow)])
def test_alltoallw_counts_each_partner_in_its_own_type(tools: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip("needs Debian packages mpich, libmpich-dev")
    recorded(tools, EVERY, compiler)
    m = load(tools / "evidence").messages
    size = (1, 2, 4, 8)
    sent = [sum((1 + rank + 4 * to) * size[to] for to in range(4)) for rank in range(4)]
    received = [sum((1 + of + 4 * rank) * size[rank] for of in range(4)) for rank in range(4)]
    for rank in range(4):
        rows = (m.rank == rank) & (m.bytes > 0)
        assert m.bytes[rows].tolist() == [sent[rank]] * 2
        assert m.received[rows].tolist() == [received[rank]] * 2
