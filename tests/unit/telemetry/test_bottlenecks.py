"""Scheme csig: where the bottlenecks of packets lay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tailback import _core
from tailback.cli import run as command
from tailback.fabric.model import Fabric
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tailback.simulation.decode import decode_link_counts, decode_samples
from tailback.telemetry.bottlenecks import (
    LOCATORS,
    Bottlenecks,
    draw_bottlenecks,
    find_bottlenecks,
    locators,
    values,
)
from tailback.telemetry.candidates import PairCandidates, minimal_choices, pair_candidates
from tests.factories.probed_runs import run_of, truth_of

Ints = NDArray[np.int64]


def tree(leaves: int) -> Fabric:
    shape = {"hosts_per_leaf": 8, "leaves": leaves, "aggregation": 8}
    job = {"pattern": {"kind": "ring", "ranks": 2, "size": "4 KiB"}}
    return prepare(parse({"fabric": {"fat_tree": shape}, "job": [job]})).fabric


def tagged(fabric: Fabric, packets: int, seed: int) -> tuple[pl.DataFrame, PairCandidates, Ints]:
    """Packets over random paths, with signals that two hot links and chance make.

    Returns:
        Table ``packets``, candidates, and the true bottleneck of each packet, -1 for none.
    """
    rng = np.random.default_rng(seed)
    src = rng.integers(0, fabric.n_nodes, packets, dtype=np.uint32)
    dst = (src + rng.integers(1, fabric.n_nodes, packets)).astype(np.uint32) % fabric.n_nodes
    pairs = pair_candidates(fabric, minimal_choices(fabric), src, dst.astype(np.uint32))
    hot = rng.choice(fabric.n_links, fabric.n_links // 8, replace=False)
    chance = np.full(fabric.n_links, 0.01)
    chance[hot] = 0.8
    paths = np.zeros((packets, 3), np.uint32)
    hops = np.zeros(packets, np.uint8)
    choices = minimal_choices(fabric)
    into = fabric.link_dst.astype(np.int64) - fabric.n_nodes
    for row in range(packets):
        at, goal, path = fabric.node_switch[src[row]], fabric.node_switch[dst[row]], []
        while at != goal:
            link = int(rng.choice(choices.of(int(at), int(goal))))
            path.append(link)
            at = into[link]
        path.append(int(pairs.ejection[dst[row]]))
        hops[row], paths[row, : len(path)] = len(path), np.asarray(path) + 1
    level = rng.integers(1, 32, paths.shape) * (
        rng.random(paths.shape) < chance[np.maximum(paths, 1) - 1]
    )
    level[np.arange(3)[None, :] >= hops[:, None]] = 0
    ids = np.arange(packets, dtype=np.uint32)
    received = _core.run_scheme("csig", ids, hops, paths, level.astype(np.uint8), 1)
    # The first of the largest.
    first = level.argmax(axis=1)
    true = np.where(level.max(axis=1) > 0, paths[ids, first].astype(np.int64) - 1, -1)
    assert received["packet"].tolist() == np.flatnonzero(true >= 0).tolist()
    assert received["seen"].tolist() == locators(true[true >= 0]).tolist()
    header = np.where(true >= 0, level.max(axis=1) << 7 | locators(true), 0).astype(np.uint64)
    table = pl.DataFrame(
        {"packet": ids, "src_node": src, "dst_node": dst.astype(np.uint32), "header": header}
    )
    return table, pairs, true


def count(true: Ints, links: int) -> NDArray[np.float64]:
    return np.bincount(true[true >= 0], minlength=links).astype(np.float64)


def test_locators_for_each_link_make_exact_counts() -> None:
    fabric = tree(4)
    assert fabric.n_links <= LOCATORS + fabric.n_nodes  # injection links carry no tag
    table, pairs, true = tagged(fabric, 3000, 1)
    bottlenecks = find_bottlenecks(table, pairs, fabric.n_links, 1.0)
    exact = bottlenecks.certain == bottlenecks.possible
    assert exact.mean() > 0.9
    assert (bottlenecks.attributed[exact] == count(true, fabric.n_links)[exact]).all()
    assert bottlenecks.attributed.sum() == pytest.approx((true >= 0).sum())


@pytest.mark.slow
def test_shared_locators_leave_an_interval_that_holds() -> None:
    """600 links with 127 locators: bounds need no assumption, the estimate lies near the truth."""
    fabric = tree(20)
    table, pairs, true = tagged(fabric, 6000, 2)
    links = fabric.n_links
    bottlenecks = find_bottlenecks(table, pairs, links, 1.0)
    real = count(true, links)
    estimate, low, high = bottlenecks.counts()
    assert (low <= real).all() and (real <= high).all()
    assert (low <= estimate + 0.1).all() and (estimate <= high + 0.1).all()
    assert estimate.sum() == pytest.approx(real.sum(), abs=0.1)
    assert (low < high).sum() > 20  # some links do share one
    inner = np.flatnonzero(high > 0)
    assert np.corrcoef(estimate[inner], real[inner])[0, 1] > 0.95
    assert np.abs(estimate - real).sum() < 0.1 * real.sum()
    drawn = draw_bottlenecks(table, pairs, links, np.random.default_rng(3).random(6000))
    assert (locators(drawn.link) == locators(true[true >= 0])).all()
    assert drawn.rows.tolist() == np.flatnonzero(true >= 0).tolist()
    number = np.bincount(drawn.link, minlength=links)
    assert np.abs(number - estimate).sum() < 0.1 * real.sum()
    # The lower bound that a diagnosis makes of it needs no assumption either.
    low = number - 1.96 * np.sqrt(drawn.excess * number)
    assert (low <= real + 0.01).all() and low.sum() > 0.5 * real.sum()


def test_intervals_hold_for_sparse_tags() -> None:
    fabric = tree(4)
    table, pairs, true = tagged(fabric, 8000, 4)
    rng, real, inside = np.random.default_rng(5), count(true, fabric.n_links), []
    for _ in range(20):
        part = table.filter(pl.Series(rng.random(8000) < 1 / 8))
        _, low, high = find_bottlenecks(part, pairs, fabric.n_links, 8.0).counts()
        some = real > 20
        inside.append(((low <= real) & (real <= high))[some])
    assert 0.93 < np.concatenate(inside).mean() <= 1.0


@pytest.mark.parametrize("stamping", ["all", "leaf"])
def test_of_a_run_bounds_hold_the_congested_packets(stamping: str) -> None:
    run = run_of({"scheme": "csig", "stamping": stamping})
    carried = decode_link_counts(run)
    bottlenecks = carried.bottlenecks
    assert (
        carried.packets is None
        and carried.congested is None
        and isinstance(bottlenecks, Bottlenecks)
    )
    header = run.tables["packets"]["header"].to_numpy()
    # Type nQD in the upper three bits of every tag, and a reserved 0.
    assert (header >> np.uint64(12) == 6).all()
    hot = values(header) > 0
    assert 0 < hot.mean() < 1 and len(np.unique(values(header))) > 5
    assert ((header[~hot] & np.uint64(LOCATORS)) == 0).all()
    truth = truth_of(run).filter(~pl.col("from_node"), pl.Series(carried.counted))
    assert (truth.height < carried.counted.size // 2) == (stamping == "leaf")
    real = truth["observed_congested_packets"].to_numpy()
    low, high = (bound[truth["link"].to_numpy()] for bound in bottlenecks.congested())
    assert (low <= real).all() and (real <= high).all()
    # Packets are spread over all links, whoever writes tags.
    seen = decode_samples(run).tables["samples"]["hop_samples"].sum()
    assert seen == run.tables["packets"]["hops"].sum()
    # Each congested packet has one bottleneck.
    assert bottlenecks.attributed.sum() == pytest.approx(hot.sum())
    assert 0.1 * real.sum() < bottlenecks.attributed.sum() < real.sum()


def test_counts_are_exported_with_bounds(tmp_path: Path) -> None:
    folder = run_of({"scheme": "csig", "one_in": 2}, messages=10).write(tmp_path / "run")
    out = tmp_path / "counts.csv"
    assert command(["export", "counts", str(folder), str(out)]) == 0
    table = pl.read_csv(out)
    names = ["bottleneck", "bottleneck_low", "bottleneck_high", "congested_low", "congested_high"]
    some = table.drop_nulls("bottleneck").select(names)
    assert some.height and some["bottleneck"].sum() > 0
    assert (some["bottleneck_low"] <= some["bottleneck_high"]).all()
    assert (some["bottleneck_high"] <= some["congested_high"] + 1e-6).all()
    assert table["packets"].null_count() == table["congested"].null_count() == table.height
