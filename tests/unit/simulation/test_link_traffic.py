"""Bytes of links in steps left out: what is expected, and how well it is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate
from tailback.simulation.link_traffic import LINK_PRECISION, LinkTraffic
from tailback.simulation.repetition.skipping import interchangeable_links

TREE = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 4}}
STENCIL = {"kind": "stencil3d", "dims": [4, 2, 2], "size": "64 KiB", "compute": "50 us"}


def groups_of(fabric: dict[str, Any]) -> tuple[NDArray[np.int64], Any]:
    """Groups of interchangeable links of a fabric, and the fabric."""
    job = {"pattern": {"kind": "ring", "ranks": 4, "size": "1 KiB"}}
    model = prepare(parse({"fabric": fabric, "job": [job]})).fabric
    return interchangeable_links(model), model


def test_a_leafs_up_and_downlinks_are_interchangeable() -> None:
    group, fabric = groups_of(TREE)
    up = fabric.link_up > 0
    between = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    assert (group[~between] == -1).all()
    assert (np.bincount(group[between]) == 4).all()
    for number in np.unique(group[between]):
        of = group == number
        ends = fabric.link_src[of] if up[of].all() else fabric.link_dst[of]
        assert len(np.unique(ends)) == 1


def test_equal_switches_of_a_pod_are_interchangeable() -> None:
    shape = {
        "hosts_per_leaf": 2,
        "leaves": 2,
        "aggregation": 2,
        "pods": 2,
        "cores": 4,
        "aggregation_uplinks": 2,
    }
    group, fabric = groups_of({"fat_tree": shape})
    sizes = np.bincount(group[group >= 0])
    # Of each leaf two up and two down, of each pod four up and four down.
    assert sorted(sizes.tolist()) == [2] * 8 + [4] * 4
    assert fabric.n_links == 2 * (8 + 8 + 8)


def test_a_slow_cable_tells_its_switch_apart() -> None:
    groups, fabric = groups_of(TREE)
    cable = int(np.flatnonzero(groups >= 0)[0])
    slow = fabric.link_gbps.copy()
    slow[[cable, fabric.link_reverse[cable]]] /= 2
    group = interchangeable_links(replace(fabric, link_gbps=slow))
    assert group[cable] == -1
    of_the_others = group[(groups == groups[cable]) & (np.arange(len(groups)) != cable)]
    assert len(of_the_others) == 3 and len(set(of_the_others.tolist())) == 1
    assert of_the_others[0] >= 0


def test_a_torus_has_no_interchangeable_links() -> None:
    group, _ = groups_of({"topology": {"kind": "torus", "dims": [3, 3]}})
    assert (group == -1).all()


def traffic(
    generator: np.random.Generator, shares: list[float], steps: int, factor: float = 40.0
) -> LinkTraffic:
    """Traffic of 8 groups of 4 links; 64 packets a step are spread by chance with these shares."""
    rows = np.concatenate(
        [generator.multinomial(64, shares, steps).astype(float) for _ in range(8)], axis=1
    )
    link = np.tile(np.arange(32), steps)
    part = np.repeat(np.arange(steps), 32)
    group = np.repeat(np.arange(8), 4)
    return LinkTraffic.of_marks(link, part, rows.ravel(), np.ones(steps, np.int64), factor, group)


def test_chance_differences_give_a_group_its_mean() -> None:
    equal_traffic = traffic(np.random.default_rng(1), [0.25] * 4, 20)
    total, _ = equal_traffic.estimate()
    assert np.allclose(total, 64 / 4 * 20 * 40)
    assert np.abs(equal_traffic.total / total - 1).max() > 0.03


def test_differences_beyond_chance_are_kept() -> None:
    unequal_traffic = traffic(np.random.default_rng(1), [0.4, 0.3, 0.2, 0.1], 40)
    total, _ = unequal_traffic.estimate()
    expected = np.tile([0.4, 0.3, 0.2, 0.1], 8) * 64 * 40 * 40
    assert np.abs(total / expected - 1).max() < 0.25


def test_the_interval_holds_for_all_links_at_once() -> None:
    """Against what as many further steps carry: 95 % of repetitions, at least 93 here."""
    generator, held = np.random.default_rng(2), 0
    for _ in range(200):
        equal_traffic = traffic(generator, [0.25] * 4, 20)
        actual = np.concatenate([generator.multinomial(64 * 20 * 40, [0.25] * 4) for _ in range(8)])
        total, _ = equal_traffic.estimate()
        half = equal_traffic.precision().half
        held += bool((np.abs(actual - total) <= half * total).all())
    assert held >= 186


def test_links_without_others_like_them_need_more_steps() -> None:
    generator = np.random.default_rng(3)
    grouped = traffic(generator, [0.25] * 4, 20)
    alone = LinkTraffic(
        grouped.total,
        grouped.variance,
        grouped.own_variance,
        np.zeros(0),
        grouped.steps,
        np.full(32, -1),
    )
    assert not grouped.precision().why_not
    few = alone.precision()
    assert few.why_not and few.more > 1 and few.half > LINK_PRECISION


def test_equal_steps_are_known_exactly() -> None:
    value = np.tile([5.0, 7.0], 10)
    link, part = np.tile([0, 1], 10), np.repeat(np.arange(10), 2)
    group = np.full(2, -1)
    link_traffic = LinkTraffic.of_marks(link, part, value, np.ones(10, np.int64), 9.0, group)
    assert link_traffic.estimate()[0].tolist() == [450.0, 630.0]
    assert link_traffic.precision().half == 0
    assert not link_traffic.precision().why_not


def bytes_of_links(run: Run) -> pl.DataFrame:
    return run.tables["truth"].group_by("link").agg(pl.col("bytes").sum()).sort("link")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_bytes_of_links_are_within_two_percent(seed: int) -> None:
    """With 24 of 1000 steps simulated, single links would be off by 5 % and more."""
    runs = []
    for skip in (False, True):
        job = {"pattern": STENCIL, "repeat": 1000}
        engine = {"routing": "adaptive", "skip_repeats": skip}
        scenario = {"fabric": TREE, "job": [job], "engine": engine, "seed": seed}
        runs.append(simulate(prepare(parse(scenario)), threads=1))
    complete, skipped = (bytes_of_links(run) for run in runs)
    facts = runs[1].summary["skipped"]
    assert facts["simulated"][0] < 100
    error = (skipped["bytes"].cast(pl.Float64) / complete["bytes"] - 1).abs().max()
    assert error is not None and float(error) < max(LINK_PRECISION, facts["links_half"])
    assert 0 < facts["links_half"] < 2 * LINK_PRECISION


def test_detours_are_simulated_until_links_are_known() -> None:
    """In a dragonfly no two links are alike: what a few steps carry says little of each link."""
    dragonfly = {
        "topology": {
            "kind": "dragonfly",
            "groups": 5,
            "routers": 2,
            "nodes_per_router": 2,
            "global_ports": 2,
        },
        "routes": "ugal",
    }
    job = {"pattern": {"kind": "alltoall", "ranks": 16, "size": "8 KiB"}, "repeat": 400}
    engine = {"routing": "adaptive", "skip_repeats": True}
    run = simulate(prepare(parse({"fabric": dragonfly, "job": [job], "engine": engine})), threads=1)
    assert run.summary["skipped"]["simulated"][0] > 60
