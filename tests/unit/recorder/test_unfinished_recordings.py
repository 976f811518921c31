"""Recordings whose recorder is killed or cannot write: no file of a rank is lost."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailback.cli import run
from tailback.recorder.rank_files import RecordError
from tailback.recorder.session import finish, record
from tailback.traffic.readers.otf2.reader import load

# Makes calls until it is killed, or a few of them.
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, value = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc > 2) _exit(3);
  for (int i = 0; argc > 1 || i < 100; i++) {
    MPI_Sendrecv_replace(&value, 1, MPI_INT, rank ^ 1, 0, rank ^ 1, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    if (argc > 1 && i % 1000 == 0) usleep(1000);
  }
  if (rank == 0) printf("done\n");
  MPI_Finalize();
  return 0;
}
"""

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("needs Debian packages openmpi-bin, libopenmpi-dev")
    folder = tmp_path_factory.mktemp("program")
    (folder / "app.c").write_text(PROGRAM)
    subprocess.run(["mpicc", "app.c", "-o", "app"], cwd=folder, check=True)
    return ["mpirun", "--oversubscribe", "-np", "2", str(folder / "app")]


def tailback(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tailback", *arguments]


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.05)


def descendants(process: int) -> list[int]:
    """All processes below one, as the cgroup of a job has them."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        parents.setdefault(parent, []).append(int(stat.parent.name))
    processes, open_ends = list[int](), [process]
    while open_ends:
        processes += (below := parents.get(open_ends.pop(), []))
        open_ends += below
    return processes


def signal_job(recorder: subprocess.Popen[str], number: int) -> None:
    for process in [recorder.pid, *descendants(recorder.pid)]:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


@pytest.fixture
def running(program: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A recorder whose ranks have written events."""
    command = tailback("record", "--out", str(tmp_path / "out"), "--", *program, "forever")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    raw = tmp_path / "out.unfinished"
    try:
        wait_for(lambda: len([file for file in raw.glob("*/*.events") if file.stat().st_size]) == 2)
        yield process
    finally:
        signal_job(process, signal.SIGKILL)
        process.wait()


def content(folder: Path) -> dict[str, bytes]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_recording_is_written_after_sigterm(running: subprocess.Popen[str], tmp_path: Path) -> None:
    signal_job(running, signal.SIGTERM)
    _, output = running.communicate(timeout=120)
    assert running.returncode not in (0, 125), output
    assert len(load(tmp_path / "out").calls.rank) > 1000
    assert not (tmp_path / "out.unfinished").exists()


def test_recording_is_finished_after_sigterm_and_sigkill(
    program: list[str], running: subprocess.Popen[str], tmp_path: Path, capsys
) -> None:
    out, raw = tmp_path / "out", tmp_path / "out.unfinished"
    with pytest.raises(RecordError, match="is being recorded"):
        finish(raw)
    # A batch system sends the second after a grace time, which is too short here.
    os.kill(running.pid, signal.SIGSTOP)
    signal_job(running, signal.SIGTERM)
    signal_job(running, signal.SIGKILL)
    running.wait()
    assert not out.exists()
    # Another run with this name leaves the files alone.
    before = content(raw)
    assert run(["record", "--force", "--out", str(out), "--", *program]) == 125
    assert f"tailback record --recover {raw}" in capsys.readouterr().err
    assert content(raw) == before and not out.exists()
    assert run(["record", "--recover", str(out)]) == 0
    assert "nothing says how the program ended" in capsys.readouterr().err
    assert len(load(out).calls.rank) > 1000
    assert json.loads((out / "recording.json").read_text())["exit_code"] is None
    assert not raw.exists()


def test_files_of_ranks_outlive_a_full_disk(program: list[str], tmp_path: Path) -> None:
    out, unlimited = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_disk(step: str) -> None:
        if step == "writing the trace":
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited[1]))

    try:
        with pytest.raises(RecordError) as caught:
            record(program, out, step=fill_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert f"tailback record --recover {out}.unfinished" in caught.value.remedy
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out.unfinished"]
    # 100 calls, MPI_Init and MPI_Finalize of both ranks.
    assert finish(tmp_path / "out.unfinished").calls == 2 * 102
    assert len(load(out).calls.rank) == 2 * 102


def test_trace_that_differs_keeps_the_rank_files(
    program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_an_event_file(ranks, folder, *arguments) -> int:
        calls = write_archive(ranks, folder, *arguments)
        (folder / "traces" / "1.evt").unlink()
        return calls

    from tailback.recorder.archive import write_archive

    monkeypatch.setattr("tailback.recorder.session.write_archive", lose_an_event_file)
    with pytest.raises(RecordError, match="--recover"):
        record(program, tmp_path / "out")
    monkeypatch.undo()
    assert finish(tmp_path / "out.unfinished", tmp_path / "other").calls == 2 * 102


@pytest.mark.slow
def test_stdout_belongs_to_the_program(program: list[str], tmp_path: Path) -> None:
    command = tailback("record", "--out", str(tmp_path / "out"), "--", *program)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    assert "204 MPI calls of 2 ranks on 1 host" in done.stderr


def test_folders_without_rank_files_are_not_finished(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is not an unfinished recording"):
        finish(tmp_path)
    (tmp_path / "x.unfinished").mkdir()
    (tmp_path / "x.unfinished" / "started.json").write_text("[1]")
    with pytest.raises(RecordError, match=r"started\.json is damaged"):
        finish(tmp_path / "x")
    (tmp_path / "x.unfinished" / "started.json").write_text('{"command": ["app"]}')
    with pytest.raises(RecordError, match="no rank wrote anything"):
        finish(tmp_path / "x")


@pytest.mark.slow
def test_recording_of_mpi_init_alone_is_not_diagnosable(
    program: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, diagnosable in ((["a", "b"], False), ([], True)):
        out = tmp_path / f"out{len(arguments)}"
        code = run(["record", "--out", str(out), "--", *program, *arguments])
        assert (code == 0) == diagnosable
        text = capsys.readouterr().err
        assert ("tailback diagnose" in text) == diagnosable
        assert ("nothing to diagnose" in text) != diagnosable
        assert "can be diagnosed" not in text
