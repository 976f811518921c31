"""The nested cells of the slots a job uses: hosts in leaves in pods, and filling them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.placement.graph import Graph
from tailback.placement.problem import PlacementProblem, first_appearance
from tailback.placement.swaps import SearchLimits, SwapSearch


@dataclass(frozen=True)
class Cells:
    """Leaves and pods of the used slots, numbered in the order they first appear.

    Attributes:
        slot: The used slots, shape (R,).
        leaf: Leaf of each used slot, shape (R,).
        host: Host of each used slot, shape (R,).
        leaf_size: Used slots of each leaf, shape (F,).
        leaf_pod: Pod of each leaf, shape (F,).
        n_pods: Number of pods.
    """

    slot: NDArray[np.int64]
    leaf: NDArray[np.int64]
    host: NDArray[np.int64]
    leaf_size: NDArray[np.int64]
    leaf_pod: NDArray[np.int64]
    n_pods: int

    @property
    def n_leaves(self) -> int:
        """Number of leaves F."""
        return len(self.leaf_size)

    @property
    def n_hosts(self) -> int:
        """Number of hosts H."""
        return int(self.host.max(initial=-1)) + 1

    @property
    def host_leaf(self) -> NDArray[np.int64]:
        """Leaf of each host, shape (H,)."""
        leaf = np.zeros(self.n_hosts, np.int64)
        leaf[self.host] = self.leaf
        return leaf

    def cost(self, graph: Graph, leaf_of_rank: NDArray[np.int64]) -> float:
        """Bytes that leave their leaf plus bytes that leave their pod.

        Both cost two more switches in a fat tree, so this orders placements by path length.
        """
        return graph.cut(leaf_of_rank) + graph.cut(self.leaf_pod[leaf_of_rank])


def cells_of(problem: PlacementProblem, used: NDArray[np.int64] | None = None) -> Cells:
    """Cells of the used slots; the first R in allocation order unless ``used`` says otherwise."""
    slot = np.arange(problem.n_ranks) if used is None else np.sort(used)
    leaf = first_appearance(problem.slot_leaf[slot])
    n_leaves = int(leaf.max(initial=-1)) + 1
    first = np.searchsorted(np.maximum.accumulate(leaf), np.arange(n_leaves))
    # A host belongs to the pod of the leaf with its first slot.
    home_pod = dict(zip(problem.slot_switch.tolist(), problem.slot_pod.tolist(), strict=True))
    pod = np.array([home_pod[int(s)] for s in problem.slot_leaf[slot[first]]], np.int64)
    leaf_pod = first_appearance(pod)
    return Cells(
        slot=slot,
        leaf=leaf,
        host=first_appearance(problem.slot_host[slot]),
        leaf_size=np.bincount(leaf, minlength=n_leaves),
        leaf_pod=leaf_pod,
        n_pods=int(leaf_pod.max(initial=-1)) + 1,
    )


def slots_in_leaves(
    problem: PlacementProblem,
    cells: Cells,
    leaf_of_rank: NDArray[np.int64],
    limits: SearchLimits,
    host_of_rank: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Slot of each rank within its given leaf: ranks that communicate share a host if possible.

    Args:
        problem: The problem.
        cells: Its cells.
        leaf_of_rank: Leaf of each rank, with exactly as many ranks as the leaf has slots.
        limits: Limits of the search for a better grouping into hosts.
        host_of_rank: The grouping that the search begins with; in order of ranks by default.
    """
    n = problem.n_ranks
    by_leaf = np.lexsort((cells.slot, cells.leaf))
    ranks = np.argsort(leaf_of_rank, kind="stable")
    entry = np.empty(n, np.int64)
    entry[ranks] = by_leaf
    if cells.n_hosts == n:
        return cells.slot[entry]
    host = cells.host[entry] if host_of_rank is None else host_of_rank
    search = SwapSearch(problem.graph, host, cells.n_hosts, group=cells.host_leaf)
    better = search.run(limits)
    slots = np.empty(n, np.int64)
    slots[np.argsort(better, kind="stable")] = cells.slot[np.lexsort((cells.slot, cells.host))]
    return slots


def group_leaves(
    graph: Graph, cells: Cells, leaf_of_rank: NDArray[np.int64], limits: SearchLimits
) -> NDArray[np.int64]:
    """Exchange whole leaves of equal size between pods so that less traffic leaves a pod.

    Returns:
        The new leaf of each rank, shape (R,).
    """
    if cells.n_pods < 2:
        return leaf_of_rank
    quotient = graph.quotient(leaf_of_rank, cells.n_leaves)
    swapper = SwapSearch(quotient, cells.leaf_pod, cells.n_pods, kind=cells.leaf_size)
    return assign_leaves(cells, swapper.run(limits))[leaf_of_rank]


def spare_congested_leaves(
    graph: Graph, cells: Cells, leaf_of_rank: NDArray[np.int64], congestion: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Exchange whole leaves of equal size within pods: more traffic leaves less congested ones.

    Within a pod every exchange keeps the path lengths. Parts by falling traffic with others on
    leaves by rising congestion have the least sum of the products (rearrangement inequality).

    Args:
        graph: The communication graph.
        cells: The cells.
        leaf_of_rank: Leaf of each rank, shape (R,).
        congestion: Congested fraction of each leaf, shape (F,).

    Returns:
        The new leaf of each rank, shape (R,).
    """
    away = leaf_of_rank[graph.owner] != leaf_of_rank[graph.neighbour]
    outside = np.bincount(leaf_of_rank[graph.owner], graph.weight * away, minlength=cells.n_leaves)
    alike = (cells.leaf_size, cells.leaf_pod)
    out = np.empty(cells.n_leaves, np.int64)
    out[np.lexsort((-outside, *alike))] = np.lexsort((congestion, *alike))
    return out[leaf_of_rank]


def assign_leaves(cells: Cells, pod_of_part: NDArray[np.int64]) -> NDArray[np.int64]:
    """Leaf of each part within its given pod: leaves of its size in that pod, in order."""
    by_leaf = np.lexsort((np.arange(cells.n_leaves), cells.leaf_size, cells.leaf_pod))
    by_part = np.lexsort((np.arange(cells.n_leaves), cells.leaf_size, pod_of_part))
    out = np.empty(cells.n_leaves, np.int64)
    out[by_part] = by_leaf
    return out
