"""What ``tailback record`` stored beside a trace: port counters, the fabric, forwarding tables."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Collection
from pathlib import Path

import numpy as np

from tailback.errors import ScenarioError, TailbackError
from tailback.io.input_files import content
from tailback.io.manifest import unchecked
from tailback.names.hosts import HostNames
from tailback.placement import Binding
from tailback.placement.rank_hosts import rank_hosts
from tailback.recorder.job_list import JOBS_FILE
from tailback.scenario.engine import MAX_LOCAL_ERROR
from tailback.scenario.model import Scenario
from tailback.sources.lab_case import LabCase
from tailback.traffic.readers.recorded_cores import core_numbers, rank_rows

_FABRIC, _FORWARDING = "fabric.txt", "lfts.txt"
_OWN_JOB = re.compile(
    r"^(SLURM_JOB_?ID(?:_HET_GROUP_\d+)?|SLURM_ARRAY_JOB_ID|SLURM_ARRAY_TASK_ID|PBS_JOBID)=(\S+)$",
    re.MULTILINE,
)


def is_recording(source: Path) -> bool:
    """Whether a folder is what ``tailback record`` wrote."""
    return (source / "recording.json").is_file()


def recorded_counters(
    trace: Path | None, fabric_hosts: Collection[str], *, interfaces: bool
) -> list[list[Path]]:
    """Port counters that ``tailback record`` stored with a trace, by kind of adapter.

    Args:
        trace: The trace of a job.
        fabric_hosts: Hosts of the fabric. Counters of other hosts do not apply: a trace recorded
            on a laptop may be diagnosed on the fabric of a cluster.
        interfaces: Whether the fabric names interfaces, as those of Ethernet do.

    Returns:
        Files of each kind that is there, the kind of the fabric first.
    """
    if trace is None or not is_recording(trace):
        return []
    if hosts_outside(trace, fabric_hosts):
        return []
    kinds = ("ethernet", "infiniband") if interfaces else ("infiniband", "ethernet")
    files_by_kind = [sorted((trace / "counters").glob(f"{kind}-*.csv")) for kind in kinds]
    return [files for files in files_by_kind if files]


def hosts_outside(trace: Path | None, fabric_hosts: Collection[str]) -> list[str]:
    """Hosts of a recording with counters that the fabric does not have, for which these are unused.

    Args:
        trace: The trace of a job.
        fabric_hosts: Hosts of the fabric.
    """
    if trace is None or not is_recording(trace) or not any((trace / "counters").glob("*.csv")):
        return []
    names = HostNames(fabric_hosts)
    hosts = set(rank_hosts(trace / "rank_host.csv"))
    return sorted(host for host in hosts if names.find(host) is None)


def recorded_fabric(trace: Path) -> Path | None:
    """The fabric that is in a recording; None if there is none."""
    file = trace / _FABRIC
    return file if is_recording(trace) and file.is_file() else None


def recorded_forwarding(trace: Path) -> Path | None:
    """The forwarding tables of the fabric that is in a recording; None if there are none."""
    file = trace / _FORWARDING
    return file if is_recording(trace) and file.is_file() else None


def recorded_jobs(trace: Path | None) -> Path | None:
    """The list of the machine's jobs that is in a recording; None if there is none."""
    if trace is None or not is_recording(trace):
        return None
    file = trace / JOBS_FILE
    return file if file.is_file() else None


def own_jobs(trace: Path | None) -> frozenset[str]:
    """Identifiers by which a list of jobs may name the recorded job; empty if it has none.

    A job of an array has its own number in Slurm, and one of the form ``17_3``; a heterogeneous
    job has one for each of its parts.
    """
    file = None if trace is None or not is_recording(trace) else trace / "job.env"
    if file is None or not file.is_file():
        return frozenset()
    variables = dict(_OWN_JOB.findall(content(file).decode("utf-8", errors="replace")))
    array, task = variables.pop("SLURM_ARRAY_JOB_ID", ""), variables.pop("SLURM_ARRAY_TASK_ID", "")
    return frozenset(variables.values()) | (frozenset({f"{array}_{task}"}) if task else frozenset())


def measured_local_rates(trace: Path) -> dict[str, tuple[float, float]]:
    """Lowest and highest rate of messages within hosts, Gb/s, that the recorder measured.

    Of ``local_rate`` and ``memory_rate``; they differ by size of message and by host. Empty if
    nothing was measured.
    """
    if not is_recording(trace):
        return {}
    try:
        measured = json.loads(content(trace / "recording.json"))["within_hosts_gbps"]
        rates = np.array([measured["one"], measured["all"]], np.float64)
        (one_low, one_high), (all_low, all_high) = rates.tolist()
    except (TailbackError, ValueError, KeyError, TypeError):
        return {}
    if not (np.isfinite(rates).all() and 0 < one_low <= one_high and 0 < all_low <= all_high):
        return {}
    return {"local_rate": (one_low, one_high), "memory_rate": (all_low, all_high)}


def recorded_local_rates(trace: Path) -> dict[str, float]:
    """Settings of the engine for messages within hosts, from what the recorder measured.

    Each rate is in the geometric middle of those measured. Empty if nothing was measured.
    """
    measured = measured_local_rates(trace)
    if not measured:
        return {}
    each, together = (math.sqrt(low * high) for low, high in measured.values())
    spread = max(math.sqrt(high / low) for low, high in measured.values())
    return {
        "local_rate": each,
        "memory_rate": max(each, together),
        "local_error": min(spread, MAX_LOCAL_ERROR),
    }


def recorded_binding(scenario: Scenario) -> Binding | None:
    """How the ranks of a recorded job used the cores of their hosts; None if that is unknown.

    Ranks were bound if each had as many cores as the others and shared none. A rank that was alone
    on its host may have been bound or not: its cores are not taken for a binding.
    """
    trace = _trace(scenario)
    if trace is None or not is_recording(trace):
        return None
    cores: dict[str, list[set[int]]] = {}
    counts, threads = set[int](), set[int]()
    try:
        for row in rank_rows(trace):
            if row["cores"]:
                cores.setdefault(row["host"], []).append(core_numbers(row["cores"]))
                counts.add(int(row["physical_cores"]))
                threads.add(int(row["openmp_threads"]))
    except (TailbackError, KeyError, ValueError, TypeError, csv.Error):
        return None
    if not counts:
        return None
    apart = all(
        len(each) > 1 and sum(map(len, each)) == len(set[int]().union(*each))
        for each in cores.values()
    )
    return Binding(
        counts.pop() if len(counts) == 1 and apart else 0,
        threads.pop() if len(threads) == 1 else 0,
    )


def notes_on_recording(scenario: Scenario) -> list[str]:
    """What limits the recording of the job as a whole, which comes before all other notes."""
    trace = _trace(scenario)
    if trace is None:
        return []
    if not is_recording(trace):
        return unchecked(trace.parent) if LabCase.of(trace.parent) is not None else []
    measured, engine = recorded_local_rates(trace), scenario.engine
    used = measured and all(getattr(engine, key) == value for key, value in measured.items())
    rates = ["rates within hosts: those that tailback record measured where the trace was recorded"]
    return [
        *_ranks_missing(trace),
        *(rates if used else []),
        *unchecked(trace),
    ]


def ranks_missing_of(scenario: Scenario) -> str:
    """Which part of the recorded job's ranks left nothing, like "2 of 4 ranks"; empty if none."""
    trace = _trace(scenario)
    return "" if trace is None or not is_recording(trace) else _missing(trace)


def _missing(trace: Path) -> str:
    try:
        facts = json.loads(content(trace / "recording.json", ScenarioError))
        missing, ranks = list(facts["not_recorded"]), int(facts["ranks"])
    except (ScenarioError, ValueError, KeyError, TypeError):
        return ""
    return f"{len(missing)} of {ranks} ranks" if missing else ""


def _ranks_missing(trace: Path) -> list[str]:
    missing = _missing(trace)
    return [f"not recorded: {missing}, with all messages from and to them"] if missing else []


def _trace(scenario: Scenario) -> Path | None:
    """The trace of the job that is diagnosed."""
    return next((job.trace for job in scenario.job if job.observed and job.trace), None)


def notes_on_network(scenario: Scenario) -> list[str]:
    """A line if the fabric of a scenario is that of the recording of its job."""
    trace = _trace(scenario)
    file, tables = scenario.fabric.file, scenario.fabric.forwarding
    if trace is None or file is None or not is_recording(trace):
        return []
    if Path(file).resolve() != (trace / _FABRIC).resolve():
        return []
    same = tables is not None and Path(tables).resolve() == (trace / _FORWARDING).resolve()
    files = f"{_FABRIC} and {_FORWARDING}" if same else _FABRIC
    return [f"fabric: from the recording ({files})"]
