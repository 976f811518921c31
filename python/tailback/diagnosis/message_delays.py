"""Where our messages lost time, from the message log alone: at nodes or inside the network.

While a message is in flight, its nodes send and receive other messages of our job. As long as those
keep the adapter of the sender or receiver fully busy, the message waits at a node. Time in which
neither adapter was busy with our messages was lost elsewhere: inside the network or to other
traffic. This needs neither a simulator nor samples.

The bytes of a message are assumed to pass its adapters evenly during its flight. The latency of a
path of n switches is the smallest that any of our messages over n switches needed beyond its bytes,
but no more than the delays of the scenario account for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tailback.arrays import Floats, Ints
from tailback.diagnosis.activity import observed_messages
from tailback.diagnosis.root_utilization import FULL_UTILIZATION
from tailback.diagnosis.topology import LinkTopology
from tailback.diagnosis.waterfall import ENGINE_VARIATIONS
from tailback.diagnosis.wording import times_of
from tailback.run.run import Run
from tailback.telemetry.left_out import simulated_ps


@dataclass(frozen=True)
class MessageDelays:
    """Time lost by the node that lost most, sending or receiving, as shares of the total time.

    A run ends when its last rank does, so one node that is late delays all.

    Attributes:
        endpoint: Time lost while an adapter was busy with our own messages, for messages with a
            busy adapter for at least :data:`FULL_UTILIZATION` of their flight.
        inside: Time lost while neither adapter was busy.
        messages: Nodes ``src`` and ``dst``, the time each message ``took``, and the time
            ``expected`` without loss inside the network.
    """

    endpoint: float
    inside: float
    messages: pl.DataFrame

    @property
    def total(self) -> float:
        """Total loss, at nodes and inside the network."""
        return self.endpoint + self.inside

    @property
    def endpoint_share(self) -> float:
        """Share of the loss at nodes, 0–1; 0 if nothing was lost."""
        return self.endpoint / self.total if self.total > 0 else 0.0


def message_delays(run: Run, topology: LinkTopology) -> MessageDelays | None:
    """Read the message log of a run; None if there is none."""
    log = observed_messages(run.tables)
    if not log.height or run.elapsed_ps <= 0:
        return None
    source, target = (log[end].to_numpy().astype(np.int64) for end in ("src", "dst"))
    start, end = (log[c].cast(pl.Float64).to_numpy() for c in ("start_ps", "arrival_ps"))
    engine = run.scenario.engine
    size = log["size_bytes"].cast(pl.Float64).to_numpy()
    header = run.scenario.packet_header_bytes
    size = size + header * np.ceil(np.maximum(size, 1.0) / engine.packet)
    send, take = np.zeros(topology.n_nodes), np.zeros(topology.n_nodes)
    np.maximum.at(send, topology.src[topology.from_node], topology.rate_gbps[topology.from_node])
    np.maximum.at(take, topology.dst[topology.to_node], topology.rate_gbps[topology.to_node])
    took = end - start
    alone = np.minimum(size * 8000.0 / np.minimum(send[source], take[target]), took)
    busy = np.maximum(
        _passed(source, start, end, size) * 8000.0 / send[source],
        _passed(target, start, end, size) * 8000.0 / take[target],
    )
    busy = np.clip(busy, alone, took)
    switches = log["switches"].to_numpy().astype(np.int64)
    latency = _latency(switches, took - alone)
    if times_of(run) == "expected":
        # If all messages are late alike, the lowest latency is no latency.
        most = _most_latency(run, topology, switches) + size * 8000.0 / topology.rate_gbps.min()
        latency = np.minimum(latency, np.maximum(most - alone, 0.0))
    inside = np.maximum(took - busy - latency, 0.0)
    at_nodes = np.where(busy >= FULL_UTILIZATION * took, busy - alone, 0.0)
    flights = [(node, _active(node, start, end)) for node in (source, target)]
    endpoint, within = _largest_loss(flights, took, at_nodes, inside)
    return MessageDelays(
        endpoint=endpoint / simulated_ps(run),
        inside=within / simulated_ps(run),
        messages=pl.DataFrame(
            {"src": source, "dst": target, "took": took, "expected": took - inside}
        ),
    )


def _largest_loss(
    flights: Sequence[tuple[Ints, Floats]], took: Floats, at_nodes: Floats, inside: Floats
) -> tuple[float, float]:
    """Time that the node with the largest loss lost at nodes, and inside the network.

    Args:
        flights: Node of each message, and the time in which each node has messages in flight: for
            senders and for receivers.
        took: Time of each message.
        at_nodes: Loss of each message while an adapter was busy.
        inside: Loss of each message while neither was.
    """
    largest = (0.0, 0.0)
    for node, flying in flights:
        # Messages in flight at the same time lose the same time.
        once = flying / np.maximum(np.bincount(node, took), 1.0)
        losses = [once * np.bincount(node, lost) for lost in (at_nodes, inside)]
        most = int((losses[0] + losses[1]).argmax())
        largest = max(largest, (float(losses[0][most]), float(losses[1][most])), key=sum)
    return largest


def _most_latency(run: Run, topology: LinkTopology, switches: Ints) -> Floats:
    """Latency of paths without contention, with the longest delays that are likely.

    Those of :data:`ENGINE_VARIATIONS`. A switch delays a packet at most by the whole packet.
    """
    longest = max(engine.delays for engine in ENGINE_VARIATIONS)
    engine = run.scenario.engine
    packet = (engine.packet + run.scenario.packet_header_bytes) * 8000.0 / topology.rate_gbps.min()
    cable = float(run.tables["links"]["delay_ps"].to_numpy().max(initial=0))
    usual = switches * (engine.switch_delay + packet) + (switches + 1) * cable
    return np.asarray(longest * usual, np.float64)


def _latency(switches: Ints, beyond: Floats) -> Floats:
    """Latency of each message: the minimum over messages that visit the same number of switches."""
    minimum = np.full(int(switches.max()) + 1, np.inf)
    np.minimum.at(minimum, switches, beyond)
    # Longer paths take at least as long; lengths without messages are skipped.
    minimum = np.maximum.accumulate(np.where(np.isfinite(minimum), np.maximum(minimum, 0.0), 0.0))
    return np.asarray(np.minimum(minimum[switches], beyond), np.float64)


def _passed(node: Ints, start: Floats, end: Floats, size: Floats) -> Floats:
    """Bytes of all messages of a node that its adapter transferred during each message."""
    stretch = float(end.max()) + 1.0
    base = node * stretch
    times = np.concatenate([base + start, base + end])
    rate = size / (end - start)
    order = np.argsort(times, kind="stable")
    times, slope = times[order], np.cumsum(np.concatenate([rate, -rate])[order])
    sums = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    return np.asarray(
        np.interp(base + end, times, sums) - np.interp(base + start, times, sums), np.float64
    )


def _active(node: Ints, start: Floats, end: Floats) -> Floats:
    """Time in which each node has a message in flight."""
    stretch = float(end.max()) + 1.0
    order = np.lexsort((start, node))
    begin, finish = (node * stretch + t for t in (start, end))
    begin, reach = begin[order], np.maximum.accumulate(finish[order])
    before = np.concatenate([[-1.0], reach[:-1]])
    alone = np.maximum(reach - np.maximum(begin, before), 0.0)
    return np.bincount(node[order], alone).astype(np.float64)
