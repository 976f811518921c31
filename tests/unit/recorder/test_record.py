"""Programs recorded by ``tailback record``: what the trace says of them."""

import csv
import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tailback.api.calibrate import calibrate
from tailback.placement import Binding
from tailback.placement.rank_hosts import rank_hosts
from tailback.recorder import launch
from tailback.recorder.calls import calls
from tailback.recorder.communicators import unite
from tailback.recorder.endings import notes_on_missing
from tailback.recorder.rank_files import RankComm, RankRecord, RecordError, read_rank_files
from tailback.recorder.session import record
from tailback.recorder.wrappers import source
from tailback.sources.recording import recorded_binding
from tailback.sources.source import load_scenario
from tailback.traffic.readers.otf2.reader import load

PROGRAM = r"""
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void exchange(int rank, MPI_Comm comm) {
  int a[4] = {0}, b[4];
  MPI_Request r[2];
  MPI_Isend(a, 4, MPI_INT, rank ^ 1, 3, comm, &r[0]);
  MPI_Irecv(b, 4, MPI_INT, MPI_ANY_SOURCE, 3, comm, &r[1]);
  MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
}
int main(int argc, char **argv) {
  int rank, a[4] = {0}, b[4];
  MPI_Comm dup;
  MPI_Request r[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &dup);
  for (int i = 0; i < 5; i++) exchange(rank, dup);
  MPI_Sendrecv(a, 2, MPI_INT, rank ^ 1, 1, b, 2, MPI_INT, rank ^ 1, 1, dup, MPI_STATUS_IGNORE);
  MPI_Send(a, 1, MPI_INT, MPI_PROC_NULL, 0, dup);
  MPI_Send_init(a, 1, MPI_INT, rank ^ 1, 2, dup, &r[0]);
  MPI_Recv_init(b, 1, MPI_INT, rank ^ 1, 2, dup, &r[1]);
  for (int i = 0; i < 3; i++) {
    MPI_Startall(2, r);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
  }
  MPI_Allreduce(a, b, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Iallreduce(a, b, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[0]);
  MPI_Wait(&r[0], MPI_STATUS_IGNORE);
  if (argc > 1) {
    for (int i = 0; i < 60000; i++) MPI_Test(&r[0], a, MPI_STATUS_IGNORE);
    if (rank == 0) kill(getpid(), SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("needs Debian packages openmpi-bin, libopenmpi-dev")
    folder = tmp_path_factory.mktemp("program")
    (folder / "app.c").write_text(PROGRAM)
    subprocess.run(["mpicc", "-g", "app.c", "-o", "app"], cwd=folder, check=True)
    return ["mpirun", "--oversubscribe", "-np", "2", str(folder / "app")]


@pytest.mark.tools
def test_the_trace_has_messages_completions_and_call_sites(program, tmp_path) -> None:
    recording = record(program, tmp_path / "evidence")
    trace = load(tmp_path / "evidence")
    kinds = Counter(trace.messages.kind.tolist())
    # By rank: a Sendrecv; 5 + 3 non-blocking exchanges; a blocking and a non-blocking collective.
    assert {kind: kinds[kind] for kind in (0, 1, 2, 3, 4, 5, 8, 9, 10)} == {
        0: 2,
        1: 16,
        2: 16,
        3: 16,
        4: 2,
        5: 16,
        8: 2,
        9: 2,
        10: 2,
    }
    assert recording.calls == len(trace.calls.rank)
    assert recording.exit_code == 0 and recording.unfinished == 0
    assert any(path.startswith("exchange (app.c:") for path in trace.paths)
    host = os.uname().nodename
    assert [path[0] for path in trace.system] == [(host, "node")] * 2
    with (tmp_path / "evidence" / "rank_host.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["rank", "host", "slot", "cores", "clock", "physical_cores", "openmp_threads"]
    assert [row[:3] for row in rows[1:]] == [["0", host, "0"], ["1", host, "1"]]
    assert all(row[3] for row in rows[1:])
    # Ranks of one host share its clock.
    assert [row[4] for row in rows[1:]] == ["0", "0"]
    assert rank_hosts(tmp_path / "evidence" / "rank_host.csv") == [host, host]
    assert json.loads((tmp_path / "evidence" / "recording.json").read_text())["ranks"] == 2


@pytest.mark.tools
def test_a_killed_rank_loses_its_last_buffer(program, tmp_path) -> None:
    recording = record([*program, "kill"], tmp_path / "evidence")
    assert recording.exit_code != 0
    assert recording.unfinished >= 1
    calls_of_killed = (load(tmp_path / "evidence").calls.rank == 0).sum()
    # 60,000 calls of 24 bytes were made, and the buffer has 1 MiB.
    assert calls_of_killed > 60_000 - (1 << 20) // 24


@pytest.mark.tools
def test_a_program_without_mpi_is_told(program, tmp_path) -> None:
    with pytest.raises(RecordError, match="no rank loaded the recorder"):
        record([*program[:-1], "true"], tmp_path / "evidence")
    assert not (tmp_path / "evidence").exists()


@pytest.mark.slow
@pytest.mark.tools
def test_rates_within_hosts_need_a_core_each(program, tmp_path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    measured = record(program, tmp_path / "evidence").within_hosts_gbps
    (one_low, one_high), (all_low, all_high) = measured["one"], measured["all"]
    assert 0 < one_low <= one_high and 0 < all_low <= all_high
    # Two ranks copy at most twice as fast as one; other processes may have slowed that one down.
    assert all_low < 4 * one_high
    fitted = {parameter.name: parameter for parameter in calibrate(tmp_path / "evidence").engine}
    assert (fitted["memory_rate"].low, fitted["memory_rate"].source) == (
        pytest.approx(all_low),
        "timed by tailback record",
    )
    assert fitted["memory_rate"].value >= fitted["local_rate"].value
    crowded = [*program[:3], "16", program[-1]]
    if len(os.sched_getaffinity(0)) < 16:
        assert record(crowded, tmp_path / "crowded").within_hosts_gbps == {}


@pytest.mark.tools
@pytest.mark.parametrize("bound", [True, False])
def test_rank_files_bind_ranks_as_the_recording_did(
    program, tmp_path, monkeypatch: pytest.MonkeyPatch, bound: bool
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    binding = ["--bind-to", "core" if bound else "none"]
    record([program[0], *binding, *program[1:]], tmp_path / "evidence")
    scenario = load_scenario(tmp_path / "evidence", fabric="tapered")
    assert recorded_binding(scenario) == Binding(cores=1 if bound else 0, threads=3)


def test_a_missing_compiler_and_launcher_are_told(tmp_path) -> None:
    with pytest.raises(RecordError, match="'no-such-mpirun' is not a program"):
        record(["no-such-mpirun"], tmp_path / "evidence")
    with pytest.raises(RecordError, match="'no-such-mpicc' is not a program"):
        record(["true"], tmp_path / "evidence", mpicc="no-such-mpicc")


def test_every_call_has_c_and_fortran_wrappers() -> None:
    text = source()
    for call in calls():
        assert text.count(f"\nint {call.name}(") == 1
        # Large counts of Fortran have entry points that differ from library to library.
        assert text.count(f"\nvoid {call.fortran}(") == (0 if call.large else 1)


def test_libraries_may_lack_the_mpi_4_calls() -> None:
    by_name = {call.name: call for call in calls()}
    large = [argument.declared for argument in by_name["MPI_Alltoallv_c"].arguments]
    assert large[1:4] == [
        "const MPI_Count sendcounts[]",
        "const MPI_Aint sdispls[]",
        "MPI_Datatype sendtype",
    ]
    assert {
        "MPI_Send_c",
        "MPI_Put_c",
        "MPI_Win_allocate_c",
        "MPI_Iallreduce_c",
        "MPI_Allreduce_init_c",
    } <= by_name.keys()
    assert not {"MPI_Waitall_c", "MPI_Comm_dup_c", "MPI_Barrier_c", "MPI_Psend_init_c"} & set(
        by_name
    )
    without = source({"MPI_Send", "MPI_Pready"})
    assert "\nint MPI_Pready(" in without and "\nint MPI_Send_c(" not in without


def test_variables_pass_srun_beside_the_users() -> None:
    variables = {"A": "1", "B": "2"}
    assert launch._srun(["srun", "app"], variables) == ["srun", "--export=ALL,A=1,B=2", "app"]
    assert launch._srun(["srun", "--export=X", "app"], variables)[1] == "--export=X,A=1,B=2"


@pytest.mark.tools
def test_several_programs_of_one_run_are_all_recorded(program, tmp_path) -> None:
    # Open MPI gives variables to the program before the next colon only: without them on
    # both sides, the recorder of one would wait for ever for ranks of the other.
    copy = tmp_path / "other"
    shutil.copy(program[-1], copy)
    command = [*program, ":", "-np", "2", str(copy)]
    assert launch._open_mpi(command, {"A": "1"}).count("A=1") == 2
    record(command, tmp_path / "out")
    trace = load(tmp_path / "out")
    assert trace.n_ranks == 4
    assert set(trace.calls.rank.tolist()) == {0, 1, 2, 3}


def test_communicators_with_the_same_members_stay_apart() -> None:
    ranks = [RankRecord(rank, size=2) for rank in range(2)]
    for member in ranks:
        member.comms[0] = RankComm("world", 0, False, "MPI_COMM_WORLD", ([0, 1], []))
    for name in (5, 6):
        ranks[0].comms[name] = RankComm("named", name, False, "", ([0, 1], []))
        ranks[1].comms[11 - name] = RankComm("named", name, False, "")
    comms, numbers, unknown = unite(ranks)
    assert len(comms) == 3 and unknown == 0
    assert numbers[0][5] == numbers[1][6] != numbers[0][6] == numbers[1][5]


def test_missing_ranks_and_damaged_lines_are_told(tmp_path: Path) -> None:
    file = tmp_path / "rank-000001.meta"
    file.write_text("tailback-recording 1\nrank 1 3\nend 5\n")
    ranks = read_rank_files(tmp_path)
    assert [rank.recorded for rank in ranks] == [False, True, False]
    assert notes_on_missing(ranks)[0].startswith("not recorded: 2 of 3 ranks (0, 2): ")
    file.write_text("rank 1 3\ncomm x\n")
    with pytest.raises(RecordError, match="is not a line of a recording: 'comm x'"):
        read_rank_files(tmp_path)
