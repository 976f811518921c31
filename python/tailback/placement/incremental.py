"""Incremental placement: improve a given placement by swapping ranks (thesis §4.2.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError
from tailback.placement import options as read
from tailback.placement.assign import PLACEMENTS, assign_slots, check_slots
from tailback.placement.cells import (
    Cells,
    cells_of,
    group_leaves,
    slots_in_leaves,
    spare_congested_leaves,
)
from tailback.placement.graph import Graph
from tailback.placement.options import Options
from tailback.placement.problem import PlacementProblem
from tailback.placement.swaps import SearchLimits, SwapSearch

NAMES = ("start", "start_options", "depth", "partners", "pods", "congestion_weight")


@PLACEMENTS.register("incremental")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Kernighan–Lin swaps from a start placement, aware of measured congestion (thesis §6.1).

    With measured congestion the swaps are also done with edges that weigh the congestion of their
    ends, parts are exchanged between leaves, so that those with most traffic to others are on the
    least congested ones, and the placement whose paths cost less is kept.

    Options: ``start`` (a placement's name, default ``"block"``, or the slot of each rank),
    ``start_options``, ``depth`` and ``partners`` (see
    :class:`tailback.placement.swaps.SearchLimits`;
    1 and 1 is the thesis' variant), ``pods`` (default true: afterwards exchange leaves between
    pods), ``congestion_weight`` (default 4).
    """
    read.refuse_unknown("incremental", options, NAMES)
    limits = SearchLimits(
        depth=read.integer(options, "depth", SearchLimits.depth),
        partners=read.integer(options, "partners", SearchLimits.partners),
    )
    start = _start(problem, options)
    cells = cells_of(problem, start)
    entry = np.searchsorted(cells.slot, start)
    leaf_of_rank = cells.leaf[entry]
    more = read.number(options, "congestion_weight", 4.0) * leaf_congestion(problem, cells)
    pods = read.flag(options, "pods", True)

    def improved(graph: Graph) -> NDArray[np.int64]:
        leaf = SwapSearch(graph, leaf_of_rank, cells.n_leaves).run(limits)
        if pods:
            leaf = group_leaves(graph, cells, leaf, limits)
        return spare_congested_leaves(problem.graph, cells, leaf, more) if more.any() else leaf

    def path_cost(leaf: NDArray[np.int64]) -> float:
        return cells.cost(congested_graph(problem.graph, leaf, more), leaf)

    graphs = [congested_graph(problem.graph, leaf_of_rank, more)] if more.any() else []
    better = min(map(improved, [*graphs, problem.graph]), key=path_cost)
    return slots_in_leaves(problem, cells, better, limits)


def leaf_congestion(problem: PlacementProblem, cells: Cells) -> NDArray[np.float64]:
    """Measured congested fraction of each leaf, 0 where it is unknown, shape (F,)."""
    if problem.congestion is None:
        return np.zeros(cells.n_leaves)
    switch = np.empty(cells.n_leaves, np.int64)
    switch[cells.leaf] = problem.slot_leaf[cells.slot]
    return np.asarray(np.nan_to_num(problem.congestion)[switch], np.float64)


def congested_graph(
    graph: Graph, leaf_of_rank: NDArray[np.int64], more: NDArray[np.float64]
) -> Graph:
    """The communication graph with larger weights for edges across congested leaves.

    An edge between two leaves counts ``1 + m`` times, m being the larger ``more`` of the two, shape
    (F,), so congested traffic is brought together first.
    """
    owner, other = leaf_of_rank[graph.owner], leaf_of_rank[graph.neighbour]
    worst = np.where(owner != other, np.maximum(more[owner], more[other]), 0.0)
    return Graph(graph.start, graph.neighbour, graph.weight * (1.0 + worst))


def _start(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    start = options.get("start", "block")
    nested = options.get("start_options", {})
    if not isinstance(nested, dict):
        raise PlacementError(
            f"start_options = {nested!r} is not a table",
            place="placement_options",
            remedy="give the options of the start placement, like {tile = [8, 4]}",
        )
    if isinstance(start, str):
        if start == "incremental":
            raise PlacementError(
                "start = 'incremental' would start from itself",
                place="placement_options",
                remedy="start from another placement",
            )
        return assign_slots(start, problem, nested)
    if isinstance(start, np.ndarray | Sequence):
        slots = np.asarray(start)
        if slots.dtype.kind in "iu":
            check_slots("start", problem, slots)
            return slots.astype(np.int64)
    raise PlacementError(
        f"start = {start!r:.60} is not a placement",
        place="placement_options",
        remedy="give a placement's name or the slot of each rank",
    )
