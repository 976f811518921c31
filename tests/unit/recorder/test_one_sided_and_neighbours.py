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
from tests.factories.otf2_traces import assert_completes

ONE_SIDED = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, size, next, previous;
  static char memory[100000], local[100000];
  MPI_Win win;
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
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("needs Debian packages openmpi-bin, libopenmpi-dev")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    return tmp_path


def recorded(folder: Path, text: str, compiler: str = "mpicc") -> Program:
    (folder / "app.c").write_text(text)
    subprocess.run(
        [compiler, "-g", "app.c", "-o", "app"], cwd=folder, check=True, capture_output=True
    )
    mpich = compiler.endswith(".mpich")
    start = ["mpirun.mpich"] if mpich else ["mpirun", "--oversubscribe"]
    # Open MPI's one-sided communication over shared memory needs no network.
    record([*start, "-np", "4", str(folder / "app")], folder / "evidence")
    # A machine with fewer cores than ranks has a note on that.
    (folder / "evidence" / "rank_host.csv").unlink()
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
    assert program.notes == []


@pytest.mark.tools
@pytest.mark.parametrize("compiler", ["mpicc", "mpicc.mpich"])
def test_epochs_of_windows_on_several_communicators_are_told_apart(
    tools: Path, compiler: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip("needs Debian packages mpich, libmpich-dev")
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
@pytest.mark.parametrize("compiler", ["mpicc", "mpicc.mpich"])
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
    assert program.notes == ["4 calls of MPI_Ineighbor_allgather: only their time is used"]
