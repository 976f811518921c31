"""Geometric tiling: boxes of the grid on leaves, and boxes of boxes on pods (thesis §4.2.3).

The traffic that leaves a box is proportional to its surface, so near-cubic boxes are best. Grids
rarely divide into equal boxes and leaves rarely have equal numbers of slots, so boxes are cut from
*bands*: the grid is split into columns one box wide, each is traversed from end to end, and each
leaf takes as many ranks as it has slots. If everything divides evenly, the pieces are exact boxes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError
from tailback.placement import options as read
from tailback.placement.assign import PLACEMENTS
from tailback.placement.cells import Cells, cells_of
from tailback.placement.graph import Graph
from tailback.placement.grid import bytes_by_dimension, coordinates, infer_grid
from tailback.placement.options import Options
from tailback.placement.problem import PlacementProblem

MAX_SHAPES = 24
"""Box shapes that are evaluated with the actual traffic, smallest surface first."""


@PLACEMENTS.register("tile")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Boxes of the ranks' grid, one on each leaf (one-level geometric tiling).

    Options: ``tile`` (extents of the box, like ``[8, 4]``; the best shape for the leaves when
    absent), ``grid`` (extents of the ranks' grid; found from the traffic when absent).
    """
    read.refuse_unknown("tile", options, ("tile", "grid"))
    grid = grid_of(problem, options)
    cells = cells_of(problem)
    tile = _box(options, "tile", grid)
    if tile:
        order = _literal(grid, [tile])
        return _in_order(cells, order, (cells.slot, cells.leaf))
    return _Filler(problem, cells, grid).fill((cells.leaf, cells.host))


@PLACEMENTS.register("tile2")
def place_two_levels(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Boxes of the ranks' grid on pods, and in each smaller boxes on leaves (two-level tiling).

    Options: ``super_tile`` and ``tile`` (extents in ranks, give both or neither), ``grid``.
    """
    read.refuse_unknown("tile2", options, ("tile", "super_tile", "grid"))
    grid = grid_of(problem, options)
    cells = cells_of(problem)
    tile, outer = _box(options, "tile", grid), _box(options, "super_tile", grid)
    if bool(tile) != bool(outer):
        raise PlacementError(
            "tile2 has only one of tile and super_tile",
            place="placement_options",
            remedy="give both, or neither to have them chosen",
        )
    pod = cells.leaf_pod[cells.leaf]
    if tile:
        order = _literal(grid, [outer, tile])
        return _in_order(cells, order, (cells.slot, cells.leaf, pod))
    return _Filler(problem, cells, grid).fill((pod, cells.leaf, cells.host))


def grid_of(problem: PlacementProblem, options: Options) -> tuple[int, ...]:
    """The grid from the options, the job or the traffic, in this order.

    Raises:
        PlacementError: It does not hold the ranks, or there is none.
    """
    grid = read.extents(options, "grid") or problem.grid
    if not grid:
        grid = infer_grid(problem.traffic, problem.n_ranks)
    if not grid:
        raise PlacementError(
            "the traffic is not a stencil on a Cartesian grid, so it cannot be tiled",
            remedy='write placement = "tile" and placement_options = { grid = [nx, ny, …] } for '
            "the job in the scenario, x fastest, or use the placement 'metis'",
        )
    held = 1
    for extent in grid:
        held *= extent
    if held != problem.n_ranks:
        raise PlacementError(
            f"grid {list(grid)} holds {held} ranks, the job has {problem.n_ranks}",
            place="placement_options",
            remedy="give the extents of the whole grid, x fastest",
        )
    return grid


def _box(options: Options, name: str, grid: tuple[int, ...]) -> tuple[int, ...]:
    box = read.extents(options, name)
    if box and len(box) != len(grid):
        raise PlacementError(
            f"{name} = {list(box)} has {len(box)} dimensions, the grid {list(grid)} {len(grid)}",
            place="placement_options",
            remedy=f"give {len(grid)} extents",
        )
    return box


def _literal(grid: tuple[int, ...], boxes: list[tuple[int, ...]]) -> NDArray[np.int64]:
    """Ranks box after box, the last dimension fastest (tile-column by tile-column)."""
    ranks = np.arange(int(np.prod(grid)))
    inside = coordinates(ranks, grid)
    keys: list[NDArray[np.int64]] = []
    for box in boxes:
        keys.extend((inside // np.asarray(box)).T)
        inside = inside % np.asarray(box)
    keys.extend(inside.T[::-1])
    return np.lexsort(keys[::-1])


def _in_order(
    cells: Cells, order: NDArray[np.int64], keys: tuple[NDArray[np.int64], ...]
) -> NDArray[np.int64]:
    """Ranks in ``order`` on the used slots sorted by ``keys``, the last key first."""
    slots = np.empty(len(order), np.int64)
    slots[order] = cells.slot[np.lexsort(keys)]
    return slots


@dataclass(frozen=True)
class _Shape:
    """The dimension along which a band runs, and its widths in the others."""

    along: int
    width: tuple[int, ...]


class _Filler:
    """Fills nested cells with compact pieces of the grid."""

    def __init__(self, problem: PlacementProblem, cells: Cells, grid: tuple[int, ...]) -> None:
        self.graph = problem.graph
        self.cells = cells
        self.at = coordinates(np.arange(problem.n_ranks), grid)
        self.load = bytes_by_dimension(problem.traffic, grid)
        self.slots = np.empty(problem.n_ranks, np.int64)
        self._known: dict[tuple[object, ...], _Shape] = {}

    def fill(self, levels: tuple[NDArray[np.int64], ...]) -> NDArray[np.int64]:
        """Slot of each rank; ``levels`` gives the cell of each used slot, outermost first."""
        everything = np.arange(len(self.slots))
        self._fill(everything, everything, levels)
        return self.slots

    def _fill(
        self,
        ranks: NDArray[np.int64],
        entries: NDArray[np.int64],
        levels: tuple[NDArray[np.int64], ...],
    ) -> None:
        if levels:
            names, index = np.unique(levels[0][entries], return_inverse=True)
            if len(names) == 1:
                self._fill(ranks, entries, levels[1:])
                return
            sizes = np.bincount(index)
            if sizes.max() > 1:
                pieces = np.split(self._order(ranks, sizes), np.cumsum(sizes)[:-1])
                grouped = np.split(np.argsort(index, kind="stable"), np.cumsum(sizes)[:-1])
                for piece, group in zip(pieces, grouped, strict=True):
                    self._fill(ranks[piece], entries[group], levels[1:])
                return
        self.slots[ranks] = self.cells.slot[entries]

    def _order(self, ranks: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Order of the ranks along the best bands for pieces of ``sizes``."""
        at = self.at[ranks] - self.at[ranks].min(axis=0)
        extent = tuple(int(e) for e in at.max(axis=0) + 1)
        # Regions with the same outline have the same result, which is computed once.
        key = (extent, len(ranks), sizes.tobytes())
        if key not in self._known:
            self._known[key] = self._best(self.graph.subgraph(ranks), at, extent, sizes)
        return _walk(at, extent, self._known[key], sizes)

    def _best(
        self,
        graph: Graph,
        at: NDArray[np.int64],
        extent: tuple[int, ...],
        sizes: NDArray[np.int64],
    ) -> _Shape:
        """The shape that cuts the least traffic."""
        piece = np.repeat(np.arange(len(sizes)), sizes)
        part = np.empty(len(at), np.int64)
        shapes = _shapes(extent, float(sizes.max()), self.load)
        cuts = np.empty(len(shapes))
        for i, shape in enumerate(shapes):
            part[_walk(at, extent, shape, sizes)] = piece
            cuts[i] = graph.cut(part)
        least = np.flatnonzero(cuts <= cuts.min() * (1 + 1e-9))
        # Among equals prefer exact boxes, which are easier to recognise.
        boxes = [i for i in least if _exact(at, extent, shapes[i], sizes)]
        return shapes[int((boxes or list(least))[0])]


def _shapes(extent: tuple[int, ...], size: float, load: NDArray[np.float64]) -> list[_Shape]:
    """Band shapes, those with the smallest surface of a box of ``size`` first.

    The estimated surface ignores the steps where bands end within a piece. Shapes that divide the
    grid evenly are therefore kept even if another shape has a smaller estimate.
    """
    best: dict[tuple[int, ...], tuple[tuple[float | int, ...], bool, _Shape]] = {}
    for along in range(len(extent)):
        others = [d for d in range(len(extent)) if d != along]
        for width in _widths([extent[d] for d in others], size):
            counts = [max(1, round(extent[d] / w)) for d, w in zip(others, width, strict=True)]
            box = {d: extent[d] / n for d, n in zip(others, counts, strict=True)}
            box[along] = max(
                1.0, min(float(extent[along]), size / float(np.prod(list(box.values()))))
            )
            surface = sum(load[d] / box[d] for d in range(len(extent)) if box[d] < extent[d])
            divides = all(extent[d] == w * n for d, w, n in zip(others, width, counts, strict=True))
            # Among equals prefer bands along the last dimension, wide in x.
            key = (round(float(surface), 9), not divides, -along, *(-w for w in width))
            bands = (along, *counts)
            if bands not in best or key < best[bands][0]:
                best[bands] = (key, divides, _Shape(along, width))
    ranked = sorted(best.values(), key=lambda f: f[0])
    chosen = ranked[:MAX_SHAPES] + [f for f in ranked[MAX_SHAPES:] if f[1]][:MAX_SHAPES]
    return [shape for _, _, shape in chosen]


def _widths(extents: list[int], size: float) -> list[tuple[int, ...]]:
    """Every choice of band widths whose cross-section is not above ``size``."""
    choices = [range(1, int(min(e, size)) + 1) for e in extents]
    count = float(np.prod([len(c) for c in choices])) if choices else 1.0
    if count > 20_000:
        # For very large cells, widths that give equal bands suffice.
        choices = [
            sorted({-(-e // n) for n in range(1, e + 1) if -(-e // n) <= size})  # type: ignore[misc]
            for e in extents
        ]
    return [w for w in itertools.product(*choices) if float(np.prod(w)) <= size]


def _bands(
    at: NDArray[np.int64], extent: tuple[int, ...], shape: _Shape
) -> tuple[list[NDArray[np.int64]], list[int]]:
    """Band of each cell in each dimension the bands do not run along, and how many there are."""
    others = [d for d in range(len(extent)) if d != shape.along]
    counts = [max(1, round(extent[d] / w)) for d, w in zip(others, shape.width, strict=True)]
    return [at[:, d] * n // extent[d] for d, n in zip(others, counts, strict=True)], counts


def _walk(
    at: NDArray[np.int64], extent: tuple[int, ...], shape: _Shape, sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Order of the cells at ``at``: band after band, along each band from end to end."""
    bands, counts = _bands(at, extent, shape)
    serpentine = not _even(bands, counts, sizes)
    number = np.zeros(len(at), np.int64)
    walk: list[NDArray[np.int64]] = []
    for band, n in zip(bands, counts, strict=True):
        visited = np.where(number % 2 == 1, n - 1 - band, band) if serpentine else band
        walk.append(visited)
        number = number * n + visited
    along = at[:, shape.along]
    if serpentine:
        # Back and forth, so that a piece that spans two bands stays in one place.
        along = np.where(number % 2 == 1, extent[shape.along] - 1 - along, along)
    inner = [at[:, d] for d in reversed(range(len(extent))) if d != shape.along]
    keys = [*walk, along, *inner]
    return np.lexsort(keys[::-1])


def _even(bands: list[NDArray[np.int64]], counts: list[int], sizes: NDArray[np.int64]) -> bool:
    """True when every band holds a whole number of pieces, so that none spans two."""
    if (sizes != sizes[0]).any():
        return False
    number = np.zeros(1, np.int64)
    for band, n in zip(bands, counts, strict=True):
        number = number * n + band
    return not (np.bincount(number) % sizes[0]).any()


def _exact(
    at: NDArray[np.int64], extent: tuple[int, ...], shape: _Shape, sizes: NDArray[np.int64]
) -> bool:
    """True when every piece is a box of the same extents."""
    others = [d for d in range(len(extent)) if d != shape.along]
    divides = all(extent[d] % w == 0 for d, w in zip(others, shape.width, strict=True))
    return (
        divides
        and not sizes[0] % int(np.prod(shape.width))
        and _even(*_bands(at, extent, shape), sizes)
    )
