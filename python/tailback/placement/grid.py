"""Infers the Cartesian grid of a job's ranks from its traffic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tailback.placement.graph import bincount
from tailback.placement.problem import Traffic

EXPLAINED = 0.9
"""Share of the bytes that must go between neighbours in the grid."""
COVERED = 0.9
"""Share of the grid's neighbour pairs, in each dimension, that must communicate."""


def infer_grid(traffic: Traffic, n_ranks: int) -> tuple[int, ...]:
    """Extents of the grid of one to four dimensions whose stencil the traffic is, x fastest.

    A stencil on a grid numbered x fastest shows as constant differences of rank numbers: ±1, ±nx,
    ±nx·ny, and the wraps of periodic dimensions. Every factorisation of ``n_ranks`` is compared
    with the traffic: nearly all bytes must go between neighbours (corner neighbours and wraps too)
    and
    nearly all face neighbours must communicate. A little other traffic, as of collectives, is
    tolerated.

    Args:
        traffic: ``(source, destination, bytes)``.
        n_ranks: Number of ranks.

    Returns:
        The extents, all above 1, or ``()`` when the traffic is no stencil.
    """
    source, destination, size = traffic
    low = np.minimum(source, destination)
    high = np.maximum(source, destination)
    apart = low != high
    key, index = np.unique(low[apart] * n_ranks + high[apart], return_inverse=True)
    if n_ranks < 2 or not len(key):
        return ()
    weight = bincount(index, np.maximum(size[apart].astype(np.float64), 1.0), len(key))
    low, high = key // n_ranks, key % n_ranks
    offsets = np.bincount(high - low, minlength=n_ranks)
    best: tuple[float, int, tuple[int, ...]] | None = None
    for grid in _factorings(n_ranks, 4, offsets, 1, n_ranks):
        score = _fit(low, high, weight, grid)
        # Among grids that explain the traffic equally well, prefer fewer dimensions.
        rank = (round(score, 9), -len(grid), grid)
        if score > 0 and (best is None or rank[:2] > best[:2]):
            best = rank
    return best[2] if best else ()


def _factorings(
    n_left: int, most: int, offsets: NDArray[np.int64], stride: int, n_ranks: int
) -> Iterator[tuple[int, ...]]:
    """Ordered factorisations of ``n_left`` whose strides are common among the differences."""
    if n_left == 1:
        yield ()
        return
    if most == 0 or stride >= n_ranks:
        return
    for extent in range(2, n_left + 1):
        if n_left % extent:
            continue
        pairs = n_ranks // extent * (extent - 1)
        if offsets[stride] < COVERED * pairs:
            continue
        for tail in _factorings(n_left // extent, most - 1, offsets, stride * extent, n_ranks):
            yield (extent, *tail)


def coordinates(ranks: NDArray[np.int64], grid: tuple[int, ...]) -> NDArray[np.int64]:
    """Coordinates of ranks in a grid, x fastest, shape (len(ranks), len(grid))."""
    out = np.empty((len(ranks), len(grid)), np.int64)
    quotient = ranks
    for dimension, extent in enumerate(grid):
        out[:, dimension] = quotient % extent
        quotient = quotient // extent
    return out


def steps(
    low: NDArray[np.int64], high: NDArray[np.int64], grid: tuple[int, ...]
) -> NDArray[np.int64]:
    """Distance of each pair in each dimension, the shorter way around a wrap, shape (E, D)."""
    apart = np.abs(coordinates(low, grid) - coordinates(high, grid))
    extent = np.asarray(grid)
    # Only the outermost pair counts as a wrap: a ring of 4 has distance 1 from 0 to 3.
    return np.where((apart == extent - 1) & (extent > 2), 1, apart)


def _fit(
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    weight: NDArray[np.float64],
    grid: tuple[int, ...],
) -> float:
    """Explained share of bytes times the least covered dimension; 0 when either is too small."""
    inside = np.abs(coordinates(low, grid) - coordinates(high, grid))
    step = steps(low, high, grid)
    near = (step <= 1).all(axis=1)
    explained = float(weight[near].sum() / weight.sum())
    if explained < EXPLAINED:
        return 0.0
    face = near & (step.sum(axis=1) == 1)
    n_ranks = int(np.prod(grid))
    covered = [
        np.count_nonzero(face & (inside[:, d] == 1)) / (n_ranks // extent * (extent - 1))
        for d, extent in enumerate(grid)
    ]
    least = float(min(covered))
    return explained * least if least >= COVERED else 0.0


def bytes_by_dimension(traffic: Traffic, grid: tuple[int, ...]) -> NDArray[np.float64]:
    """Bytes between neighbours along each dimension, shape (D,); all 1 when there are none."""
    source, destination, size = traffic
    step = steps(source, destination, grid)
    near = (step <= 1).all(axis=1)
    total = (step[near] * size[near].astype(np.float64)[:, None]).sum(axis=0)
    return np.asarray(total if total.sum() > 0 else np.ones(len(grid)), np.float64)
