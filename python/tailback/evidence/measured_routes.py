"""How unevenly traffic lay on parallel links, from what they counted.

Hashing (ECMP) and forwarding tables put flows on links for good; some links then carry more than
others that could take their traffic. What all of them carry together is limited by the one that
carries most: with a share s of the bytes on it, k links of rate C pass C / s between them where
traffic spread evenly would pass k C. So traffic that is spread evenly over links of C / (k s) each
is limited as it was. That is exact for links that are full, and too slow by little where they are
not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tailback.evidence.link_counters import LinkCounters
from tailback.fabric.lft import NO_ENTRY
from tailback.fabric.model import Fabric

MIN_UNEVENNESS = 0.5
"""Deviation of parallel links from their mean, weighted by bytes, from which routes count as
uneven. Hashing some tens of flows gives 0.25 (the real-packet lab); everything on one of two links
gives 1."""

Capacities = tuple[tuple[int, float], ...]


def limited_by_routes(counters: LinkCounters, fabric: Fabric) -> tuple[Capacities, float]:
    """Rates at which evenly spread traffic is limited as the measured one was.

    Parallel links are those that leave a switch upwards, and those that enter one from above.

    Args:
        counters: What links counted, over the time of the job.
        fabric: The fabric.

    Returns:
        Link and rate in Gb/s of those with less than their own, and how unevenly traffic lay on
        parallel links: mean deviation from their mean over their mean, weighted by bytes. Nothing
        where that is under :data:`MIN_UNEVENNESS`.
    """
    inner = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    up, down = inner & (fabric.link_up > 0), inner & (fabric.link_up < 0)
    groups: list[NDArray[np.float64]] = []
    out: list[tuple[int, float]] = []
    for chosen, end in ((up, fabric.link_src), (down, fabric.link_dst)):
        for vertex in np.unique(end[chosen]):
            links = np.flatnonzero(chosen & (end == vertex))
            carried = counters.sent_bytes[links]
            if len(links) < 2 or np.isnan(carried).any() or carried.sum() <= 0:
                continue
            groups.append(carried)
            rates = fabric.link_gbps[links]
            # Time each link needs for its bytes, over the time that all need for theirs together.
            share = float((carried / rates).max() / (carried.sum() / rates.sum()))
            out += [(int(x), float(r) / share) for x, r in zip(links, rates, strict=True)]
    uneven = _unevenness(groups)
    return (tuple(out) if uneven >= MIN_UNEVENNESS else (), uneven)


def unevenness_of_tables(link: NDArray[np.uint32], fabric: Fabric) -> float:
    """How unevenly forwarding tables put destinations on the up-links of leaf switches.

    A good routing engine gives every up-link the same number of destinations, whatever the traffic.

    Args:
        link: Link by which each switch sends for each node, ``NO_ENTRY`` for none, shape (S, N).
        fabric: The fabric.

    Returns:
        Mean deviation of the destinations of parallel up-links from their mean over their mean,
        0–2, as :func:`limited_by_routes` has it for bytes; 0 without parallel up-links.
    """
    groups: list[NDArray[np.float64]] = []
    for leaf in np.unique(fabric.node_switch[fabric.node_switch >= 0]):
        up = np.flatnonzero((fabric.link_src == fabric.n_nodes + leaf) & (fabric.link_up > 0))
        if len(up) < 2:
            continue
        taken = link[leaf][link[leaf] != NO_ENTRY]
        groups.append(np.bincount(taken, minlength=fabric.n_links)[up] / fabric.link_gbps[up])
    return _unevenness(groups)


def _unevenness(groups: Sequence[NDArray[np.float64]]) -> float:
    """Mean deviation of parallel links from the mean of their group, over that mean, 0–2."""
    whole = sum(float(group.sum()) for group in groups)
    off = sum(float(np.abs(group - group.mean()).sum()) for group in groups)
    return off / whole if whole > 0 else 0.0
