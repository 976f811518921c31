"""Candidate links per (source, destination) from the routing, on any fabric.

Routing says by which links a switch may forward towards a destination. Followed from the source's
switch hop by hop, that gives the links a packet may take as its first hop, as its second, and so
on, for a table, for minimal adaptive routing or for any other rule whose choices depend on switch
and destination alone. Paths between two switches must all be of one length, as minimal ones are:
then the receiver knows from the ends how many hops a packet made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from tailback.errors import FabricError
from tailback.fabric.model import Fabric
from tailback.telemetry.hashed import Candidates

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Choices:
    """By which links a switch may forward towards another.

    Attributes:
        switches: Number of switches S.
        start: Towards switch ``goal`` switch ``at`` may use
            ``links[start[goal * S + at]:start[goal * S + at + 1]]``, shape (S² + 1,).
        links: Those links.
    """

    switches: int
    start: Ints
    links: Ints

    def of(self, at: int, goal: int) -> Ints:
        """Links from one switch towards another; empty where ``at`` is ``goal``."""
        row = goal * self.switches + at
        return self.links[self.start[row] : self.start[row + 1]]


def minimal_choices(fabric: Fabric) -> Choices:
    """Every link that leads nearer to the destination: minimal adaptive routing."""
    n, s = fabric.n_nodes, fabric.n_switches
    inner = np.flatnonzero((fabric.link_src >= n) & (fabric.link_dst >= n))
    src = fabric.link_src[inner].astype(np.int64) - n
    dst = fabric.link_dst[inner].astype(np.int64) - n
    graph = csr_matrix((np.ones(len(inner)), (src, dst)), shape=(s, s))
    distance = shortest_path(graph, unweighted=True)
    counts, links = np.zeros((s, s), np.int64), []
    for goal in range(s):
        nearer = np.flatnonzero(distance[dst, goal] + 1 == distance[src, goal])
        nearer = nearer[np.argsort(src[nearer], kind="stable")]
        counts[goal] = np.bincount(src[nearer], minlength=s)
        links.append(inner[nearer])
    start = np.concatenate([[0], np.cumsum(counts.ravel())])
    return Choices(s, start.astype(np.int64), np.concatenate(links).astype(np.int64))


def routed_choices(fabric: Fabric, next_links: Callable[[int, int], Sequence[int]]) -> Choices:
    """The choices of a routing rule.

    Args:
        fabric: The fabric.
        next_links: Links that lead from a switch towards a *node* elsewhere.
    """
    s = fabric.n_switches
    node_of = {int(switch): node for node, switch in reversed(list(enumerate(fabric.node_switch)))}
    counts, links = np.zeros((s, s), np.int64), []
    for goal in sorted(node_of):
        for at in range(s):
            found = [] if at == goal else list(next_links(at, node_of[goal]))
            counts[goal, at] = len(found)
            links.extend(found)
    start = np.concatenate([[0], np.cumsum(counts.ravel())])
    return Choices(s, start.astype(np.int64), np.array(links, np.int64))


@dataclass(frozen=True)
class Pairs:
    """Candidate links of pairs of switches, hop by hop.

    Attributes:
        node_switch: Switch of each node.
        index: Number of the pair (source switch × S + destination switch), -1 when not asked for.
        length: Links of each pair's paths after the injection link, ejection link included.
        hops: For each hop between switches ``(start, links)`` over the pairs.
        ejection: Ejection link of each node.
    """

    node_switch: Ints
    index: Ints
    length: NDArray[np.uint8]
    hops: list[tuple[NDArray[np.uint64], NDArray[np.uint32]]]
    ejection: NDArray[np.uint32]

    def of(self, source: NDArray[np.uint32], destination: NDArray[np.uint32]) -> Ints:
        """The pair of each packet."""
        s = int(np.sqrt(len(self.index)))
        pair = self.node_switch[source] * s + self.node_switch[destination]
        return np.asarray(self.index[pair], np.int64)

    def stage(
        self,
        hop: int,
        source: NDArray[np.uint32],
        destination: NDArray[np.uint32],
    ) -> tuple[NDArray[np.intp], Candidates]:
        """Packets that have a hop of this number between switches, and its candidates."""
        pair = self.of(source, destination)
        rows = np.flatnonzero(self.length[pair] > hop + 1)
        return rows, Candidates(pair[rows].astype(np.uint32), *self.hops[hop])

    def last(self, destination: NDArray[np.uint32]) -> Candidates:
        """The ejection link, which the destination decides."""
        start = np.arange(len(self.ejection) + 1, dtype=np.uint64)
        return Candidates(destination.astype(np.uint32), start, self.ejection)


def pair_candidates(
    fabric: Fabric,
    choices: Choices,
    source: NDArray[np.uint32],
    destination: NDArray[np.uint32],
    most_hops: int = 64,
) -> Pairs:
    """Candidate links of all pairs of switches between which packets were sent.

    Args:
        fabric: The fabric.
        choices: Its routing.
        source: Source node of each packet, shape (P,).
        destination: Destination node of each packet, shape (P,).
        most_hops: Links between switches a path has at most.

    Raises:
        FabricError: A pair has no path, paths of different lengths, or longer ones.
    """
    n, s = fabric.n_nodes, fabric.n_switches
    at_node = fabric.node_switch.astype(np.int64)
    pairs = np.unique(at_node[source] * s + at_node[destination])
    index = np.full(s * s, -1, np.int64)
    index[pairs] = np.arange(len(pairs))
    length = np.zeros(len(pairs), np.uint8)
    found: list[list[tuple[Ints, Ints]]] = [[] for _ in range(most_hops)]
    into = fabric.link_dst.astype(np.int64) - n
    for goal in np.unique(pairs % s).tolist():
        mine = np.flatnonzero(pairs % s == goal)
        reached = np.zeros((len(mine), s), bool)
        reached[np.arange(len(mine)), pairs[mine] // s] = True
        links = choices.links[choices.start[goal * s] : choices.start[goal * s + s]]
        from_switch = fabric.link_src[links].astype(np.int64) - n
        for hop in range(most_hops + 1):
            done = reached[:, goal]
            # Left at this hop: there already and elsewhere too, or nowhere, or on the way for ever.
            mixed = done & (reached.sum(axis=1) > 1)
            lost = ~reached.any(axis=1) & (length[mine] == 0)
            endless = ~done & reached.any(axis=1) & (hop == most_hops)
            bad = np.flatnonzero(mixed | lost | endless)
            if len(bad):
                raise _no_single_length(fabric, int(pairs[mine[bad[0]]]) // s, goal)
            length[mine[done]] = hop + 1
            reached[done] = False
            if not reached.any():
                break
            row, link = np.nonzero(reached[:, from_switch])
            found[hop].append((mine[row], links[link]))
            ahead = np.zeros_like(reached)
            ahead[row, into[links[link]]] = True
            reached = ahead
    hops = [_by_pair(parts, len(pairs)) for parts in found if parts]
    ejection = np.zeros(n, np.uint32)
    last = np.flatnonzero(fabric.link_dst < n)
    ejection[fabric.link_dst[last]] = last
    return Pairs(at_node, index, length, hops, ejection)


def anywhere(fabric: Fabric) -> Pairs:
    """Every link between switches at the first hop of every path: where packets may go round.

    For schemes that count hops themselves: the lengths of these pairs, 2 between switches and 1
    within one, are not those of their paths.
    """
    n, s = fabric.n_nodes, fabric.n_switches
    inner = np.flatnonzero((fabric.link_src >= n) & (fabric.link_dst >= n)).astype(np.uint32)
    index = np.zeros((s, s), np.int64)
    np.fill_diagonal(index, 1)
    ejection = np.zeros(n, np.uint32)
    last = np.flatnonzero(fabric.link_dst < n)
    ejection[fabric.link_dst[last]] = last
    start = np.array([0, len(inner), len(inner)], np.uint64)
    return Pairs(
        fabric.node_switch.astype(np.int64), index.ravel(), np.array([2, 1], np.uint8),
        [(start, inner)], ejection,
    )  # fmt: skip


def _no_single_length(fabric: Fabric, source: int, goal: int) -> FabricError:
    return FabricError(
        f"paths from {fabric.switch_name[source]!r} to {fabric.switch_name[goal]!r} are missing, "
        "too long or of different lengths",
        remedy="candidates per pair need routing whose paths are of one length",
    )


def _by_pair(
    parts: list[tuple[Ints, Ints]], pairs: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    pair = np.concatenate([part[0] for part in parts])
    link = np.concatenate([part[1] for part in parts])
    order = np.lexsort((link, pair))
    counts = np.bincount(pair, minlength=pairs)
    start = np.concatenate([[0], np.cumsum(counts)])
    return start.astype(np.uint64), link[order].astype(np.uint32)
