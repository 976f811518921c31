"""Paths of hashed flows from the bytes that links counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.arrays import Floats
from tailback.diagnosis.topology import link_totals
from tailback.evaluate import Change
from tailback.inference.counted_paths import chance_of_paths, counted_seeds, on_likely_paths
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.machine_models import with_flow_seeds, with_whole_flows
from tailback.inference.measured_costs import USUAL_PATHS
from tailback.inference.network_clues import FLOWS_OF_PAIR, between_switches
from tailback.simulation import PreparedScenario, execute
from tailback.simulation.evaluate import make_simulation
from tests.factories.hashed_pairs import prepared


def sent_by(scenario: PreparedScenario) -> Floats:
    return link_totals(execute(scenario), "bytes").astype(np.float64)


@pytest.mark.parametrize("seed", [3, 7])
def test_counted_bytes_choose_the_paths(seed: int) -> None:
    sent = sent_by(prepared(routing="ecmp", path_seed=seed))
    even = with_whole_flows(prepared())
    seeds, *_ = counted_seeds(even, execute(even), sent)
    as_counted = execute(with_flow_seeds(even, seeds))
    np.testing.assert_allclose(link_totals(as_counted, "bytes"), sent, rtol=0.02)
    # A collision costs time, which flows that are spread evenly do not have.
    assert as_counted.elapsed_ps > 1.3 * execute(even).elapsed_ps


def test_headers_do_not_hide_the_paths() -> None:
    sent = 1.07 * sent_by(prepared(routing="ecmp", path_seed=3))
    even = with_whole_flows(prepared())
    seeds, *_ = counted_seeds(even, execute(even), sent)
    paths = link_totals(execute(with_flow_seeds(even, seeds)), "bytes")
    np.testing.assert_allclose(1.07 * paths, sent, rtol=0.02)


def over_one_spine(scenario: PreparedScenario) -> Floats:
    """Bytes of links if all flows crossed the first spine."""
    fabric, sent = scenario.fabric, sent_by(scenario)
    inner = between_switches(fabric)
    spines = np.setdiff1d(
        np.unique(fabric.link_dst[inner]), np.unique(fabric.node_switch) + fabric.n_nodes
    )
    for ends, others in ((fabric.link_src, fabric.link_dst), (fabric.link_dst, fabric.link_src)):
        for leaf in np.setdiff1d(np.unique(ends[inner]), spines):
            links = np.flatnonzero(inner & (ends == leaf))
            first = links[others[links] == spines[0]]
            total = sent[links].sum()
            sent[links] = 0.0
            sent[first] = total
    return sent


def test_no_link_carries_more_than_counted() -> None:
    scenario = prepared()
    sent, inner = over_one_spine(scenario), between_switches(scenario.fabric)
    used = inner & (sent > 0)
    assert used.sum() == 4
    beside_others = sent.copy()
    beside_others[used] *= (1.0, 1.5, 2.0, 1.2)
    seeds, *_ = counted_seeds(scenario, execute(scenario), beside_others)
    paths = link_totals(execute(with_flow_seeds(scenario, seeds)), "bytes")
    np.testing.assert_allclose(paths[inner], sent[inner], rtol=0.02)


@pytest.mark.parametrize("hashed", [True, False])
def test_uncounted_flows_are_whole_only_if_known(*, hashed: bool) -> None:
    """Switches that pause may spread the packets of a flow."""
    scenario = prepared()
    fabric = replace(scenario.fabric, link_interface=["e0"] * scenario.fabric.n_links)
    scenario = replace(scenario, fabric=fabric)
    measured: Any = None
    on_paths = on_likely_paths(
        scenario, execute(scenario), measured, NetworkEvidence(), None, hashed=hashed
    )
    assert on_paths is (with_whole_flows if hashed else None)


def test_flows_of_others_take_paths_of_their_own() -> None:
    """Counted at their hosts, they fill a link that ours would seem to crowd without them."""
    scenario = prepared()
    job = scenario.with_other_traffic("others", [(0, 0, 4, 2**21)] * 8, FLOWS_OF_PAIR)
    sent = link_totals(execute(job.with_engine(routing="ecmp", path_seed=3)), "bytes")
    inner = between_switches(scenario.fabric)
    others = pl.DataFrame({"src_node": [0], "dst_node": [4], "size_bytes": [2.0**24]})
    seeds, *_ = counted_seeds(scenario, execute(scenario), sent.astype(np.float64), others)
    assert len(seeds) == 8 + FLOWS_OF_PAIR
    again = link_totals(execute(with_flow_seeds(job, seeds)), "bytes")
    np.testing.assert_allclose(again[inner], sent[inner], rtol=0.02)


def test_bytes_of_no_whole_flows_choose_none() -> None:
    scenario = prepared()
    inner = between_switches(scenario.fabric)
    sent = sent_by(prepared(routing="ecmp", path_seed=3))
    sent[inner] = sent[inner].mean() * np.tile([0.1, 0.3, 1.6, 2.0], 4)
    assert counted_seeds(scenario, execute(scenario), sent) == []


def test_only_few_hashes_use_one_spine() -> None:
    scenario = prepared()
    run = execute(scenario)
    seeds, *_ = counted_seeds(scenario, run, over_one_spine(scenario))
    assert chance_of_paths(with_flow_seeds(scenario, seeds), run) == pytest.approx(4**-7, abs=1e-3)


def test_paths_of_hashes_are_usual() -> None:
    scenario = prepared()
    run = execute(scenario)
    chances = []
    for seed in range(40):
        hashed = sent_by(prepared(routing="ecmp", path_seed=seed))
        seeds, *_ = counted_seeds(scenario, run, hashed)
        chances.append(chance_of_paths(with_flow_seeds(scenario, seeds), run))
    unusual = sum(chance is not None and chance <= USUAL_PATHS for chance in chances)
    assert unusual <= 5


def test_other_placements_are_hashed_anew() -> None:
    scenario = prepared()
    seeds, *_ = counted_seeds(scenario, execute(scenario), over_one_spine(scenario))
    evaluate = make_simulation(with_flow_seeds(scenario, seeds))
    moved = np.roll(scenario.observed.node, 1)
    again = evaluate(Change(placement=moved, placement_name="rolled", measure=True))
    hashed = evaluate(
        Change(placement=moved, placement_name="rolled", routing="ecmp", measure=True)
    )
    assert again.elapsed_ps == hashed.elapsed_ps
    assert evaluate(Change(measure=True)).elapsed_ps > again.elapsed_ps


def test_a_flow_may_have_its_own_seed() -> None:
    """One flow takes the path of another seed, and all others stay on theirs."""
    inner = between_switches(prepared().fabric)
    others = sent_by(prepared(routing="ecmp", path_seed=3))[inner]
    moved = sent_by(prepared(routing="ecmp", path_seed=3, flow_seeds=[(0, 4, 12)]))[inner]
    # Packets that ask whether the receiver is ready move, too.
    change = np.sort(moved - others)
    size = float(2**20)
    np.testing.assert_allclose(change[[0, 1, -2, -1]], [-size, -size, size, size], rtol=0.02)
    np.testing.assert_allclose(change[2:-2], 0.0, atol=size / 100)
