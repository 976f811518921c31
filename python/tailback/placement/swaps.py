"""Swapping vertices between parts of fixed size: the Kernighan–Lin variant of thesis §4.2.2.

For each part, the part with the most edges to it is chosen, and single vertices are exchanged
between the two by the heuristic of Kernighan and Lin ("An efficient heuristic procedure for
partitioning graphs", 1970). Sizes never change, so a valid partition stays valid. The search itself
is compiled: `crates/placement`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.placement.graph import Graph

_MAX_LIMIT = 2**31
"""Larger limits have no effect: there are not that many vertices."""


@dataclass
class SearchLimits:
    """Limits of the search.

    Attributes:
        depth: Swaps that may be chained between two parts before the best prefix is kept; 1 takes
            only swaps that help at once, as the thesis does.
        partners: How many parts are tried, those with most edges first; 1 as the thesis does.
        rounds: How often a part may be examined.
    """

    depth: int = 32
    partners: int = 8
    rounds: int = 40


class SwapSearch:
    """Improves one partition in place, part by part, until no swap helps.

    Args:
        graph: The graph to cut.
        part: Part of each vertex, shape (V,); copied.
        n_parts: Number of parts.
        group: Group of each part; vertices move only within a group. One group when absent.
        kind: Kind of each vertex; only vertices of one kind are swapped. One kind when absent.
    """

    def __init__(
        self,
        graph: Graph,
        part: NDArray[np.int64],
        n_parts: int,
        *,
        group: NDArray[np.int64] | None = None,
        kind: NDArray[np.int64] | None = None,
    ) -> None:
        self.graph = graph
        self.part = part.copy()
        self.n_parts = n_parts
        self.group = group
        self.kind = kind
        self.swaps = 0

    def run(self, limits: SearchLimits) -> NDArray[np.int64]:
        """Swap until nothing helps or the limits are reached; returns part of each vertex."""
        graph = self.graph
        self.part, swaps = _core.improve_partition(
            (_column(graph.start), _column(graph.neighbour), np.ascontiguousarray(graph.weight)),
            _column(self.part),
            self.n_parts,
            limits=(
                min(limits.depth, _MAX_LIMIT),
                min(limits.partners, _MAX_LIMIT),
                min(limits.rounds, _MAX_LIMIT),
            ),
            group=None if self.group is None else _column(self.group),
            kind=None if self.kind is None else _column(self.kind),
        )
        self.swaps += swaps
        return self.part


def _column(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.ascontiguousarray(values, np.int64)
