"""Runs a prepared scenario on the engine and turns what comes back into tables."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback import _core
from tailback.fabric.core_errors import translate_core_error
from tailback.fabric.engine_limits import require_delays
from tailback.fabric.model import Fabric
from tailback.run import Run
from tailback.scenario import Scenario
from tailback.scenario_engine import CongestionControlSection
from tailback.simulation.memory import require_memory
from tailback.simulation.outcome import Outcome
from tailback.simulation.pacing import SendRates, send_rates
from tailback.simulation.prepare import PreparedScenario, Workload, prepare
from tailback.simulation.routes import Routes, routes_for
from tailback.simulation.settings import EngineSettings
from tailback.simulation.stamping import stamping_links
from tailback.simulation.tables import make_tables
from tailback.simulation.threads import thread_count
from tailback.stages import stage
from tailback.traffic.program import PlacedProgram
from tailback.units import format_time

Watch = Callable[[int, int, int, int], object]
"""Called regularly with (simulated time in ps, packets delivered, packets in all, events)."""


def simulate(
    scenario: Scenario | PreparedScenario,
    watch: Watch | None = None,
    *,
    threads: int | None = None,
    partial: bool = False,
) -> Run:
    """Simulate a scenario.

    Args:
        scenario: The scenario, or what :func:`prepare` made of it.
        watch: Called regularly; an exception it raises ends the run.
        threads: Threads of the engine; see :func:`thread_count` for None.
        partial: Return what there is when Ctrl-C breaks the run off, ``complete`` false in its
            summary, in place of raising :class:`KeyboardInterrupt`.

    Raises:
        TailbackError: Something the scenario names is wrong, or ranks block for ever.
    """
    prepared = scenario if isinstance(scenario, PreparedScenario) else prepare(scenario)
    return execute(prepared, watch=watch, threads=threads, partial=partial)


def execute(
    prepared: PreparedScenario,
    *,
    routes: Routes | None = None,
    fabric: Fabric | None = None,
    nodes: list[NDArray[np.uint32]] | None = None,
    only_observed: bool = False,
    watch: Watch | None = None,
    threads: int | None = None,
    partial: bool = False,
    pace_mbps: NDArray[np.uint32] | None = None,
    **changes: Any,
) -> Run:
    """Run what was prepared, with changes.

    Args:
        prepared: The scenario, read and placed.
        routes: Routes computed before, for the same fabric.
        fabric: Another fabric with the same nodes.
        nodes: Another placement: node of each rank of every job.
        only_observed: Leave out jobs that are not observed.
        watch: As in :func:`simulate`.
        threads: As in :func:`simulate`.
        partial: As in :func:`simulate`.
        pace_mbps: Rate of each operation of the program that is a send, 0 for none; what the
            scenario states when absent.
        changes: Fields of :class:`EngineSettings` that differ.
    """
    fabric = fabric or prepared.fabric
    workload = prepared.make_workload(nodes, only_observed)
    program, jobs = workload.program, workload.jobs
    routes = routes or routes_for(prepared.scenario, fabric, prepared.slots().tolist())
    engine = prepared.scenario.engine
    settings = EngineSettings.of(prepared.scenario, detour=routes.detour)
    stamping, partly = stamping_links(fabric, prepared.scenario.telemetry.stamping)
    settings = replace(settings, stamping=stamping, **changes)
    threads = thread_count(threads)
    require_memory(
        fabric, prepared.scenario, program,
        lanes=engine.services * (routes.rule.lanes if routes.rule else 1),
        measure=settings.measure,
    )  # fmt: skip
    pace_mbps, stated, notes = _pacing(prepared, workload, fabric, routes, settings, pace_mbps)
    notes = [*prepared.notes, *routes.notes, *partly, *notes]
    if settings.contention:
        notes += _idle_parameters(engine.congestion_control)
    traffic = _placed_program(workload, fabric, pace_mbps)
    section = prepared.scenario.fabric
    require_delays(fabric, section)
    began = time.perf_counter()
    with stage("packet engine"), translate_core_error(
        "[engine]", fabric=fabric, file=section.file, forwarding=section.forwarding,
    ):  # fmt: skip
        outcome = _core.simulate(
            routes.network, settings, traffic, routing=routes.rule, threads=threads, watch=watch
        )
    seconds = time.perf_counter() - began
    if not (outcome.complete or partial):
        raise KeyboardInterrupt
    with stage("tables of runs"):
        tables, summary = make_tables(
            prepared.scenario, fabric, jobs, workload.places, workload.job_of_label, outcome,
            detours=settings.detour != "never",
        )  # fmt: skip
    if stated is not None:
        summary["pacing"] = stated.summary
    recorded = prepared.observed.program.recording
    if recorded is not None:
        summary["recording"] = asdict(recorded)
    if not outcome.complete:
        end = format_time(outcome.end_ps)
        notes.append(f"interrupted at {end}: the tables are incomplete")
    computations = pl.DataFrame(outcome.computations) if settings.record_computation else None
    performance = _performance(outcome, seconds, threads)
    return Run(prepared.scenario, tables, summary, performance, notes, computations)


def _idle_parameters(control: CongestionControlSection | None) -> list[str]:
    """A note on parameters of congestion control that its scheme does not use."""
    if control is None or not control.unused_options:
        return []
    idle = ", ".join(control.unused_options)
    return [f"[engine.congestion_control] {idle}: scheme {control.scheme!r} does not use this"]


def _placed_program(
    workload: Workload, fabric: Fabric, pace_mbps: NDArray[np.uint32] | None
) -> PlacedProgram:
    """The program of all jobs as the engine takes it."""
    of_label = [workload.jobs[job].section for job in workload.job_of_label.tolist()]
    return PlacedProgram(
        workload.program,
        node=workload.node,
        host=np.ascontiguousarray(fabric.node_host[workload.node]),
        start_ps=workload.start_ps,
        label_observed=[section.observed for section in of_label],
        label_service=[section.service for section in of_label],
        pace_mbps=pace_mbps,
    )


def _pacing(
    prepared: PreparedScenario, workload: Workload, fabric: Fabric, routes: Routes,
    settings: EngineSettings, pace_mbps: NDArray[np.uint32] | None,
) -> tuple[NDArray[np.uint32] | None, SendRates | None, list[str]]:  # fmt: skip
    """Rates of the sends: those given, else those that the scenario states; and notes."""
    # Where packets meet nobody there is nothing to share.
    if pace_mbps is not None or not settings.contention:
        return pace_mbps, None, []
    stated = send_rates(prepared, workload, fabric, routes)
    if stated is not None:
        return stated.mbps, stated, [*stated.notes]
    pacing = prepared.scenario.engine.pacing
    if pacing.kind == "off":
        return None, None, []
    file = pacing.rates_file
    remedy = "set [engine.pacing] rates or rates_file"
    if file is not None:
        remedy = f"{file.name} has no rate for any flow of this run"
    note = f"no flow has a rate, so pacing {pacing.kind!r} changes nothing: {remedy}"
    return None, None, [note]


def _performance(outcome: Outcome, seconds: float, threads: int) -> dict[str, Any]:
    """What the run cost."""
    return {
        "engine_seconds": seconds,
        "packet_hops_per_s": outcome.packet_hops / seconds if seconds else 0.0,
        "events_per_s": outcome.events / seconds if seconds else 0.0,
        "cores": os.cpu_count(),
        "threads": threads,
    }
