"""Runs a prepared scenario on the engine and converts the outcome to tables."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback import _core
from tailback.budget import simulation
from tailback.errors import ScenarioError
from tailback.fabric.core_errors import translate_core_error
from tailback.fabric.engine_limits import require_delays
from tailback.fabric.model import Fabric
from tailback.run.run import Run
from tailback.run.schema import conform
from tailback.scenario.engine import CongestionControlSection, EngineSection
from tailback.scenario.model import Scenario
from tailback.simulation.contexts import split_contexts
from tailback.simulation.decode import stamping_links
from tailback.simulation.in_host import in_host_rates
from tailback.simulation.memory import require_memory
from tailback.simulation.outcome import Outcome
from tailback.simulation.pacing import SendRates, send_rates
from tailback.simulation.prepare import Job, PreparedScenario, Workload, prepare
from tailback.simulation.repetition.continued import StepChecks, WholeRun
from tailback.simulation.repetition.skipping import (
    interchangeable_links,
    simulate_skipping,
    skip_notes,
)
from tailback.simulation.repetition.step_rounds import SkippedRun, SteppedProgram
from tailback.simulation.routes import Routes, routes_for
from tailback.simulation.settings import EngineSettings
from tailback.simulation.tables import make_tables
from tailback.stages import stage
from tailback.traffic.program import PlacedProgram, Program
from tailback.units import exact_bytes, format_time, percent

THREADS_VARIABLE = "TAILBACK_THREADS"
"""Environment variable that sets the number of threads."""


NODES_A_THREAD = 256
"""Nodes of the network for each thread, at least.

With this many, four threads are faster than one. With half as many, two threads take more than
twice the processor time of one (docs/measurements/speed.md).
"""

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
        scenario: The scenario, or the result of :func:`prepare`.
        watch: Called regularly; an exception it raises ends the run.
        threads: Threads of the engine; see :func:`thread_count` for None.
        partial: If Ctrl-C interrupts the run, return the incomplete run, with ``complete`` false in
            its summary, instead of raising :class:`KeyboardInterrupt`.

    Raises:
        TailbackError: An input of the scenario is invalid, or ranks deadlock.
    """
    prepared = scenario if isinstance(scenario, PreparedScenario) else prepare(scenario)
    return execute(prepared, watch=watch, threads=threads, partial=partial)


@simulation()
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
    """Run a prepared scenario, with changes.

    Args:
        prepared: The scenario, read and placed.
        routes: Routes computed earlier for the same fabric.
        fabric: Another fabric with the same nodes.
        nodes: Another placement: node of each rank of every job.
        only_observed: Leave out jobs that are not observed.
        watch: As in :func:`simulate`.
        threads: As in :func:`simulate`.
        partial: As in :func:`simulate`.
        pace_mbps: Rate in Mb/s of each send of the program, 0 for none. None takes the rates of the
            scenario.
        changes: Fields of :class:`EngineSettings` that differ.
    """
    fabric = fabric or prepared.fabric
    telemetry = prepared.scenario.telemetry
    complete = prepared.make_workload(nodes, only_observed)
    workload, contexts = split_contexts(complete, telemetry.receivers)
    routes = routes or routes_for(prepared.scenario, fabric, prepared.slots().tolist())
    engine = prepared.scenario.engine
    settings = EngineSettings.of(prepared.scenario, detour=routes.detour)
    stamping, partly = stamping_links(fabric, telemetry.stamping)
    settings = replace(settings, **({"stamping": stamping} | changes))
    threads = thread_count(threads, fabric.n_nodes)
    run = _EngineRun(prepared, workload, fabric, routes, settings, threads, watch)
    pace_mbps, stated, notes = _choose_rates(
        prepared, workload, fabric, routes, settings, pace_mbps
    )
    of_engine = _engine_notes(engine, settings, workload.program)
    notes = [*prepared.notes, *routes.notes, *partly, *notes, *of_engine]
    require_delays(fabric, prepared.scenario.fabric)
    began = time.perf_counter()
    skipped = None
    if engine.skip_repeats and pace_mbps is None:
        skipped = run.skipping()
    if isinstance(skipped, SkippedRun | WholeRun):
        outcome: Outcome = skipped.outcome
    else:
        workload = workload.in_full()
        outcome = run.whole(workload.program, pace_mbps)
    seconds = time.perf_counter() - began
    if not (outcome.complete or partial):
        raise KeyboardInterrupt
    with stage("tables of runs"):
        tables, summary = make_tables(
            prepared.scenario,
            fabric,
            complete.jobs,
            workload.places,
            contexts,
            outcome,
            detours=settings.detour != "never",
        )
    if stated is not None:
        summary["pacing"] = stated.summary
    if skipped is not None:
        notes = [*_state_skips(skipped, complete.jobs, tables, summary), *notes]
    if prepared.rate_notes:
        summary.setdefault("assumptions", {})["within hosts"] = prepared.rate_notes
    summary |= _recording_entries(prepared.observed.program)
    if not outcome.complete:
        end = format_time(outcome.end_ps)
        notes.append(f"interrupted at {end}: the tables are incomplete")
    computations = pl.DataFrame(outcome.computations) if settings.record_computation else None
    performance = _performance(outcome, seconds, threads)
    # Without contention, adapters send trains of packets, which do not show it.
    shared = outcome.adapters_shared or not settings.contention
    return Run(prepared.scenario, tables, summary, performance, notes, computations, shared)


def _recording_entries(program: Program) -> dict[str, Any]:
    """Summary entries on the recording of a trace and its gaps."""
    out: dict[str, Any] = {}
    if program.recording is not None:
        out["recording"] = asdict(program.recording)
    if program.lacks:
        out["not_recorded"] = [*program.lacks]
    return out


FEW_PACKETS = 8
"""Coarse packets of a message below which its time may be far off
(docs/measurements/approximations.md)."""


def _engine_notes(engine: EngineSection, settings: EngineSettings, program: Program) -> list[str]:
    """Notes on settings of the engine."""
    idle = _idle_parameters(engine.congestion_control) if settings.contention else []
    return [*_coarse_notes(engine, program), *idle]


def _coarse_notes(engine: EngineSection, program: Program) -> list[str]:
    """Notes on the effect of coarse packets on the times of a program, if they are in use."""
    size, packet = engine.simulated_packet, engine.packet
    if engine.coarse is None:
        return []
    if size == packet:
        return [f"coarse packets: none, as packets have {exact_bytes(packet)} anyway"]
    sent = program.amount[program.sends].astype(np.float64)
    few = (sent > packet) & (sent < FEW_PACKETS * size)
    share = sent[few].sum() / max(sent.sum(), 1.0)
    far = (
        (
            f"; messages of fewer than {FEW_PACKETS} of them have {percent(share)} of the bytes, "
            "and their times may be off by tens of per cent"
        )
        if share >= 0.01
        else ""
    )
    return [
        f"coarse packets: {exact_bytes(size)} in place of {exact_bytes(packet)}; times are "
        f"estimates, and fewer packets carry samples (docs/explanation/approximations.md){far}"
    ]


def _idle_parameters(control: CongestionControlSection | None) -> list[str]:
    """A note on parameters of congestion control that its scheme does not use."""
    if control is None or not control.unused_options:
        return []
    idle = ", ".join(control.unused_options)
    return [f"[engine.congestion_control] {idle}: scheme {control.scheme!r} does not use this"]


@dataclass(frozen=True, eq=False)
class _EngineRun:
    """A run of the engine, complete except for the program."""

    prepared: PreparedScenario
    workload: Workload
    fabric: Fabric
    routes: Routes
    settings: EngineSettings
    threads: int
    watch: Watch | None

    def whole(self, program: Program, pace_mbps: NDArray[np.uint32] | None) -> _core.PacketOutcome:
        """Run a program of all ranks."""
        return self._simulate(
            self._place_program(program, self.workload.start_ps, 1, [], pace_mbps)
        )

    def skipping(self) -> SkippedRun | WholeRun | str:
        """Run the workload with skipped steps; or the reason why none can be skipped."""
        settings = self.settings
        random_routing = settings.routing not in ("deterministic", "ecmp")
        group = np.full(self.fabric.n_links, -1, np.int64)
        return simulate_skipping(
            self.workload,
            self.stepped,
            eager=settings.eager_bytes,
            seed=settings.seed,
            one_in=settings.one_in / (1.0 - settings.header_loss),
            link_group=interchangeable_links(self.fabric) if random_routing else group,
            random_routing=random_routing,
        )

    def stepped(
        self, part: SteppedProgram, checks: StepChecks | None = None
    ) -> _core.PacketOutcome:
        """Run a program in which steps are left out."""
        outcome = self._simulate(
            self._place_program(part.program, part.start_ps, part.copies, part.label_step, None),
            checks,
        )
        if not outcome.complete:
            # Its tables would have simulated times, which differ from those of the whole run.
            raise KeyboardInterrupt
        return outcome

    def _place_program(
        self,
        program: Program,
        start_ps: NDArray[np.uint64],
        copies: int,
        label_step: list[int],
        pace_mbps: NDArray[np.uint32] | None,
    ) -> PlacedProgram:
        """The program in the form the engine takes."""
        workload = self.workload
        of_label = [workload.jobs[job].section for job in workload.job_of_label.tolist()]
        return PlacedProgram(
            program,
            node=workload.node,
            host=np.ascontiguousarray(self.fabric.node_host[workload.node]),
            local_gbps=in_host_rates(self.fabric, workload.node, self.settings.local_gbps),
            start_ps=start_ps,
            label_observed=[section.observed for section in of_label] * copies,
            label_service=[section.service for section in of_label] * copies,
            label_step=label_step,
            pace_mbps=pace_mbps,
        )

    def _simulate(
        self, traffic: PlacedProgram, checks: StepChecks | None = None
    ) -> _core.PacketOutcome:
        scenario, routes, settings = self.prepared.scenario, self.routes, self.settings
        require_memory(
            self.fabric,
            scenario,
            traffic.program,
            lanes=scenario.engine.services * routes.lanes,
            measure=settings.measure,
            times=1 if checks is None or checks.label_offset is None else checks.count,
        )
        section = scenario.fabric
        with (
            stage("packet engine"),
            translate_core_error(
                "[engine]",
                fabric=self.fabric,
                file=section.file,
                forwarding=section.forwarding,
            ),
        ):
            return _core.simulate(
                routes.network,
                settings,
                traffic,
                routing=routes.rule,
                threads=self.threads,
                watch=self.watch,
                steps=checks,
            )


def _state_skips(
    skipped: SkippedRun | WholeRun | str,
    jobs: list[Job],
    tables: dict[str, pl.DataFrame],
    summary: dict[str, Any],
) -> list[str]:
    """Record the skipped steps of a run in its tables and summary; returns notes on them."""
    if not isinstance(skipped, SkippedRun):
        reason = skipped if isinstance(skipped, str) else skipped.reason
        return [f"nothing was skipped: {reason}"]
    rows = [asdict(stretch) for stretch in skipped.stretches]
    tables["skips"] = conform("skips", pl.DataFrame(rows))
    observed = [i for i, job in enumerate(jobs) if job.section.observed]
    half = round(max(skipped.half_ps[i] for i in observed))
    summary["skipped"] = {
        "steps": skipped.steps,
        "simulated": skipped.simulated,
        "elapsed_low_ps": max(summary["elapsed_ps"] - half, 0),
        "elapsed_high_ps": summary["elapsed_ps"] + half,
        "links_half": skipped.outcome.links_half,
    }
    notes = skip_notes(skipped)
    summary["assumptions"] = {"skipped": notes}
    return notes


def _choose_rates(
    prepared: PreparedScenario,
    workload: Workload,
    fabric: Fabric,
    routes: Routes,
    settings: EngineSettings,
    pace_mbps: NDArray[np.uint32] | None,
) -> tuple[NDArray[np.uint32] | None, SendRates | None, list[str]]:
    """Rates of the sends (those passed, else those of the scenario) and notes."""
    # Without contention there is nothing to share.
    if pace_mbps is not None or not settings.contention:
        return pace_mbps, None, []
    stated = send_rates(prepared, workload, fabric, routes)
    if stated is not None:
        return stated.mbps, stated, [*stated.notes]
    pacing, control = (
        getattr(prepared.scenario.engine, name) for name in ("pacing", "congestion_control")
    )
    distributed = control is not None and control.scheme == "assignment"
    if pacing.kind == "off" or distributed:
        return None, None, []
    file = pacing.rates_file
    remedy = "set [engine.pacing] rates or rates_file"
    if file is not None:
        remedy = f"{file.name} has no rate for any flow of this run"
    note = f"no flow has a rate, so pacing {pacing.kind!r} changes nothing: {remedy}"
    return None, None, [note]


def _performance(outcome: Outcome, seconds: float, threads: int) -> dict[str, Any]:
    """Speed of the simulation."""
    return {
        "engine_seconds": seconds,
        "packet_hops_per_s": outcome.packet_hops / seconds if seconds else 0.0,
        "events_per_s": outcome.events / seconds if seconds else 0.0,
        "cores": os.cpu_count(),
        "threads": threads,
    }


def thread_count(asked: int | None = None, nodes: int | None = None) -> int:
    """Number of threads: ``asked``, else ``TAILBACK_THREADS``, else the number of idle cores.

    Threads synchronize every few microseconds, so one that is preempted delays all others.
    Therefore cores that were busy during the last minute are not used, and a small network has
    one thread for every :data:`NODES_A_THREAD` of its ``nodes``.

    Raises:
        ScenarioError: Fewer than 1 thread, or the variable is not a positive whole number.
    """
    if asked is not None:
        if asked < 1:
            raise ScenarioError(f"threads = {asked} is less than 1", remedy="give 1 or more")
        return asked
    text = os.environ.get(THREADS_VARIABLE)
    if text is None:
        idle = _idle_cores()
        return idle if nodes is None else max(1, min(idle, nodes // NODES_A_THREAD))
    if not text.isdecimal() or int(text) < 1:
        raise ScenarioError(
            f"{THREADS_VARIABLE} = {text!r} is not a number of threads",
            remedy=f"for example {THREADS_VARIABLE}=4",
        )
    return int(text)


def _idle_cores() -> int:
    try:
        cores = len(os.sched_getaffinity(0))
        busy = round(os.getloadavg()[0])
    except (AttributeError, OSError):  # not available on every system
        return 1
    return max(1, cores - busy)
