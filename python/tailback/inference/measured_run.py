"""The measured run of the observed job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from tailback.calibration.estimates import FittedValue, estimate
from tailback.calibration.file import Calibration
from tailback.calibration.routes import Machine
from tailback.calibration.trace import trace_times
from tailback.diagnosis.model import Diagnosis
from tailback.errors import TailbackError, TraceError, option
from tailback.evaluate import Change, Evaluate
from tailback.evidence import MeasuredRun, has_times, measure
from tailback.evidence.counter_alignment import JoinError
from tailback.evidence.jobs import JobListError, read_jobs
from tailback.evidence.model import Measured
from tailback.inference.evidence import (
    ListedJobs,
    NetworkEvidence,
    host_events,
    read_network_evidence,
)
from tailback.inference.hypotheses import FAULT
from tailback.inference.network_clues import is_lossy, unknown_hosts
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
from tailback.stages import stage


@stage("measured run")
def measured_run(prepared: PreparedScenario) -> MeasuredRun | None:
    """The measured run in the trace of the observed job.

    None if nothing was measured: the traffic is a pattern, its trace has no times, or several jobs
    are observed, which were recorded separately.

    Raises:
        TraceError: The trace is damaged, or lacks the messages of calls in which the run spends
            as much time as a fault costs: counters would show them as traffic of other jobs.
    """
    several = sum(job.section.observed for job in prepared.jobs) > 1
    job = prepared.observed
    section = job.section
    if section.trace is None or several or not has_times(section.trace, section.format):
        return None
    recorded = job.program.recording
    if recorded is not None and recorded.unrecorded_ps > FAULT * recorded.total_ps:
        raise TraceError(
            f"the messages of {recorded.unrecorded} are not recorded, in which ranks spend "
            f"{recorded.unrecorded_ps / recorded.total_ps:.0%} of the run",
            file=section.trace,
            remedy=f"record with tailback record or Score-P; without these messages, "
            f"{option('forecast')} describes the others alone",
        )
    hosts = None
    if section.hosts != "all":
        fabric = prepared.fabric
        hosts = [fabric.host_name[host] for host in fabric.node_host[job.node].tolist()]
    return measure(
        section.trace, rank_file=section.placement_file, hosts=hosts, format=section.format
    )


BURST_BYTES = 2 * 10 * 1448
"""Size of messages of TCP of which at least half leaves at once, as the initial window (RFC 6928):
ten segments of Ethernet. What follows takes turns with other messages, by acknowledgements."""


def sends_whole_messages(prepared: PreparedScenario) -> bool:
    """Whether hosts send most bytes over TCP in messages of :data:`BURST_BYTES` at most."""
    program = prepared.observed.program
    sizes = np.sort(program.amount[program.sends])
    below = np.cumsum(sizes, dtype=np.float64)
    if not len(sizes) or program.recompile is not None:
        return False
    median = sizes[np.searchsorted(below, below[-1] / 2.0)]
    return bool(is_lossy(NetworkEvidence(), prepared.fabric) and median <= BURST_BYTES)


def with_round_robin_adapters(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario of a measured run, with adapters that share their link between messages.

    Adapters serve queue pairs in turn, and hosts their sockets. Messages on the same queue pair go
    one after another, as in published simulators, which takes up to a third longer if ranks send to
    several partners at once. A scenario that states the injection is left as it is.
    """
    engine = prepared.scenario.engine
    if "injection" in engine.model_fields_set:
        return prepared
    shared = engine.model_copy(update={"injection": "round-robin"})
    shared.model_fields_set.add("injection")
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": shared}))


def why_forecast(prepared: PreparedScenario, *, asked: bool, evidence: bool) -> str:
    """Why a recorded run is not explained but forecast, in words; empty if it is explained.

    Args:
        prepared: The scenario.
        asked: Whether the user asks for a forecast.
        evidence: Whether the user gives counters, jobs or samples of the recorded run.
    """
    section, recording = prepared.observed.section, prepared.observed.program.recording
    if recording is None:
        return ""
    if asked:
        return "a forecast is asked for"
    if section.compute_scale is not None:
        return f"computation is scaled by {section.compute_scale:g}"
    if section.ranks is not None:
        return f"it is extrapolated to {section.ranks} ranks"
    if section.repeat != 1:
        return f"the scenario repeats it {section.repeat} times"
    if recording.sharing:
        return recording.sharing
    # Small collectives take long where ranks wait for a processor, and where links are congested. A
    # run on known hosts of this fabric, or with evidence on it, is explained in any case.
    placed = prepared.observed.hosts_recorded or section.placement_file is not None
    crowded = recording.oversubscribed_ps > 0 and recording.sharing is None
    return "its ranks waited for a processor" if crowded and not placed and not evidence else ""


def as_forecast(prepared: PreparedScenario) -> tuple[PreparedScenario, list[str]]:
    """The scenario of a forecast, and notes on what it does not know or use.

    Without a stated scale, computation takes the recorded time, or none where ranks waited for a
    processor and their processor time is unknown.
    """
    section, recording = prepared.observed.section, prepared.observed.program.recording
    notes = list[str]()
    fabric = prepared.fabric
    interfaces = fabric.link_interface is not None
    if recorded_counters(section.trace, fabric.host_name, interfaces=interfaces):
        notes.append("the port counters of the recording are not used: they are of another run")
    if recording is None or section.compute_scale is not None:
        return prepared, notes
    # A recording that tells the cores of ranks is believed before its small collectives.
    waited = recording.oversubscribed_ps > 0 if recording.sharing is None else recording.sharing
    if recording.processor_time or not waited:
        return prepared.with_compute_scale(1.0), notes
    note = (
        "computation is unknown, as ranks waited for a processor: the verdict is about "
        f"communication alone; state {option('compute_scale')} (docs/how-to/forecast.md)"
    )
    return prepared.with_compute_scale(0.0), [note, *notes]


def with_measured(diagnosis: Diagnosis, measured: Measured) -> Diagnosis:
    """Add the measured times and the part that the model does not explain.

    The model replays the recorded computation, so waits for it are explained. The confidence of a
    cause in the expected run is at most the share of the measured time that the model explains or,
    if the expected time is longer, the ratio of measured to expected time.

    Args:
        diagnosis: Diagnosis of the expected run.
        measured: The measured run.
    """
    expected = diagnosis.modelled_ps
    not_explained_ps = measured.elapsed_ps - expected
    return diagnosis.model_copy(
        update={
            "elapsed_ps": measured.elapsed_ps,
            "expected_ps": expected,
            "measured": measured,
            "forecast": None,
            "not_explained_ps": not_explained_ps,
            "not_explained_low_ps": measured.low_ps - expected,
            "not_explained_high_ps": measured.high_ps - expected,
            "confidence": min(diagnosis.confidence, agreement(expected, measured)),
        }
    )


def agreement(expected_ps: int, measured: Measured) -> float:
    """Agreement of expected and measured time, 0–1; 1 within the error of the clocks."""
    nearest = min(max(expected_ps, measured.low_ps), measured.high_ps)
    return min(expected_ps, nearest) / max(expected_ps, nearest, 1)


# --- evidence that the recording has -----------------------------------------------------------


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
        events = [evidence.port_events] if counters and evidence.port_events is not None else []
        of_links = [] if evidence.link_events is None else [evidence.link_events]
        of_hosts = host_events(recorded, prepared.fabric)
        evidence = replace(
            evidence,
            port_events=in_order(pl.concat([*events, recorded])),
            link_events=pl.concat([*of_links, of_hosts], how="diagonal"),
        )
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
            evidence = read_network_evidence(prepared, measured, run, files, listed)
            return replace(evidence, unused=())
        except JoinError as error:
            notes.append(f"recorded counters not used ({files[0].name} …): {error.message}")
    return read_network_evidence(prepared, measured, run, counters, listed)


def _listed(trace: Path | None, path: str | Path | None, notes: list[str]) -> ListedJobs | None:
    """The jobs of the machine; None without a list."""
    own_ids = own_jobs(trace)
    if path is not None:
        jobs = read_jobs(Path(path))
        notes += [f"{Path(path).name}: {note}" for note in jobs.notes]
        return ListedJobs(jobs, own_ids)
    file = recorded_jobs(trace)
    if file is None:
        return None
    try:
        return ListedJobs(read_jobs(file), own_ids, f"from the recording ({file.name})")
    except JobListError as error:
        where = f", {error.place}" if error.place else ""
        notes.append(f"the recorded job list is not used ({file.name}{where}): {error.message}")
        return None


# --- parameters from the trace -----------------------------------------------------------------


def with_instant_network(measured: MeasuredRun, evaluate: Evaluate) -> MeasuredRun:
    """The measured run with the time that it would take on a network without delay."""
    instant = evaluate(Change(network="instant", background=False)).elapsed_ps
    return replace(measured, measured=measured.measured.with_ideal_network(instant))


BETWEEN_HOSTS = "messages between hosts"


@dataclass(frozen=True)
class TraceCalibration:
    """A scenario with what its trace shows of the machine.

    Attributes:
        prepared: The scenario.
        fitted: Settings fitted to the trace's uncontended messages; empty if it has none between
            known hosts, or if the scenario states them.
        stated: The scenario, or a calibration file, states settings.
        lacks: What the trace lacks to fit settings to, if none is fitted.
    """

    prepared: PreparedScenario
    fitted: tuple[FittedValue, ...] = ()
    stated: bool = False
    lacks: str = "messages"


@stage("calibration by the trace")
def calibrated_by_trace(prepared: PreparedScenario, measured: MeasuredRun) -> TraceCalibration:
    """Fit settings of the engine to the trace's own uncontended messages.

    Settings that the scenario states are kept. Where ranks waited for a processor, or where it is
    unknown where they ran, times of messages say nothing about the machine.

    Args:
        prepared: The scenario of the measured run.
        measured: The measured run.
    """
    stated = prepared.scenario.engine.model_fields_set
    recording = prepared.observed.program.recording
    crowded = recording is not None and recording.oversubscribed_ps > 0
    measured_hosts = measured.measured.hosts
    inside = measured_hosts is not None and measured_hosts.hosts == 1
    # Rates within hosts, which a recording may state, leave the other settings open.
    others = bool(stated - {"local_rate", "memory_rate", "local_error"})
    unfitted = TraceCalibration(
        prepared, stated=others, lacks=BETWEEN_HOSTS if inside else "messages"
    )
    if crowded or unknown_hosts(prepared, measured):
        return unfitted
    fabric, node = prepared.fabric, prepared.observed.node
    hosts = [fabric.host_name[host] for host in fabric.node_host[node].tolist()]
    if not _between_hosts(measured.tables["transfers"], hosts):
        unfitted = replace(unfitted, lacks=BETWEEN_HOSTS)
    machine = Machine(fabric)
    try:
        times = trace_times(measured.tables["transfers"], measured.tables["calls"], hosts, machine)
        # A stated delay is that of the whole software.
        fit = estimate(
            times.placed,
            adapter_gbps=machine.adapter_gbps,
            eager=times.eager,
            overhead=None if "send_delay" in stated else times.overhead,
            copy_rate=times.copy_rate,
        )
        fit.engine = [setting for setting in fit.engine if setting.name not in stated]
        scenario = Calibration.of(fit, []).apply(prepared.scenario)
        if times.copies and stated.isdisjoint(("eager", "eager_sends")):
            engine = scenario.engine.model_copy(update={"eager_sends": "copied"})
            scenario = scenario.model_copy(update={"engine": engine})
    except TailbackError:
        # A fit that no machine can have, or a path that the fabric lacks: nothing is learnt.
        return unfitted
    if not fit.engine:
        return unfitted
    return TraceCalibration(replace(prepared, scenario=scenario), tuple(fit.engine), stated=others)


def _between_hosts(transfers: pl.DataFrame, hosts: list[str]) -> bool:
    """Whether any message went from one host to another."""
    pairs = transfers.select("src_rank", "dst_rank").unique()
    return any(hosts[src] != hosts[dst] for src, dst in pairs.iter_rows())
