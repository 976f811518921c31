"""Links that a fabric does not distinguish: routing without a preference uses them evenly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.model import Fabric


def interchangeable_links(fabric: Fabric) -> NDArray[np.int64]:
    """Groups of links between switches that the fabric does not distinguish.

    Switches are told apart by what they are connected to: nodes are all different, and two switches
    are equal as long as their links have the same rates and delays and lead to equal switches
    (color refinement; Weisfeiler and Leman, 1968). Links between equal switches, of the same rate
    and delay, form a group. In a tree these are the up links of a switch or of all equal switches
    of a pod, and the down links to them. Routing that chooses among such links at random, or by
    their load and otherwise at random, sends the same expected traffic over each.

    Returns:
        Group of each link, -1 if it is alone, shape (L,).
    """
    n = fabric.n_nodes
    source, target = fabric.link_src.astype(np.int64), fabric.link_dst.astype(np.int64)
    sort = _numbered(np.stack([fabric.link_gbps, fabric.link_delay_ps.astype(np.float64)]))
    total = n + fabric.n_switches
    color = np.zeros(total, np.int64)
    color[:n] = 1 + np.arange(n)
    count = 0
    while True:
        left = _summed(_mixed(color[target] * 2, sort), source, total)
        left += _summed(_mixed(color[source] * 2 + 1, sort), target, total)
        color = np.unique(_mixed(color, left.view(np.int64)), return_inverse=True)[1]
        if color.max(initial=0) + 1 == count:
            break
        count = int(color.max(initial=0)) + 1
    out = np.full(fabric.n_links, -1, np.int64)
    between = np.flatnonzero((source >= n) & (target >= n))
    pair = _numbered(np.stack([color[source[between]], color[target[between]], sort[between]]))
    shared = np.bincount(pair)[pair] > 1
    out[between[shared]] = np.unique(pair[shared], return_inverse=True)[1]
    return out


def _numbered(columns: NDArray[np.generic]) -> NDArray[np.int64]:
    """Numbers equal columns equally, from 0."""
    if columns.shape[1] == 0:
        return np.zeros(0, np.int64)
    return np.asarray(np.unique(columns, axis=1, return_inverse=True)[1]).reshape(-1)


def _mixed(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash of each pair: sums of hashes tell different multisets apart."""
    value = first.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    value ^= second.astype(np.uint64) + np.uint64(0x632BE59BD9B4E019)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(value ^ (value >> np.uint64(31)))


def _summed(value: NDArray[np.uint64], at: NDArray[np.int64], length: int) -> NDArray[np.uint64]:
    """Sums modulo 2^64 by index."""
    out = np.zeros(length, np.uint64)
    np.add.at(out, at, value)
    return out
