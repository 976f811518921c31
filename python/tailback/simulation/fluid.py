"""A prepared scenario in the fluid model: the same tables, from rates instead of packets."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.errors import ScenarioError
from tailback.evaluate import Change, Evaluate, Rates
from tailback.fabric.core_errors import translate_core_error
from tailback.fabric.model import Fabric
from tailback.fluid import Choice, ProgramTimes, RankModel, simulate_program
from tailback.run import Run
from tailback.scenario import Scenario
from tailback.simulation.apply_change import NetworkCache, apply_change, rank_nodes
from tailback.simulation.outcome import RateOutcome
from tailback.simulation.prepare import PreparedScenario, Workload
from tailback.simulation.routes import Routes, routes_for
from tailback.simulation.tables import make_tables
from tailback.stages import stage

UNKNOWN = ("packets", "observed_packets", "congested_packets", "observed_congested_packets",
           "stall_ps")  # fmt: skip
"""Columns of table ``truth`` that are null in a run of the fluid model."""

PACED_PACKETS = 4
"""Messages of fewer packets are not held to a rate."""

MAX_MBPS = 4e6
"""Above any adapter's rate, so it limits nothing."""

NOTE = (
    "this run is of the fluid model: rates instead of packets. Nothing queues in it, so no port is "
    "congested and no packet carries a sample; times and link use are estimates "
    "(docs/explanation/rates.md)"
)


@dataclass(frozen=True)
class FluidOptions:
    """What the fluid model needs besides the scenario.

    Attributes:
        rates: Who decides the rates.
        paths: How paths are chosen; what the scenario's routing comes nearest to when None.
        quantum_ps: Least time between two changes of rates; 0 is exact.
        windows: At least so many time windows to account for links in; 0 for none; those of the
            scenario when None.
        first_buffer: Let an adapter send ahead what the buffer behind its link takes; assigned
            rates fill no buffer.
        lines: An adapter has a line for each destination, whatever the scenario's injection.
    """

    rates: Rates = "max-min"
    paths: Choice | None = None
    quantum_ps: int = 100_000
    windows: int | None = None
    first_buffer: bool = True
    lines: bool = False


def _not_modelled(scenario: Scenario) -> list[str]:
    """A note of the settings that would make packets share links otherwise, if there are some."""
    engine = scenario.engine
    here = {
        "lane_weights": engine.services > 1 and bool(engine.lane_weights),
        "crossbar_speedup": engine.crossbar_speedup > 0,
        "injection_rate": engine.injection_rate is not None,
        "congestion_control": engine.congestion_control is not None,
        "pacing": engine.pacing.kind != "off",
    }
    names = [name for name, given in here.items() if given]
    if not names:
        return []
    return [f"the fluid model ignores these keys of [engine]: {', '.join(names)}"]


def path_choice(routing: str, fabric: Fabric, routes: Routes) -> Choice:
    """The choice of paths nearest to what packets would do.

    Tables and deterministic routing leave no choice, and VC routing (``vc``) is a choice of whole
    flows, by flows on each output. Packets that choose one by one keep the links of a tree equally
    busy: ``pooled``. Elsewhere candidates lead different ways: parts of a flow choose among them.
    """
    if routing == "deterministic":
        return "deterministic"
    if routing == "vc":
        return "least-flows"
    # Up/down routes in a fabric with tiers do not use what flat links it may have.
    if routes.rule is None and int(fabric.switch_tier.max(initial=0)) > 0:
        return "pooled"
    return "split" if routing == "adaptive" else "spread"


def simulate_fluid(prepared: PreparedScenario, options: FluidOptions | None = None) -> Run:
    """Simulate a scenario in the fluid model.

    The run has the tables of a packet run. What the model cannot know is null (:data:`UNKNOWN` of
    table ``truth``) or empty (``samples``). ``summary`` says ``model = "fluid"`` and with which
    rates and paths.

    Args:
        prepared: The scenario, read and placed.
        options: What the model needs besides.

    Raises:
        TailbackError: The traffic does not pair up, nodes are not connected, a value is out of
            range.
    """
    return _execute(prepared, options or FluidOptions())


def make_fluid_evaluate(
    prepared: PreparedScenario, options: FluidOptions | None = None
) -> Evaluate:
    """As :func:`tailback.simulation.make_evaluate`, in the fluid model: quick, for screening.

    The evaluator raises ScenarioError for ``no-contention``, which has no rates to share.
    """
    options = options or FluidOptions(windows=0)
    networks = NetworkCache(prepared)

    def evaluate(change: Change) -> Run:
        if change.network == "no-contention":
            raise ScenarioError(
                "the fluid model has no network without contention", place="[model]",
                remedy="use the packet engine for this step",
            )  # fmt: skip
        return _execute(
            apply_change(prepared, change),
            options if change.rates is None else explicit_rate_model(options, change.rates),
            network=networks.of(change),
            nodes=rank_nodes(prepared, change),
            only_observed=not change.background,
            routing=change.routing,
            seed_offset=change.seed_offset,
        )

    return evaluate


def explicit_rate_model(options: FluidOptions, rates: Rates) -> FluidOptions:
    """The model of adapters that keep to explicit rates, so that no buffer fills.

    Adapters have a line for each destination.
    """
    return replace(options, rates=rates, first_buffer=False, lines=True)


def fluid_send_rates(
    prepared: PreparedScenario, change: Change, network: tuple[Fabric, Routes]
) -> NDArray[np.uint32]:
    """The rate of each message by the fluid model at explicit rates, for packets to keep to.

    An adapter sends the messages for one node one after the other, so it is the rate of all that
    are under way between two nodes at a time: their bytes over the time until none is left.

    Args:
        prepared: The scenario, with what the change makes of it.
        change: What else differs; ``rates`` says how rates are computed.
        network: Fabric and routes.

    Returns:
        Mb/s of each operation of the program that is a send, 0 for others and for sends of few
        packets, which are over before a rate means anything; shape (M,).
    """
    assert change.rates is not None
    options = explicit_rate_model(FluidOptions(windows=0), change.rates)
    workload, times = _solve(
        prepared, options, network, rank_nodes(prepared, change), not change.background,
        change.routing, change.seed_offset,
    )  # fmt: skip
    engine = prepared.scenario.engine
    log = times.messages
    latency = log["switches"].astype(np.int64) * engine.switch_delay
    src, dst = (workload.node[log[end]].astype(np.int64) for end in ("src_rank", "dst_rank"))
    flows = pl.DataFrame({
        "pair": src * prepared.fabric.n_nodes + dst,
        "start": log["start_ps"].astype(np.int64),
        "end": log["arrival_ps"].astype(np.int64) - latency,
        "size": log["size_bytes"].astype(np.int64),
    })  # fmt: skip
    rate = _busy_rate(flows)
    fits = (flows["size"].to_numpy() >= PACED_PACKETS * engine.packet) & (log["switches"] > 0)
    out = np.zeros(len(workload.program.kind), np.uint32)
    # Messages are numbered by sending rank and operation.
    out[workload.program.sends] = np.where(fits, np.ceil(rate), 0)
    return out


def _busy_rate(flows: pl.DataFrame) -> NDArray[np.float64]:
    """Mb/s of each pair of nodes in the busy period each message is part of, shape (K,)."""
    before = pl.col("end").cum_max().shift(1).over("pair")
    rate = pl.col("size").sum() * 8e6 / (pl.col("end").max() - pl.col("start").min()).clip(1)
    return (
        flows.with_row_index("message")
        .sort("pair", "start", "message")
        .with_columns(period=(pl.col("start") >= before).fill_null(True).cast(pl.UInt32).cum_sum())
        .with_columns(rate=rate.over("period"))
        .sort("message")["rate"]
        .clip(1.0, MAX_MBPS)
        .to_numpy()
    )


def _solve(
    prepared: PreparedScenario,
    options: FluidOptions,
    network: tuple[Fabric, Routes],
    nodes: list[NDArray[np.uint32]] | None,
    only_observed: bool,
    routing: str | None,
    seed_offset: int,
) -> tuple[Workload, ProgramTimes]:
    """What runs, and when everything of it happens."""
    scenario = prepared.scenario
    fabric, routes = network
    workload = prepared.make_workload(nodes, only_observed)
    paths = _paths(options, routing or scenario.engine.routing, fabric, routes)
    model = rank_model(scenario, options, paths, routes, scenario.seed + seed_offset)
    section = scenario.fabric
    with (
        stage("fluid model"),
        translate_core_error(
            "the fluid model", fabric=fabric, file=section.file, forwarding=section.forwarding
        ),
    ):
        times = simulate_program(
            routes.network, workload.program, workload.node, fabric.node_host[workload.node],
            workload.start_ps, model, routes.rule,
        )  # fmt: skip
    return workload, times


def _paths(options: FluidOptions, routing: str, fabric: Fabric, routes: Routes) -> Choice:
    return options.paths or path_choice(routing, fabric, routes)


def _execute(
    prepared: PreparedScenario,
    options: FluidOptions,
    *,
    network: tuple[Fabric, Routes] | None = None,
    nodes: list[NDArray[np.uint32]] | None = None,
    only_observed: bool = False,
    routing: str | None = None,
    seed_offset: int = 0,
) -> Run:
    """Run what was prepared, with changes."""
    scenario = prepared.scenario
    if network is None:
        routes = routes_for(scenario, prepared.fabric, prepared.slots().tolist())
        network = (prepared.fabric, routes)
    fabric, routes = network
    began = time.perf_counter()
    workload, times = _solve(prepared, options, network, nodes, only_observed, routing, seed_offset)
    seconds = time.perf_counter() - began
    outcome = _outcome(times, scenario.engine.packet)
    with stage("tables of runs"):
        tables, summary = make_tables(
            scenario, fabric, workload.jobs, workload.places, workload.job_of_label, outcome
        )
    summary |= {
        "model": "fluid", "rates": options.rates,
        "paths": _paths(options, routing or scenario.engine.routing, fabric, routes),
        "quantum_ps": options.quantum_ps, "settlements": times.settlements,
    }  # fmt: skip
    performance = {
        "engine_seconds": seconds,
        "settlements_per_s": times.settlements / seconds if seconds else 0.0,
        "cores": os.cpu_count(),
    }
    notes = [*prepared.notes, *routes.notes, NOTE, *_not_modelled(scenario)]
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
        send_delay_ps=engine.send_delay,
        eager_bytes=engine.eager,
        local_gbps=engine.local_rate,
        local_delay_ps=engine.local_delay,
        quantum_ps=options.quantum_ps,
        buffer_bytes=engine.buffer if ahead else 0,
        windows=windows,
    )


def _outcome(times: ProgramTimes, packet_bytes: int) -> RateOutcome:
    """What came out; unknown columns are null."""
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
        for name in ("window", "label", "link", "hop_samples", "hop_weight", "hop_variance",
                     "hop_bytes", "congested_samples", "congested_weight", "congested_variance")
    }  # fmt: skip
    return RateOutcome(
        packets=int(packets.sum()),
        packet_hops=int((packets * switches).sum()),
        events=times.settlements,
        end_ps=times.end_ps,
        window_ps=times.window_ps,
        ranks={"finish_ps": times.finish_ps, "compute_ps": times.compute_ps,
               "wait_ps": times.wait_ps},
        messages=messages,
        samples=samples,
        truth=truth,
    )  # fmt: skip
