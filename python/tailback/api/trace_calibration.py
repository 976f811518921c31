"""Settings of the engine from the trace that is diagnosed, where no calibration is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailback.api.unknown_hosts import unknown_hosts
from tailback.calibration.estimates import FittedValue, estimate
from tailback.calibration.file import Calibration
from tailback.calibration.routes import Machine
from tailback.calibration.trace import trace_times
from tailback.errors import TailbackError
from tailback.evidence import MeasuredRun
from tailback.simulation import PreparedScenario
from tailback.stages import stage


@dataclass(frozen=True)
class TraceCalibration:
    """A scenario with what its trace shows of the machine.

    Attributes:
        prepared: The scenario.
        fitted: Settings fitted to the trace's uncontended messages; empty if it has none between
            known hosts, or if the scenario states them.
        stated: The scenario, or a calibration file, states settings.
    """

    prepared: PreparedScenario
    fitted: tuple[FittedValue, ...] = ()
    stated: bool = False


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
    if crowded or unknown_hosts(prepared, measured):
        return TraceCalibration(prepared, stated=bool(stated))
    fabric, node = prepared.fabric, prepared.observed.node
    hosts = [fabric.host_name[host] for host in fabric.node_host[node].tolist()]
    machine = Machine(fabric)
    try:
        times = trace_times(measured.tables["transfers"], measured.tables["calls"], hosts, machine)
        found = estimate(times.placed, adapter_gbps=machine.adapter_gbps, eager=times.eager)
        found.engine = [one for one in found.engine if one.name not in stated]
        scenario = Calibration.of(found, []).apply(prepared.scenario)
    except TailbackError:
        # A fit that no machine can have, or a path that the fabric lacks: nothing is learnt.
        return TraceCalibration(prepared, stated=bool(stated))
    if not found.engine:
        return TraceCalibration(prepared, stated=bool(stated))
    return TraceCalibration(
        replace(prepared, scenario=scenario), tuple(found.engine), stated=bool(stated)
    )
