"""What re-simulation of everything known leaves unexplained: one slow cable, several, or others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.cable_search import links_on_shortest_paths
from tailback.diagnosis.confidence import Unexplained
from tailback.diagnosis.model import CauseShare, Diagnosis, WaterfallBar
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.slow_cables import SlowCableFit, find_slow_cables
from tailback.diagnosis.topology import LinkTopology
from tailback.diagnosis.verdict import cost_shares
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare, simulate
from tests.factories.slow_cables import TREE, scenario, seen_by_user, with_slow


def diagnosed(data: dict[str, Any]) -> Diagnosis:
    run, user_scenario = seen_by_user(data)
    return diagnose_cause(run, make_evaluate(prepare(user_scenario)), seeds=1)


@pytest.mark.parametrize("routing", ["random", "deterministic"])
def test_several_slow_cables_are_found_and_named(routing: str) -> None:
    slow = (("leaf1[5]", "10 Gb/s"), ("leaf4[6]", "20 Gb/s"))
    diagnosis = diagnosed(with_slow(*slow, engine={"routing": routing}))
    assert diagnosis.cause == "slow-link" and diagnosis.basis == "hypothesis"
    assert diagnosis.headline.startswith("2 links run slower")
    assert "leaf1[5] → " in diagnosis.headline and "leaf4[6] → " in diagnosis.headline
    assert any("2 slow cables explain" in warning for warning in diagnosis.warnings)


def test_one_slow_cable_is_one() -> None:
    run, user_scenario = seen_by_user(
        with_slow(("leaf2[7]", "10 Gb/s"), engine={"routing": "random"})
    )
    fit = find_slow_cables(RunAnalysis(run), make_evaluate(prepare(user_scenario)))
    assert fit is not None and fit.explains and len(fit.cables) == 1
    link, gbps, _ = fit.cables[0]
    assert RunAnalysis(run).topology.name[link].startswith("leaf2[7]")
    assert gbps == pytest.approx(10.0, rel=0.2) and fit.elapsed == pytest.approx(1.0, abs=0.05)


def test_other_traffic_is_not_several_slow_cables() -> None:
    data = scenario()
    data["job"] = [
        {**scenario()["job"][0], "hosts": ",".join(map(str, range(0, 24, 2)))},
        {
            "name": "others",
            "observed": False,
            "hosts": ",".join(map(str, range(1, 24, 2))),
            "pattern": {
                "kind": "uniform",
                "ranks": 12,
                "size": "256 KiB",
                "messages": 20,
                "post": "all",
            },
        },
    ]
    data["job"][0]["pattern"] = {**data["job"][0]["pattern"], "ranks": 12}
    data["fabric"]["fat_tree"] = {**TREE, "aggregation": 2}
    diagnosis = diagnosed(data)
    assert diagnosis.cause == "other-traffic"
    assert "slow cables" in diagnosis.headline


def test_a_fit_explains_only_agreeing_time() -> None:
    cable, two_cables = ((1, 10.0),), ((1, 10.0), (2, 10.0))
    assert SlowCableFit(cable, 0.6, 1.0).explains
    assert not SlowCableFit(cable, 0.2, 1.0).explains
    assert not SlowCableFit(cable, 0.8, 0.7).explains
    # A second cable must earn its place.
    assert (
        SlowCableFit(two_cables, 0.6, 1.0).probability < SlowCableFit(cable, 0.6, 1.0).probability
    )
    # Other traffic delays the messages of several cables alike.
    leading, level = (SlowCableFit(cable, 0.9, 1.0, lead) for lead in (0.7, 0.0))
    assert leading.probability > 0.9 and not level.explains
    sure = [SlowCableFit(cable, fit / 10, 1.0).probability for fit in range(11)]
    assert sure == sorted(sure) and 0.0 < sure[0] < 0.5 < sure[-1] < 1.0


def test_messages_that_are_not_late_acquit_a_cable() -> None:
    uniform = {"kind": "uniform", "ranks": 24, "size": "64 KiB", "messages": 40}
    data = with_slow(("leaf3[5]", "5 Gb/s"), job=[{"pattern": uniform}])
    run, _ = seen_by_user({**data, "engine": {"routing": "random"}})
    evidence = RunAnalysis(run)
    assert evidence.losses is not None
    suspects = evidence.candidate_paths(evidence.losses.messages).suspects(4)
    names = [evidence.topology.name[link] for link in suspects]
    assert any(name.startswith("leaf3[5]") for name in names[:1]), names
    assert evidence.one_cable > 0.3


def bars(**elapsed: int) -> list[WaterfallBar]:
    return [
        WaterfallBar(
            name=name.replace("_", " "), elapsed_ps=ps, delta_ps=0, low_ps=0, high_ps=0, meaning=""
        )
        for name, ps in elapsed.items()
    ]


def test_charges_fit_into_the_observed_time() -> None:
    share = CauseShare(cause="pattern", charged=0.5, low=0.5, high=0.5)
    fits = bars(injection=90, other_traffic=99, observed=100)
    beyond = bars(injection=98, other_traffic=148, observed=100)
    assert cost_shares([share], fits, Unexplained(), {})["pattern"] == 0.5
    assert cost_shares([share], [], Unexplained(), {})["pattern"] == 0.5
    assert cost_shares([share], beyond, Unexplained(), {})["pattern"] == pytest.approx(0.02)


def test_the_message_log_tells_nodes_from_links() -> None:
    naive = {"kind": "reduce-naive", "ranks": 24, "size": "64 KiB", "arrays": 20}
    pattern = simulate(parse(scenario(job=[{"pattern": naive}])))
    late = RunAnalysis(pattern).losses
    assert late is not None and late.endpoint_share > 0.9 and late.endpoint > 0.5
    static = simulate(parse(scenario(engine={"routing": "deterministic"})))
    late = RunAnalysis(static).losses
    assert late is not None and late.endpoint_share < 0.1 and late.inside > 0.05
    ring = {"kind": "ring", "ranks": 24, "size": "1 MiB", "messages": 3}
    alone = simulate(parse(scenario(job=[{"pattern": ring}])))
    late = RunAnalysis(alone).losses
    assert late is not None and late.inside < 0.02
    assert np.isfinite(late.messages["expected"].to_numpy()).all()


def test_no_path_connects_adapters_of_two_planes() -> None:
    topology = {"kind": "pgft", "children": [2, 2], "parents": [1, 1], "rails": 1, "planes": 2}
    data: dict[str, Any] = {
        "name": "planes",
        "fabric": {"topology": {**topology, "rates": ["100 Gb/s"]}},
        "job": [{"name": "ring", "pattern": {"kind": "ring", "ranks": 4, "size": "64 KiB"}}],
    }
    links = LinkTopology.of(simulate(parse(data)))
    used = np.ones(links.n_links, np.bool_)
    # The second half of the adapters is in the second plane.
    pairs, crossed, parts = links_on_shortest_paths(links, used, [(0, links.n_nodes // 2), (0, 1)])
    assert set(pairs.tolist()) == {1}
    assert len(crossed) == 2 and parts.tolist() == [1.0, 1.0]
