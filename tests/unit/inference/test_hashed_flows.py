"""Flows that a hash puts on one path: paths, predictions, and the search for those that agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tailback.diagnosis.topology import link_totals
from tailback.evidence.step_times import StepProfile
from tailback.identity_cache import PerObject
from tailback.inference.hashed_flows import FlowPlacements, likely_seeds
from tailback.inference.network_clues import between_switches
from tailback.run.run import Run
from tailback.simulation import PreparedScenario, execute
from tests.factories.hashed_pairs import prepared


def placements(run: Run, scenario: PreparedScenario, seeds: range = range(256)) -> FlowPlacements:
    made = FlowPlacements.of(scenario, run, seeds)
    assert made is not None
    return made


def run_of(seed: int) -> tuple[PreparedScenario, Run]:
    scenario = prepared(routing="ecmp", path_seed=seed)
    return scenario, execute(scenario)


@pytest.mark.parametrize("seed", [3, 7, 12])
def test_paths_are_those_of_the_engine(seed: int) -> None:
    scenario, run = run_of(seed)
    made = placements(run, scenario)
    inner = between_switches(scenario.fabric)
    sent = link_totals(run, "bytes")
    assert sent[inner].max() > 0
    np.testing.assert_allclose(made.link_bytes()[seed][inner], sent[inner], atol=1e4)


def test_queue_pairs_spread_flows() -> None:
    """Sixteen queue pairs a flow make the fullest link lighter than one."""
    inner = between_switches(prepared().fabric)
    most = []
    for pairs in (1, 16):
        run = execute(prepared(routing="ecmp", path_seed=3, queue_pairs=pairs))
        most.append(float(link_totals(run, "bytes")[inner].max()))
    assert most[1] < 0.8 * most[0]


def test_steps_choose_flows_that_collide() -> None:
    scenario, run = run_of(5)
    made = placements(run, scenario)
    crowding = made.crowding(made.link_bytes())
    assert crowding[5].max() >= 2.0
    steps = StepProfile(
        made.src_rank,
        made.dst_rank,
        made.bytes / made.bytes.sum(),
        crowding[5],
        PerObject(lambda _: None),
    )
    first, *_ = likely_seeds(made, steps, None, {"steps": 0.02}, 4)
    np.testing.assert_allclose(crowding[first], crowding[5])


def test_collisions_name_flows_of_a_link() -> None:
    scenario, run = run_of(5)
    made = placements(run, scenario, range(5, 6))
    sent = made.link_bytes()[0]
    collisions = made.collisions()
    assert collisions
    for link, flows in collisions:
        assert made.bytes[flows].sum() == sent[link]
        assert len(flows) > 1


def test_single_flow_has_no_collisions() -> None:
    scenario = prepared()
    run = execute(scenario)
    tables = {**run.tables, "messages": run.tables["messages"].head(1)}
    assert FlowPlacements.of(scenario, replace(run, tables=tables)) is None
