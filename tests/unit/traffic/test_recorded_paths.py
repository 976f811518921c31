"""Rings and trees of NCCL by what ranks sent over the network."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tailback.traffic.nccl.recorded_paths import ring_of_steps, tree_of_steps


def binary_tree(n: int, root: int) -> list[int]:
    """Parents of a binary tree of members in a drawn order."""
    order = np.random.default_rng(root).permutation(n).tolist()
    order.remove(root)
    order.insert(0, root)
    parent = [-1] * n
    for place, member in enumerate(order[1:], start=1):
        parent[member] = order[(place - 1) // 2]
    return parent


@pytest.mark.parametrize("root", range(7))
def test_tree_is_found_whatever_the_clocks(root: int) -> None:
    parent = binary_tree(7, root)
    hosts = [f"n{k}" for k in range(7)]
    dice = np.random.default_rng(root)
    offset = dice.integers(0, 5, 7)
    depth = [0] * 7
    for member in range(7):
        at = member
        while parent[at] >= 0:
            at, depth[member] = parent[at], depth[member] + 1
    sent = {}
    for member, up in enumerate(parent):
        if up >= 0:
            sent[member, up] = 10 * (3 - depth[member]) + int(offset[member])
            sent[up, member] = 10 * (3 + depth[member]) + int(offset[up])
    assert tree_of_steps([sent], hosts) == tuple(parent)


def test_steps_that_close_a_circle_are_no_tree() -> None:
    circle = {(0, 1): 0, (1, 2): 0, (2, 0): 0}
    assert tree_of_steps([circle], ["a", "b", "c"]) == ()


def test_ring_passes_all_members_of_a_host() -> None:
    hosts = ["a"] * 3 + ["b"] * 2 + ["c"]
    ring = ring_of_steps({2: 4, 3: 5, 5: 0}, hosts)
    assert set(pairwise((*ring, ring[0]))) == {(0, 1), (1, 2), (2, 4), (4, 3), (3, 5), (5, 0)}


def test_ring_of_unknown_steps_is_none() -> None:
    assert ring_of_steps({0: 1}, ["a", "b", "c"]) == ()
