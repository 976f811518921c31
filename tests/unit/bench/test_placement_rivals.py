"""Mappings of others that the benchmark of placements compares with."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest

from tailback.placement.graph import Graph
from tests.factories.repository import ROOT

GRID = (8, 4, 4)


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "bench")
    return importlib.import_module("placement_rivals")


def at(ranks: np.ndarray, grid: tuple[int, ...]) -> np.ndarray:
    """Coordinates of ranks, x fastest."""
    return np.stack(np.unravel_index(ranks, grid[::-1])[::-1], axis=1)


def test_a_hilbert_curve_steps_to_neighbours(rivals: ModuleType) -> None:
    order = np.argsort(rivals.hilbert((8, 8, 8)))
    steps = np.abs(np.diff(at(order, (8, 8, 8)), axis=0)).sum(axis=1)
    assert len(order) == 512 and (steps == 1).all()


def test_hosts_of_a_reordered_grid_hold_boxes(rivals: ModuleType) -> None:
    slots = rivals.cart_reorder(GRID, 8)
    assert sorted(slots.tolist()) == list(range(128))
    for host in range(16):
        ranks = np.flatnonzero(slots // 8 == host)
        spans = np.ptp(at(ranks, GRID), axis=0) + 1
        assert spans.tolist() == [2, 2, 2]


def test_recursive_bisection_keeps_a_ring_together(rivals: ModuleType) -> None:
    ranks = np.arange(64)
    graph = Graph.from_edges(64, ranks, (ranks + 1) % 64, np.ones(64))
    slots = rivals.recursive_bisection(graph, 1, 8)
    assert sorted(slots.tolist()) == list(range(64))
    # A ring cut into eight arcs.
    assert graph.cut(slots // 8) == 8.0
