"""Forwarding tables that can deadlock on one virtual lane: paths get lanes on which they cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from tailback import _core
from tailback.cli import run as tailback
from tailback.errors import FabricError
from tailback.fabric.builders import forwarding_network, network_of, require_deadlock_free
from tailback.fabric.lft import NO_ENTRY
from tailback.fabric.model import Fabric
from tailback.fabric.topologies import build, parse
from tailback.scenario.model import Scenario
from tailback.scenario.model import parse as parse_scenario
from tailback.simulation import prepare, simulate, simulate_fluid
from tailback.simulation.routes import forwarded_links
from tests.factories.evidence_traces import Script, collective, receive, send
from tests.factories.forwarding_tables import discovery_of, tables_of
from tests.factories.otf2_traces import writing

DRAGONFLY = {
    "kind": "dragonfly",
    "nodes_per_router": 2,
    "routers": 4,
    "global_ports": 1,
    "groups": 5,
}
NOTE = "forwarding tables name no virtual lanes: paths were spread over 2 lanes"


def minimal_tables() -> tuple[Fabric, NDArray[np.uint32]]:
    """A dragonfly, and the link of the minimal path from each switch to each node."""
    topology = parse(DRAGONFLY)
    fabric = topology.fabric()
    rule = topology.routing(network_of(fabric, []), "minimal")
    forward = np.stack([rule.deterministic_links(node) for node in range(fabric.n_nodes)], axis=1)
    ejection = np.flatnonzero(fabric.link_dst < fabric.n_nodes)
    node = fabric.link_dst[ejection]
    forward[fabric.link_src[ejection] - fabric.n_nodes, node] = ejection
    return fabric, forward


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the cabling and the tables of that dragonfly."""
    fabric, forward = minimal_tables()
    (tmp_path / "fabric.txt").write_text(discovery_of(fabric))
    (tmp_path / "lfts.txt").write_text(tables_of(fabric, forward))
    return tmp_path


def _all_to_all(folder: Path) -> Scenario:
    network_files = {"file": str(folder / "fabric.txt"), "forwarding": str(folder / "lfts.txt")}
    job = {"pattern": {"kind": "alltoall", "ranks": 40, "size": "16 KiB"}}
    return parse_scenario({"fabric": network_files, "job": [job], "engine": {"buffer": "8 KiB"}})


def test_paths_follow_tables_on_two_lanes() -> None:
    fabric, forward = minimal_tables()
    network = forwarding_network(fabric, forward)
    assert network.lanes == 2
    routing = _core.NetworkRouting.of_network(network)
    require_deadlock_free(fabric, routing)
    used = set()
    for source in range(fabric.n_nodes):
        for node in range(fabric.n_nodes):
            path = routing.path(source, node, 0, 0)
            at = int(fabric.node_switch[source])
            for link, lane in path:
                assert (link, lane) == (forward[at, node], path[0][1])
                at = int(fabric.link_dst[link]) - fabric.n_nodes
                used.add(lane)
    assert used == {0, 1}


def test_lanes_do_not_depend_on_rates() -> None:
    fabric, forward = minimal_tables()
    first = forwarding_network(fabric, forward)
    slower = replace(fabric, link_gbps=fabric.link_gbps / 2)
    routings = [
        _core.NetworkRouting.of_network(forwarding_network(slower, forward, like))
        for like in (None, first, network_of(fabric))
    ]
    for node in range(1, fabric.n_nodes):
        alone, *others = (way.path(0, node, 0, 0) for way in routings)
        assert others == [alone, alone]


def test_a_tree_keeps_to_one_lane() -> None:
    topology = parse({"kind": "k-ary-n-tree", "k": 2, "n": 3})
    fabric = topology.fabric()
    rule = _core.NetworkRouting.of_network(network_of(fabric))
    forward = np.stack([rule.deterministic_links(node) for node in range(fabric.n_nodes)], axis=1)
    assert forwarding_network(fabric, forward).lanes == 1


def test_runs_on_dragonfly_tables_name_the_assumption(files: Path) -> None:
    scenario = _all_to_all(files)
    run = simulate(scenario)
    assert any(note.startswith(NOTE) for note in run.notes), run.notes
    assert run.tables["messages"].height == 40 * 39
    fluid = simulate_fluid(prepare(scenario))
    assert any(note.startswith(NOTE) for note in fluid.notes), fluid.notes
    # The links of the evidence are those of the tables.
    fabric = prepare(scenario).fabric
    links = forwarded_links(scenario, fabric)
    assert links is not None
    pair, link = links(np.array([0, 3]), np.array([39, 3 ^ 1]))
    assert fabric.link_src[link[0]] == 0 and fabric.link_dst[link[pair == 0][-1]] == 39
    assert (pair == 1).sum() == 2


@pytest.mark.slow
def test_a_measured_run_on_dragonfly_tables_is_diagnosed(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fabric, _ = minimal_tables()
    ranks = range(0, 40, 5)
    scripts: list[Script] = [[] for _ in ranks]
    for turn in range(3):
        begin = turn * 200_000 + 100_000
        for rank, script in enumerate(scripts):
            earlier, other = (begin, begin + 20_000), (begin + 20_000, begin + 40_000)
            first, second = (earlier, other) if rank % 2 == 0 else (other, earlier)
            script += sorted(
                [
                    *send(*first, to=rank ^ 1, size=1 << 16),
                    *receive(*second, source=rank ^ 1, size=1 << 16),
                ],
                key=lambda event: event[0],
            )
            script += collective(begin + 40_000, begin + 45_000)
    trace = writing(files)(scripts, hosts=[fabric.node_name[node] for node in ranks])
    out = files / "out"
    network = ["--fabric", str(files / "fabric.txt"), "--forwarding", str(files / "lfts.txt")]
    code = tailback(
        ["diagnose", str(trace), *network, "--seeds", "1", "--quiet", "--out", str(out)]
    )
    captured = capsys.readouterr()
    assert code in (0, 3), captured.err
    assert "VERDICT" in captured.out
    assert NOTE in (out / "report.html").read_text()


def test_tables_of_too_many_lanes_are_refused() -> None:
    """To each node a depth-first tree of a torus, drawn at random: paths of dozens of hops."""
    fabric = build({"kind": "torus", "dims": [7, 7]})
    draw, n = Random(1), fabric.n_nodes
    near: list[list[int]] = [[] for _ in range(fabric.n_switches)]
    for link in np.flatnonzero((fabric.link_src >= n) & (fabric.link_dst >= n)).tolist():
        near[int(fabric.link_src[link]) - n].append(link)
    forward = np.full((fabric.n_switches, n), NO_ENTRY, np.uint32)
    for node in range(n):
        path = [int(fabric.node_switch[node])]
        seen = set(path)
        while path:
            away = [link for link in near[path[-1]] if int(fabric.link_dst[link]) - n not in seen]
            if not away:
                path.pop()
                continue
            link = draw.choice(away)
            path.append(int(fabric.link_dst[link]) - n)
            seen.add(path[-1])
            forward[path[-1], node] = fabric.link_reverse[link]
    with pytest.raises(FabricError) as caught:
        forwarding_network(fabric, forward)
    text = str(caught.value)
    assert "can deadlock on 15 virtual lanes: packets from 'r" in text and "to 'n" in text
    assert "more lanes than InfiniBand has" in text and "leave forwarding= out" in text
