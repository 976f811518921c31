"""The list of the machine's jobs that a recording gets from its batch system."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tailback.evidence.jobs import read_jobs
from tailback.recorder.job_list import JobWatch

SLURM = {"SLURM_JOB_ID": "90"}
REFUSED = 'echo "slurm_load_jobs error: Access/permission denied" >&2; exit 1'
NO_ACCOUNTING = 'echo "Slurm accounting storage is disabled" >&2; exit 1'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    # Commands of this machine's own batch system are not asked.
    for name in ("squeue", "sacct", "scontrol", "qstat"):
        program(folder, name, "exit 1")
    yield folder
    monkeypatch.undo()
    time.tzset()


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def listed(folder: Path, environment: dict[str, str], launcher: str = "mpirun") -> list[str]:
    """Watch a program that runs until three listings of running jobs were made."""
    notes: list[str] = []
    watch = JobWatch.of(environment, [launcher])
    watch.every_s = 0.01
    with watch:
        end = time.monotonic() + 120
        while watch.system and watch.listings < 3 and not watch.problem and time.monotonic() < end:
            time.sleep(0.01)
    watch.write(folder, notes)
    return notes


def test_jobs_of_listings_end_when_they_are_gone(programs: Path, tmp_path: Path) -> None:
    began = round(time.time()) - 60
    program(programs, "sacct", NO_ACCOUNTING)
    # Job 17 is in the first listing alone; 18 is still to start.
    program(
        programs,
        "squeue",
        f'test "$SLURM_TIME_FORMAT" = %s || exit 2\n'
        f'test -e {tmp_path}/later || echo "17|{began}|RUNNING|n[3-4]"; touch {tmp_path}/later\n'
        f'echo "90|{began}|RUNNING|n[0-1]"; echo "19|{began}|COMPLETING|n7"; echo "18|N/A|R|"',
    )
    (note,) = listed(tmp_path, SLURM)
    assert note.startswith("jobs.txt is from ") and "squeue: jobs that began and ended" in note
    jobs = {
        str(job): (hosts, end)
        for job, _, end, hosts in read_jobs(tmp_path / "jobs.txt").jobs.rows()
    }
    assert set(jobs) == {"17", "19", "90"}
    assert jobs["17"][0] == ["n3", "n4"] and jobs["90"] == (["n0", "n1"], None)
    # It ended between the listings, which the recorder took while this test ran.
    assert jobs["17"][1] is not None
    assert began + 60 <= jobs["17"][1] / 1e9 + 1 and jobs["17"][1] / 1e9 <= time.time() + 1


def test_accounting_is_preferred_to_listings(programs: Path, tmp_path: Path) -> None:
    program(programs, "squeue", 'echo "17|1795000000|RUNNING|n3"')
    row = "21|1795000000|1795000009|COMPLETED|n5"
    program(
        programs,
        "sacct",
        f'echo "$*" > {tmp_path}/asked; echo "JobIDRaw|Start|End|State|NodeList"; echo "{row}"',
    )
    assert listed(tmp_path, SLURM) == []
    assert read_jobs(tmp_path / "jobs.txt").jobs["job"].to_list() == ["21"]
    # It is asked for the time of the recording, in local time.
    asked = (tmp_path / "asked").read_text().split()
    begin, end = asked[asked.index("-S") + 1], asked[asked.index("-E") + 1]
    begun = time.mktime(time.strptime(begin, "%Y-%m-%dT%H:%M:%S"))
    assert begin < end and abs(begun - time.time()) < 600
    assert "-a" in asked and "-X" in asked


def test_a_refused_job_list_names_who_may(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "sacct", NO_ACCOUNTING)
    program(programs, "squeue", REFUSED)
    (note,) = listed(tmp_path, SLURM)
    assert "Access/permission denied" in note and "--jobs" in note
    assert "SLURM_TIME_FORMAT=%s sacct -a -X -S 20" in note
    # A list of the user's own jobs would look as if nobody else had run.
    program(programs, "squeue", 'echo "90|1795000000|RUNNING|n0"')
    program(programs, "scontrol", 'echo "PrivateData             = accounts,jobs"')
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (note,) = listed(tmp_path, SLURM)
    assert "this site hides them (PrivateData)" in note and "--jobs" in note
    assert not (tmp_path / "jobs.txt").exists()


QSTAT = """\
Job Id: 7.pbs
    Job_Name = app
    Job_Owner = alice@login
    job_state = R
    exec_host = n1/0*8+n2/0*
\t8
    stime = Fri Nov 27 09:00:00 2026
    Variable_List = PBS_O_HOME=/home/alice,
\tAPI_TOKEN=hunter2
    resources_used.walltime = 00:01:00

Job Id: 8.pbs
    job_state = Q
    ctime = Fri Nov 27 09:00:00 2026
"""


def test_pbs_jobs_are_listed_anonymously_in_utc(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "shown").write_text(QSTAT)
    program(programs, "qstat", f'test "$1" = -f && cat {tmp_path}/shown')
    (note,) = listed(tmp_path, {"PBS_JOBID": "9.pbs"})
    assert "listings of qstat" in note
    text = (tmp_path / "jobs.txt").read_text()
    assert "alice" not in text and "hunter2" not in text
    ((job, start, end, hosts),) = read_jobs(tmp_path / "jobs.txt").jobs.rows()
    assert (job, end, hosts) == ("7.pbs", None, ["n1", "n2"])
    assert start == datetime(2026, 11, 27, 8, tzinfo=UTC).timestamp() * 1e9


def test_nothing_is_listed_outside_of_a_batch_job(programs: Path, tmp_path: Path) -> None:
    program(programs, "squeue", f"touch {tmp_path}/asked")
    assert listed(tmp_path, {}) == []
    assert not (tmp_path / "jobs.txt").exists() and not (tmp_path / "asked").exists()
    # srun makes a job of its own.
    assert JobWatch.of({}, ["/opt/slurm/bin/srun"]).system == "slurm"
