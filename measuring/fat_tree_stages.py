"""Candidate links of packets in a fat tree, stage by stage.

With up/down routing the path length of a packet determines its highest tier, and at each stage its
candidates follow from one end alone: on the way up from a leaf the links of the source's
leaf, above that the links of the source's pod, and the mirror image on the way down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.errors import FabricError
from tailback.fabric import Fabric
from tailback.telemetry import CandidateLinks

STAGES = ("leaf up", "core up", "core down", "leaf down", "host")
"""Stages of a three-level tree, in the order a packet meets them after the injection link."""


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        name: One of :data:`STAGES`.
        group_of_node: Which group a node belongs to here, shape (N,).
        of_source: Whether the group is the source's (else the destination's).
        start: Group g has ``links[start[g]:start[g + 1]]``.
        links: Candidate links.
        hop: Hop index for a path of 1, 3 and 5 links; -1 where it does not pass.
    """

    name: str
    group_of_node: NDArray[np.uint32]
    of_source: bool
    start: NDArray[np.uint64]
    links: NDArray[np.uint32]
    hop: dict[int, int]

    def hop_of(self, lengths: NDArray[np.uint8]) -> NDArray[np.int16]:
        """Hop index at which each packet passes the stage, -1 where it does not, shape (P,)."""
        table = np.full(256, -1, np.int16)
        for length, hop in self.hop.items():
            table[length] = hop
        return table[lengths]

    def candidates(
        self, source: NDArray[np.uint32], destination: NDArray[np.uint32]
    ) -> CandidateLinks:
        """Candidates of packets between given nodes."""
        node = source if self.of_source else destination
        return CandidateLinks(self.group_of_node[node], self.start, self.links)


def fat_tree_stages(fabric: Fabric) -> list[Stage]:
    """The five stages of a three-level fat tree.

    Raises:
        FabricError: The fabric has no three tiers, or a node is connected to a switch that is not a
            leaf.
    """
    n = fabric.n_nodes
    tier = fabric.vertex_tier
    if sorted(set(fabric.switch_tier.tolist())) != [0, 1, 2]:
        raise FabricError(
            f"{fabric.name!r} has no leaf, aggregation and core tier",
            remedy="stages are known for three-level fat trees only",
        )
    src, dst = fabric.link_src.astype(np.int64), fabric.link_dst.astype(np.int64)
    out = np.flatnonzero(src < n)
    leaf = np.zeros(n, np.int64)
    leaf[src[out]] = dst[out]
    if (tier[leaf] != 0).any():
        raise FabricError("a node is connected to a switch that is not a leaf", file=None)
    pod = np.concatenate([np.full(n, -1), fabric.switch_pod]).astype(np.int64)
    by_pod, vertex = pod[leaf], np.arange(n)
    up0, up1 = (tier[src] == 0) & (tier[dst] == 1), (tier[src] == 1) & (tier[dst] == 2)
    down1, down0 = (tier[src] == 2) & (tier[dst] == 1), (tier[src] == 1) & (tier[dst] == 0)
    return [
        _stage("leaf up", leaf, src, up0, True, {3: 0, 5: 0}),
        _stage("core up", by_pod, pod[src], up1, True, {5: 1}),
        _stage("core down", by_pod, pod[dst], down1, False, {5: 2}),
        _stage("leaf down", leaf, dst, down0, False, {3: 1, 5: 3}),
        _stage("host", vertex, dst, dst < n, False, {1: 0, 3: 2, 5: 4}),
    ]


def _stage(
    name: str,
    group_of_node: NDArray[np.int64],
    group_of_link: NDArray[np.int64],
    members: NDArray[np.bool_],
    of_source: bool,
    hop: dict[int, int],
) -> Stage:
    links = np.flatnonzero(members)
    links = links[np.argsort(group_of_link[links], kind="stable")]
    groups, counts = np.unique(group_of_link[links], return_counts=True)
    of_node = np.searchsorted(groups, group_of_node).astype(np.uint32)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)
    return Stage(name, of_node, of_source, start, links.astype(np.uint32), hop)
