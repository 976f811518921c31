"""The communication graph: traffic between ranks as one symmetric sparse array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def bincount(
    index: NDArray[np.int64], weight: NDArray[np.float64], length: int
) -> NDArray[np.float64]:
    """Sum of the weights at each index, shape (length,)."""
    # numpy returns integers, not floats, when there is nothing to count.
    return np.bincount(index, weight, length).astype(np.float64)


@dataclass(frozen=True)
class Graph:
    """An undirected weighted graph in compressed rows.

    Attributes:
        start: First entry of each vertex, shape (V + 1,).
        neighbour: The other end of each entry, shape (E,); every edge is listed twice.
        weight: Weight of each entry, above 0, shape (E,).
    """

    start: NDArray[np.int64]
    neighbour: NDArray[np.int64]
    weight: NDArray[np.float64]

    @property
    def n_vertices(self) -> int:
        """Number of vertices."""
        return len(self.start) - 1

    @property
    def owner(self) -> NDArray[np.int64]:
        """The vertex each entry belongs to, shape (E,)."""
        return np.repeat(np.arange(self.n_vertices), np.diff(self.start))

    @classmethod
    def from_edges(
        cls,
        n_vertices: int,
        source: NDArray[np.int64],
        destination: NDArray[np.int64],
        weight: NDArray[np.float64],
    ) -> Graph:
        """Build from directed edges: both directions add up; loops and zero weights are dropped.

        Args:
            n_vertices: Number of vertices V.
            source: Source vertex of each edge, shape (M,).
            destination: Destination vertex, shape (M,).
            weight: Weight, shape (M,).
        """
        keep = (source != destination) & (weight > 0)
        source, destination, weight = source[keep], destination[keep], weight[keep]
        key = np.concatenate([source * n_vertices + destination, destination * n_vertices + source])
        pairs, index = np.unique(key, return_inverse=True)
        total = bincount(index, np.concatenate([weight, weight]), len(pairs))
        owner = pairs // max(n_vertices, 1)
        start = np.searchsorted(owner, np.arange(n_vertices + 1)).astype(np.int64)
        return cls(start, pairs % max(n_vertices, 1), total)

    def entries(self, vertices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All entries of ``vertices``.

        Returns:
            ``(local, entry)``: for each entry the position of its vertex in ``vertices`` and its
            index into ``neighbour`` and ``weight``.
        """
        first = self.start[vertices]
        count = self.start[vertices + 1] - first
        local = np.repeat(np.arange(len(vertices)), count)
        offset = np.arange(len(local)) - np.repeat(np.cumsum(count) - count, count)
        return local, first[local] + offset

    def subgraph(self, vertices: NDArray[np.int64]) -> Graph:
        """The graph among ``vertices``, renumbered to their positions."""
        position = np.full(self.n_vertices, -1, np.int64)
        position[vertices] = np.arange(len(vertices))
        local, entry = self.entries(vertices)
        other = position[self.neighbour[entry]]
        keep = other >= 0
        start = np.zeros(len(vertices) + 1, np.int64)
        start[1:] = np.cumsum(np.bincount(local[keep], minlength=len(vertices)))
        return Graph(start, other[keep], self.weight[entry[keep]])

    def quotient(self, part: NDArray[np.int64], n_parts: int) -> Graph:
        """The graph between parts: weights of all edges between two parts added up."""
        owner = self.owner
        return Graph.from_edges(
            n_parts, part[owner], part[self.neighbour], self.weight / 2.0
        )  # every edge is here twice and from_edges adds both directions again

    def cut(self, part: NDArray[np.int64]) -> float:
        """Total weight of the edges between different parts."""
        apart = part[self.owner] != part[self.neighbour]
        return float(self.weight[apart].sum() / 2.0)
