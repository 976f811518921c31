"""Mappings of others, with which ``bench/placement.py`` compares placements.

Each gives the slot of each rank, shape (R,), where slots follow the tree of switches.
"""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from tailback.placement.graph import Graph
from tailback.placement.grid import coordinates
from tailback.placement.partition import partition, repair

Slots = NDArray[np.int64]


def recursive_bisection(graph: Graph, seed: int, at_once: int) -> Slots:
    """Ranks and slots halved together, down to ``at_once`` slots (Pellegrini 1994).

    The halves of a graph are those of METIS. Unlike Scotch, it does not weigh edges to ranks that
    are mapped already.
    """
    out = np.empty(graph.n_vertices, np.int64)
    todo = [(np.arange(graph.n_vertices), 0, graph)]
    while todo:
        ranks, first, part = todo.pop()
        if len(ranks) <= at_once:
            out[ranks] = first + np.arange(len(ranks))
            continue
        half = len(ranks) // 2
        side = partition(part, np.array([half, len(ranks) - half]), seed)
        for which, begin in ((0, first), (1, first + half)):
            inside = np.flatnonzero(side == which)
            todo.append((ranks[inside], begin, part.subgraph(inside)))
    return out


def scotch(graph: Graph, levels: Sequence[tuple[int, int]], per_host: int) -> Slots | None:
    """The static mapping of Scotch's ``gmap`` onto a tree of hosts; None if it is not installed.

    Hosts that it fills too much give ranks to others.

    Args:
        graph: The communication graph.
        levels: Number of children and cost of a message between them, by level, the root first and
            hosts last.
        per_host: Slots of a host.
    """
    program = shutil.which("gmap") or shutil.which("scotch_gmap")
    if program is None:
        return None
    scale = 1.0 / float(graph.weight.min())
    weight = np.maximum(np.rint(graph.weight * scale), 1.0).astype(np.int64)
    with TemporaryDirectory() as folder:
        source, target, mapping = (Path(folder, name) for name in ("graph", "tree", "map"))
        lines = [f"0\n{graph.n_vertices}\t{len(graph.neighbour)}\n0\t010"]
        for begin, end in itertools.pairwise(graph.start.tolist()):
            pairs = zip(weight[begin:end], graph.neighbour[begin:end], strict=True)
            lines.append(f"{end - begin}\t" + "\t".join(f"{w}\t{v}" for w, v in pairs))
        source.write_text("\n".join(lines) + "\n", encoding="ascii")
        tree = "\t".join(f"{count}\t{cost}" for count, cost in levels)
        target.write_text(f"tleaf\n{len(levels)}\t{tree}\n", encoding="ascii")
        subprocess.run([program, source, target, mapping], check=True, capture_output=True)
        rows = np.loadtxt(mapping, dtype=np.int64, skiprows=1)
    host = np.empty(graph.n_vertices, np.int64)
    host[rows[:, 0]] = rows[:, 1]
    sizes = np.full(graph.n_vertices // per_host, per_host)
    out = np.empty(graph.n_vertices, np.int64)
    out[np.argsort(repair(graph, host, sizes), kind="stable")] = np.arange(graph.n_vertices)
    return out


def cart_reorder(grid: Sequence[int], per_host: int) -> Slots:
    """``MPI_Cart_create`` with reorder that knows hosts (Gropp 2019): boxes of ranks on each.

    No MPI library knows the switches: hosts follow one another row by row.
    """
    box = min(
        (
            sides
            for sides in itertools.product(*(_divisors(extent) for extent in grid))
            if math.prod(sides) == per_host
        ),
        key=lambda sides: sum(per_host / side for side in sides),
    )
    at = coordinates(np.arange(math.prod(grid)), tuple(grid))
    outer = [extent // side for extent, side in zip(grid, box, strict=True)]
    host, inside = at // np.array(box), at % np.array(box)
    return _number(host, outer) * per_host + _number(inside, box)


def hilbert(grid: Sequence[int]) -> Slots:
    """Ranks in the order of a Hilbert curve through the smallest cube around the grid.

    Transformation of coordinates by Skilling (2004).
    """
    at = coordinates(np.arange(math.prod(grid)), tuple(grid)).T.copy()
    bits = max(int(extent - 1).bit_length() for extent in grid)
    n = len(at)
    for q in (1 << b for b in range(bits - 1, 0, -1)):
        for i in range(n):
            inverted = (at[i] & q) > 0
            swapped = np.where(inverted, 0, (at[0] ^ at[i]) & (q - 1))
            at[0] ^= np.where(inverted, q - 1, swapped)
            at[i] ^= swapped
    for i in range(1, n):
        at[i] ^= at[i - 1]
    flips = np.zeros_like(at[0])
    for q in (1 << b for b in range(bits - 1, 0, -1)):
        flips ^= np.where((at[-1] & q) > 0, q - 1, 0)
    at ^= flips
    index = np.zeros_like(at[0])
    for bit, i in itertools.product(range(bits - 1, -1, -1), range(n)):
        index = (index << 1) | ((at[i] >> bit) & 1)
    out = np.empty(len(index), np.int64)
    out[np.argsort(index)] = np.arange(len(index))
    return out


def _divisors(extent: int) -> list[int]:
    return [side for side in range(1, extent + 1) if extent % side == 0]


def _number(at: NDArray[np.int64], grid: Sequence[int]) -> NDArray[np.int64]:
    """Number of each position, shape (R, D), in a grid, the first dimension fastest."""
    return at @ np.cumprod([1, *grid[:-1]])
