"""Finding the grid of a stencil from its traffic."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.placement import infer_grid, path_length, place, problem_for
from tests.factories.placement_fabrics import pairs, regular, stencil


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("grid", [(4, 4, 8), (64, 72), (9,), (5, 3), (2, 3, 4), (3, 3, 3, 4)])
def test_stencils(grid: tuple[int, ...], periodic: bool) -> None:
    program = stencil(grid, periodic, with_grid=False)
    assert infer_grid(program.traffic_matrix(), program.n_ranks) == grid


def test_with_a_little_other_traffic() -> None:
    source, destination, size = stencil((4, 4, 8)).traffic_matrix()
    rng = np.random.default_rng(1)
    extra = rng.integers(0, 128, (2, 300))
    traffic = (
        np.concatenate([source, extra[0]]),
        np.concatenate([destination, extra[1]]),
        np.concatenate([size, np.full(300, 64, np.uint64)]),
    )
    assert infer_grid(traffic, 128) == (4, 4, 8)


def test_with_corners() -> None:
    sends = []
    for rank in range(48):
        x, y = rank % 8, rank // 8
        for dx in (-1, 0, 1):
            for dy in (-1, 0, 1):
                if (dx or dy) and 0 <= x + dx < 8 and 0 <= y + dy < 6:
                    sends.append((rank, rank + dx + 8 * dy, 100))
    assert infer_grid(pairs(48, sends).traffic_matrix(), 48) == (8, 6)


@pytest.mark.parametrize("kind", ["random", "all to all", "to one", "silent", "half a stencil"])
def test_no_stencil(kind: str) -> None:
    rng = np.random.default_rng(2)
    sends = {
        "random": [(r, int(p), 100) for r in range(48) for p in rng.integers(0, 48, 4) if p != r],
        "all to all": [(r, p, 100) for r in range(48) for p in range(48) if p != r],
        "to one": [(r, 0, 100) for r in range(1, 48)],
        "silent": [],
        "half a stencil": [(r, r + 1, 100) for r in range(0, 47, 2)],
    }[kind]
    assert infer_grid(pairs(48, sends).traffic_matrix(), 48) == ()


def test_tiling_works_on_a_trace_without_a_grid() -> None:
    fabric = regular(16, 8, 4)
    with_grid, unknown = stencil((4, 4, 8)), stencil((4, 4, 8), with_grid=False)
    assert unknown.grid == ()
    hosts = list(range(128))
    tiled = place("tile", problem_for(fabric, with_grid, hosts, 1, 1))
    tiled_without_grid = place("tile", problem_for(fabric, unknown, hosts, 1, 1))
    assert np.array_equal(tiled, tiled_without_grid)
    block = place("block", problem_for(fabric, unknown, hosts, 1, 1))
    assert path_length(fabric, unknown, tiled_without_grid) < path_length(fabric, unknown, block)
