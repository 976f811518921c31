"""Whether the routes of two jobs share links between switches, by forwarding tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.fabric.lft import NO_ENTRY, FabricForwarding
from tailback.fabric.model import Fabric

MAX_PAIRS: Final = 200_000
"""Pairs of nodes of a job whose routes are followed; of larger jobs a sample."""
MAX_HOPS: Final = 64


class RouteOverlap:
    """Links of the routes among the hosts of jobs.

    Args:
        fabric: The fabric.
        forwarding: Its forwarding tables.
    """

    def __init__(self, fabric: Fabric, forwarding: FabricForwarding) -> None:
        self._fabric, self._link = fabric, forwarding.link
        self._nodes: dict[str, list[int]] = {}
        for node, host in enumerate(fabric.node_host.tolist()):
            self._nodes.setdefault(fabric.host_name[host], []).append(node)
        self._known: dict[tuple[str, ...], NDArray[np.bool_] | None] = {}

    def __call__(self, hosts: Sequence[str], others: Sequence[str]) -> bool | None:
        """Whether routes among two sets of hosts share a link; None if a route is unknown."""
        mine, theirs = self.links(hosts), self.links(others)
        if mine is None or theirs is None:
            return None
        return bool((mine & theirs).any())

    def links(self, hosts: Sequence[str]) -> NDArray[np.bool_] | None:
        """Which links between switches the routes among some hosts use, shape (L,)."""
        key = tuple(sorted(hosts))
        if key not in self._known:
            self._known[key] = self._follow(key)
        return self._known[key]

    def _follow(self, hosts: Sequence[str]) -> NDArray[np.bool_] | None:
        fabric = self._fabric
        nodes = np.array([n for host in hosts for n in self._nodes.get(host, ())], np.int64)
        source, target = (side.ravel() for side in np.meshgrid(nodes, nodes, indexing="ij"))
        pairs: Ints = np.flatnonzero(source != target)
        if len(pairs) > MAX_PAIRS:
            pairs = np.random.default_rng(1).choice(pairs, MAX_PAIRS, replace=False)
        at, target = fabric.n_nodes + fabric.node_switch[source[pairs]], target[pairs]
        used = np.zeros(fabric.n_links, np.bool_)
        for _ in range(MAX_HOPS):
            link = self._link[at - fabric.n_nodes, target]
            if (link == NO_ENTRY).any():
                return None
            at = fabric.link_dst[link].astype(np.int64)
            between = at >= fabric.n_nodes
            used[link[between]] = True
            at, target = at[between], target[between]
            if not len(at):
                return used
        return None
