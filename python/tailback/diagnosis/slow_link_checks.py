"""Evidence required before a cable is reported as slow.

The link is congested, but our traffic does not fill it. A slow cable explains that, but so do other
traffic, sampling outliers among thousands of links, and short bursts. A cable is reported as slow
only if it demonstrably carries less than its offered load while healthy equivalent links carry
more. This requires a message log; without one, no cable is reported as slow.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from tailback.arrays import Bools, Floats, Ints
from tailback.diagnosis.adapter_load import (
    HEALTHY_RATE_SHARE,
    MAX_SLOW_ADAPTERS,
    SLOW_RATE_SHARE,
    AdapterLoad,
)
from tailback.diagnosis.congestion_trees import MIN_SAMPLES, CongestedLinks
from tailback.diagnosis.topology import LinkTopology
from tailback.telemetry.estimate import fraction_interval

CLEAR = 0.25
"""Equivalents are healthy if their congested fraction is at most this share of the link's own.
Other traffic also loads equivalent links unevenly, but rarely just one of them."""

EXPLAINS = 0.35
"""Share of the squared lateness of our messages that the cable alone must explain: the best of all
cables explains up to this share of small differences by chance."""

NEARLY_BEST = 0.9
"""The cable must also explain at least this share of what the best cable explains."""

FALSE_ALARM = 0.05
"""Probability that sampling noise alone singles out any link of the run."""


def slow_ejection_links(topology: LinkTopology, links: Ints, seen: AdapterLoad) -> Bools:
    """Which links into our nodes are slower than those of other nodes.

    No other job sends to our nodes, so unless its cable is slow, such a link is congested by short
    bursts of our own. If the cable is slow, all large messages to or from the node were slow, while
    those of other nodes were not.

    Args:
        topology: The links.
        links: Links to check, shape (n,).
        seen: Rates that messages reached.

    Returns:
        Shape (n,).
    """
    measured = np.isfinite(seen.fastest)
    if int(measured.sum()) <= MAX_SLOW_ADAPTERS:
        return np.zeros(len(links), np.bool_)
    median = float(np.median(seen.fastest[measured]))
    into = topology.to_node[links]
    node = np.where(into, topology.dst[links], 0)
    reached = np.where(measured[node], seen.fastest[node], np.inf)
    return np.asarray(
        into & (median >= HEALTHY_RATE_SHARE) & (reached < SLOW_RATE_SHARE * median), np.bool_
    )


def slower_than_equivalents(
    topology: LinkTopology, links: Ints, seen: CongestedLinks, explained: Floats
) -> Bools:
    """Which links inside the network are slower than their equivalents.

    Three conditions must hold: the link's congested fraction exceeds that of its equivalents by
    more than sampling noise, corrected for the number of links tested; the equivalents have almost
    no congestion; and a slow cable would explain which of our messages are late.

    Args:
        topology: The links.
        links: Links to check, shape (n,).
        seen: Congestion of all links.
        explained: Share of the squared lateness of our messages that each cable explains, (L,).

    Returns:
        Shape (n,).
    """
    tested = max(int(((seen.samples > 0) & ~topology.from_node).sum()), 1)
    z = NormalDist().inv_cdf(1.0 - FALSE_ALARM / tested)
    low, _ = fraction_interval(
        seen.weight[links],
        seen.packets[links],
        seen.congested_excess[links],
        seen.hop_excess[links],
        z,
    )
    packets, weight, of_hops, of_congested = (
        _sum_over_equivalents(topology, links, values)
        for values in (
            seen.packets,
            seen.weight,
            seen.packets * seen.hop_excess,
            seen.weight * seen.congested_excess,
        )
    )
    hops = of_hops / np.maximum(packets, 1.0)
    congested = np.where(weight > 0, of_congested / np.maximum(weight, 1e-9), hops)
    _, high = fraction_interval(weight, packets, congested, hops)
    return np.asarray(
        (seen.samples[links] >= MIN_SAMPLES)
        & (packets > 0)
        & (low > high)
        & (weight <= CLEAR * seen.fraction[links] * packets)
        & explains_delays(links, explained),
        np.bool_,
    )


def explains_delays(links: Ints, explained: Floats) -> Bools:
    """Which cables, if slow, would explain which of our messages are late; shape (n,)."""
    threshold = max(EXPLAINS, NEARLY_BEST * float(explained.max(initial=0.0)))
    return np.asarray(explained[links] >= threshold, np.bool_)


def _sum_over_equivalents(topology: LinkTopology, links: Ints, values: Floats) -> Floats:
    """Sum of ``values`` over the other links of each link's bundle."""
    bundle_sum = np.bincount(topology.bundle, weights=values)
    return np.asarray(bundle_sum[topology.bundle[links]] - values[links], np.float64)
