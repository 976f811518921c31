"""Evidence of a traced run: what the user gives, else what is in the recording of the trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tailback.api.evidence import ListedJobs, NetworkEvidence, read_network_evidence
from tailback.api.recording import own_jobs, recorded_counters, recorded_jobs
from tailback.evidence import MeasuredRun
from tailback.evidence.counter_alignment import JoinError
from tailback.evidence.jobs import JobListError, read_jobs
from tailback.run import Run
from tailback.simulation import PreparedScenario


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
    listed = _listed(trace, jobs, notes)
    fabric = prepared.fabric
    named = fabric.link_interface is not None
    recorded = recorded_counters(trace, fabric.host_name, interfaces=named)
    for files in [] if counters else recorded:
        try:
            return _noted(read_network_evidence(prepared, measured, run, files, listed), notes)
        except JoinError as error:
            notes.append(f"recorded counters not used ({files[0].name} …): {error.message}")
    return _noted(read_network_evidence(prepared, measured, run, counters, listed), notes)


def _listed(trace: Path | None, given: str | Path | None, notes: list[str]) -> ListedJobs | None:
    """The jobs of the machine; None without a list."""
    own = own_jobs(trace)
    if given is not None:
        return ListedJobs(read_jobs(Path(given)), own)
    file = recorded_jobs(trace)
    if file is None:
        return None
    try:
        return ListedJobs(read_jobs(file), own, f"from the recording ({file.name})")
    except JobListError as error:
        where = f", {error.place}" if error.place else ""
        notes.append(f"the recorded job list is not used ({file.name}{where}): {error.message}")
        return None


def _noted(evidence: NetworkEvidence, notes: list[str]) -> NetworkEvidence:
    return replace(evidence, notes=(*evidence.notes, *notes))
