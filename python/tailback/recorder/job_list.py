"""Which jobs ran where on the machine while a program was recorded, from its batch system.

Accounting (``sacct``) knows every job with its start and end. Where it is not available, the
running jobs are listed at the start, at the end and every few minutes in between (``squeue``, or
``qstat -f`` of PBS): a job that began and ended between two listings is missing then. Neither names
of users nor their variables are kept.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tailback.recorder.commands import output_of
from tailback.units import counted

JOBS_FILE: Final = "jobs.txt"
"""Its name in a recording."""

LISTING_EVERY_S: Final = 300.0
"""Seconds between listings of running jobs: sites ask users not to list them all the time."""

_TIMEOUT_S: Final = 30.0
_SECONDS: Final = {"SLURM_TIME_FORMAT": "%s"}
_COLUMNS: Final = "JobIDRaw,Start,End,State,NodeList"
_HEADER: Final = _COLUMNS.replace(",", "|")
_SQUEUE: Final = ("squeue", "-h", "-a", "-t", "R,CG,S,ST", "-o", "%A|%S|%T|%N")
_QSTAT: Final = ("qstat", "-f")
_JOB: Final = re.compile(r"Job Id:\s*(\S+)\s*")
_ATTRIBUTE: Final = re.compile(r" {1,8}([A-Za-z_][\w.]*) = (.*)")
_TIMES: Final = frozenset({"stime", "start_time", "obittime", "comp_time", "completion_time"})
_KEPT: Final = _TIMES | {"job_state", "exec_host", "resources_used.walltime"}


@dataclass
class _Listed:
    """A job in listings of running jobs: its text, and when it was first found to be gone."""

    text: str
    gone_s: float | None = None


@dataclass
class JobWatch:
    """Lists the jobs of the machine while a program runs; a context manager.

    Attributes:
        system: ``slurm``, ``pbs`` or "" (no batch job: nothing is listed).
        every_s: Seconds between listings.
        listings: How many there were.
        problem: Why the last one failed, "" where it did not.
    """

    system: str
    every_s: float = LISTING_EVERY_S
    listings: int = 0
    problem: str = ""
    _begin_s: float = field(default_factory=time.time)
    _jobs: dict[str, _Listed] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str], command: Sequence[str]) -> Self:
        """Of the batch system that this process is a job of, or that the launcher asks."""
        if environment.get("SLURM_JOB_ID") or Path(command[0]).name == "srun":
            return cls("slurm")
        return cls("pbs" if environment.get("PBS_JOBID") else "")

    def __enter__(self) -> Self:
        if self.system:
            # In a thread: the program does not wait for the batch system.
            self._thread = threading.Thread(target=self._list_now_and_then, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_TIMEOUT_S)
            self._thread = None

    def _list_now_and_then(self) -> None:
        while True:
            self._list()
            if self._ending.wait(self.every_s):
                return

    def _list(self) -> None:
        command = _SQUEUE if self.system == "slurm" else _QSTAT
        shown, self.problem = output_of(command, timeout_s=_TIMEOUT_S, variables=_SECONDS)
        if self.problem:
            return
        self.listings += 1
        now = time.time()
        running = _of_squeue(shown) if self.system == "slurm" else _of_qstat(shown)
        for key, job in self._jobs.items():
            if key not in running and job.gone_s is None:
                job.gone_s = now
        self._jobs |= {key: _Listed(text) for key, text in running.items()}

    def write(self, folder: Path, notes: list[str]) -> None:
        """Write ``jobs.txt``: the jobs since the start, as ``--jobs`` takes them.

        Call it after the program has ended.

        Args:
            folder: The recording.
            notes: Gets a line if the list is missing or may be incomplete, with the remedy.
        """
        if not self.system:
            return
        if self.system == "slurm" and _others_are_hidden():
            notes.append(
                "the jobs of others are not recorded: this site hides them (PrivateData); "
                f"{self._remedy()}"
            )
            return
        text, problem = self._accounted() if self.system == "slurm" else ("", "")
        if not text:
            self._list()
            if not self.listings:
                notes.append(
                    f"the jobs of others are not recorded: {self.problem or problem}; "
                    f"{self._remedy()}"
                )
                return
            text = self._text()
            source = "squeue" if self.system == "slurm" else "qstat"
            notes.append(
                f"{JOBS_FILE} is from {counted(self.listings, 'listing')} of {source}: jobs that "
                "began and ended between two of them are missing"
            )
        (folder / JOBS_FILE).write_text(text, encoding="utf-8")

    def _accounted(self) -> tuple[str, str]:
        """The jobs since the start by accounting, and why there are none."""
        shown, problem = output_of(self._sacct(), timeout_s=_TIMEOUT_S, variables=_SECONDS)
        # Without its database some versions print the header alone.
        if problem or shown.strip().count("\n") == 0:
            return "", f"sacct: {problem or 'no job'}"
        return shown, ""

    def _sacct(self) -> list[str]:
        begin, end = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
            for at in (self._begin_s - 1, time.time() + 1)
        )
        return ["sacct", "-a", "-X", "-S", begin, "-E", end, "--parsable2", "-o", _COLUMNS]

    def _remedy(self) -> str:
        if self.system == "pbs":
            return (
                "an administrator can list them while such a program runs: qstat -f > jobs.txt, "
                "and diagnose takes them with --jobs jobs.txt"
            )
        command = f"SLURM_TIME_FORMAT=%s {shlex.join(self._sacct())} > jobs.txt"
        return f"an administrator can list them: {command}; diagnose takes them with --jobs"

    def _text(self) -> str:
        """The listed jobs in the form of accounting, or as PBS prints them."""
        jobs = self._jobs.values()
        if self.system == "slurm":
            rows = (
                job.text.replace("|End|", f"|{round(job.gone_s) if job.gone_s else 'Unknown'}|")
                for job in jobs
            )
            return "\n".join((_HEADER, *rows)) + "\n"
        blocks = (
            job.text + (f"    obittime = {_iso(job.gone_s)}\n" if job.gone_s else "")
            for job in jobs
        )
        return "\n".join(blocks)


def _others_are_hidden() -> bool:
    """Whether Slurm shows users only their own jobs: their list looks as if nobody else ran."""
    if os.geteuid() == 0:
        return False
    shown, _ = output_of(["scontrol", "show", "config"], timeout_s=_TIMEOUT_S)
    private_data = re.search(r"^PrivateData\s*=\s*(.*)$", shown, re.MULTILINE)
    return private_data is not None and "jobs" in re.split(
        r"[,\s]+", private_data[1].strip().lower()
    )


def _of_squeue(shown: str) -> dict[str, str]:
    """Running jobs by identifier and start, as rows of accounting with ``End`` for the end."""
    out = {}
    for line in shown.splitlines():
        job, start, state, hosts = (*line.strip().split("|"), "", "", "", "")[:4]
        if job.isdigit() and start.isdigit() and hosts:
            out[f"{job} {start}"] = f"{job}|{start}|End|{state}|{hosts}"
    return out


def _of_qstat(shown: str) -> dict[str, str]:
    """Jobs that run, by identifier: what a job list needs, and times in UTC."""
    out: dict[str, str] = {}
    job, wanted = "", False
    for line in shown.splitlines():
        if match := _JOB.fullmatch(line):
            job, wanted = match[1], False
            out[job] = f"Job Id: {job}\n"
        elif match := _ATTRIBUTE.fullmatch(line):
            wanted = bool(job) and match[1] in _KEPT
            if wanted:
                value = _utc(match[2]) if match[1] in _TIMES else match[2]
                out[job] += f"    {match[1]} = {value}\n"
        elif wanted and line.startswith("\t"):
            out[job] += line + "\n"
    return {job: text for job, text in out.items() if "exec_host = " in text}


def _utc(text: str) -> str:
    """A local time of PBS in UTC; unchanged if it is none."""
    try:
        return _iso(time.mktime(time.strptime(text.strip(), "%a %b %d %H:%M:%S %Y")))
    except (ValueError, OverflowError):
        return text


def _iso(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds or 0.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
