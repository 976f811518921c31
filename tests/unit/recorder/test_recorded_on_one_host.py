"""What a diagnosis says of a recording on one host, whose ranks share a clock."""

from __future__ import annotations

import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from tailback.api.diagnose import diagnose
from tailback.cli.measured_screen import _clocks
from tailback.evidence import measure
from tailback.recorder.session import record
from tailback.traffic.readers import read_trace
from tests.factories.recordings import evidence_of, transfer
from tests.factories.unchecked_runs import without_manifest

# Sends whose requests are freed, and much time in making communicators.
FREED = r"""
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, a = 0, b;
  MPI_Request r;
  MPI_Comm copy;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 20; i++) {
    MPI_Isend(&a, 1, MPI_INT, rank ^ 1, 0, MPI_COMM_WORLD, &r);
    MPI_Request_free(&r);
    MPI_Recv(&b, 1, MPI_INT, rank ^ 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int k = 0; k < 20; k++) {
      MPI_Comm_dup(MPI_COMM_WORLD, &copy);
      MPI_Comm_free(&copy);
    }
  }
  MPI_Finalize();
  return 0;
}
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("mpirun.mpich") or not shutil.which("mpicc.mpich"):
        pytest.skip("needs Debian packages mpich, libmpich-dev")
    folder = tmp_path_factory.mktemp("freed")
    (folder / "app.c").write_text(FREED)
    subprocess.run(["mpicc.mpich", "app.c", "-o", "app"], cwd=folder, check=True)
    record(["mpirun.mpich", "-n", "2", str(folder / "app")], folder / "out")
    return folder / "out"


@pytest.mark.tools
def test_one_clock_has_no_uncertainty(recording: Path, tmp_path: Path) -> None:
    clocks = measure(recording).measured.clocks
    assert clocks.clocks == 1 and clocks.error_ps == 0 and clocks.one_way == 0
    assert _clocks(clocks, 1) == "clocks: one, which all ranks share"
    # The same trace without what the recorder says of its clocks.
    copy = without_manifest(shutil.copytree(recording, tmp_path / "copy"))
    (copy / "rank_host.csv").unlink()
    assert measure(copy).measured.clocks.error_ps > 0


@pytest.mark.tools
def test_requests_that_are_freed_are_not_missing(recording: Path) -> None:
    assert read_trace(recording).lacks == ()


@pytest.mark.tools
def test_calls_without_data_are_explained(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # How much of the time they take depends on what else runs.
    monkeypatch.setattr(import_module("tailback.evidence.measure"), "_WORTH_A_NOTE", 0.0)
    notes = measure(recording).measured.notes
    (calls_note,) = [note for note in notes if note.startswith("MPI calls without data: ")]
    assert "MPI_Comm_dup" in calls_note and "no verdict covers them" in calls_note


@pytest.mark.tools
def test_messages_within_a_host_are_not_denied(recording: Path) -> None:
    explanation = diagnose(
        recording, fabric="tapered", seeds=1, methods=("block",), remedies=("placement",)
    ).diagnosis.explanation
    assert explanation is not None
    assert any(
        "no messages between hosts to fit them to" in source for source in explanation.sources
    )


def test_unrecorded_ranks_leave_the_cause_open(tmp_path: Path) -> None:
    trace, _ = transfer(tmp_path)
    edges = tmp_path / "edges.csv"
    edges.write_text("src,dst,rate_gbit\na,left,10\nc,left,10\n")
    (trace / "recording.json").write_text('{"ranks": 3, "not_recorded": [2]}\n')
    diagnosed_trace = diagnose(
        trace, fabric=edges, seeds=1, methods=("block",), remedies=("placement",)
    )
    assert diagnosed_trace.diagnosis.warnings[0].startswith("not recorded: 1 of 3 ranks")
    # What is missing may be the cause of anything.
    assert diagnosed_trace.diagnosis.cause == "undetermined"
    assert diagnosed_trace.diagnosis.headline.startswith("The recording lacks 1 of 3 ranks: ")
    assert diagnosed_trace.diagnosis.remedy is not None
    assert diagnosed_trace.diagnosis.remedy.action.startswith("Record it again with all ranks")
    assert "no messages between hosts" not in evidence_of(trace, fabric=edges)


@pytest.mark.tools
def test_lost_clock_offsets_are_told(recording: Path, tmp_path: Path) -> None:
    copy = without_manifest(shutil.copytree(recording, tmp_path / "copy"))
    (copy / "traces" / "1.def").unlink()
    (offsets_note,) = [note for note in measure(copy).measured.notes if "clock offsets" in note]
    assert offsets_note.startswith("the trace has no clock offsets of 1 rank (first: 1)")
