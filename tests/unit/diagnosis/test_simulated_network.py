"""Rules on the expected run of a measured one: they know what was put into it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import RunAnalysis, SimulatedNetwork
from tailback.fabric.degraded import SlowLink, with_slow_links
from tailback.report.attribution import attribute
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate
from tests.factories.diagnosis_runs import downs, other_run, routing_run, slow_run, ups


def fired(run: Run, network: SimulatedNetwork | None) -> list[str]:
    analysis = RunAnalysis(run, network)
    return sorted(entry.name for entry in RULES if entry.part(analysis) is not None)


def test_other_traffic_needs_another_job() -> None:
    assert fired(other_run(), None) == ["TB003"]
    assert fired(other_run(), SimulatedNetwork({}, other_jobs=True)) == ["TB003"]
    assert "TB003" not in fired(other_run(), SimulatedNetwork({}, other_jobs=False))


def test_our_full_slow_link_is_no_others_congestion() -> None:
    """At its nominal rate the link is hardly used, at the rate at which it serves it is full."""
    run = other_run()
    rate = float(RunAnalysis(run).topology.rate_gbps[downs(1)[0]])
    use = float(RunAnalysis(run).roots["utilization"].min())
    slow = SimulatedNetwork(dict.fromkeys(downs(1), rate * use), other_jobs=True)
    assert fired(run, slow) == ["TB007"]
    finding = RULES["TB007"](RunAnalysis(run, slow))
    assert finding is not None and {link.link for link in finding.links} <= set(downs(1))
    assert f"serves {rate * use:.3g} of {rate:.4g} Gb/s" in finding.explanation
    # A link that serves twice as much as we send is full of others' traffic.
    loose = SimulatedNetwork(dict.fromkeys(downs(1), rate * use * 2), other_jobs=True)
    assert "TB003" in fired(run, loose) and "TB007" not in fired(run, loose)


def test_a_healthy_link_is_not_called_slow() -> None:
    assert fired(slow_run(), None) == ["TB007"]
    for others, code in ((True, ["TB003"]), (False, [])):
        network = SimulatedNetwork({}, other_jobs=others)
        assert [rule for rule in fired(slow_run(), network) if rule != "TB004"] == code
    # Nor is the routing at fault where the full link is a slow one.
    assert fired(routing_run(), None) == ["TB006"]
    assert fired(routing_run(), SimulatedNetwork({ups(0)[0]: 90.0}, other_jobs=False)) == ["TB007"]


@pytest.fixture(scope="module")
def behind_a_slow_cable() -> tuple[Run, SimulatedNetwork]:
    """All messages to one host wait for its slow cable; buffers hold one packet."""
    prepared = prepare(
        parse(
            {
                "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
                "job": [
                    {
                        "pattern": {"kind": "ring", "ranks": 16, "size": "1 MiB", "messages": 4},
                        "placement": "random",
                    }
                ],
                "engine": {"routing": "deterministic", "buffer": "6 KiB"},
                "telemetry": {"scheme": "full"},
            }
        )
    )
    into = int(np.flatnonzero(prepared.fabric.link_dst == 4)[0])
    slow = SlowLink(into, float(prepared.fabric.link_gbps[into]) * 0.3)
    slowed = replace(prepared, fabric=with_slow_links(prepared.fabric, [slow]))
    run = simulate(slowed)
    return run, SimulatedNetwork.of(slowed.fabric, run)


def test_the_simulated_network_is_that_of_the_run(
    behind_a_slow_cable: tuple[Run, SimulatedNetwork],
) -> None:
    run, network = behind_a_slow_cable
    assert not network.other_jobs and len(network.slow_gbps) == 2
    into = RunAnalysis(run).topology.to_node
    assert sorted(bool(into[link]) for link in network.slow_gbps) == [False, True]


def test_a_slow_cable_is_charged_with_its_queues(
    behind_a_slow_cable: tuple[Run, SimulatedNetwork],
) -> None:
    run, network = behind_a_slow_cable
    assert fired(run, network) == ["TB006", "TB007"]  # Static routes collide elsewhere, too.
    analysis = RunAnalysis(run, network)
    assert analysis.cause_shares["slow-link"] > 0.5 > RunAnalysis(run).cause_shares["slow-link"]
    assert analysis.cause_shares["other-traffic"] == 0.0
    lines = attribute(run, lambda measured_run: RunAnalysis(measured_run, network)).lines
    link = next(link for link in network.slow_gbps if analysis.topology.to_node[link])
    assert analysis.whole.weight[link] == 0.0  # All wait in front of its switch.
    assert lines[0].link == link and lines[0].ours is True and lines[0].share > 0.9
