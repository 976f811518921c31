"""Congestion trees on hand-drawn graphs."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tailback.diagnosis.activity import MessageActivity
from tailback.diagnosis.congestion_trees import build_forest
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.topology import DOWN, FLAT, UP, LinkTopology
from tests.factories.diagnosis_runs import (
    HOSTS,
    LINK,
    Flow,
    downs,
    eject,
    endpoint_run,
    leaf,
    make_run,
    placement_run,
    sparse_run,
    spine,
    ups,
)


def drawn(edges: list[tuple[int, int]], direction: int = FLAT) -> LinkTopology:
    """A graph of switches, all links of one direction; vertex numbers as given."""
    src, dst = (np.array(column, np.int64) for column in zip(*edges, strict=True))
    n, vertices = len(edges), int(max(src.max(), dst.max())) + 1
    none = np.zeros(n, np.bool_)
    return LinkTopology(
        src,
        dst,
        np.ones(n, np.int64),
        np.full(n, direction),
        none,
        none,
        np.full(n, 100.0),
        [str(edge) for edge in edges],
        {},
        np.arange(n),
        np.zeros(0, np.int64),
        np.concatenate([[0], np.cumsum(np.bincount(src, minlength=vertices))]),
        np.argsort(src, kind="stable"),
    )


def forest_of(topology: LinkTopology, fraction: list[float], traffic: list[float] | None = None):  # type: ignore[no-untyped-def]
    f = np.array(fraction)
    t = np.full(len(f), 100.0) if traffic is None else np.array(traffic)
    return build_forest(topology, f > 0.1, f, t, f * t)


def test_a_chain_has_its_root_at_the_end() -> None:
    # Thesis slide 69: congested fractions 0.86, 1.00, 0.94 and then 0.06: the third is the root.
    forest = forest_of(drawn([(0, 1), (1, 2), (2, 3), (3, 4)]), [0.86, 1.0, 0.94, 0.06])
    assert forest.links[forest.root].tolist() == [2]
    assert forest.tree_weight[forest.root][0] == pytest.approx(280)
    assert forest.waiting(2).tolist() == [0, 1]


def test_two_roots_share_by_traffic() -> None:
    topology = drawn([(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)])
    forest = forest_of(topology, [0.8, 0.5, 0.5, 0.0, 0.0], [100, 75, 25, 75, 25])
    held = dict(zip(forest.links.tolist(), forest.tree_weight.tolist(), strict=True))
    assert held == pytest.approx({0: 0, 1: 37.5 + 60, 2: 12.5 + 20})
    assert forest.attributed == pytest.approx(80 + 37.5 + 12.5)


def test_a_trickle_explains_no_dark_link() -> None:
    topology = drawn([(0, 1), (1, 2), (1, 3)])
    assert forest_of(topology, [0.9, 0.6, 0.0], [100, 5, 95]).root.tolist() == [True, True]
    assert forest_of(topology, [0.9, 0.6, 0.0], [100, 50, 50]).root.tolist() == [False, True]


def test_static_routes_may_all_go_one_way() -> None:
    topology = drawn([(0, 1), (1, 2), (1, 3)])
    f, t = np.array([0.9, 0.9, 0.0]), np.array([10.0, 10.0, 990.0])
    assert build_forest(topology, f > 0.1, f, t, f * t).root.tolist() == [True, True]
    one_way = np.array([True, False, False])
    assert build_forest(topology, f > 0.1, f, t, f * t, one_way).root.tolist() == [False, True]


def test_traffic_does_not_go_back_nor_up_again() -> None:
    back = forest_of(drawn([(0, 1), (1, 0)]), [0.9, 0.9])
    assert back.root.all()
    down_up = drawn([(0, 1), (1, 2)], DOWN)
    down_up.direction[1] = UP
    assert forest_of(down_up, [0.9, 0.9]).root.all()


def test_a_ring_is_headed_by_its_darkest_link() -> None:
    forest = forest_of(drawn([(0, 1), (1, 2), (2, 3), (3, 0)]), [0.5, 0.7, 0.9, 0.6])
    assert forest.links[forest.root].tolist() == [2]
    assert forest.attributed == pytest.approx(270)


def test_nothing_congested_gives_an_empty_forest() -> None:
    forest = forest_of(drawn([(0, 1), (1, 2)]), [0.0, 0.05])
    assert forest.attributed == 0 and not len(forest.links) and forest.edges() == []


def test_endpoint_tree_reaches_back_to_the_up_links() -> None:
    evidence = RunAnalysis(endpoint_run())
    view = evidence.views[0]
    assert view.roots["link"].to_list() == [eject(0)]
    waiting = set(view.forest.waiting(eject(0)).tolist())
    assert set(downs(0)) <= waiting
    assert waiting <= set(downs(0)) | {e for i in range(1, 4) for e in ups(i)}
    assert evidence.share(evidence.roots) > 0.95


def test_bundles_are_what_routing_spreads_over() -> None:
    t = LinkTopology.of(placement_run())
    assert len({int(t.bundle[e]) for e in ups(0)}) == 1
    assert len({int(t.bundle[e]) for e in downs(0)}) == 1
    assert t.bundle[ups(0)[0]] != t.bundle[ups(1)[0]]
    assert t.bundle[eject(0)] != t.bundle[eject(1)]


def test_a_sparse_link_is_judged_with_its_bundle() -> None:
    # About 5 hop samples on each up-link, 20 on the bundle.
    run = make_run([Flow(0, HOSTS, 64)], dict.fromkeys(ups(0), 1.0))
    totals = RunAnalysis(run).whole
    assert (totals.samples[ups(0)] < 12).all()
    assert totals.congested[ups(0)].sum() >= 3
    assert RunAnalysis(sparse_run()).whole.congested.sum() == 0


def test_phases_get_trees_of_their_own() -> None:
    flows = [Flow(n, HOSTS + n, 305, "+y") for n in range(HOSTS)]
    flows += [Flow(16 + n, 24 + n, 305, "-y") for n in range(HOSTS)]
    hot = {("+y", e): 0.8 for e in ups(0)} | {("-y", e): 0.8 for e in ups(2)}
    evidence = RunAnalysis(make_run(flows, hot))
    assert {view.name for view in evidence.views} == {"+y", "-y"}
    roots = {view.name: set(view.roots["link"]) for view in evidence.views}
    assert roots == {"+y": set(ups(0)), "-y": set(ups(2))}


def test_a_phase_may_wait_for_another_phase() -> None:
    # "b" is held up on the down-links into leaf 0 by what phase "a" piles up at node 0.
    share = 25
    flows = [Flow(n, 0, share, "a") for n in range(HOSTS, 32)]
    flows += [Flow(n, 1 + n % 7, 60, "b") for n in range(HOSTS, 16)]
    hot = {eject(0): 0.95, **dict.fromkeys(downs(0), 0.8)}
    evidence = RunAnalysis(make_run(flows, hot))
    b = next(view for view in evidence.views if view.name == "b")
    assert b.roots["link"].to_list() == [eject(0)]


def test_activity_counts_only_time_of_messages() -> None:
    run = make_run([Flow(0, 8, 20, first=2, last=3), Flow(1, 9, 20, first=6, last=6)], {})
    activity = MessageActivity(run.tables, LinkTopology.of(run))
    links = np.array([eject(8), LINK[leaf(0), spine(0)], eject(5)])
    window = 10_000_000
    active_ps = activity.time_ps(links, np.zeros(3, np.int64), np.full(3, 20 * window))
    # Node 8: two windows; out of leaf 0: three; nothing is known of node 5, so all time counts.
    assert active_ps.tolist() == [2 * window, 3 * window, 20 * window]
    part = activity.time_ps(links[:2], np.full(2, 3 * window), np.full(2, 5 * window))
    assert part.tolist() == [window, window]


def test_a_short_burst_still_fills_the_link() -> None:
    # Everything happens in one of 20 windows, and windows are merged to one of 20 times the length.
    flows = [Flow(n, HOSTS + n, 15, first=4, last=4) for n in range(HOSTS)]
    run = make_run(flows, dict.fromkeys(ups(0), 0.9))
    end = 20 * 10_000_000
    run.tables["windows"] = (
        run.tables["windows"].head(1).with_columns(end_ps=pl.lit(end, pl.UInt64))
    )
    run.tables["samples"] = run.tables["samples"].with_columns(window=pl.lit(0, pl.UInt32))
    assert set(RunAnalysis(run).roots["verdict"]) == {"ours"}
    run.tables["messages"] = run.tables["messages"].clear()
    assert set(RunAnalysis(run).roots["verdict"]) == {"others"}


def test_others_are_blamed_only_if_we_are_absent() -> None:
    # Leaf 0 sends little and waits; the down-links into leaf 1 are full of ours, lightly congested,
    # and by proportion take only a third of what leaf 0 sends up.
    fill = 305
    flows = [Flow(0, HOSTS, 200)]
    flows += [Flow(16 + n, HOSTS + n, fill) for n in range(HOSTS)]
    flows += [Flow(HOSTS + n, 16 + n, fill) for n in range(HOSTS)]
    flows += [Flow(HOSTS + n, 24 + n, fill) for n in range(HOSTS)]
    hot = dict.fromkeys(ups(0), 0.9) | dict.fromkeys(downs(1), 0.2)
    roots = RunAnalysis(make_run(flows, hot)).roots
    assert set(roots["verdict"]) == {"ours"}
    assert set(roots["link"]) == set(downs(1))
