"""Graph partitioning into parts of exact sizes, with METIS."""

from __future__ import annotations

import numpy as np
import pymetis
from numpy.typing import NDArray

from tailback.placement.graph import Graph

_WEIGHT_SUM = 2.0**29  # METIS adds 32-bit weights; half of them stay far from the limit


def partition(graph: Graph, sizes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Part of each vertex, with a small cut; part p has exactly ``sizes[p]`` vertices.

    METIS' multilevel recursive bisection (thesis §4.2.2) with target weights from the sizes.
    METIS keeps sizes only approximately, so the cheapest vertices are moved afterwards.

    Args:
        graph: The graph.
        sizes: Size of each part, at least 1, summing to the number of vertices, shape (P,).
        seed: METIS' seed.
    """
    n = graph.n_vertices
    if len(sizes) < 2 or not len(graph.neighbour) or len(sizes) == n:
        return np.repeat(np.arange(len(sizes)), sizes)
    scale = min(_WEIGHT_SUM / float(graph.weight.sum()), 2.0**20 / float(graph.weight.min()))
    weight = np.maximum(np.rint(graph.weight * scale), 1.0).astype(np.int32)
    target = (sizes / sizes.sum()).tolist()
    target[-1] = 1.0 - sum(target[:-1])
    options = pymetis.Options(seed=seed % 2**31, ufactor=1)
    _, part = pymetis.part_graph(
        len(sizes),
        adjacency=pymetis.CSRAdjacency(
            adj_starts=graph.start.astype(np.int32), adjacent=graph.neighbour.astype(np.int32)
        ),
        eweights=weight,
        tpwgts=target,
        recursive=True,
        options=options,
    )
    return repair(graph, np.asarray(part, np.int64), sizes)


def repair(graph: Graph, part: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Move the cheapest vertices from parts that are too large to parts that are too small."""
    part = part.copy()
    excess = np.bincount(part, minlength=len(sizes)) - sizes
    while (excess > 0).any():
        over = np.flatnonzero(excess[part] > 0)
        room = np.flatnonzero(excess < 0)
        column = np.full(len(sizes), -1, np.int64)
        column[room] = np.arange(len(room))
        local, entry = graph.entries(over)
        other = part[graph.neighbour[entry]]
        weight = graph.weight[entry]
        inside = np.bincount(local, weight * (other == part[over][local]), len(over))
        to = column[other]
        near = to >= 0
        gain = np.zeros((len(over), len(room)))
        np.add.at(gain, (local[near], to[near]), weight[near])
        gain -= inside[:, None]
        i, j = divmod(int(np.argmax(gain)), len(room))
        excess[part[over[i]]] -= 1
        excess[room[j]] += 1
        part[over[i]] = room[j]
    return part
