"""Traffic that an unknown job may have sent.

Without port counters and a job list it is unknown which other jobs ran, but the times of messages
may show that one did. Its traffic is assumed: each host that our job does not use sends to one
partner, drawn at random, and all hosts send in the same bursts, as parallel programs do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.model import Fabric

MAX_HOSTS = 64
"""Number of hosts that send; more give the same result but take longer to simulate."""

MAX_MESSAGES = 20_000
"""Number of messages that represent the traffic."""

MIN_MESSAGE_BYTES = 128 << 10
"""Smallest size of its messages: large ones fill links, which delays ours."""

Ints = NDArray[np.int64]


def hosts_of_others(fabric: Fabric, own: NDArray[np.uint32]) -> Ints:
    """Nodes of hosts that our job does not use, those of the switches of our hosts first.

    Args:
        fabric: The fabric.
        own: Nodes of our job.
    """
    hosts = np.unique(fabric.node_host[own])
    free = np.flatnonzero(~np.isin(fabric.node_host, hosts))
    beside = np.isin(fabric.node_switch[free], fabric.node_switch[own])
    return free[np.argsort(~beside, kind="stable")][:MAX_HOSTS]


def assumed_messages(
    fabric: Fabric, nodes: Ints, load: float, bursts: int, length_ps: int, seed: int
) -> list[tuple[int, int, int, int]]:
    """Messages of other jobs: time in ps, source node, destination node and bytes, by time.

    Args:
        fabric: The fabric.
        nodes: Sending nodes, at least two, shape (N,).
        load: Mean share of the time in which they send at the rate of their links, 0–1.
        bursts: Approximate number of bursts in that time.
        length_ps: Total time of the traffic.
        seed: Seed for partners and bursts.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(nodes)
    partner = np.roll(order, 1)
    own_links = (fabric.link_src < fabric.n_nodes) & np.isin(fabric.link_src, nodes)
    bytes_per_ps = float(np.median(fabric.link_gbps[own_links])) / 8000.0
    whole = load * length_ps * bytes_per_ps * len(nodes)
    size = max(round(whole / MAX_MESSAGES), MIN_MESSAGE_BYTES)
    each_ps = size / bytes_per_ps
    mean = length_ps / bursts
    starts, at = list[int](), 0.0
    while at < length_ps:
        period = mean * rng.uniform(0.5, 1.5)
        busy = min(load * rng.uniform(0.3, 1.7), 1.0) * period
        starts += [int(at + period - busy + k * each_ps) for k in range(int(busy / each_ps))]
        at += period
    pairs = [(int(a), int(b)) for a, b in zip(order, partner, strict=True)]
    return [(start, a, b, size) for start in starts for a, b in pairs]
