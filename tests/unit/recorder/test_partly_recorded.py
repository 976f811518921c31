"""Runs in which some ranks do not load the recorder, stop recording or end badly: none may hang."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tailback.cli import run
from tailback.recorder.endings import notes_on_end, number_ranges
from tailback.recorder.rank_files import RankRecord, RecordError, read_rank_files
from tailback.recorder.session import record
from tailback.traffic.readers.otf2.reader import load

# Makes communicators of all and of some ranks, and checks the data of collectives on them.
CHECKED = r"""
#include <mpi.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
/* Files end here from now on, and more records come than a buffer holds. */
static void fill_disk(void) {
  struct rlimit few = {65536, 65536};
  int there;
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &few);
  for (int i = 0; i < 50000; i++)
    MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
}
int main(int argc, char **argv) {
  int rank, size, hidden = argc > 1 && !strcmp(argv[1], "hidden");
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (getenv("FULL")) fill_disk();
  for (int i = 0; i < 100; i++) {
    MPI_Comm half;
    long long value = 1000 * i, all[2] = {rank, i};
    MPI_Comm_split(MPI_COMM_WORLD, rank < size / 2, -rank, &half);
    MPI_Bcast(&value, 1, MPI_LONG_LONG, 0, half);
    if (value != 1000 * i) MPI_Abort(MPI_COMM_WORLD, 41);
    MPI_Allreduce(MPI_IN_PLACE, all, 2, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
    if (all[0] != size - 1 || all[1] != i) MPI_Abort(MPI_COMM_WORLD, 42);
    MPI_Comm_free(&half);
    usleep(5000);
    if (hidden)
      PMPI_Barrier(MPI_COMM_WORLD);
    else
      MPI_Barrier(MPI_COMM_WORLD);
  }
  if (argc > 2 && rank == 1) abort();
  MPI_Finalize();
  return argc > 1 && rank == 1 && !hidden ? atoi(argv[1]) : 0;
}
"""

LIMIT_S = 200
"""A test that takes longer hangs: the recorder's own limits are far below."""


@pytest.fixture(autouse=True)
def _end_what_hangs() -> Iterator[None]:
    """Interrupt a recording, which then ends the launcher."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("mpirun.openmpi") or not shutil.which("mpirun.mpich"):
        pytest.skip("needs Debian packages openmpi-bin, libopenmpi-dev, mpich, libmpich-dev")
    folder = tmp_path_factory.mktemp("partly")
    (folder / "app.c").write_text(CHECKED)
    for family in ("openmpi", "mpich"):
        subprocess.run([f"mpicc.{family}", "app.c", "-o", family], cwd=folder, check=True)
    scripts = {"unloaded": "unset LD_PRELOAD", "limited": "export FULL=1"}
    for name, line in scripts.items():
        (folder / name).write_text(f'#!/bin/sh\n{line}\nexec "$@"\n')
        (folder / name).chmod(0o755)
    patch = pytest.MonkeyPatch()
    # The ranks of MPICH run on two hosts, as it believes.
    patch.setenv("MPIR_CVAR_NUM_CLIQUES", "2")
    yield folder
    patch.undo()


def _launch(folder: Path, family: str, first: list[str], second: list[str]) -> list[str]:
    start = {"openmpi": ["mpirun.openmpi", "--oversubscribe"], "mpich": ["mpirun.mpich"]}[family]
    app = str(folder / family)
    return [*start, "-n", "2", *first, app, ":", "-n", "2", *second, app]


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("family", ["openmpi", "mpich"])
@pytest.mark.parametrize("order", ["last", "first"])
def test_a_program_without_recorder_hangs_nobody(
    folder: Path, tmp_path: Path, family: str, order: str
) -> None:
    unloaded = [str(folder / "unloaded")]
    parts = ([], unloaded) if order == "last" else (unloaded, [])
    recording = record(_launch(folder, family, *parts), tmp_path / "out", wait_s=1)
    missing = [2, 3] if order == "last" else [0, 1]
    assert recording.exit_code == 0
    assert recording.ranks == 4 and recording.not_recorded == missing
    text = "2-3" if order == "last" else "0-1"
    assert any(note.startswith(f"not recorded: 2 of 4 ranks ({text})") for note in recording.notes)
    trace = load(tmp_path / "out")
    assert trace.n_ranks == 4
    assert set(trace.calls.rank.tolist()) == {0, 1, 2, 3} - set(missing)


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_all_programs_of_a_launch_are_recorded(folder: Path, tmp_path: Path, family: str) -> None:
    recording = record(_launch(folder, family, [], []), tmp_path / "out")
    assert recording.not_recorded == [] and recording.exit_code == 0
    assert set(load(tmp_path / "out").calls.rank.tolist()) == {0, 1, 2, 3}


@pytest.mark.tools
@pytest.mark.slow
def test_a_file_of_programs_is_recorded(folder: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.write_text(f"# two programs\n-np 1 {folder / 'openmpi'}\n-np 2 {folder / 'openmpi'}\n")
    out = tmp_path / "out"
    recording = record(["mpirun.openmpi", "--oversubscribe", "--app", str(programs)], out)
    assert recording.ranks == 3 and recording.not_recorded == []
    assert not list(out.glob("*.app"))


@pytest.mark.tools
@pytest.mark.slow
def test_a_full_disk_hangs_nobody_and_damages_nothing(folder: Path, tmp_path: Path) -> None:
    # Ranks 2 and 3 cannot write, but still count communicators and collectives.
    command = _launch(folder, "mpich", [], [str(folder / "limited")])
    recording = record(command, tmp_path / "out", clocks_every_s=0.1)
    assert recording.exit_code == 0
    assert any("stopped recording" in note for note in recording.notes)
    assert set(load(tmp_path / "out").calls.rank.tolist()) >= {0, 1}


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_programs_at_the_same_time_are_told_apart(
    folder: Path, tmp_path: Path, family: str
) -> None:
    # Ranks of one that took those of the other for theirs would wait for them.
    options = "--oversubscribe" if family == "openmpi" else ""
    launch = f"mpirun.{family} {options} -n 2 {folder / family}"
    recording = record(
        ["sh", "-c", f"{launch} & {launch}; wait"], tmp_path / "out", mpicc=f"mpicc.{family}"
    )
    assert recording.ranks == 2 and recording.not_recorded == []
    assert any(
        note.startswith("1 other MPI program of this command (2 ranks)") for note in recording.notes
    )


@pytest.mark.tools
def test_a_recorder_of_another_mpi_library_says_so(folder: Path, tmp_path: Path, capfd) -> None:
    command = ["mpirun.mpich", "-n", "1", str(folder / "mpich")]
    with pytest.raises(RecordError, match=r"no rank loaded the recorder: .* exit code 125"):
        record(command, tmp_path / "out", mpicc="mpicc.openmpi")
    error = capfd.readouterr().err
    assert "the program uses MPICH" in error and "compiled for Open MPI: name the compiler" in error


@pytest.mark.slow
@pytest.mark.tools
def test_hidden_collectives_do_not_hang_clock_comparison(folder: Path, tmp_path: Path) -> None:
    # One of the two hosts counts half as many collectives as the other.
    command = [*_launch(folder, "mpich", [], []), "hidden"]
    recording = record(command, tmp_path / "out", clocks_every_s=0.1)
    assert recording.exit_code == 0 and recording.not_recorded == []


@pytest.mark.slow
@pytest.mark.tools
def test_the_exit_code_is_that_of_the_program(folder: Path, tmp_path: Path, capsys) -> None:
    base = ["record", "--quiet", "--out"]
    app = ["mpirun.mpich", "-n", "2", str(folder / "mpich")]
    assert run([*base, str(tmp_path / "ok"), "--", *app]) == 0
    assert run([*base, str(tmp_path / "bad"), "--", *app, "7"]) == 7
    assert "ended with exit code 7; all recorded ranks reached MPI_Fin" in capsys.readouterr().err
    code = run([*base, str(tmp_path / "crash"), "--", *app, "7", "abort"])
    assert code not in (0, 2, 125)
    assert f"the program ended with exit code {code}; " in capsys.readouterr().err
    assert json.loads((tmp_path / "crash" / "recording.json").read_text())["exit_code"] == code
    # Tailback's own failures.
    assert run([*base, str(tmp_path / "bad"), "--", *app]) == 125
    assert run([*base, str(tmp_path / "none"), "--", "true"]) == 125
    assert run(["record", "--clocks-every", "no", "--", "true"]) == 125


def test_the_end_and_its_kept_data_are_reported() -> None:
    ranks = [RankRecord(rank, size=4, end=end) for rank, end in enumerate(("end", "exit", "", ""))]
    assert notes_on_end(-9, ranks, 5) == [
        "the program ended by SIGKILL; 1 rank (1) ended before MPI_Finalize, with all calls kept; "
        "2 ranks (2-3) ended without a chance or room to write: up to 1 MiB of the last records "
        "of each is missing; what is recorded can be diagnosed"
    ]
    assert notes_on_end(0, ranks[:1], 5) == []
    ranks[0].full = "No space left on device"
    assert notes_on_end(0, ranks[:1], 0) == [
        "the program ended with exit code 0; 1 rank (0) stopped recording: No space left on "
        "device; no MPI call besides MPI_Init is recorded, so there is nothing to diagnose"
    ]
    assert number_ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert number_ranges(list(range(0, 40, 2))).endswith("14, …")


def test_system_clocks_join_hosts_without_comparison(
    tmp_path: Path,
) -> None:
    second = 10**9
    for rank, host, begun in ((0, "a", 5), (1, "a", 6), (3, "b", 100)):
        (tmp_path / f"rank-{rank:06}.meta").write_text(
            f"tailback-recording 1\nrank {rank} 4\nhost {host}\n"
            f"utc {begun * second} {(1000 + begun % 100) * second}\nend 1\n"
        )
    ranks = read_rank_files(tmp_path)
    # At 1000 s of UTC, the clock of a is at 0 s and that of b at 100 s.
    assert [[offset for _, offset, _ in member.offsets] for member in ranks] == [
        [0],
        [0],
        [],
        [-100 * second],
    ]
    assert all(member.by_utc for member in ranks if member.recorded)
