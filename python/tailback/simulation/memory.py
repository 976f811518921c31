"""Estimates the memory of a run before it starts, to compare it with that of the machine.

The estimate covers the engine and the tables of a run: a number of bytes per link, lane, message,
operation and so on. The process already holds the fabric, routes and program. Sizes are those of
the engine's structures on a 64-bit machine, including copies that exist at the peak. Packets in
flight and rows of samples depend on the run, so upper bounds are used. The estimate should be right
within a factor of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailback.available import MEMORY_VARIABLE, available_memory
from tailback.errors import ScenarioError
from tailback.fabric.model import Fabric
from tailback.identity_cache import PerObject
from tailback.scenario.model import Scenario
from tailback.simulation.probes import packets_kept
from tailback.traffic.program import Op, Program
from tailback.units import format_bytes

# Bytes of the engine's structures, including copies that exist at the peak.
_LINK = 28 + 4  # description while shards are built, number of its wire
_MAX_ROWS = 1 << 26  # rows of a probe above which the engine drops every other sampling time
_LANE = 64 + 8 + 8  # credit and queue, load, queued bytes
_ARBITER = 24 + 8 + 32 + 48  # round-robin: position, crossbar, queue of an output
_NODE = 128 + 32  # adapter with its queues, injection, ejection
_RANK = 64 + 24 + 24 + 24  # state, log, its column in Python, placement
_OPERATION = 37 + 16  # copy of the program, compiled
_CONNECTION = 16  # queue pair and ends of a message, where packets are kept one by one
_VISIT = 24 + 24  # hop of a packet with several links: in its log, sorted
_MESSAGE = 32 + 8 + 64 + 32 + 52  # envelope, numbers of its sides, both sides, log
_PACKET = 64 + 16  # packet, its event
_SUMS = 16 + 4 * 41  # number and wire of a link, and its sums in a window, per thread
_FULL = 4  # full-size packets of a link in a window
_ROW = 100  # a row of the tables of truth or samples: in the engine, in Python, in the table
_FIRST_WINDOW_PS = 65_536  # no window is shorter
_PROCESS = 8 << 20  # independent of size; includes the event queues of a few threads
_PORT = (
    64 + 24 + 64 + 80 + 2 * 48
)  # counters of a port, its queue, the last values reported, its row of the table


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory that a run adds, by purpose.

    Attributes:
        parts: Bytes by purpose, in plain words.
    """

    parts: dict[str, int]

    @property
    def total(self) -> int:
        """Total in bytes."""
        return sum(self.parts.values())

    @property
    def largest(self) -> str:
        """The purpose that needs the most."""
        return max(self.parts, key=lambda part: self.parts[part])


def estimate_memory(
    fabric: Fabric,
    scenario: Scenario,
    program: Program,
    *,
    lanes: int = 1,
    measure: bool | None = None,
    times: int = 1,
) -> MemoryEstimate:
    """Estimate what running ``program`` on ``fabric`` adds to the memory of this process.

    Args:
        fabric: The fabric.
        scenario: Its engine and telemetry sections are used.
        program: What all ranks do.
        lanes: Virtual lanes of every link: those of the routing rule for each service level.
        measure: Whether links and samples are counted; None leaves it to the scenario.
        times: How often the program is executed.
    """
    engine, telemetry = scenario.engine, scenario.telemetry
    measure = telemetry.scheme != "off" if measure is None else measure
    links, ranks = fabric.n_links, len(program.rank_start) - 1
    sends = program.sends
    messages = times * int(np.count_nonzero(sends))
    packets = times * int(
        np.maximum(1, -(-program.amount[sends].astype(np.int64) // engine.simulated_packet)).sum()
    )
    arbitrated = (
        engine.arbitration != "fcfs" or engine.crossbar_speedup > 0 or bool(engine.lane_weights)
    )
    parts = {
        "links and nodes": links * (_LINK + lanes * (_LANE + arbitrated * _ARBITER))
        + fabric.n_nodes * _NODE
        + _PROCESS,
        "messages": messages * _MESSAGE + times * len(program.kind) * _OPERATION + ranks * _RANK,
        "packets in flight": _in_flight(
            fabric, packets, lanes, engine.simulated_buffer // engine.simulated_packet
        )
        * _PACKET,
    }
    most = packets_kept(scenario)
    if most:
        parts["messages"] += messages * _CONNECTION
    if most and telemetry.scheme == "full" and telemetry.slots > 1:
        # Hops are logged until the end; as above, six of a packet.
        parts["reservoirs"] = min(packets // telemetry.one_in, most) * 6 * _VISIT
    least_ps = times * _least_ps(fabric, program)
    if measure:
        # A run has between this many windows and twice as many, none below the minimum length.
        windows = min(telemetry.windows * 3 // 2, 1 + 2 * least_ps // _FIRST_WINDOW_PS)
        # A packet is counted on every link of its path and yields a sample of one of them.
        truth = min(links * windows, packets * 6)
        samples = min(truth * max(1, len(program.labels)), packets)
        parts["time windows of links"] = links * (_SUMS + windows * _FULL) + truth * _ROW
        parts["samples"] = samples * _ROW
    every = [time for time in (scenario.probes.counters, scenario.probes.queues) if time]
    if every:
        # A row per changed value: at most one per sampling time, or while a packet is on a link.
        packet_ps = int(engine.simulated_packet * 8000 / float(fabric.link_gbps.max(initial=1.0)))
        rows = sum(
            min(links * (1 + least_ps // time), 6 * packets * (1 + packet_ps // time), _MAX_ROWS)
            for time in every
        )
        parts["port counters and queues"] = links * _PORT + rows * _ROW
    return MemoryEstimate(parts)


def _in_flight(fabric: Fabric, packets: int, lanes: int, buffer: int) -> int:
    """Upper bound of packets in flight: all packets, or as many as fill half the buffers."""
    return min(packets, fabric.n_links * lanes * max(1, buffer) // 2)


def _least_ps(fabric: Fabric, program: Program) -> int:
    """Approximate lower bound of the run time: the busiest rank computes, sends or receives."""
    compute_ps, *amounts = _busiest(program)
    ps_per_byte = 8000.0 / float(fabric.link_gbps.max(initial=1.0))
    return int(max(compute_ps, *(amount * ps_per_byte for amount in amounts)))


def _largest_amounts(program: Program) -> tuple[float, float, float]:
    """Largest computation (ps), bytes sent and bytes received of a rank."""
    start = program.rank_start.astype(np.int64)
    # A rank without operations would take the sum of the next one's.
    begin = start[:-1][start[1:] > start[:-1]]
    if not len(begin):
        return 0.0, 0.0, 0.0
    computed, sent, received = (
        float(np.add.reduceat(program.amount * those, begin, dtype=np.float64).max())
        for those in (program.kind == Op.COMPUTE, program.sends, program.kind == Op.IRECV)
    )
    return computed, sent, received


_busiest = PerObject(_largest_amounts)


_REMEDIES: Mapping[str, str] = {
    "links and nodes": "use a smaller part of the fabric or a machine with more memory",
    "messages": "simulate fewer ranks or iterations, or use a machine with more memory",
    "reservoirs": "set [telemetry] one_in, packets, or slots = 1",
    "packets in flight": "set a larger [engine] packet or a smaller buffer",
    "time windows of links": "set fewer [telemetry] windows, or scheme = 'off'",
    "samples": "set fewer [telemetry] windows, or scheme = 'off'",
    "port counters and queues": "set longer times in [probes]",
}


def require_memory(
    fabric: Fabric, scenario: Scenario, program: Program, **options: Any
) -> MemoryEstimate:
    """Refuse a run that will not fit into memory, before it starts.

    Args:
        fabric: The fabric.
        scenario: The scenario.
        program: What all ranks do.
        options: ``lanes``, ``measure`` and ``times`` of :func:`estimate_memory`.

    Returns:
        The estimate.

    Raises:
        ScenarioError: The run needs more than is available; the message has both figures, the
            largest purpose and a remedy.
    """
    estimate = estimate_memory(fabric, scenario, program, **options)
    available = available_memory()
    if available is None or estimate.total <= available:
        return estimate
    largest = estimate.largest
    raise ScenarioError(
        f"the run needs about {format_bytes(estimate.total)} of memory "
        f"({format_bytes(estimate.parts[largest])} of it for {largest}); "
        f"{format_bytes(available)} is available: {fabric.n_nodes:,} nodes, "
        f"{fabric.n_links:,} links, "
        f"{options.get('times', 1) * np.count_nonzero(program.sends):,} messages",
        remedy=f"{_REMEDIES[largest]}; to try it anyway, set {MEMORY_VARIABLE} to what it may take",
    )
