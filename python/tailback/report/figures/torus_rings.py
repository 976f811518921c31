"""Links of a torus or mesh: rings against positions in each direction, and slices."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.topologies.torus import AXES, grid_dims, grid_steps
from tailback.report.figure import Options, canvas, figure
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.scales import MUTED, NO_DATA, colormap, norm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SLICES = 12


@figure("torus_rings", per_phase=True, per_run=True)
def torus_rings(case: FigureCase, options: Options) -> Figure | None:
    """Each dimension of a torus: every ring against the position along it, both ways; slices."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import MaxNLocator

    evidence = options.evidence(case)
    dims = grid_dims(evidence.run.scenario.fabric.topology)
    if not dims:
        return None
    value = evidence.load(options.phase).fraction
    slices = min(prod(dims[2:]), SLICES) if len(dims) > 1 else 0
    drawn = canvas(10.0, 1.0 + 1.9 * len(dims) + (2.1 if slices else 0))
    each = max(slices, 1)  # columns of the layout that a raster takes; a slice takes two
    grid = drawn.add_gridspec(len(dims) + (slices > 0), 2 * each)
    every = []
    for dimension in range(len(dims)):
        for side, step in enumerate((1, -1)):
            axes = drawn.add_subplot(grid[dimension, side * each : (side + 1) * each])
            every.append(axes)
            cells = rings(evidence, value, dims, dimension, step)
            _draw_slice(axes, cells)
            name = AXES[dimension]
            axes.set_title(f"{name}{'+' if step > 0 else '-'}: {len(cells)} rings")
            axes.set_xlabel(f"position along {name}")
            axes.set_ylabel("ring")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(MaxNLocator(6, integer=True))
    chosen = _worst_slices(evidence, value, dims, slices) if slices else []
    for place, (number, cells) in enumerate(chosen):
        axes = drawn.add_subplot(grid[len(dims), 2 * place : 2 * place + 2])
        every.append(axes)
        _draw_slice(axes, cells)
        axes.set_title(_slice_name(number, dims), fontsize=7.5, fontweight="normal")
        axes.set_xticks([])
        axes.set_yticks([])
    bar = drawn.colorbar(
        ScalarMappable(norm("congestion"), colormap("congestion")),
        ax=every,
        location="bottom",
        fraction=0.03,
        pad=0.02,
        aspect=60,
        shrink=0.6,
    )
    bar.outline.set_visible(False)
    last = "; last row: X–Y slices that met most, the worst link that leaves a switch"
    bar.set_label(
        f"congested fraction of the link that leaves a position (0–1){last * (slices > 0)}"
    )
    return drawn


def rings(
    evidence: FigureData, value: NDArray[np.float64], dims: list[int], dimension: int, step: int
) -> NDArray[np.float64]:
    """Value of the links one step along a dimension, the worst of parallel cables; NaN for none.

    Returns:
        Shape (rings, positions).
    """
    link, ring, position = ring_of(evidence, dims, dimension, step)
    out = np.full((prod(dims) // dims[dimension], dims[dimension]), np.nan)
    np.fmax.at(out, (ring, position), value[link])
    return out


def ring_of(
    evidence: FigureData, dims: list[int], dimension: int, step: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Links one step along a dimension, the ring of each, and its position along it.

    A ring's number is that of its switch at position 0 among those.
    """
    n_nodes = evidence.run.tables["nodes"].height
    src = evidence.links["src"].to_numpy().astype(np.int64) - n_nodes
    dst = evidence.links["dst"].to_numpy().astype(np.int64) - n_nodes
    size, stride = dims[dimension], prod(dims[:dimension])
    dimensions, steps = grid_steps(dims, src, dst)
    link = np.flatnonzero((dimensions == dimension) & (steps == step))
    position = src[link] // stride % size
    first = src[link] - position * stride
    return link, first % stride + first // (stride * size) * stride, position


def _worst_slices(
    evidence: FigureData, value: NDArray[np.float64], dims: list[int], most: int
) -> list[tuple[int, NDArray[np.float64]]]:
    """The X–Y slices with most congestion, in order: number, and the worst link of each switch."""
    n_nodes = evidence.run.tables["nodes"].height
    src = evidence.links["src"].to_numpy().astype(np.int64) - n_nodes
    inner = np.flatnonzero((src >= 0) & ~evidence.links["to_node"].to_numpy())
    worst = np.full(prod(dims), np.nan)
    np.fmax.at(worst, src[inner], value[inner])
    planes = worst.reshape(-1, dims[1], dims[0])
    heavy = np.argsort(-np.nansum(planes, axis=(1, 2)), kind="stable")[:most]
    return [(int(number), planes[number]) for number in sorted(heavy.tolist())]


def _slice_name(number: int, dims: list[int]) -> str:
    parts = []
    for name, size in zip(AXES[2:], dims[2:], strict=False):
        parts.append(f"{name}={number % size}")
        number //= size
    return ", ".join(parts) or "all"


def _draw_slice(axes: Axes, cells: NDArray[np.float64]) -> None:
    axes.set_facecolor(NO_DATA)
    axes.imshow(
        np.ma.masked_invalid(cells),
        cmap=colormap("congestion"),
        norm=norm("congestion"),
        aspect="auto",
        interpolation="nearest",
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    axes.tick_params(color=MUTED, labelsize=7.5)
