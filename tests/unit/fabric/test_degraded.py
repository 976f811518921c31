"""Cables that serve less than the fabric says: in a scenario, in a run, found by the diagnosis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.diagnosis import diagnose_cause
from tailback.errors import FabricError, ScenarioError
from tailback.evaluate import Change
from tailback.fabric.degraded import MIN_GBPS, SlowLink
from tailback.run.run import Run
from tailback.scenario.model import Scenario, parse
from tailback.simulation import make_evaluate, prepare, simulate

TREE = {"hosts_per_leaf": 8, "leaves": 4, "aggregation": 8}
SHIFT = {"pattern": {"kind": "permutation", "ranks": 32, "size": "256 KiB", "messages": 3}}


def scenario(degraded: list[dict[str, str]], jobs: list[dict[str, Any]] | None = None) -> Scenario:
    return parse({"fabric": {"fat_tree": TREE, "degraded": degraded}, "job": jobs or [SHIFT]})


def rate(run: Run, name: str) -> float:
    links = run.tables["links"]
    mine = links.filter((links["src_name"] + "[" + links["src_port"].cast(str) + "]") == name)
    return float(mine["rate_gbps"][0])


def test_a_slow_cable_costs_time_unseen_in_tables() -> None:
    slow = simulate(scenario([{"cable": "leaf00[9]", "rate": "10 Gb/s"}]))
    well = simulate(scenario([]))
    assert slow.elapsed_ps > 1.2 * well.elapsed_ps
    assert rate(slow, "leaf00[9]") == 100.0
    assert slow.tables["links"].equals(well.tables["links"])


def test_a_cable_slows_both_directions_a_link_one() -> None:
    cable = prepare(scenario([{"cable": "n03[1]", "rate": "25 Gb/s"}])).fabric
    link = prepare(scenario([{"link": "n03[1]", "rate": "25 Gb/s"}])).fabric
    for fabric, count in ((cable, 2), (link, 1)):
        slow = np.flatnonzero(fabric.link_gbps < 100)
        assert len(slow) == count and {25.0} == set(fabric.link_gbps[slow].tolist())
    assert link.vertex_name(int(link.link_src[np.flatnonzero(link.link_gbps < 100)[0]])) == "n03"


def test_a_cable_given_twice_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"'agg04\[1\]' is slow already, by 'leaf00\[9\]'"):
        prepare(
            scenario(
                [
                    {"cable": "leaf00[9]", "rate": "10 Gb/s"},
                    {"cable": "agg04[1]", "rate": "50 Gb/s"},
                ]
            )
        )
    fabric = prepare(
        scenario(
            [
                {"link": "leaf00[9]", "rate": "10 Gb/s"},
                {"link": "agg04[1]", "rate": "50 Gb/s"},
            ]
        )
    ).fabric
    assert sorted(fabric.link_gbps[fabric.link_gbps < 100]) == [10.0, 50.0]


def test_healthy_undoes_slow() -> None:
    degraded = prepare(scenario([{"cable": "leaf00[9]", "rate": "10 Gb/s"}]))
    well = prepare(scenario([]))
    link = int(np.flatnonzero(degraded.fabric.link_gbps < 100)[0])
    healthy = make_evaluate(degraded)(Change(network="healthy")).elapsed_ps
    assert healthy == make_evaluate(well)(Change()).elapsed_ps
    slow = make_evaluate(well)(Change(slow=(SlowLink(link, 10.0),))).elapsed_ps
    assert slow == make_evaluate(degraded)(Change()).elapsed_ps > healthy
    star = make_evaluate(degraded)(Change(network="star")).elapsed_ps
    assert star == make_evaluate(well)(Change(network="star")).elapsed_ps


def test_a_hidden_slow_cable_is_found_with_rate() -> None:
    run = simulate(scenario([{"cable": "leaf01[12]", "rate": "20 Gb/s"}]))
    prepared = prepare(scenario([]))
    diagnosis = diagnose_cause(
        Run(prepared.scenario, run.tables, run.summary), make_evaluate(prepared), seeds=1
    )
    assert diagnosis.cause == "slow-link" and diagnosis.basis == "hypothesis"
    assert "leaf01[12]" in diagnosis.headline or "→ leaf01" in diagnosis.headline
    assert any("One slow cable explains" in warning for warning in diagnosis.warnings)


def test_a_slow_cable_that_is_known_is_charged() -> None:
    prepared = prepare(scenario([{"cable": "leaf01[12]", "rate": "20 Gb/s"}]))
    diagnosis = diagnose_cause(simulate(prepared), make_evaluate(prepared), seeds=1)
    bars = {bar.name: bar.delta_ps for bar in diagnosis.waterfall}
    assert diagnosis.cause == "slow-link" and bars["slow links"] > 0.2 * diagnosis.elapsed_ps
    assert diagnosis.basis == "re-simulation"


def test_jobs_nobody_knows_of_are_no_slow_cable() -> None:
    hosts = [",".join(str(n) for n in range(32) if n % 2 == odd) for odd in (0, 1)]
    mine: dict[str, Any] = {
        "hosts": hosts[0],
        "pattern": {"kind": "permutation", "ranks": 16, "size": "256 KiB", "messages": 4},
    }
    noise = {
        "name": "noise",
        "hosts": hosts[1],
        "observed": False,
        "pattern": {
            "kind": "uniform",
            "ranks": 16,
            "size": "256 KiB",
            "messages": 16,
            "post": "all",
        },
    }
    data = {"fabric": {"fat_tree": {**TREE, "aggregation": 4}}, "job": [mine, noise]}
    run = simulate(parse(data))
    prepared = prepare(parse({**data, "job": [mine]}))
    diagnosis = diagnose_cause(
        Run(prepared.scenario, run.tables, run.summary), make_evaluate(prepared), seeds=1
    )
    assert diagnosis.cause == "other-traffic"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"cable": "leaf00", "rate": "10 Gb/s"}, "not the name of a port"),
        ({"cable": "leaf99[1]", "rate": "10 Gb/s"}, "no node or switch 'leaf99'"),
        ({"cable": "leaf00[99]", "rate": "10 Gb/s"}, "no cable at port 99"),
        ({"cable": "leaf00[9]", "rate": "200 Gb/s"}, "not a degraded rate"),
        ({"cable": "leaf00[9]", "rate": "0 Gb/s"}, "not a degraded rate"),
        ({"cable": "leaf00[9]", "rate": "0.5 Mb/s"}, r"0\.0005 Gb/s at 'leaf00\[9\]' is less than"),
    ],
)
def test_mistakes_are_told(section: dict[str, str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        prepare(scenario([section]))
    assert caught.value.remedy and "fabric.degraded" in str(caught.value.place)


def test_the_slowest_cable_that_is_taken_is_simulated() -> None:
    run = simulate(scenario([{"cable": "leaf00[9]", "rate": f"{MIN_GBPS} Gb/s"}]))
    assert run.elapsed_ps > 0


def test_a_large_fabrics_switch_is_guessed_too() -> None:
    slow = [{"cable": "leaf0023[40]", "rate": "10 Gb/s"}]
    data = {"fabric": {"preset": "tapered", "degraded": slow}, "job": [SHIFT]}
    with pytest.raises(ScenarioError) as caught:
        prepare(parse(data))
    assert caught.value.remedy == "did you mean 'leaf023'?"


def test_a_place_is_needed_and_only_one() -> None:
    for section in ({"rate": "1 Gb/s"}, {"cable": "a[1]", "link": "a[1]", "rate": "1 Gb/s"}):
        with pytest.raises(ScenarioError, match="exactly one of cable or link"):
            scenario([section])


def test_a_rate_in_a_wrong_unit_is_named(tmp_path: Path) -> None:
    links = tmp_path / "links.csv"
    links.write_text("src,dst,rate_gbps\nh0,s0,0.0005\nh1,s0,10\n")
    section = {"pattern": {"kind": "stencil2d", "dims": [2, 1], "size": "64 KiB"}}
    with pytest.raises(
        FabricError, match=r"h0\[\d+\] → s0\[1\] has a rate of 0\.0005 Gb/s"
    ) as error:
        prepare(parse({"fabric": {"file": str(links)}, "job": [section]}))
    assert error.value.file == links and "unit" in str(error.value.remedy)
