"""Job lists of Slurm, PBS and by hand: times, hosts, and what they leave out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.errors import TailbackError
from tailback.evidence.jobs import FORMS, JOBS, JobList, JobListError, read_jobs

T = 1_795_345_570
"""2026-11-22T11:06:10Z"""
S = 1_000_000_000


def read(folder: Path, text: str | bytes, **options: Any) -> JobList:
    path = folder / "jobs"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_jobs(path, **options)


def rows(job_list: JobList) -> list[tuple[Any, ...]]:
    assert job_list.jobs.schema == pl.Schema(JOBS.polars_schema)
    return job_list.jobs.rows()


SACCT = {
    "jobs": [
        {
            "job_id": 17,
            "user": "someone",
            "nodes": "n[1-2]",
            "state": {"current": ["COMPLETED"]},
            "time": {"start": T, "end": T + 60},
            "steps": [{"nodes": {"list": ["n1"]}}],
        },
        {"job_id": 18, "nodes": "None assigned", "time": {"start": 0, "end": 0}},
        {"job_id": 19, "nodes": "None assigned", "time": {"start": T, "end": T + 1}},
        {
            "job_id": 21,
            "nodes": "n3",
            "array": {"job_id": 20, "task_id": {"set": True, "number": 4}},
            "time": {"start": {"set": True, "number": T + 5}, "end": 0},
        },
    ]
}
SQUEUE = {
    "jobs": [
        {
            "job_id": 5,
            "job_state": ["RUNNING"],
            "nodes": "n[1-2]",
            "user_name": "someone",
            "start_time": {"set": True, "infinite": False, "number": T},
            "end_time": {"set": True, "number": T + 86400},
        },
        {
            "job_id": 6,
            "job_state": "PENDING",
            "nodes": "",
            "start_time": {"set": True, "number": T + 9},
        },
        {
            "job_id": 7,
            "job_state": "RUNNING",
            "start_time": T,
            "end_time": 0,
            "job_resources": {"nodes": {"list": "n7"}},
        },
    ]
}
PARSABLE = f"""\
JobIDRaw|Start|End|State|NodeList|User
17|{T}|{T + 60}|COMPLETED|n[1-2]|someone
17.batch|{T}|{T + 60}|COMPLETED|n1|
17.0|{T}|{T + 60}|COMPLETED|n[1-2]|
18|Unknown|Unknown|PENDING|None assigned|someone
19|{T + 5}|Unknown|RUNNING|n3|someone
"""
QSTAT = """\
Job Id: 12.pbs
    Job_Name = app
    Job_Owner = someone@login1
    job_state = F
    exec_host = n1/0*8+n2/0*8+n1/1*4+
\tn3/0
    stime = Sun Nov 22 12:06:10 2026
    resources_used.walltime = 00:01:00

Job Id: 13.pbs
    job_state = Q
Job Id: 14.pbs
    job_state = R
    exec_host = n4/0
    stime = Sun Nov 22 12:06:10 2026
    Variable_List = HOME=/home/someone
"""
CSV = "job,start_utc,end,hosts\na,2026-11-22T11:06:10,2026-11-22T12:06:20+01:00,n[1-2]\n"


def test_slurm_json(tmp_path: Path) -> None:
    job_list = read(tmp_path, json.dumps(SACCT))
    assert rows(job_list) == [
        ("17", T * S, (T + 60) * S, ["n1", "n2"]),
        ("20_4", (T + 5) * S, None, ["n3"]),
    ]
    left_out = ["never started left out: 1", "without hosts left out: 1"]
    assert job_list.notes == [*left_out, "keys not used: user, state, steps"]
    assert "someone" not in str(job_list.jobs)
    running = read(tmp_path, gzip.compress(json.dumps(SQUEUE).encode()))
    # The end of a running job is that of its time limit: it is none yet.
    assert rows(running) == [("5", T * S, None, ["n1", "n2"]), ("7", T * S, None, ["n7"])]


def test_sacct_as_text(tmp_path: Path) -> None:
    job_list = read(tmp_path, PARSABLE)
    assert rows(job_list) == [
        ("17", T * S, (T + 60) * S, ["n1", "n2"]),
        ("19", (T + 5) * S, None, ["n3"]),
    ]
    left_out = ["steps of jobs left out: 2", "never started left out: 1"]
    assert job_list.notes == [*left_out, "columns not used: User"]
    local = PARSABLE.replace(f"{T}|{T + 60}", "2026-11-22T12:06:10|2026-11-22T12:07:10")
    with pytest.raises(JobListError, match=r"line 2, column 2 \(Start\): .* has no time zone"):
        read(tmp_path, local)
    assert rows(read(tmp_path, local, zone="Europe/Paris")) == rows(job_list)
    with pytest.raises(TailbackError, match="no time zone 'Mars'"):
        read(tmp_path, local, zone="Mars")


def test_pbs(tmp_path: Path) -> None:
    with pytest.raises(JobListError, match=r"line 1, job '12\.pbs': .* has no time zone"):
        read(tmp_path, QSTAT)
    assert rows(read(tmp_path, QSTAT, zone="Europe/Paris")) == [
        ("12.pbs", T * S, (T + 60) * S, ["n1", "n2", "n3"]),
        ("14.pbs", T * S, None, ["n4"]),
    ]


def test_a_table_by_hand_and_what_ran_meanwhile(tmp_path: Path) -> None:
    job_list = read(tmp_path, CSV + f"b,{T + 20},,n1\n")
    assert rows(job_list) == [
        ("a", T * S, (T + 10) * S, ["n1", "n2"]),
        ("b", (T + 20) * S, None, ["n1"]),
    ]
    assert job_list.during((T + 5) * S, (T + 6) * S)["job"].to_list() == ["a"]
    assert job_list.during((T + 10) * S, (T + 20) * S).is_empty()
    assert job_list.during((T + 30) * S, (T + 31) * S)["job"].to_list() == ["b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (json.dumps(SACCT)[:-40], "is damaged JSON"),
        ('{"jobs": 3}', "without a list of jobs"),
        (
            '{"jobs": [{"time": {"start": "x"}, "job_id": 1}]}',
            "jobs[0].time.start: 'x' is not a time",
        ),
        ('{"jobs": [{"time": {}}]}', "jobs[0]: has no job_id"),
        ("JobID|Start|End\n1|2|3\n", "line 1, column 1: no column for the hosts"),
        (
            "job,start,end,hosts\na,soon,later,n1\n",
            "line 2, column 2 (start): 'soon' is not a time",
        ),
        (f"job,start,end,hosts\na,{T},{T - 1},n1\n", "line 2: job 'a' ends before it starts"),
        (f"job,start,end,hosts\na,{T},{T},n[3-1]\n", "line 2: 'n[3-1]': the range '3-1' runs"),
        (f"job,start,end,hosts\na,{T}\n", "line 2, column 3: 2 fields where the header has 4"),
        ("hello", "is not a job list"),
        ("", "the file is empty"),
        ("\0", "zero byte"),
    ],
)
def test_wrong_lists_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(JobListError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert says in message and "remedy: " in message and str(tmp_path / "jobs") in message


def test_cut_lists_never_end_in_a_traceback(tmp_path: Path) -> None:
    for text in (json.dumps(SACCT), json.dumps(SQUEUE), PARSABLE, QSTAT, CSV):
        for end in range(0, len(text), 5):
            try:
                read(tmp_path, text[:end], zone="UTC")
            except TailbackError as error:
                assert error.remedy


def test_every_form_can_be_named(tmp_path: Path) -> None:
    assert FORMS.names() == ["csv", "qstat", "sacct-json", "sacct-parsable", "squeue-json"]
    assert rows(read(tmp_path, CSV, format="csv")) == rows(read(tmp_path, CSV))
    with pytest.raises(TailbackError, match="did you mean 'qstat'"):
        read(tmp_path, CSV, format="qstats")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(SACCT).replace('"job_id": 17', '"name": "app", "job_id": 17'),
        json.dumps(SQUEUE).replace('"job_id": 5', '"name": "app", "job_id": 5'),
        PARSABLE.replace("|User", "|JobName").replace("someone", "app"),
        QSTAT,
        CSV.replace("job,", "job,job_name,").replace("a,2026", "17,app,2026"),
    ],
    ids=["sacct --json", "squeue --json", "sacct", "qstat", "csv"],
)
def test_lists_of_jobs_have_names(tmp_path: Path, text: str) -> None:
    (tmp_path / "jobs").write_text(text)
    listed = read_jobs(tmp_path / "jobs", zone="Europe/Paris")
    assert listed.names[listed.jobs["job"][0]] == "app"
    notes = " ".join(listed.notes).lower().replace("user_name", "")
    assert "name" not in notes
