"""Permutations on k-ary n-trees: counts, deadlock order, and the slides' figures in small."""

from __future__ import annotations

import numpy as np
import pytest

from studies.birk_zdornov2009 import improvement
from studies.birk_zdornov2009.permuted_flows import (
    KaryTree,
    TreeRouting,
    permutation_congestion,
    rounds_to_completion,
    superpose_permutations,
)
from tailback.fabric.topologies import build
from tailback.fluid import simulate_flows

OBLIVIOUS = TreeRouting(adaptive=False)


def test_ports_of_the_slides_tree() -> None:
    """Width 2 costs about 10 % more ports (Birk and Zdornov, 2009)."""
    assert KaryTree(16, 3).ports == 20_480
    assert KaryTree(16, 3, 2).extra_ports == pytest.approx(0.0967, abs=1e-4)


def test_the_tree_is_a_fabric() -> None:
    """Nodes, switches and links of a small one, horizontal links between switches of one tier."""
    fabric = build({"kind": "modified-k-ary-n-tree", "k": 4, "n": 3, "width": 2})
    assert (fabric.n_nodes, fabric.n_switches) == (64, 48)
    sideways = fabric.link_up == 0
    # Middle: 4 lines of 4 switches; top: one line of 16; two cables a step, two links a cable.
    assert sideways.sum() == 2 * 2 * (4 * 3 + 15)
    assert fabric.n_links == 64 + KaryTree(4, 3, 2).ports


@pytest.mark.parametrize("margin", [1, 2])
def test_every_path_ascends_the_deadlock_free_order(margin: int) -> None:
    """Links are acquired in ascending rank, so no cycle of waiting links can form."""
    s = superpose_permutations(KaryTree(6, 3, 2), TreeRouting(margin=margin), copies=4)
    assert len(s.paths.share) == 0
    for flow in range(s.paths.n_flows):
        links = s.paths.link[int(s.paths.start[flow]) : int(s.paths.start[flow + 1])]
        assert (np.diff(s.link_rank[links].astype(np.int64)) > 0).all()


def test_congestion_is_the_load_of_the_worst_link() -> None:
    """The static evaluation against a count from the paths themselves."""
    tree, routing = KaryTree(5, 3, 1), TreeRouting()
    congestion = permutation_congestion(tree, routing, runs=3, copies=2, seed=9)
    for run in range(3):
        s = superpose_permutations(tree, routing, 2, run, seed=9)
        load = s.paths.link_sum(np.ones(s.paths.n_flows), s.n_links)
        worst = np.maximum.reduceat(load[s.paths.link], s.paths.start[:-1].astype(np.int64))
        assert congestion.max[run] == worst.max()
        assert congestion.mean[run] == pytest.approx(worst.mean())


def test_the_slides_figures() -> None:
    """16-ary 3-tree: width 2 about -50 % maximum, -20 % average (1,000 runs; here 60)."""
    base = permutation_congestion(KaryTree(16, 3), OBLIVIOUS, 60)
    plain = permutation_congestion(KaryTree(16, 3), TreeRouting(margin=2), 60)
    wide = permutation_congestion(KaryTree(16, 3, 2), TreeRouting(margin=2), 60)
    literal = permutation_congestion(KaryTree(16, 3, 2), TreeRouting(), 60)
    assert wide.max.mean() / base.max.mean() == pytest.approx(0.44, abs=0.04)
    assert wide.mean.mean() / base.mean.mean() == pytest.approx(0.79, abs=0.02)
    # Leaving the default port for one flow less reaches -33 % and -26 %.
    assert literal.max.mean() / base.max.mean() == pytest.approx(0.66, abs=0.05)
    assert literal.mean.mean() / base.mean.mean() == pytest.approx(0.74, abs=0.02)
    assert wide.max.mean() < plain.max.mean() < base.max.mean()


def test_seeds_and_first_run() -> None:
    """Run r is the same whatever is asked beside it; another seed is another permutation."""
    tree = KaryTree(4, 3, 1)
    all_runs = permutation_congestion(tree, TreeRouting(), 6)
    part = permutation_congestion(tree, TreeRouting(), 3, first=3)
    assert np.array_equal(all_runs.mean[3:], part.mean)
    assert not np.array_equal(
        all_runs.mean, permutation_congestion(tree, TreeRouting(), 6, seed=2).mean
    )


@pytest.mark.slow
def test_adaptive_routing_without_rate_control_can_do_harm() -> None:
    """Less load per link, and yet later: eight permutations (Birk and Zdornov, 2009)."""
    done = {}
    for name, tree, routing in (
        ("plain", KaryTree(16, 3), OBLIVIOUS),
        ("adaptive", KaryTree(16, 3, 2), TreeRouting()),
    ):
        s = superpose_permutations(tree, routing, copies=8)
        weight = s.paths.link_sum(np.ones(s.paths.n_flows), s.n_links).max()
        free = rounds_to_completion(s.n_links, s.paths, 32).max() / 32
        paced = rounds_to_completion(s.n_links, s.paths, 32, assigned=True).max() / 32
        size = np.full(s.paths.n_flows, 1000)
        exact = simulate_flows(np.full(s.n_links, 8.0), s.paths, size, rates="assignment")
        assert exact.completion_ps == weight * 1_000_000
        done[name] = (weight, free, paced)
    (plain_w, plain_free, plain_paced), (wide_w, wide_free, wide_paced) = done.values()
    assert wide_w < plain_w
    assert wide_free > 1.1 * plain_free
    assert plain_w <= plain_paced < 1.05 * plain_w < plain_free
    assert wide_w <= wide_paced < 1.05 * wide_w


def test_gains_are_time_saved_or_speed_gained() -> None:
    rows = (
        (1, improvement.PLAIN, 6.0, 6.0),
        (1, "adaptive, width 2", 4.0, 4.0),
        (8, improvement.PLAIN, 24.0, 20.0),
        (8, "adaptive, width 2", 30.0, 18.0),
    )
    times = {
        (n, name): {"no_control": free, "paced": paced, "assignment": paced}
        for n, name, free, paced in rows
    }
    gain = improvement.largest(times, "adaptive, width 2", "paced", "time saved", 1)
    assert gain == (pytest.approx(1 / 3), 1)
    gain = improvement.largest(times, "adaptive, width 2", "paced", "speed gained", 2)
    assert gain == (pytest.approx(1 / 3), 8)
    assert improvement.largest(times, improvement.PLAIN, "paced", "time saved", 1)[1] == 8


def test_the_slides_example_takes_a_quarter_longer() -> None:
    free, paced = improvement.spreading(cells=1000)
    assert free == pytest.approx(1.25, abs=0.01) and paced == pytest.approx(1.0, abs=0.01)
