"""A diagnosis uses the job list of a recording, and knows which of its jobs is the recorded one."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pytest

from tailback.errors import TraceError
from tailback.recorder.session import _drop_half_line
from tailback.sources.recording import own_jobs
from tailback.traffic.readers import read_trace
from tests.factories.otf2_traces import writing
from tests.factories.recordings import evidence_of, infiniband_recording

HEADER = "JobIDRaw|Start|End|State|NodeList\n"


@pytest.fixture
def recording(tmp_path: Path) -> tuple[Path, datetime]:
    trace, now = infiniband_recording(tmp_path)
    (trace / "job.env").write_text("SLURM_JOB_ID=90\nSLURM_JOB_NODELIST=a,c\n")
    return trace, now


def jobs(now: datetime, *rows: tuple[str, int, int, str]) -> str:
    """A list of jobs: identifier, start and end in seconds after that of the trace, hosts."""
    zero = int(now.timestamp())
    return HEADER + "".join(
        f"{job}|{zero + start}|{zero + end}|COMPLETED|{hosts}\n" for job, start, end, hosts in rows
    )


def test_the_recorded_list_excludes_the_own_job(recording: tuple[Path, datetime]) -> None:
    trace, now = recording
    (trace / "jobs.txt").write_text(
        # Job 17 shares host a with ours; job 18 ended before.
        jobs(now, ("90", -9, 9, "a,c"), ("17", -9, 9, "a,b"), ("18", -9, -5, "b"))
    )
    assert "job list from the recording (jobs.txt): 1 other job at that time (17)" in evidence_of(
        trace
    )
    # Without counters too, by the time of the trace.
    for file in (trace / "counters").iterdir():
        file.unlink()
    assert "1 other job at that time (17)" in evidence_of(trace)
    # Where nothing says which job is ours, it is the one on our hosts.
    (trace / "job.env").unlink()
    assert "0 other jobs at that time" in evidence_of(trace)


def test_a_users_list_replaces_the_recorded(
    recording: tuple[Path, datetime], tmp_path: Path
) -> None:
    trace, now = recording
    (trace / "jobs.txt").write_text(jobs(now, ("90", -9, 9, "a,c")))
    job_list = tmp_path / "given.txt"
    job_list.write_text(jobs(now, ("90", -9, 9, "a,c"), ("21", -9, 9, "b"), ("22", -9, 9, "b")))
    evidence = evidence_of(trace, jobs=job_list)
    assert "job list: 2 other jobs at that time (21, 22)" in evidence
    assert "from the recording (jobs.txt)" not in evidence


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (HEADER + "17|soon|", "jobs.txt, line "),
        ("", "jobs.txt): the file is empty"),
        ('{"jobs": [{"job_id": 1, "ti', "jobs.txt, line "),
    ],
)
def test_a_damaged_list_is_left_out_and_named(
    recording: tuple[Path, datetime], text: str, place: str
) -> None:
    trace, _ = recording
    (trace / "jobs.txt").write_text(text)
    evidence = evidence_of(trace)
    assert f"the recorded job list is not used ({place}" in evidence
    assert "other job" not in evidence


def test_identifiers_of_the_own_job(tmp_path: Path) -> None:
    assert own_jobs(None) == own_jobs(tmp_path) == frozenset()
    (tmp_path / "recording.json").write_text("{}")
    for text, ids in (
        ("SLURM_JOB_ID=88\nSLURM_ARRAY_JOB_ID=86\nSLURM_ARRAY_TASK_ID=3\n", {"88", "86_3"}),
        ("SLURM_JOB_ID_HET_GROUP_0=5\nSLURM_JOB_ID_HET_GROUP_1=6\nSLURM_JOB_ID=5\n", {"5", "6"}),
        ("PBS_JOBID=7.pbs\nPBS_JOBNAME=9\n", {"7.pbs"}),
        ("SLURM_JOB_NAME=SLURM_JOB_ID=3\n", set()),
    ):
        (tmp_path / "job.env").write_text(text)
        assert own_jobs(tmp_path) == ids


def test_what_an_incomplete_folder_lacks_is_said(
    recording: tuple[Path, datetime], tmp_path: Path
) -> None:
    trace, _ = recording
    fabric = tmp_path / "other.csv"
    fabric.write_text("src,dst,rate_gbit\nx0,s,10\nx1,s,10\n")
    evidence = evidence_of(trace, fabric=fabric)
    assert "recorded counters not used: hosts that the fabric does not have (a, c)" in evidence
    for part in trace.glob("traces*"):
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    with pytest.raises(TraceError, match=r"the trace of this recording is missing") as error:
        evidence_of(trace, fabric=fabric)
    assert "copy the whole folder" in str(error.value)


def test_ranks_killed_before_writing_are_reported(tmp_path: Path) -> None:
    trace = writing(tmp_path)([[], []])
    for name, message in (("", "eztrace"), ("recording.json", "record a run that ends")):
        if name:
            (trace / name).write_text("{}")
        with pytest.raises(TraceError, match="has no MPI call") as error:
            read_trace(trace)
        assert message in str(error.value)


def test_half_a_counter_line_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "ethernet-a-0.csv"
    for text, kept in (
        ("h\n1,2\n3", "h\n1,2\n"),
        ("h\n1,2\n", "h\n1,2\n"),
        ("h", ""),
        ("", ""),
        ("h\n" + "1,2\n" * 30_000 + "3,", "h\n" + "1,2\n" * 30_000),
    ):
        file.write_text(text)
        _drop_half_line(file)
        assert file.read_text() == kept
