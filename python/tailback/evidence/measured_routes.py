"""Load imbalance of parallel links, measured by their port counters.

Hashing (ECMP) and forwarding tables assign flows to links statically, so some links carry more than
parallel ones. The most loaded link limits the throughput of the bundle: if it carries a share s of
the bytes, k links of rate C together pass C / s instead of the k C of evenly spread traffic. The
same limit applies to evenly spread traffic on links of rate C / (k s) each, which is how it is
modelled. This is exact for saturated links, and slightly too slow for others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tailback.evidence.link_counters import LinkCounters
from tailback.fabric.lft import NO_ENTRY
from tailback.fabric.model import Fabric

MIN_UNEVENNESS = 0.5
"""Minimum unevenness of parallel links, weighted by bytes, for routes to count as uneven. Hashing
tens of flows gives 0.25 (measured in the lab); all traffic on one of two links gives 1."""

Capacities = tuple[tuple[int, float], ...]


def limited_by_routes(counters: LinkCounters, fabric: Fabric) -> tuple[Capacities, float]:
    """Reduced link rates that limit evenly spread traffic like the measured imbalance.

    Parallel links are all up-links of a switch, and all down-links into a switch.

    Args:
        counters: Counters of links during the job.
        fabric: The fabric.

    Returns:
        Links and their reduced rates in Gb/s, none if the unevenness is less than
        :data:`MIN_UNEVENNESS`; and the unevenness: mean absolute deviation of parallel links from
        their mean, over that mean, weighted by bytes.
    """
    between_switches = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    up, down = between_switches & (fabric.link_up > 0), between_switches & (fabric.link_up < 0)
    groups: list[NDArray[np.float64]] = []
    reduced: list[tuple[int, float]] = []
    for chosen, end in ((up, fabric.link_src), (down, fabric.link_dst)):
        for vertex in np.unique(end[chosen]):
            links = np.flatnonzero(chosen & (end == vertex))
            carried = counters.sent_bytes[links]
            if len(links) < 2 or np.isnan(carried).any() or carried.sum() <= 0:
                continue
            groups.append(carried)
            rates = fabric.link_gbps[links]
            # Sending time of the most loaded link over that of the evenly loaded bundle.
            slowdown = float((carried / rates).max() / (carried.sum() / rates.sum()))
            reduced += [(int(x), float(r) / slowdown) for x, r in zip(links, rates, strict=True)]
    unevenness = _unevenness(groups)
    return (tuple(reduced) if unevenness >= MIN_UNEVENNESS else (), unevenness)


def unevenness_of_tables(link: NDArray[np.uint32], fabric: Fabric) -> float:
    """Unevenness of destinations on the up-links of leaf switches in forwarding tables.

    A good routing engine assigns equally many destinations to every up-link.

    Args:
        link: Output link of each switch for each destination node, or ``NO_ENTRY``, shape (S, N).
        fabric: The fabric.

    Returns:
        Mean absolute deviation of the destinations of parallel up-links from their mean, over that
        mean, 0–2, like :func:`limited_by_routes` for bytes; 0 without parallel up-links.
    """
    groups: list[NDArray[np.float64]] = []
    for leaf in np.unique(fabric.node_switch[fabric.node_switch >= 0]):
        up = np.flatnonzero((fabric.link_src == fabric.n_nodes + leaf) & (fabric.link_up > 0))
        if len(up) < 2:
            continue
        outputs = link[leaf][link[leaf] != NO_ENTRY]
        groups.append(np.bincount(outputs, minlength=fabric.n_links)[up] / fabric.link_gbps[up])
    return _unevenness(groups)


def _unevenness(groups: Sequence[NDArray[np.float64]]) -> float:
    """Mean absolute deviation of parallel links from their group's mean, over that mean, 0–2."""
    total = sum(float(group.sum()) for group in groups)
    deviation = sum(float(np.abs(group - group.mean()).sum()) for group in groups)
    return deviation / total if total > 0 else 0.0
