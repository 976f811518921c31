"""Read the job list of a scheduler into a table: which job ran where and when.

Supported formats are ``sacct --json``, ``sacct --parsable2``, ``squeue --json``, PBS ``qstat -f``
and CSV with the columns job, start, end, hosts; plain or gzip. User names are discarded.

Schedulers print local times without a time zone. Those are rejected unless the zone is given,
because an error of an hour assigns traffic to the wrong job. ``SLURM_TIME_FORMAT=%s sacct`` prints
seconds since 1970.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from tailback.errors import TailbackError
from tailback.io.delimited import (
    KEYS_NAMED,
    Delimited,
    header_of,
    instants,
    not_used,
    parse,
    shown,
    unused_keys,
)
from tailback.io.input_files import content, require_text
from tailback.io.manifest import require_unchanged
from tailback.names.hosts import expand_hosts
from tailback.registry import Registry
from tailback.run.schema import Column, Table

JOBS: Final = Table(
    "job_list",
    "one job of the machine while it ran",
    (
        Column("job", pl.String, "identifier, as the scheduler has it"),
        Column("start_ns", pl.Int64, "when it began, UTC nanoseconds since 1970"),
        Column("end_ns", pl.Int64, "when it ended; null: it was still running"),
        Column("hosts", pl.List(pl.String), "hosts it ran on"),
    ),
)


class JobListError(TailbackError):
    """A job list that cannot be read."""


@dataclass
class JobList:
    """The jobs of a list.

    Attributes:
        jobs: Rows of :data:`JOBS`, by start and identifier.
        notes: Entries that were left out, with reasons.
        places: Where in the file each job is, by its identifier.
        names: Name of each job, by its identifier, where the list has names.
    """

    jobs: pl.DataFrame
    notes: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def during(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        """Jobs that ran at any time between ``start_ns`` and ``end_ns`` (UTC nanoseconds)."""
        ended = pl.col("end_ns").fill_null(end_ns)
        return self.jobs.filter((pl.col("start_ns") < end_ns) & (ended > start_ns))


@dataclass
class _ParsedJobs:
    """Entries parsed by a reader of one format, and the number that were skipped.

    Attributes:
        rows: ``(job, start_ns, end_ns, hosts, place)``; ``place`` is the position in the file.
        skipped: Number of skipped entries by reason.
        unused: Columns that are not used.
        keys: Keys of JSON, or attributes of PBS, that are not used.
        names: Names of jobs, by their identifiers.
    """

    rows: list[tuple[str, int, int | None, str, str]] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


Form = Callable[[str, Path, "str | None"], "_ParsedJobs | None"]
"""Parses a text, given the time zone of times without one; None if it is in another format."""

FORMS: Registry[Form] = Registry("job-list", "lists of the jobs of a machine")

_NOT_STARTED: Final = "never started"
_NO_HOSTS: Final = "without hosts"
_STEP: Final = "steps of jobs"
_ABSENT: Final = frozenset({"", "unknown", "none", "n/a", "none assigned", "(null)", "null"})


def read_jobs(path: Path, format: str | None = None, *, zone: str | None = None) -> JobList:
    """Read a job list.

    Args:
        path: The file, plain or gzip.
        format: Name of its format (``FORMS.names()``); detected from the content if None.
        zone: Time zone of times without one, such as ``Europe/Paris``.

    Raises:
        JobListError: The file cannot be read, its format is unknown, or an entry is damaged; names
            the line or the entry.
        TailbackError: ``format`` is not the name of a format.
    """
    path = Path(path)
    require_unchanged(path)
    data = content(path, JobListError)
    if b"\0" in data:
        raise JobListError(
            "is not text: it contains a zero byte",
            file=path,
            remedy="name what squeue --json, sacct --json or qstat -f printed: "
            "tailback list job-list",
        )
    text = data.decode("utf-8-sig", errors="replace")
    require_text(text, path, JobListError)
    forms = [FORMS[format]] if format is not None else [entry.part for entry in FORMS]
    try:
        parsed = next((result for form in forms if (result := form(text, path, zone))), None)
    except TailbackError as error:
        raise error.located(path) from None
    if parsed is None:
        raise JobListError(
            "is not a job list in a known format",
            file=path,
            place="line 1",
            remedy="give the output of sacct --json, SLURM_TIME_FORMAT=%s sacct -X --parsable2 "
            "-o JobID,Start,End,State,NodeList, squeue --json or qstat -f, or a CSV with job, "
            "start, end, hosts",
        )
    return _table(parsed, path)


def _table(parsed: _ParsedJobs, path: Path) -> JobList:
    """Expand the host lists and keep each job once."""
    rows: dict[tuple[str, int], tuple[str, int, int | None, list[str]]] = {}
    for job, start, end, hosts, place in parsed.rows:
        if end is not None and end < start:
            raise JobListError(
                f"job {shown(job)} ends before it starts",
                file=path,
                place=place,
                remedy="correct its times, or leave it out",
            )
        try:
            names = list(dict.fromkeys(expand_hosts(hosts)))
        except TailbackError as error:
            raise JobListError(error.message, file=path, place=place, remedy=error.remedy) from None
        if not names:
            parsed.skip(_NO_HOSTS)
            continue
        rows[job, start] = (job, start, end, names)
    jobs = pl.DataFrame(list(rows.values()), schema=JOBS.polars_schema, orient="row")
    notes = [f"{what} left out: {number}" for what, number in parsed.skipped.items()]
    notes += [*not_used(parsed.unused), *not_used(parsed.keys, "keys", KEYS_NAMED)]
    places = {job: place for job, *_, place in parsed.rows}
    return JobList(jobs.sort("start_ns", "job"), notes, places, parsed.names)


# --- Slurm's JSON -----------------------------------------------------------------------------


def _json(text: str, path: Path) -> list[dict[str, Any]] | None:
    """The jobs in JSON output of Slurm; None if the text is not a JSON object."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise JobListError(
            f"is damaged JSON: {getattr(error, 'msg', error)}",
            file=path,
            place=f"line {line}",
            remedy="the output is cut; print it again",
        ) from None
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise JobListError(
            "is JSON without a list of jobs",
            file=path,
            place="jobs",
            remedy="give the output of sacct --json or squeue --json",
        )
    return jobs


_SLURM_KEYS: Final = frozenset(
    {
        "job_id",
        "array",
        "array_job_id",
        "array_task_id",
        "job_state",
        "nodes",
        "job_resources",
        "name",
        "time",
        "start_time",
        "end_time",
    }
)


def _number(value: Any, place: str) -> int | None:
    """Time in ns, from a plain number or ``{"set": true, "infinite": false, "number": 7}``."""
    if isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite", False):
            return None
        value = value.get("number")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 9e9:
        raise JobListError(
            f"{shown(str(value))} is not a time in seconds since 1970",
            place=place,
            remedy="the output is damaged; print it again",
        )
    return round(value * 1_000_000_000) or None


def _identifier(job: dict[str, Any], place: str) -> str:
    """Job identifier, with the task identifier for job arrays: ``17_3``."""
    number = job.get("job_id")
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise JobListError("has no job_id", place=place, remedy="print the list again")
    array = job.get("array") if isinstance(job.get("array"), dict) else {}
    base = (array or {}).get("job_id", job.get("array_job_id"))
    task = (array or {}).get("task_id", job.get("array_task_id"))
    base, task = (
        (v.get("number") if v.get("set") else None) if isinstance(v, dict) else v
        for v in (base, task)
    )
    return f"{base}_{task}" if base and task is not None else str(number)


def _states(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = value.get("current")
    return [str(v).upper() for v in (value if isinstance(value, list) else [value]) if v]


def _hosts(job: dict[str, Any]) -> str:
    for value in (job.get("nodes"), (job.get("job_resources") or {})):
        if isinstance(value, dict):
            value = value.get("nodes")
        if isinstance(value, dict):
            value = value.get("list")
        if isinstance(value, str) and value.strip().lower() not in _ABSENT:
            return value
    return ""


@FORMS.register("sacct-json")
def sacct_json(text: str, path: Path, zone: str | None) -> _ParsedJobs | None:
    """Output of sacct --json."""
    jobs = _json(text, path)
    if jobs is None or (jobs and not any("time" in job for job in jobs)):
        return None
    parsed = _ParsedJobs(keys=unused_keys(jobs, _SLURM_KEYS))
    for index, job in enumerate(jobs):
        place = f"jobs[{index}]"
        times = job.get("time")
        times = times if isinstance(times, dict) else {}
        start = _number(times.get("start"), f"{place}.time.start")
        end = _number(times.get("end"), f"{place}.time.end")
        _slurm(parsed, _identifier(job, place), start, end, _hosts(job), place, job.get("name"))
    return parsed


@FORMS.register("squeue-json")
def squeue_json(text: str, path: Path, zone: str | None) -> _ParsedJobs | None:
    """Output of squeue --json."""
    jobs = _json(text, path)
    if jobs is None or any("time" in job for job in jobs):
        return None
    parsed = _ParsedJobs(keys=unused_keys(jobs, _SLURM_KEYS))
    for index, job in enumerate(jobs):
        place = f"jobs[{index}]"
        start = _number(job.get("start_time"), f"{place}.start_time")
        end = _number(job.get("end_time"), f"{place}.end_time")
        states = _states(job.get("job_state"))
        if {"PENDING", "CONFIGURING"} & set(states):
            start = None  # the expected start of a pending job
        elif {"RUNNING", "SUSPENDED", "COMPLETING"} & set(states):
            end = None  # the end by the time limit of a running job
        _slurm(parsed, _identifier(job, place), start, end, _hosts(job), place, job.get("name"))
    return parsed


def _slurm(
    parsed: _ParsedJobs,
    job: str,
    start: int | None,
    end: int | None,
    hosts: str,
    place: str,
    name: object = None,
) -> None:
    if start is None:
        parsed.skip(_NOT_STARTED)
    elif not hosts:
        parsed.skip(_NO_HOSTS)
    else:
        parsed.rows.append((job, start, end, hosts, place))
        if isinstance(name, str) and name.strip():
            parsed.names[job] = name.strip()


# --- tables -----------------------------------------------------------------------------------

_SACCT: Final = {
    "job": ("jobidraw", "jobid"),
    "start": ("start",),
    "end": ("end",),
    "hosts": ("nodelist",),
    "state": ("state",),
    "name": ("jobname",),
}
_CSV: Final = {
    "job": ("job", "job_id", "jobid", "id", "name"),
    "start": ("start", "start_utc", "start_time", "start_unix_s", "start_ns", "begin", "started"),
    "end": ("end", "end_utc", "end_time", "end_unix_s", "end_ns", "finish", "ended", "stop"),
    "hosts": ("hosts", "nodes", "nodelist", "host", "node", "hostlist"),
    "name": ("name", "job_name", "jobname"),
}


@FORMS.register("sacct-parsable")
def sacct_parsable(text: str, path: Path, zone: str | None) -> _ParsedJobs | None:
    """Output of sacct --parsable2 (or --parsable), with JobID, Start, End and NodeList."""
    first = text.lstrip().split("\n", 1)[0]
    roles = header_of(text[: 1 << 16], _SACCT)
    if "|" not in first or not roles or "job" not in roles:
        return None
    # --parsable ends every line with a delimiter.
    needed = ("job", "start", "end", "hosts")
    table = parse(text, _SACCT, needed, path=path, error_type=JobListError)
    return _rows(table, zone)


@FORMS.register("csv")
def jobs_csv(text: str, path: Path, zone: str | None) -> _ParsedJobs | None:
    """CSV with job, start, end, hosts."""
    roles = header_of(text[: 1 << 16], _CSV) or {}
    if not {"job", "start", "hosts"} <= set(roles):
        return None
    table = parse(text, _CSV, ("job", "start", "end", "hosts"), path=path, error_type=JobListError)
    return _rows(table, zone)


def _rows(table: Delimited, zone: str | None) -> _ParsedJobs:
    """The jobs of a delimited table."""
    absent = {role: table.rows[role].str.to_lowercase().is_in(_ABSENT) for role in ("start", "end")}
    # Placeholders such as "Unknown" and empty cells become null.
    table.rows = table.rows.with_columns(
        pl.when(~is_absent).then(pl.col(role)).alias(role) for role, is_absent in absent.items()
    )
    start, end = table.instants("start", zone), table.instants("end", zone)
    names = table.rows["name"] if "name" in table.rows.columns else [None] * table.rows.height
    columns = (table.rows["line"], table.need("job"), start, end, table.rows["hosts"], names)
    parsed = _ParsedJobs(unused=table.unused)
    for line, job, began, ended, hosts, name in zip(*columns, strict=True):
        if re.search(r"\.(?:\d+|batch|extern|interactive)$", job):
            parsed.skip(_STEP)  # the hosts of a step are those of its job
            continue
        host_list = "" if (hosts or "").strip().lower() in _ABSENT else hosts
        _slurm(parsed, job, began, ended, host_list, f"line {line}", name)
    return parsed


# --- PBS --------------------------------------------------------------------------------------

_PBS_JOB: Final = re.compile(r"^Job Id:\s*(\S+)\s*$", re.MULTILINE)
_PBS_KEY: Final = re.compile(r"^ {1,8}([A-Za-z_][\w.]*) = (.*)$")
_PBS_TIME: Final = re.compile(
    r"(?:[A-Z][a-z]{2}\s+)?([A-Z][a-z]{2})\s+(\d{1,2})\s+(\d{2}:\d{2}:\d{2})\s+(\d{4})"
)
_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_PBS_START: Final = ("stime", "start_time")
_PBS_END: Final = ("obittime", "comp_time", "completion_time")
_PBS_KEYS: Final = (
    *(*_PBS_START, *_PBS_END, "Job_Name", "job_state"),
    *("resources_used.walltime", "exec_host"),
)


@FORMS.register("qstat")
def qstat(text: str, path: Path, zone: str | None) -> _ParsedJobs | None:
    """Output of qstat -f (or -xf) of PBS."""
    if not _PBS_JOB.search(text[: 1 << 20]):
        return None
    jobs = list(_pbs_jobs(text.splitlines()))
    parsed = _ParsedJobs(keys=unused_keys((fields for *_, fields in jobs), _PBS_KEYS))
    for job, line, fields in jobs:
        place = f"line {line}, job {shown(job)}"
        start = _pbs_time(fields, _PBS_START, zone, place)
        end = _pbs_time(fields, _PBS_END, zone, place)
        state = fields.get("job_state", "R")
        if end is None and start is not None and state in ("F", "C", "E", "X"):
            walltime_s = _seconds(fields.get("resources_used.walltime", ""))
            end = None if walltime_s is None else start + walltime_s * 1_000_000_000
        parts = fields.get("exec_host", "").split("+")
        hosts = ",".join(part.split("/")[0].strip() for part in parts)
        _slurm(parsed, job, start, end, hosts, place, fields.get("Job_Name"))
    return parsed


def _pbs_jobs(lines: Iterable[str]) -> Iterable[tuple[str, int, dict[str, str]]]:
    """Identifier, line and attributes of each job; a leading tab continues the previous line."""
    job, first, key = "", 0, ""
    fields: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        start = _PBS_JOB.match(line)
        attribute = _PBS_KEY.match(line)
        if start is not None:
            if job:
                yield job, first, fields
            job, first, key, fields = start[1], number, "", {}
        elif line.startswith("\t") and key:
            fields[key] += line.strip()
        elif attribute is not None:
            key = attribute[1]
            fields[key] = attribute[2].strip()
    if job:
        yield job, first, fields


def _pbs_time(
    fields: dict[str, str], names: tuple[str, ...], zone: str | None, place: str
) -> int | None:
    text = next((fields[name] for name in names if fields.get(name)), None)
    if text is None:
        return None
    match = _PBS_TIME.fullmatch(text)
    iso_time = text
    if match is not None and match[1] in _MONTHS:
        month = _MONTHS.index(match[1]) + 1
        iso_time = f"{match[4]}-{month:02d}-{int(match[2]):02d}T{match[3]}"
    value = instants(pl.Series([iso_time], dtype=pl.String), zone)[0]
    if value is None:
        is_time = instants(pl.Series([iso_time], dtype=pl.String), "UTC")[0] is not None
        raise JobListError(
            f"{shown(text)} has no time zone" if is_time else f"{shown(text)} is no time",
            place=place,
            remedy="state the time zone of the machine, like Europe/Paris, or give a CSV with "
            "job, start, "
            "end, hosts",
        )
    return int(value)


def _seconds(text: str) -> int | None:
    match = re.fullmatch(r"(\d{1,6}):(\d{2}):(\d{2})", text.strip())
    return None if match is None else int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
