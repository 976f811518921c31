"""The measured run of the observed job."""

from __future__ import annotations

from dataclasses import replace

from tailback.diagnosis.model import Diagnosis
from tailback.errors import option
from tailback.evidence import MeasuredRun, has_times, measure
from tailback.evidence.model import Measured
from tailback.simulation import PreparedScenario
from tailback.sources.recording import recorded_counters
from tailback.stages import stage


@stage("measured run")
def measured_run(prepared: PreparedScenario) -> MeasuredRun | None:
    """The measured run in the trace of the observed job.

    None if nothing was measured: the traffic is a pattern, its trace has no times, or several jobs
    are observed, which were recorded separately.

    Raises:
        TraceError: The trace is damaged.
    """
    job = prepared.observed
    section = job.section
    several = sum(one.section.observed for one in prepared.jobs) > 1
    if section.trace is None or several or not has_times(section.trace, section.format):
        return None
    hosts = None
    if section.hosts != "all":
        fabric = prepared.fabric
        hosts = [fabric.host_name[host] for host in fabric.node_host[job.node].tolist()]
    return measure(
        section.trace, rank_file=section.placement_file, hosts=hosts, format=section.format
    )


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
    rest = measured.elapsed_ps - expected
    return diagnosis.model_copy(
        update={
            "elapsed_ps": measured.elapsed_ps,
            "expected_ps": expected,
            "measured": measured,
            "forecast": None,
            "not_explained_ps": rest,
            "not_explained_low_ps": measured.low_ps - expected,
            "not_explained_high_ps": measured.high_ps - expected,
            "confidence": min(diagnosis.confidence, agreement(expected, measured)),
        }
    )


def agreement(expected_ps: int, measured: Measured) -> float:
    """Agreement of expected and measured time, 0–1; 1 within the error of the clocks."""
    nearest = min(max(expected_ps, measured.low_ps), measured.high_ps)
    return min(expected_ps, nearest) / max(expected_ps, nearest, 1)
