"""Evidence of a traced run: what the user gives, else what is in the recording of the trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from tailback.evidence import MeasuredRun
from tailback.evidence.counter_alignment import JoinError
from tailback.evidence.jobs import JobListError, read_jobs
from tailback.inference.evidence import ListedJobs, NetworkEvidence, read_network_evidence
from tailback.port_counters.findings.port_events import in_order, port_events
from tailback.port_counters.recorded_statistics import recorded_statistics
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.sources.recording import (
    hosts_outside,
    is_recording,
    own_jobs,
    recorded_counters,
    recorded_jobs,
)


def network_evidence(
    prepared: PreparedScenario,
    measured: MeasuredRun,
    run: Run,
    counters: Sequence[str | Path],
    jobs: str | Path | None,
) -> NetworkEvidence:
    """Counters and job list, aligned with the trace.

    What the recording of a trace has was not asked for: it is left out with a note if it does not
    fit or the list of jobs is damaged.

    Args:
        prepared: The scenario with the job's own traffic.
        measured: The measured run.
        run: The expected run, which has the messages of collectives.
        counters: Port counters that the user gives; empty: those of the recording.
        jobs: Job list that the user gives; None: that of the recording.

    Raises:
        TailbackError: A file that the user gives does not fit, or counters are damaged.
    """
    trace = next(job for job in prepared.scenario.job if job.observed).trace
    notes: list[str] = []
    evidence = _of_counters(prepared, measured, run, counters, jobs, trace, notes)
    if trace is not None and is_recording(trace):
        readings, damaged = recorded_statistics(trace / "counters")
        notes += damaged
        recorded = port_events(readings, evidence.unused_interfaces)
        # Given counters are of ports that the recording may not have.
        given = [evidence.port_events] if counters and evidence.port_events is not None else []
        evidence = replace(evidence, port_events=in_order(pl.concat([*given, recorded])))
    return replace(evidence, notes=(*evidence.notes, *evidence.unused, *notes))


def _of_counters(
    prepared: PreparedScenario,
    measured: MeasuredRun,
    run: Run,
    counters: Sequence[str | Path],
    jobs: str | Path | None,
    trace: Path | None,
    notes: list[str],
) -> NetworkEvidence:
    """What the counters of links and the job list show; extends ``notes``."""
    listed = _listed(trace, jobs, notes)
    fabric = prepared.fabric
    named = fabric.link_interface is not None
    recorded = recorded_counters(trace, fabric.host_name, interfaces=named)
    outside = [] if counters else hosts_outside(trace, fabric.host_name)
    if outside:
        some = ", ".join(outside[:2]) + (" …" if len(outside) > 2 else "")
        notes.append(f"recorded counters not used: hosts that the fabric does not have ({some})")
    for files in [] if counters else recorded:
        try:
            # Counters that this evidence does not use are read by others, or not of a user.
            found = read_network_evidence(prepared, measured, run, files, listed)
            return replace(found, unused=())
        except JoinError as error:
            notes.append(f"recorded counters not used ({files[0].name} …): {error.message}")
    return read_network_evidence(prepared, measured, run, counters, listed)


def _listed(trace: Path | None, given: str | Path | None, notes: list[str]) -> ListedJobs | None:
    """The jobs of the machine; None without a list."""
    own = own_jobs(trace)
    if given is not None:
        jobs = read_jobs(Path(given))
        notes += [f"{Path(given).name}: {note}" for note in jobs.notes]
        return ListedJobs(jobs, own)
    file = recorded_jobs(trace)
    if file is None:
        return None
    try:
        return ListedJobs(read_jobs(file), own, f"from the recording ({file.name})")
    except JobListError as error:
        where = f", {error.place}" if error.place else ""
        notes.append(f"the recorded job list is not used ({file.name}{where}): {error.message}")
        return None
