"""Rank programs in the fluid model: MPI's blocking rules, messages as flows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailback import _core
from tailback.evaluate import Rates
from tailback.fabric.core_errors import translate_core_error
from tailback.fluid.paths import Choice
from tailback.traffic.program import PlacedProgram, Program


@dataclass(frozen=True)
class RankModel:
    """How adapters, switches and the MPI library behave; defaults as ``[engine]`` of a scenario.

    Attributes:
        seed: Seed of the choice of paths.
        policy: How rates are set.
        paths: How paths are chosen.
        detour: Whether they leave the shortest path, if the routing rule has detours.
        fifo: Whether messages leave an adapter one after another; otherwise all at once.
        packet_bytes: Payload of a full packet (for headers and store-and-forward).
        header_bytes: Overhead per packet on the wire.
        switch_delay_ps: Latency of a switch.
        store_and_forward: Whether a packet is received completely before it leaves a switch.
        send_delay_ps: Software latency before a message.
        eager_bytes: Larger messages wait for their receive.
        copies_eager: Whether sends up to the eager limit are complete at once.
        progress_in_calls: Whether ranks answer a rendezvous only in calls, not while they compute.
        local_gbps: Rate of a message between ranks of one host.
        memory_gbps: Rate that all messages within a host share, but at least that of one.
        local_delay_ps: Latency between ranks of one host.
        local_ports: Whether messages within a host share ports instead of memory: each rank has one
            of the rate of a message to a switch in its host.
        quantum_ps: Least time between two changes of rates: messages start late by at most this,
            and thousands that end one by one need few solves; 0 is exact.
        buffer_bytes: Buffer of a node's switch, filled while the path beyond is slower than the
            node; 0 for none.
        windows: Minimum number of time windows for link loads; 0 for none.
    """

    seed: int = 1
    policy: Rates = "max-min"
    paths: Choice = "split"
    detour: Literal["never", "valiant", "ugal"] = "never"
    fifo: bool = True
    packet_bytes: int = 4096
    header_bytes: int = 0
    switch_delay_ps: int = 60_000
    store_and_forward: bool = False
    send_delay_ps: int = 1_000_000
    eager_bytes: int = 16384
    copies_eager: bool = False
    progress_in_calls: bool = False
    local_gbps: float = 80.0
    memory_gbps: float = 400.0
    local_delay_ps: int = 500_000
    local_ports: bool = False
    quantum_ps: int = 100_000
    buffer_bytes: int = 0
    windows: int = 0


@dataclass(frozen=True)
class ProgramTimes:
    """Results of R ranks and M messages over L links.

    Attributes:
        messages: Columns of length M: ``src_rank``, ``dst_rank``, ``size_bytes``, ``label``,
            ``post_ps``, ``start_ps`` (first byte leaves), ``arrival_ps`` (last byte is there),
            ``switches`` (0 through memory).
        finish_ps: When each rank finished, shape (R,).
        compute_ps: Time each rank computed, shape (R,).
        wait_ps: Time each rank was blocked, shape (R,).
        link_bytes: Wire bytes over each link, shape (L,).
        link_use: Load of links: columns ``window``, ``link``, ``bytes``, ``busy_ps``.
        window_ps: Length of a window, 0 without.
        end_ps: When the last event happened.
        settlements: Times at which rates were set.
    """

    messages: _core.FluidMessageColumns
    finish_ps: NDArray[np.uint64]
    compute_ps: NDArray[np.uint64]
    wait_ps: NDArray[np.uint64]
    link_bytes: NDArray[np.float64]
    link_use: _core.LinkUseColumns
    window_ps: int
    end_ps: int
    settlements: int

    @property
    def elapsed_ps(self) -> int:
        """When the last rank finished."""
        return int(self.finish_ps.max(initial=0))


def simulate_program(
    network: _core.Network,
    program: Program,
    node: ArrayLike,
    host: ArrayLike | None = None,
    start_ps: ArrayLike | None = None,
    model: RankModel | None = None,
    routing: _core.NetworkRouting | None = None,
    local_gbps: ArrayLike = (),
) -> ProgramTimes:
    """Run a rank program with messages as flows.

    The blocking rules are the packet engine's. Approximated: the hand-shake of a large message
    costs the latency of its path twice and no bandwidth; a byte arrives one path latency after it
    left; there are no buffers, so no congestion spreads.

    Args:
        network: The fabric with its routes (``tailback.fabric.builders.network_of``).
        program: The operations of R ranks.
        node: Node of each rank, shape (R,).
        host: Host of each rank, shape (R,); the node when absent.
        start_ps: When each rank starts, shape (R,); 0 when absent.
        model: How adapters, switches and the library behave.
        routing: A routing rule for the network; its own routes when absent.
        local_gbps: Rate of each rank within its host, Gb/s, shape (R,); that of ``model`` when
            empty.

    Raises:
        TraceError: Sends and receives do not pair up, or ranks block forever.
        FabricError: Two nodes without a path.
        ScenarioError: A placement that does not fit, or a setting out of range.
    """
    nodes = np.ascontiguousarray(node, np.uint32)
    start = np.zeros(program.n_ranks, np.uint64) if start_ps is None else start_ps
    traffic = PlacedProgram(
        program,
        node=nodes,
        host=np.ascontiguousarray(nodes if host is None else host, np.uint32),
        local_gbps=np.ascontiguousarray(local_gbps, np.float64),
        start_ps=np.ascontiguousarray(start, np.uint64),
    )
    with translate_core_error("the fluid model"):
        out = _core.fluid_program(network, model or RankModel(), traffic, routing=routing)
    ranks = out.ranks
    return ProgramTimes(
        out.messages,
        ranks["finish_ps"],
        ranks["compute_ps"],
        ranks["wait_ps"],
        out.link_bytes,
        out.link_use,
        out.window_ps,
        out.end_ps,
        out.settlements,
    )
