"""Synthetic traffic of an unknown job.

Without port counters and a job list it is unknown which other jobs ran, but message times may
reveal that one did. Its traffic is then assumed: each host outside our job sends to one randomly
drawn partner, and all hosts send in the same bursts, as parallel programs do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.fabric.model import Fabric

MAX_HOSTS = 64
"""Maximum number of sending hosts; more give the same result but take longer to simulate."""

MAX_MESSAGES = 20_000
"""Approximate maximum number of messages that represent the traffic."""

MIN_MESSAGE_BYTES = 128 << 10
"""Minimum message size: large messages fill links, which delays ours."""


def hosts_of_others(fabric: Fabric, job_nodes: NDArray[np.uint32]) -> Ints:
    """Nodes of hosts outside our job; hosts that share a switch with ours come first.

    Args:
        fabric: The fabric.
        job_nodes: Nodes of our job.
    """
    own_hosts = np.unique(fabric.node_host[job_nodes])
    free = np.flatnonzero(~np.isin(fabric.node_host, own_hosts))
    same_switch = np.isin(fabric.node_switch[free], fabric.node_switch[job_nodes])
    return free[np.argsort(~same_switch, kind="stable")][:MAX_HOSTS]


def assumed_messages(
    fabric: Fabric,
    nodes: Ints,
    load: float,
    bursts: int,
    length_ps: int,
    seed: int,
    share: float = 1.0,
) -> list[tuple[int, int, int, int]]:
    """Messages of the unknown job: time in ps, source node, destination node and bytes, by time.

    Args:
        fabric: The fabric.
        nodes: Nodes of hosts outside our job, at least two, shape (N,).
        load: Mean fraction of the time that they send at line rate, 0–1.
        bursts: Approximate number of bursts.
        length_ps: Duration of the traffic.
        seed: Seed for the random hosts, partners and bursts.
        share: Share of these hosts that send, at least two of them.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(nodes)[: max(round(share * len(nodes)), 2)]
    partner = np.roll(order, 1)
    injection_links = (fabric.link_src < fabric.n_nodes) & np.isin(fabric.link_src, nodes)
    bytes_per_ps = float(np.median(fabric.link_gbps[injection_links])) / 8000.0
    total_bytes = load * length_ps * bytes_per_ps * len(order)
    message_bytes = max(round(total_bytes / MAX_MESSAGES), MIN_MESSAGE_BYTES)
    message_ps = message_bytes / bytes_per_ps
    mean_period_ps = length_ps / bursts
    starts, time_ps = list[int](), 0.0
    while time_ps < length_ps:
        period = mean_period_ps * rng.uniform(0.5, 1.5)
        busy = min(load * rng.uniform(0.3, 1.7), 1.0) * period
        starts += [
            int(time_ps + period - busy + k * message_ps)
            for k in range(max(round(busy / message_ps), 1))
        ]
        time_ps += period
    pairs = [(int(a), int(b)) for a, b in zip(order, partner, strict=True)]
    return [(start, a, b, message_bytes) for start in starts for a, b in pairs]
