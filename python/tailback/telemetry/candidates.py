"""Candidate links per (source, destination) from the routing, on any fabric.

Routing defines the links over which a switch may forward packets to a destination. Tracing it hop
by hop from the source's switch gives the candidate links of the first hop, the second, and so on.
This works for forwarding tables, minimal adaptive routing, and any other rule whose choices depend
only on switch and destination. Nodes that are reached over the same links from everywhere form one
*goal*: all nodes of a switch if any shortest path is allowed, a single node with forwarding tables.
All paths of a pair must have the same length, as minimal paths do, so that source and destination
determine the number of hops of a packet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from tailback.arrays import Ints
from tailback.errors import FabricError
from tailback.fabric.model import Fabric
from tailback.telemetry.hashed import CandidateLinks


@dataclass(frozen=True)
class ForwardingChoices:
    """Links over which each switch may forward packets to a goal.

    Attributes:
        switches: Number of switches S.
        goal: Goal of each node, shape (N,); -1 if not requested.
        goal_switch: Switch of each goal, shape (G,).
        start: To ``goal``, switch ``at`` may use
            ``links[start[goal * S + at]:start[goal * S + at + 1]]``, shape (G S + 1,).
        links: The links.
    """

    switches: int
    goal: Ints
    goal_switch: Ints
    start: Ints
    links: Ints

    def of(self, at: int, goal: int) -> Ints:
        """Links from a switch to a goal; empty if ``at`` is the goal's switch."""
        row = goal * self.switches + at
        return self.links[self.start[row] : self.start[row + 1]]


def minimal_choices(fabric: Fabric) -> ForwardingChoices:
    """Every link that is closer to the destination: minimal adaptive routing.

    The goals are the switches.
    """
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
    start = np.concatenate([[0], np.cumsum(counts.ravel())]).astype(np.int64)
    goals = fabric.node_switch.astype(np.int64)
    return ForwardingChoices(s, goals, np.arange(s), start, np.concatenate(links).astype(np.int64))


def routed_choices(
    fabric: Fabric, next_links: Callable[[int, int], Sequence[int]]
) -> ForwardingChoices:
    """The choices of a routing rule that does not distinguish the nodes of a switch.

    The goals are the switches that have nodes.

    Args:
        fabric: The fabric.
        next_links: Links from a switch to a *node* of another switch.
    """
    s = fabric.n_switches
    goal_switch, node_of, goal = np.unique(
        fabric.node_switch, return_index=True, return_inverse=True
    )
    counts, links = np.zeros((len(goal_switch), s), np.int64), []
    for number, node in enumerate(node_of.tolist()):
        for at in range(s):
            onward = [] if at == goal_switch[number] else list(next_links(at, node))
            counts[number, at] = len(onward)
            links.extend(onward)
    start = np.concatenate([[0], np.cumsum(counts.ravel())]).astype(np.int64)
    return ForwardingChoices(
        s,
        goal.reshape(-1).astype(np.int64),
        goal_switch.astype(np.int64),
        start,
        np.array(links, np.int64),
    )


def fixed_choices(
    fabric: Fabric,
    links_to: Callable[[int], NDArray[np.uint32]],
    destinations: NDArray[np.uint32],
) -> ForwardingChoices:
    """The choices of deterministic routes (forwarding tables, D-mod-k): one link per destination.

    Each destination is a goal of its own: two nodes of a switch may be reached by different paths.

    Args:
        fabric: The fabric.
        links_to: The link of every switch to a node, shape (S,); 2^32 − 1 for none.
        destinations: Destination nodes of the packets.
    """
    nodes = np.unique(destinations).astype(np.int64)
    goal = np.full(fabric.n_nodes, -1, np.int64)
    goal[nodes] = np.arange(len(nodes))
    table = [np.asarray(links_to(node), np.int64) for node in nodes.tolist()]
    every = np.concatenate([np.zeros(0, np.int64), *table])
    valid = every != np.iinfo(np.uint32).max
    start = np.concatenate([[0], np.cumsum(valid)]).astype(np.int64)
    goal_switch = fabric.node_switch.astype(np.int64)[nodes]
    return ForwardingChoices(fabric.n_switches, goal, goal_switch, start, every[valid])


@dataclass(frozen=True)
class PairCandidates:
    """Candidate links of pairs of a switch and a goal (:class:`ForwardingChoices`), hop by hop.

    Attributes:
        node_switch: Switch of each node, shape (N,).
        goal: Goal of each node, shape (N,).
        index: Index of the pair of each source switch and goal, -1 if not requested, shape (S, G).
        length: Number of links of each pair's paths without the injection link.
        hops: ``(start, links)`` over the pairs, for each hop between switches.
        ejection: Ejection link of each node.
        stamped: Whether the switch that sends on each link stamps packets, shape (L,); None if all
            switches do.
        acts: Whether each pair's packets get a sample at each hop between switches, shape (H, K): 0
            at none of its candidates, 1 at all, 2 at some; None if ``stamped`` is.
        lengths_known: Whether ``length`` is the real path length.
        routes: ``hops`` of all switches, if ``hops`` lacks those that do not stamp; else None.
    """

    node_switch: Ints
    goal: Ints
    index: Ints
    length: NDArray[np.uint8]
    hops: list[tuple[NDArray[np.uint64], NDArray[np.uint32]]]
    ejection: NDArray[np.uint32]
    stamped: NDArray[np.bool_] | None = None
    acts: NDArray[np.uint8] | None = None
    lengths_known: bool = True
    routes: list[tuple[NDArray[np.uint64], NDArray[np.uint32]]] | None = None

    def stamped_only(self, stamped: NDArray[np.bool_]) -> PairCandidates:
        """Without the links at which packets get no sample, (L,); lengths are unchanged."""
        if stamped.all():
            return self
        hops, acts = [], np.zeros((len(self.hops), len(self.length)), np.uint8)
        for hop, (start, links) in enumerate(self.hops):
            keep = stamped[links]
            kept = np.concatenate([[0], np.cumsum(keep)])[start.astype(np.int64)]
            some, every = np.diff(kept) > 0, np.diff(kept) == np.diff(start.astype(np.int64))
            acts[hop] = np.where(some, np.where(every, 1, 2), 0)
            hops.append((kept.astype(np.uint64), links[keep]))
        return replace(self, hops=hops, stamped=stamped, acts=acts, routes=self.hops)

    def ejects(self) -> NDArray[np.bool_]:
        """Whether packets to each node get a sample at their ejection link, (N,)."""
        if self.stamped is None:
            return np.ones(len(self.ejection), np.bool_)
        return self.stamped[self.ejection]

    def of(self, source: NDArray[np.uint32], destination: NDArray[np.uint32]) -> Ints:
        """Pair of each packet."""
        return np.asarray(self.index[self.node_switch[source], self.goal[destination]], np.int64)

    def any_hop(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """Candidates of each pair at any hop between switches, each once, as ``(start, links)``."""
        owners, parts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for start, links in self.hops:
            sizes = np.asarray(np.diff(start.astype(np.int64)), np.int64)
            owners.append(np.repeat(np.arange(len(sizes)), sizes))
            parts.append(links.astype(np.int64))
        owner, link = np.concatenate(owners), np.concatenate(parts)
        n = int(link.max(initial=0)) + 1
        # On large networks sorting is ten times as fast as numpy.unique, which hashes.
        both = np.sort(owner * n + link)
        both = both[np.diff(both, prepend=-1) > 0]
        ends = np.searchsorted(both, np.arange(len(self.length) + 1) * n)
        return ends.astype(np.uint64), (both % n).astype(np.uint32)

    def stage(
        self,
        hop: int,
        source: NDArray[np.uint32],
        destination: NDArray[np.uint32],
    ) -> tuple[NDArray[np.intp], CandidateLinks]:
        """Packets with at least ``hop + 1`` hops between switches, and their candidates there."""
        pair = self.of(source, destination)
        rows = np.flatnonzero(self.length[pair] > hop + 1)
        return rows, CandidateLinks(pair[rows].astype(np.uint32), *self.hops[hop])

    def last(self, destination: NDArray[np.uint32]) -> CandidateLinks:
        """The ejection link, which the destination determines."""
        ejects = self.ejects()
        start = np.concatenate([[0], np.cumsum(ejects)]).astype(np.uint64)
        return CandidateLinks(destination.astype(np.uint32), start, self.ejection[ejects])


def pair_candidates(
    fabric: Fabric,
    choices: ForwardingChoices,
    source: NDArray[np.uint32],
    destination: NDArray[np.uint32],
    most_hops: int = 64,
) -> PairCandidates:
    """Candidate links of all pairs of a switch and a goal between which packets were sent.

    Args:
        fabric: The fabric.
        choices: Its routing.
        source: Source node of each packet, shape (P,).
        destination: Destination node of each packet, shape (P,).
        most_hops: Maximum number of links between switches on a path.

    Raises:
        FabricError: A pair has no path, paths of different lengths, or a path longer than that.
    """
    n, s, g = fabric.n_nodes, fabric.n_switches, len(choices.goal_switch)
    at_node = fabric.node_switch.astype(np.int64)
    pairs = np.unique(at_node[source] * g + choices.goal[destination])
    index = np.full((s, g), -1, np.int64)
    index.reshape(-1)[pairs] = np.arange(len(pairs))
    length = np.zeros(len(pairs), np.uint8)
    parts_by_hop: list[list[tuple[Ints, Ints]]] = [[] for _ in range(most_hops)]
    into = fabric.link_dst.astype(np.int64) - n
    for goal, mine in _by_goal(pairs % g):
        goal_switch = int(choices.goal_switch[goal])
        reached = np.zeros((len(mine), s), bool)
        reached[np.arange(len(mine)), pairs[mine] // g] = True
        links = choices.links[choices.start[goal * s] : choices.start[goal * s + s]]
        from_switch = fabric.link_src[links].astype(np.int64) - n
        for hop in range(most_hops + 1):
            done = reached[:, goal_switch]
            # Invalid pairs: some paths end here and others continue, there is no path, or paths are
            # too long.
            mixed = done & (reached.sum(axis=1) > 1)
            lost = ~reached.any(axis=1) & (length[mine] == 0)
            endless = ~done & reached.any(axis=1) & (hop == most_hops)
            bad = np.flatnonzero(mixed | lost | endless)
            if len(bad):
                raise _no_single_length(fabric, int(pairs[mine[bad[0]]]) // g, goal_switch)
            length[mine[done]] = hop + 1
            reached[done] = False
            if not reached.any():
                break
            row, link = np.nonzero(reached[:, from_switch])
            parts_by_hop[hop].append((mine[row], links[link]))
            ahead = np.zeros_like(reached)
            ahead[row, into[links[link]]] = True
            reached = ahead
    hops = [_by_pair(parts, len(pairs)) for parts in parts_by_hop if parts]
    ejection = np.zeros(n, np.uint32)
    last = np.flatnonzero(fabric.link_dst < n)
    ejection[fabric.link_dst[last]] = last
    return PairCandidates(at_node, choices.goal, index, length, hops, ejection)


def _by_goal(goal: Ints) -> list[tuple[int, Ints]]:
    """Every goal with the indices of its pairs."""
    order = np.argsort(goal, kind="stable")
    goals, first = np.unique(goal[order], return_index=True)
    return list(zip(goals.tolist(), np.split(order, first[1:]), strict=True))


def all_links_candidates(fabric: Fabric) -> PairCandidates:
    """Every link between switches as a candidate of the first hop, for routing with detours.

    For schemes that count hops themselves: the lengths of these pairs (2 between switches, 1 within
    one) are not path lengths.
    """
    n, s = fabric.n_nodes, fabric.n_switches
    inner = np.flatnonzero((fabric.link_src >= n) & (fabric.link_dst >= n)).astype(np.uint32)
    index = np.zeros((s, s), np.int64)
    np.fill_diagonal(index, 1)
    ejection = np.zeros(n, np.uint32)
    last = np.flatnonzero(fabric.link_dst < n)
    ejection[fabric.link_dst[last]] = last
    start = np.array([0, len(inner), len(inner)], np.uint64)
    at_node = fabric.node_switch.astype(np.int64)
    return PairCandidates(
        at_node,
        at_node,
        index,
        np.array([2, 1], np.uint8),
        [(start, inner)],
        ejection,
        lengths_known=False,
    )


def _no_single_length(fabric: Fabric, source: int, goal_switch: int) -> FabricError:
    near, far = fabric.switch_name[source], fabric.switch_name[goal_switch]
    return FabricError(
        f"paths from {near!r} to {far!r} are missing, too long or of different lengths",
        remedy="use telemetry scheme compact or full, which count hops themselves, or routing "
        "whose paths are of one length",
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
