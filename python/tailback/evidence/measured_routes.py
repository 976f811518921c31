"""Load imbalance of parallel links, measured by their port counters.

Hashing (ECMP) and forwarding tables assign flows to links statically, so some links carry more than
parallel ones. The most loaded link limits the throughput of the bundle: if it carries a share s of
the bytes, k links of rate C together pass C / s instead of the k C of evenly spread traffic. The
same limit applies to evenly spread traffic on links of rate C / (k s) each, which is how it is
modelled. This is exact for saturated links, and slightly too slow for others.

Adaptive routing avoids a slow link. What the expected run, with the slow links that evidence shows,
spreads unevenly is therefore no imbalance of the routes. Nor is what whole flows leave uneven: one
flow takes one of the links, and no hash or table spreads it over several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.evidence.link_counters import LinkCounters
from tailback.fabric.degraded import nominal
from tailback.fabric.lft import NO_ENTRY
from tailback.fabric.model import Fabric

USUAL_UNEVENNESS = 0.25
"""Unevenness of parallel links if tens of flows are hashed to them, as measured in the lab."""

MIN_UNEVENNESS = 0.5
"""Minimum unevenness of parallel links, weighted by bytes, for routes to count as uneven: all
traffic on one of two links gives 1, and hashing :data:`USUAL_UNEVENNESS`."""

HASHED_VARIANCE = (1.0 / 3.0, 3.0)
"""Ratio of :func:`hashed_variance` by which flows seem to be hashed: three times as much or as
little as expected. Spread evenly, the bytes of tens of flows give a hundredth and less."""

MAX_WHOLE_FLOWS = 1000
"""Most flows of a bundle that are assigned to its links one by one: more can be spread evenly."""

Capacities = tuple[tuple[int, float], ...]


class LeafFlows(NamedTuple):
    """Flows between leaf switches: what a pair of ranks sends.

    Attributes:
        src_leaf: Leaf switch of the sender, shape (F,).
        dst_leaf: Leaf switch of the receiver, shape (F,).
        nbytes: Bytes, shape (F,).
    """

    src_leaf: NDArray[np.int64]
    dst_leaf: NDArray[np.int64]
    nbytes: Floats

    def of_bundle(self, links: NDArray[np.int64], fabric: Fabric) -> Floats:
        """Bytes of the flows that leave a leaf, or enter it, by parallel links; none elsewhere."""
        leaving = len(np.unique(fabric.link_src[links])) == 1
        here, there = self[:2] if leaving else self[1::-1]
        end = (fabric.link_src if leaving else fabric.link_dst)[links[0]] - fabric.n_nodes
        return np.asarray(self.nbytes[(here == end) & (there != end)], np.float64)


def limited_by_routes(
    counters: LinkCounters, fabric: Fabric, expected: Floats, flows: LeafFlows | None = None
) -> tuple[Capacities, float]:
    """Reduced link rates that limit evenly spread traffic like the measured imbalance.

    Args:
        counters: Counters of links during the job.
        fabric: The fabric with the rates of the expected run.
        expected: Bytes of each link in the expected run, shape (L,).
        flows: Flows that keep to one of several parallel links each; None if packets are spread.

    Returns:
        Links and their reduced rates in Gb/s, none if the unevenness is less than
        :data:`MIN_UNEVENNESS`; and the unevenness: mean absolute deviation of parallel links from
        their mean or, if it is nearer, from their expected bytes, over that mean, weighted by
        bytes. Where packets are dropped, no switch avoids a slow link, so that bundles which are
        that uneven by themselves limit traffic, too.
    """
    groups: list[tuple[Floats, Floats]] = []
    reduced: list[tuple[int, float]] = []
    uneven_bundles: list[tuple[int, float]] = []
    for links in parallel_bundles(fabric):
        carried = counters.sent_bytes[links]
        if np.isnan(carried).any() or carried.sum() <= 0:
            continue
        rates = nominal(fabric).link_gbps[links].astype(np.float64)
        usual, even = np.full(len(links), carried.mean()), carried.sum() * rates / rates.sum()
        flow_bytes = np.zeros(0) if flows is None else flows.of_bundle(links, fabric)
        if flow_bytes.sum() > 0.0 and len(flow_bytes) <= MAX_WHOLE_FLOWS:
            usual = even = _as_whole_flows(carried, rates, flow_bytes)
        if expected[links].sum() > 0:
            explained = carried.sum() * expected[links] / expected[links].sum()
            if np.abs(carried - explained).sum() < np.abs(carried - usual).sum():
                usual = even = explained
        groups.append((carried, usual))
        # Sending time of the most loaded link over that of the bundle as expected. What a slow link
        # costs is in the expected run already.
        slowdown = max(float((carried / rates).max() / (even / rates).max()), 1.0)
        limits = [(int(link), float(fabric.link_gbps[link]) / slowdown) for link in links]
        reduced += limits
        if counters.lossy and _unevenness(groups[-1:]) >= MIN_UNEVENNESS:
            uneven_bundles += limits
    unevenness = _unevenness(groups)
    return (tuple(reduced if unevenness >= MIN_UNEVENNESS else uneven_bundles), unevenness)


def parallel_bundles(fabric: Fabric) -> list[NDArray[np.int64]]:
    """Bundles of at least two parallel links: up-links of a switch, and down-links into one."""
    between_switches = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    out = []
    for sign, end in ((1, fabric.link_src), (-1, fabric.link_dst)):
        chosen = np.flatnonzero(between_switches & (np.sign(fabric.link_up) == sign))
        chosen = chosen[np.argsort(end[chosen], kind="stable")]
        cuts = np.flatnonzero(np.diff(end[chosen])) + 1
        out += [links for links in np.split(chosen, cuts) if len(links) > 1]
    return out


def _as_whole_flows(carried: Floats, rates: Floats, flow_bytes: Floats) -> Floats:
    """Bytes of parallel links if whole flows are spread as evenly as they can be, shape (k,).

    Longest flows first, each to the link that is done first (Graham 1969). The links that carried
    most get most.
    """
    load = np.zeros(len(rates))
    for size in np.sort(flow_bytes)[::-1].tolist():
        load[int(np.argmin((load + size) / rates))] += size
    out = np.empty(len(rates))
    out[np.argsort(carried / rates)] = load[np.argsort(load / rates)]
    return np.asarray(out * carried.sum() / load.sum(), np.float64)


def hashed_variance(counters: LinkCounters, fabric: Fabric, flows: LeafFlows) -> float:
    """Variance of parallel links at leaf switches, over that if each flow is on one of them.

    About 1 if switches hash flows to links, whose bytes then differ by chance; far less if packets
    are spread evenly, and more if one link is avoided.

    Args:
        counters: Counters of links during the job.
        fabric: The fabric.
        flows: The flows.

    Returns:
        The ratio; 0 if no counted bundle carries flows.
    """
    seen = by_chance = 0.0
    for links in parallel_bundles(fabric):
        carried = counters.sent_bytes[links]
        if np.isnan(carried).any() or carried.sum() <= 0:
            continue
        sizes = flows.of_bundle(links, fabric)
        if not sizes.sum() > 0:
            continue
        sizes = sizes / sizes.sum()
        seen += float(((carried / carried.sum() - 1.0 / len(links)) ** 2).sum())
        by_chance += float((sizes**2).sum()) * (1.0 - 1.0 / len(links))
    return seen / by_chance if by_chance > 0 else 0.0


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
    groups: list[tuple[Floats, Floats]] = []
    for leaf in np.unique(fabric.node_switch[fabric.node_switch >= 0]):
        up = np.flatnonzero((fabric.link_src == fabric.n_nodes + leaf) & (fabric.link_up > 0))
        if len(up) < 2:
            continue
        outputs = link[leaf][link[leaf] != NO_ENTRY]
        load = np.bincount(outputs, minlength=fabric.n_links)[up] / fabric.link_gbps[up]
        groups.append((load, np.full(len(up), load.mean())))
    return _unevenness(groups)


def _unevenness(groups: Sequence[tuple[Floats, Floats]]) -> float:
    """Mean absolute deviation of parallel links from their usual load, over its mean, 0–2."""
    total = sum(float(load.sum()) for load, _ in groups)
    deviation = sum(float(np.abs(load - usual).sum()) for load, usual in groups)
    return deviation / total if total > 0 else 0.0
