"""Links of a torus, mesh or dragonfly as grids: rings, slices, and pairs of groups."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tailback.arrays import Floats, Ints
from tailback.fabric.topologies import parse
from tailback.fabric.topologies.dragonfly import Grouped
from tailback.fabric.topologies.torus import AXES, grid_dims, grid_steps
from tailback.report.figure_data import FigureData

SLICES = 12
"""Slices of a torus that are drawn: those where packets met most congestion."""


@dataclass(frozen=True, eq=False)
class LinkGrid:
    """Links in cells of which each may hold several.

    Attributes:
        name: What it shows.
        shape: Rows and columns.
        axes: What columns and rows are.
        cell: Cell of each link, row by row, shape (n,).
        link: Their numbers, shape (n,).
        wide: Whether it is as wide as the page.
    """

    name: str
    shape: tuple[int, int]
    axes: tuple[str, str]
    cell: Ints
    link: Ints
    wide: bool = False

    def worst(self, value: Floats) -> Floats:
        """Highest value of the links of each cell, NaN without any, shape (rows, columns).

        Args:
            value: Value of every link, NaN for none, shape (L,).
        """
        out = np.full(prod(self.shape), np.nan)
        np.fmax.at(out, self.cell, value[self.link])
        return out.reshape(self.shape)


def rings(evidence: FigureData) -> list[LinkGrid]:
    """Rings of a torus or mesh against the position along them, both ways; [] of other fabrics."""
    dims = grid_dims(evidence.run.scenario.fabric.topology)
    out = []
    for dimension, size in enumerate(dims):
        name, count = AXES[dimension], prod(dims) // size
        for step, sign in ((1, "+"), (-1, "-")):
            link, ring, position = _ring_of(evidence, dims, dimension, step)
            # The longer side lies, as a window is wider than it is high: cells are no thin lines.
            long, short = (f"position along {name}", position, size), ("ring", ring, count)
            if count > size:
                long, short = short, long
            cell = short[1] * long[2] + long[1]
            title, shape = f"{name}{sign}: {count} rings", (short[2], long[2])
            out.append(LinkGrid(title, shape, (long[0], short[0]), cell, link, wide=True))
    return out


def _ring_of(
    evidence: FigureData, dims: list[int], dimension: int, step: int
) -> tuple[Ints, Ints, Ints]:
    """Links one step along a dimension, the ring of each, and its position along it.

    A ring's number is that of its switch at position 0 among those.
    """
    src, dst = _switches(evidence)
    size, stride = dims[dimension], prod(dims[:dimension])
    dimensions, steps = grid_steps(dims, src, dst)
    link = np.flatnonzero((dimensions == dimension) & (steps == step))
    position = src[link] // stride % size
    first = src[link] - position * stride
    return link, first % stride + first // (stride * size) * stride, position


def slices(evidence: FigureData) -> list[LinkGrid]:
    """X–Y slices of a torus or mesh with most congestion; [] of other fabrics and of one ring."""
    dims = grid_dims(evidence.run.scenario.fabric.topology)
    if len(dims) < 2:
        return []
    src, _ = _switches(evidence)
    inner = np.flatnonzero((src >= 0) & ~evidence.links["to_node"].to_numpy())
    plane = dims[0] * dims[1]
    number = src[inner] // plane
    met = np.bincount(number, evidence.load().congested_weight[inner], prod(dims) // plane)
    out = []
    for chosen in sorted(np.argsort(-met, kind="stable")[:SLICES].tolist()):
        mine = number == chosen
        at, parts = chosen, []
        for axis, size in zip(AXES[2:], dims[2:], strict=False):
            parts.append(f"{axis}={at % size}")
            at //= size
        name = f"slice {', '.join(parts)}" if parts else "all: worst link that leaves a switch"
        cell = src[inner][mine] % plane
        out.append(LinkGrid(name, (dims[1], dims[0]), ("X", "Y"), cell, inner[mine]))
    return out


def groups(evidence: FigureData) -> LinkGrid | None:
    """Links between each pair of groups of a dragonfly; None of other fabrics."""
    section = evidence.run.scenario.fabric.topology
    if section is None or not isinstance(parse(section), Grouped):
        return None
    src, dst = _switches(evidence)
    inner = np.flatnonzero((src >= 0) & (dst >= 0))
    group = evidence.run.tables["switches"]["pod"].to_numpy().astype(np.int64)
    count = int(group.max(initial=0)) + 1
    cell = group[src[inner]] * count + group[dst[inner]]
    name = "worst link between two groups; diagonal: within the group"
    return LinkGrid(name, (count, count), ("to group", "from group"), cell, inner)


def _switches(evidence: FigureData) -> tuple[Ints, Ints]:
    """Switches at both ends of each link, negative for a node."""
    n_nodes = evidence.run.tables["nodes"].height
    return (
        evidence.links["src"].to_numpy().astype(np.int64) - n_nodes,
        evidence.links["dst"].to_numpy().astype(np.int64) - n_nodes,
    )
