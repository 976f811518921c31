"""Incremental placement: improve a given placement by swapping ranks (thesis §4.2.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError
from tailback.placement import options as read
from tailback.placement.assign import PLACEMENTS, assign_slots, check_slots
from tailback.placement.cells import Cells, cells_of, group_leaves, slots_in_leaves
from tailback.placement.graph import Graph
from tailback.placement.options import Options
from tailback.placement.problem import PlacementProblem
from tailback.placement.swaps import SearchLimits, SwapSearch

NAMES = ("start", "start_options", "depth", "partners", "pods", "congestion_weight")


@PLACEMENTS.register("incremental")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Kernighan–Lin swaps from a start placement, weighted by measured congestion if known.

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
    graph = congested_graph(
        problem, cells, leaf_of_rank, read.number(options, "congestion_weight", 4.0)
    )
    better = SwapSearch(graph, leaf_of_rank, cells.n_leaves).run(limits)
    if read.flag(options, "pods", True):
        better = group_leaves(graph, cells, better, limits)
    return slots_in_leaves(problem, cells, better, limits)


def congested_graph(
    problem: PlacementProblem, cells: Cells, leaf_of_rank: NDArray[np.int64], factor: float
) -> Graph:
    """The communication graph with larger weights for edges across congested leaves.

    An edge between two leaves counts ``1 + factor * c`` times, c being the larger congested
    fraction of the two, so congested traffic is brought together first.
    """
    graph = problem.graph
    if problem.congestion is None:
        return graph
    switch = np.empty(cells.n_leaves, np.int64)
    switch[cells.leaf] = problem.slot_leaf[cells.slot]
    at = np.nan_to_num(problem.congestion)[switch][leaf_of_rank]
    owner, other = graph.owner, graph.neighbour
    worst = np.where(
        leaf_of_rank[owner] != leaf_of_rank[other], np.maximum(at[owner], at[other]), 0.0
    )
    return Graph(graph.start, graph.neighbour, graph.weight * (1.0 + factor * worst))


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
