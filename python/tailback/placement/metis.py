"""METIS placement: leaves as parts of the communication graph (thesis §4.2.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.placement import options as read
from tailback.placement.assign import PLACEMENTS
from tailback.placement.cells import Cells, assign_leaves, cells_of, group_leaves, slots_in_leaves
from tailback.placement.graph import Graph
from tailback.placement.options import Options
from tailback.placement.partition import partition
from tailback.placement.problem import PlacementProblem
from tailback.placement.swaps import SearchLimits, SwapSearch


@PLACEMENTS.register("metis")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Ranks with much mutual traffic on one host, such hosts under one leaf and in one pod (METIS).

    Options: ``refine`` (default true: swap single ranks afterwards), ``pods`` (default true: assign
    parts to leaves so that little traffic leaves the pods; false numbers parts as METIS does).
    """
    read.refuse_unknown("metis", options, ("refine", "pods"))
    refine = read.flag(options, "refine", True)
    graph, cells, limits = problem.graph, cells_of(problem), SearchLimits()
    candidates = [_flat(graph, cells, problem.seed)]
    if read.flag(options, "pods", True) and cells.n_pods > 1:
        grouped = group_leaves(graph, cells, candidates[0], limits)
        candidates = [grouped, _partition_pods(graph, cells, candidates[0], problem.seed)]
        candidates.append(_pods_first(graph, cells, problem.seed))
    best = min(candidates, key=lambda leaf: cells.cost(graph, leaf))
    if refine:
        best = SwapSearch(graph, best, cells.n_leaves).run(limits)
    # Ranks that follow one another often communicate: their order is a start of its own.
    hosts = (None, _divided(graph, best, cells.host_leaf, np.bincount(cells.host), problem.seed))
    slots = [slots_in_leaves(problem, cells, best, limits, start) for start in hosts]
    return min(slots, key=lambda slot: graph.cut(problem.slot_host[slot]))


def _flat(graph: Graph, cells: Cells, seed: int) -> NDArray[np.int64]:
    """Partition into leaves at once, as the thesis does."""
    return partition(graph, cells.leaf_size, seed)


def _partition_pods(
    graph: Graph, cells: Cells, leaf_of_rank: NDArray[np.int64], seed: int
) -> NDArray[np.int64]:
    """Partition the graph between leaves into pods; leaves of one size only."""
    if (cells.leaf_size != cells.leaf_size[0]).any():
        return leaf_of_rank
    quotient = graph.quotient(leaf_of_rank, cells.n_leaves)
    pods = partition(quotient, np.bincount(cells.leaf_pod), seed)
    return group_leaves(graph, cells, assign_leaves(cells, pods)[leaf_of_rank], SearchLimits())


def _pods_first(graph: Graph, cells: Cells, seed: int) -> NDArray[np.int64]:
    """Partition into pods, then each pod into its leaves."""
    pod_size = np.bincount(cells.leaf_pod, cells.leaf_size).astype(np.int64)
    pod_of_rank = partition(graph, pod_size, seed)
    return _divided(graph, pod_of_rank, cells.leaf_pod, cells.leaf_size, seed)


def _divided(
    graph: Graph,
    outer_of_rank: NDArray[np.int64],
    outer_of_cell: NDArray[np.int64],
    sizes: NDArray[np.int64],
    seed: int,
) -> NDArray[np.int64]:
    """Partition the ranks of each outer cell into the cells within it; the cell of each rank."""
    out = np.empty(graph.n_vertices, np.int64)
    for outer in range(int(outer_of_cell.max(initial=-1)) + 1):
        ranks = np.flatnonzero(outer_of_rank == outer)
        inner = np.flatnonzero(outer_of_cell == outer)
        out[ranks] = inner[partition(graph.subgraph(ranks), sizes[inner], seed)]
    return out
