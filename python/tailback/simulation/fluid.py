"""Simulates a prepared scenario in the fluid model: the same tables, computed from rates."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.errors import ScenarioError
from tailback.evaluate import Change, Evaluate, Rates
from tailback.fabric.core_errors import translate_core_error
from tailback.fabric.model import Fabric
from tailback.fluid import Choice, ProgramTimes, RankModel, paths_between, simulate_program
from tailback.run.run import Run
from tailback.scenario.model import Scenario
from tailback.simulation.apply_change import NetworkCache, apply_change, rank_nodes
from tailback.simulation.contexts import MessageContexts
from tailback.simulation.fluid_error import BUFFERS, Communication
from tailback.simulation.in_host import in_host_rates
from tailback.simulation.outcome import ModelledOutcome
from tailback.simulation.prepare import PreparedScenario, Workload
from tailback.simulation.routes import Routes, routes_for
from tailback.simulation.tables import make_tables
from tailback.stages import stage
from tailback.units import format_bytes, format_time

UNKNOWN = (
    "packets",
    "observed_packets",
    "congested_packets",
    "observed_congested_packets",
    "stall_ps",
)
"""Columns of table ``truth`` that are null in a run of the fluid model."""

NOTE = (
    "this run is of the fluid model: rates instead of packets. Nothing queues in it, so no port is "
    "congested and no packet carries a sample; times and link use are estimates "
    "(docs/explanation/congestion.md)"
)


@dataclass(frozen=True)
class FluidOptions:
    """Options of the fluid model that are not part of the scenario.

    Attributes:
        rates: How rates are determined.
        paths: How paths are chosen; None for the choice closest to the scenario's routing.
        quantum_ps: Minimum time between two changes of rates; 0 is exact.
        windows: Minimum number of time windows of link use: 0 for none, None for the scenario's.
        first_buffer: Let an adapter send ahead by the size of the buffer at the other end of its
            link. Assigned rates fill no buffer.
        lines: An adapter has a queue per destination, regardless of the scenario's injection.
    """

    rates: Rates = "max-min"
    paths: Choice | None = None
    quantum_ps: int = 100_000
    windows: int | None = None
    first_buffer: bool = True
    lines: bool = False


def _note_ignored_settings(scenario: Scenario) -> list[str]:
    """A note on settings that affect how packets share links but not the fluid model, if any."""
    engine = scenario.engine
    here = {
        "lane_weights": engine.services > 1 and bool(engine.lane_weights),
        "crossbar_speedup": engine.crossbar_speedup > 0,
        "injection_rate": engine.injection_rate is not None,
        "congestion_control": engine.congestion_control is not None,
        "flow_control": engine.flow_control.kind != "credits",
        "pacing": engine.pacing.kind != "off",
    }
    names = [name for name, is_set in here.items() if is_set]
    if not names:
        return []
    return [f"the fluid model ignores these keys of [engine]: {', '.join(names)}"]


def path_choice(routing: str, fabric: Fabric, routes: Routes) -> Choice:
    """The choice of paths closest to that of the packet engine.

    Deterministic routing and forwarding tables fix the path. VC routing (``vc``) chooses a path per
    flow, by the number of flows on each output, ECMP at random. Choices per packet keep parallel
    links of a tree equally busy: ``pooled``. On other topologies flows are split over the candidate
    paths.
    """
    if routing == "deterministic" or routes.by_tables:
        return "deterministic"
    if routing == "vc":
        return "least-flows"
    if routing == "ecmp":
        return "random"
    # Up/down routes in a fabric with tiers do not use flat links.
    if routes.rule is None and int(fabric.switch_tier.max(initial=0)) > 0:
        return "pooled"
    return "split" if routing == "adaptive" else "spread"


def simulate_fluid(prepared: PreparedScenario, options: FluidOptions | None = None) -> Run:
    """Simulate a scenario in the fluid model.

    The run has the tables of a packet run. Quantities that the model does not compute are null
    (:data:`UNKNOWN` of table ``truth``) or empty (``samples``). ``summary`` has ``model = "fluid"``
    and the choice of rates and paths.

    Args:
        prepared: The scenario, read and placed.
        options: Options of the model.

    Raises:
        TailbackError: Sends and receives do not match, nodes are not connected, or a value is out
            of range.
    """
    options = options or FluidOptions()
    routes = routes_for(prepared.scenario, prepared.fabric, prepared.slots().tolist())
    run = _execute(prepared, options, (prepared.fabric, routes))
    return _add_interval(run, prepared, options, routes)


def _add_interval(
    run: Run, prepared: PreparedScenario, options: FluidOptions, routes: Routes
) -> Run:
    """The run with the interval for its time with packets, where one was measured."""
    uncovered = _why_no_interval(run.scenario, options)
    if not uncovered:
        communication = communication_of(run, prepared, routes)
        if communication.is_waiting:
            uncovered = "many ranks send to one at a time and wait for each other"
    if uncovered:
        note = f"no interval is stated in which packets would end: {uncovered}"
        return replace(run, notes=[*run.notes, note])
    low, high = communication.packet_interval()
    summary = {**run.summary, "packets_low_ps": low, "packets_high_ps": high}
    note = (
        f"packets would take {format_time(low)} to {format_time(high)}, as in 95 % of the "
        "scenarios with which the model was compared (docs/measurements/accuracy.md)"
    )
    return replace(run, summary=summary, notes=[*run.notes, note])


def communication_of(run: Run, prepared: PreparedScenario, routes: Routes) -> Communication:
    """Communication of the only job of a fluid run."""
    link_ps = _link_ps(prepared, routes, prepared.observed.node)
    adapters = _only_links_of_nodes(prepared.fabric)
    busiest, adapter = float(link_ps.max(initial=0)), float(link_ps[adapters].max(initial=0))
    return Communication.of(run, busiest, adapter, prepared.observed.times)


def _why_no_interval(scenario: Scenario, options: FluidOptions) -> str:
    """How a run differs from those that compared the model with packets; empty if it does not.

    See ``fluid_error.py``.
    """
    engine, (smallest, largest) = scenario.engine, BUFFERS
    if len(scenario.job) > 1:
        return "other jobs share its links"
    if options.rates != "max-min":
        return f"rates are those of {options.rates}"
    if options.paths is not None:
        return "the choice of paths is stated, and not that of the scenario's routing"
    if _note_ignored_settings(scenario):
        return "the model ignores some settings"
    if not smallest <= engine.buffer <= largest:
        return f"buffers are not of {format_bytes(smallest)} to {format_bytes(largest)}"
    return ""


def make_fluid_evaluate(
    prepared: PreparedScenario, options: FluidOptions | None = None
) -> Evaluate:
    """As :func:`tailback.simulation.make_evaluate`, but in the fluid model, for fast screening.

    The evaluator raises ScenarioError for ``no-contention``, where no rates are shared.
    """
    options = options or FluidOptions(windows=0)
    networks = NetworkCache(prepared)

    def evaluate(change: Change) -> Run:
        if change.network == "no-contention":
            raise ScenarioError(
                "the fluid model has no network without contention",
                place="[model]",
                remedy="use the packet engine for this step",
            )
        return _execute(
            apply_change(prepared, change),
            _explicit_rates(options, change),
            networks.of(change),
            nodes=rank_nodes(prepared, change),
            only_observed=not change.background,
            seed_offset=change.seed_offset,
        )

    return evaluate


def _explicit_rates(options: FluidOptions, change: Change) -> FluidOptions:
    """Options for a change to rates at which no buffer fills, from a queue per destination."""
    if change.rates is None:
        return options
    rates: Rates = "max-min" if change.rates == "max-min" else "assignment"
    return replace(options, rates=rates, first_buffer=False, lines=True)


def busiest_link_ps(prepared: PreparedScenario, routes: Routes, node: NDArray[np.uint32]) -> float:
    """Time that the busiest link needs for its bytes at its own rate, picoseconds.

    That is the maximum congestion of Hoefler and Snir (2011): bytes ÷ capacity, the largest over
    all links, with each pair's bytes on the paths of the routing. A run whose packets take those
    paths is no shorter.

    Args:
        prepared: The scenario. Only its observed job counts.
        routes: Its routes.
        node: Node of each rank, shape (R,).
    """
    return float(_link_ps(prepared, routes, node).max(initial=0))


def _link_ps(
    prepared: PreparedScenario, routes: Routes, node: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Time that each link needs for its bytes, picoseconds, shape (L,)."""
    fabric = prepared.fabric
    source, target, size = prepared.observed.program.traffic_matrix()
    ends, amount = np.stack([node[source], node[target]]), size.astype(np.float64)
    remote = fabric.node_host[ends[0]] != fabric.node_host[ends[1]]
    pairs, index = np.unique(ends[:, remote], axis=1, return_inverse=True)
    if not pairs.shape[1]:
        return np.zeros(fabric.n_links)
    choice = path_choice(prepared.scenario.engine.routing, fabric, routes)
    # Links that serve as one take equal parts, as choices per packet make them.
    paths = paths_between(
        routes.network,
        pairs[0],
        pairs[1],
        "spread" if choice == "pooled" else choice,
        prepared.scenario.seed,
        routes.rule,
    )
    load = paths.link_sum(np.bincount(index.reshape(-1), amount[remote]), fabric.n_links)
    return np.asarray(load * 8000.0 / fabric.link_gbps, np.float64)


def _only_links_of_nodes(fabric: Fabric) -> NDArray[np.bool_]:
    """Whether a link is a node's only one, so that no routing avoids it, shape (L,)."""
    out = np.zeros(fabric.n_links, bool)
    for end in (fabric.link_src, fabric.link_dst):
        links = np.bincount(end, minlength=fabric.n_nodes)[: fabric.n_nodes]
        alone = np.flatnonzero(links == 1)
        out |= np.isin(end, alone)
    return out


def _solve(
    prepared: PreparedScenario,
    options: FluidOptions,
    network: tuple[Fabric, Routes],
    nodes: list[NDArray[np.uint32]] | None,
    only_observed: bool,
    seed_offset: int,
) -> tuple[Workload, ProgramTimes]:
    """The workload and its times."""
    scenario = prepared.scenario
    fabric, routes = network
    workload = prepared.make_workload(nodes, only_observed)
    paths = _paths(options, scenario.engine.routing, fabric, routes)
    model = rank_model(scenario, options, paths, routes, scenario.seed + seed_offset)
    section = scenario.fabric
    with (
        stage("fluid model"),
        translate_core_error(
            "the fluid model", fabric=fabric, file=section.file, forwarding=section.forwarding
        ),
    ):
        times = simulate_program(
            routes.network,
            workload.program,
            workload.node,
            fabric.node_host[workload.node],
            workload.start_ps,
            model,
            routes.rule,
            in_host_rates(fabric, workload.node, scenario.engine.local_gbps),
        )
    return workload, times


def _paths(options: FluidOptions, routing: str, fabric: Fabric, routes: Routes) -> Choice:
    return options.paths or path_choice(routing, fabric, routes)


def _execute(
    prepared: PreparedScenario,
    options: FluidOptions,
    network: tuple[Fabric, Routes],
    *,
    nodes: list[NDArray[np.uint32]] | None = None,
    only_observed: bool = False,
    seed_offset: int = 0,
) -> Run:
    """Run a prepared scenario, with changes."""
    scenario = prepared.scenario
    fabric, routes = network
    began = time.perf_counter()
    workload, times = _solve(prepared, options, network, nodes, only_observed, seed_offset)
    seconds = time.perf_counter() - began
    outcome = _outcome(times, scenario.engine.packet)
    with stage("tables of runs"):
        tables, summary = make_tables(
            scenario,
            fabric,
            workload.jobs,
            workload.places,
            MessageContexts.of_sends(workload.job_of_label),
            outcome,
        )
    summary |= {
        "model": "fluid",
        "rates": options.rates,
        "paths": _paths(options, scenario.engine.routing, fabric, routes),
        "quantum_ps": options.quantum_ps,
        "settlements": times.settlements,
    }
    repetitions = prepared.observed.times
    if repetitions > 1:
        summary["elapsed_ps"] *= repetitions
    performance = {
        "engine_seconds": seconds,
        "settlements_per_s": times.settlements / seconds if seconds else 0.0,
        "cores": os.cpu_count(),
    }
    if prepared.rate_notes:
        summary["assumptions"] = {"within hosts": prepared.rate_notes}
    notes = [*prepared.notes, *routes.notes, NOTE, *_note_ignored_settings(scenario)]
    if repetitions > 1:
        notes.append(f"one repetition was computed and its time taken {repetitions:,} times")
    return Run(scenario, tables, summary, performance, notes)


def rank_model(
    scenario: Scenario, options: FluidOptions, paths: Choice, routes: Routes, seed: int
) -> RankModel:
    """The engine's settings that apply to the fluid model."""
    engine = scenario.engine
    windows = scenario.telemetry.windows if options.windows is None else options.windows
    ahead = options.first_buffer and options.rates == "max-min"
    return RankModel(
        seed=seed,
        policy=options.rates,
        paths=paths,
        detour=routes.detour,
        fifo=engine.injection == "fifo" and not options.lines,
        packet_bytes=engine.packet,
        header_bytes=scenario.packet_header_bytes,
        switch_delay_ps=engine.switch_delay,
        store_and_forward=engine.switching == "store-and-forward",
        # This model has no processors.
        send_delay_ps=engine.send_delay + 2 * engine.overhead,
        eager_bytes=engine.eager,
        copies_eager=engine.eager_sends == "copied",
        progress_in_calls=engine.progress == "calls",
        local_gbps=engine.local_gbps,
        memory_gbps=engine.memory_gbps,
        local_delay_ps=engine.local_delay,
        local_ports=engine.local_sharing == "ports",
        quantum_ps=options.quantum_ps,
        buffer_bytes=engine.buffer if ahead else 0,
        windows=windows,
    )


def _outcome(times: ProgramTimes, packet_bytes: int) -> ModelledOutcome:
    """The outcome; unknown columns are null."""
    messages: dict[str, Any] = {**times.messages}
    switches = messages.pop("switches").astype(np.int64)
    size = messages["size_bytes"].astype(np.int64)
    packets = np.maximum(-(-size // packet_bytes), 1)
    messages["packets"] = messages["arrived"] = packets.astype(np.uint32)
    messages["switch_hops"] = (packets * switches).astype(np.uint32)
    rows = len(times.link_use["window"])
    truth: dict[str, Any] = {**times.link_use, **{name: [None] * rows for name in UNKNOWN}}
    samples = {
        name: np.zeros(0, np.uint64)
        for name in (
            "window",
            "label",
            "link",
            "hop_samples",
            "hop_weight",
            "hop_variance",
            "hop_bytes",
            "congested_samples",
            "congested_weight",
            "congested_variance",
        )
    }
    return ModelledOutcome(
        packets=int(packets.sum()),
        packet_hops=int((packets * switches).sum()),
        events=times.settlements,
        end_ps=times.end_ps,
        window_ps=times.window_ps,
        ranks={
            "finish_ps": times.finish_ps,
            "compute_ps": times.compute_ps,
            "wait_ps": times.wait_ps,
        },
        messages=messages,
        samples=samples,
        truth=truth,
    )
