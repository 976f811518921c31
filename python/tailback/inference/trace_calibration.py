"""Settings of the engine from the trace that is diagnosed, where no calibration is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from tailback.calibration.estimates import FittedValue, estimate
from tailback.calibration.file import Calibration
from tailback.calibration.routes import Machine
from tailback.calibration.trace import trace_times
from tailback.errors import TailbackError
from tailback.evidence import MeasuredRun
from tailback.inference.unknown_hosts import unknown_hosts
from tailback.simulation import PreparedScenario
from tailback.stages import stage

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
    known = measured.measured.hosts
    inside = known is not None and known.hosts == 1
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
        found = estimate(times.placed, adapter_gbps=machine.adapter_gbps, eager=times.eager)
        found.engine = [one for one in found.engine if one.name not in stated]
        scenario = Calibration.of(found, []).apply(prepared.scenario)
    except TailbackError:
        # A fit that no machine can have, or a path that the fabric lacks: nothing is learnt.
        return unfitted
    if not found.engine:
        return unfitted
    return TraceCalibration(
        replace(prepared, scenario=scenario), tuple(found.engine), stated=others
    )


def _between_hosts(transfers: pl.DataFrame, hosts: list[str]) -> bool:
    """Whether any message went from one host to another."""
    pairs = transfers.select("src_rank", "dst_rank").unique()
    return any(hosts[src] != hosts[dst] for src, dst in pairs.iter_rows())
