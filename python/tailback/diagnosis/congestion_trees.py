"""Congestion trees: which congested links wait on which, and where the back-pressure starts.

A queue that cannot drain fills the one upstream of it, link by link: a *congestion tree* (thesis
section 4.1). From each congested link the analysis follows the traffic downstream to the congested
links it may be waiting for. A link that waits for none is a *root*: the cause is there. Congested
packets are charged to the roots their links lead to.

Samples show which packets crossed each link, not which link they came from. The traffic of a link
is assumed to continue over the links that leave its destination, in proportion to what these carry,
except back to its source or up again after it went down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from tailback.arrays import Bools, Floats, Ints
from tailback.diagnosis.topology import DOWN, UP, LinkTopology

CONGESTED_FRACTION = 0.10
"""A link is congested if more than this share of our packets met a queue there. Short queues are
normal in any loaded network; in a congestion tree, links stay congested for whole round trips."""

MIN_SAMPLES = 8
"""Smallest number of hop samples at which a link is assessed by itself and not by its bundle."""

MIN_EXPLAINED_SHARE = 0.10
"""A link waits on downstream links if their congested fractions, weighted by the share of its
traffic that they carry, amount to at least this share of its own; otherwise it is a root."""

MIN_EXPLAINED_SHARE_FULL_LINK = 1 / 3
"""The same for a link that our own traffic fills: a link that sends all the time is not blocked
(theorem 4.2), so slight congestion downstream does not explain its queue."""

_SPREAD_STEPS = 1000


@dataclass(frozen=True)
class CongestedLinks:
    """Congestion in one selection of traffic, by link number; shape (L,) each.

    Attributes:
        packets: Our packets through the link.
        weight: Congested packets among them.
        fraction: ``weight / packets``, within 0–1.
        low: Lower 95 % bound of ``fraction``.
        high: Upper 95 % bound.
        samples: Hop samples.
        hop_excess: Mean l−1.
        congested_excess: Mean g−1, smoothed.
        congested: True where the link is congested.
        decided: True where the samples settle whether the link is congested.
    """

    packets: Floats
    weight: Floats
    fraction: Floats
    low: Floats
    high: Floats
    samples: Floats
    hop_excess: Floats
    congested_excess: Floats
    congested: Bools
    decided: Bools


def find_congested_links(
    topology: LinkTopology, links: pl.DataFrame, bundles: pl.DataFrame
) -> CongestedLinks:
    """Decide which links are congested.

    A link is congested if the lower bound of its congested fraction exceeds
    :data:`CONGESTED_FRACTION`, with at least :data:`MIN_SAMPLES` samples. A link with too few
    samples is congested if its own fraction exceeds that value and its bundle is congested by the
    first rule, since routing spreads the same traffic over a bundle. Injection links are never
    congested: an adapter that holds a message is busy.

    Args:
        topology: The links.
        links: Estimates by ``link`` (:func:`tailback.telemetry.estimate.link_estimates`).
        bundles: Estimates by ``bundle``.
    """

    def column(name: str, default: float = 0.0) -> Floats:
        out = np.full(topology.n_links, default)
        out[links["link"].to_numpy()] = links[name].cast(pl.Float64).to_numpy()
        return out

    def of_bundle(name: str) -> Floats:
        out = np.zeros(int(topology.bundle.max(initial=-1)) + 1)
        out[bundles["bundle"].to_numpy()] = bundles[name].cast(pl.Float64).to_numpy()
        return np.asarray(out[topology.bundle], np.float64)

    samples = column("samples")
    fraction, low = column("fraction"), column("fraction_low")
    high = column("fraction_high", 1.0)
    inner = ~topology.from_node
    alone = inner & (samples >= MIN_SAMPLES) & (low > CONGESTED_FRACTION)
    clear = inner & (samples >= MIN_SAMPLES) & (high < CONGESTED_FRACTION)
    bundle_hot = (of_bundle("samples") >= MIN_SAMPLES) & (
        of_bundle("fraction_low") > CONGESTED_FRACTION
    )
    bundle_cold = (of_bundle("samples") >= MIN_SAMPLES) & (
        of_bundle("fraction_high") < CONGESTED_FRACTION
    )
    unsettled = inner & ~alone & ~clear
    with_bundle = unsettled & bundle_hot & (fraction > CONGESTED_FRACTION)
    return CongestedLinks(
        packets=column("packets"),
        weight=np.where(inner, column("congested"), 0.0),
        fraction=fraction,
        low=low,
        high=high,
        samples=samples,
        hop_excess=column("hop_excess"),
        congested_excess=column("congested_excess"),
        congested=alone | with_bundle,
        decided=alone | clear | with_bundle | (unsettled & bundle_cold),
    )


@dataclass(frozen=True)
class CongestionForest:
    """The congestion trees of one selection of traffic.

    Attributes:
        links: Congested links, shape (C,).
        root: True for those that are roots, shape (C,).
        tree_weight: Congested packets charged to each root (0 for others), shape (C,).
        waits_on: Row i, column j: share of link i's waiting that is due to link j, (C, C).
    """

    links: Ints
    root: Bools
    tree_weight: Floats
    waits_on: csr_array

    @property
    def attributed(self) -> float:
        """Congested packets charged to a root."""
        return float(self.tree_weight.sum())

    def waiting(self, link: int) -> Ints:
        """Links that wait on ``link``, directly or through others."""
        at = int(np.searchsorted(self.links, link))
        order = breadth_first_order(
            csr_array(self.waits_on.T), at, directed=True, return_predecessors=False
        )
        return np.sort(self.links[order[1:]])

    def edges(self) -> list[tuple[int, int, float]]:
        """``(waiting link, link it waits on, share)`` of every edge."""
        graph = self.waits_on.tocoo()
        rows, columns = graph.coords
        return [
            (int(self.links[i]), int(self.links[j]), float(share))
            for i, j, share in zip(rows, columns, graph.data, strict=True)
        ]


def build_forest(
    topology: LinkTopology,
    congested: Bools,
    fraction: Floats,
    traffic: Floats,
    weight: Floats,
    concentrated: Bools | None = None,
    filled: Bools | None = None,
) -> CongestionForest:
    """Follow each congested link downstream and charge its packets to the roots.

    Args:
        topology: The links.
        congested: Which links are congested, shape (L,).
        fraction: Congested fraction of each link, shape (L,).
        traffic: Our packets through each link, shape (L,).
        weight: Congested packets to charge, shape (L,).
        concentrated: Links whose traffic may all continue over one link, as with static routing,
            shape (L,): for these, the maximum traffic that can continue over a link is used, not
            its proportion.
        filled: Links that our own traffic fills while they are congested, shape (L,): they are busy
            and hardly wait, so :data:`MIN_EXPLAINED_SHARE_FULL_LINK` applies to them.

    Returns:
        The forest; a link that leads to several roots is split among them by share of its traffic.
    """
    links = np.flatnonzero(congested)
    if concentrated is None:
        concentrated = np.zeros(topology.n_links, np.bool_)
    waits_on, explained = _waits_on(topology, links, congested, fraction, traffic, concentrated)
    threshold = np.full(len(links), MIN_EXPLAINED_SHARE)
    if filled is not None:
        threshold[filled[links]] = MIN_EXPLAINED_SHARE_FULL_LINK
    root = explained < threshold * fraction[links]
    root |= _cycle_heads(waits_on, root, fraction[links])
    waits_on = _normalised(waits_on, ~root)
    charge = _spread(waits_on, root, weight[links])
    return CongestionForest(links, root, np.where(root, charge, 0.0), waits_on)


def _waits_on(
    topology: LinkTopology,
    links: Ints,
    congested: Bools,
    fraction: Floats,
    traffic: Floats,
    concentrated: Bools,
) -> tuple[csr_array, Floats]:
    """Return edges among congested links with share × fraction, and its sum over each row."""
    t = topology
    vertex = t.dst[links]
    degree = t.out_start[vertex + 1] - t.out_start[vertex]
    row = np.repeat(np.arange(len(links)), degree)
    first = np.repeat(t.out_start[vertex] - (np.cumsum(degree) - degree), degree)
    after = t.out_link[first + np.arange(len(row))]
    before = links[row]
    possible = (
        (traffic[after] > 0)
        & ~t.from_node[after]
        & (t.dst[after] != t.src[before])
        & ~((t.direction[before] == DOWN) & (t.direction[after] == UP))
    )
    row, after = row[possible], after[possible]
    total = np.bincount(row, weights=traffic[after], minlength=len(links))
    share = traffic[after] / total[row]
    upper = np.minimum(traffic[after] / np.maximum(traffic[links[row]], 1e-9), 1.0)
    contribution = np.where(concentrated[links[row]], upper, share) * fraction[after]
    hot = congested[after]
    row, after, contribution = row[hot], after[hot], contribution[hot]
    column = np.searchsorted(links, after)
    shape = (len(links), len(links))
    explained = np.bincount(row, weights=contribution, minlength=len(links)).astype(np.float64)
    return csr_array((contribution, (row, column)), shape=shape), explained


def _cycle_heads(waits_on: csr_array, root: Bools, fraction: Floats) -> Bools:
    """Representatives of closed cycles: in a torus, links may wait on each other in a ring.

    Such a ring has no root; its most congested link represents it.
    """
    heads = np.zeros(len(root), np.bool_)
    if not len(root):
        return heads
    graph = _normalised(waits_on, ~root)
    count, group = connected_components(graph, directed=True, connection="strong")
    exits = np.zeros(count, np.bool_)
    source, target = graph.tocoo().coords
    leaves = group[source] != group[target]
    exits[group[source[leaves]]] = True
    exits[group[root]] = True
    for stuck in np.flatnonzero(~exits):
        members = np.flatnonzero(group == stuck)
        heads[members[np.argmax(fraction[members])]] = True
    return heads


def _normalised(graph: csr_array, keep: Bools) -> csr_array:
    """Rows in ``keep`` scaled to sum 1, the others emptied."""
    total = np.asarray(graph.sum(axis=1)).reshape(-1)
    scale = np.divide(1.0, total, out=np.zeros_like(total), where=(total > 0) & keep)
    entries = graph.tocoo()
    rows, columns = entries.coords
    data = entries.data * scale[rows]
    used = data > 0
    return csr_array((data[used], (rows[used], columns[used])), shape=graph.shape)


def _spread(waits_on: csr_array, root: Bools, weight: Floats) -> Floats:
    """Propagate the weight of every link along its edges until all of it is at roots."""
    held = np.zeros(len(root))
    moving: NDArray[np.float64] = weight.astype(np.float64)
    floor = 1e-9 * max(float(moving.sum()), 1.0)
    onward = csr_array(waits_on.T)
    for _ in range(_SPREAD_STEPS):
        held += np.where(root, moving, 0.0)
        moving = np.asarray(onward @ np.where(root, 0.0, moving))
        if float(moving.sum()) <= floor:
            break
    return held
