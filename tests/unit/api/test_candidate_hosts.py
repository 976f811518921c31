"""Candidates keep the hosts of a job and the ranks on each, unless more hosts are allowed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.api.candidates import DEFAULT_METHODS, make_candidates
from tailback.api.rankfiles import rank_files
from tailback.cli import run as tailback
from tailback.diagnosis.adapter_load import adapter_load
from tailback.errors import PlacementError
from tailback.evaluate import Change
from tailback.placement import (
    PLACEMENTS,
    compute_hosts,
    fewest_switches,
    hosts_from_spec,
    place,
    problem_for,
    restrict_to_used,
)
from tailback.placement.variant import HostChoice
from tailback.scenario.model import parse
from tailback.simulation import (
    FluidOptions,
    PreparedScenario,
    make_evaluate,
    make_fluid_evaluate,
    prepare,
    simulate,
)
from tests.factories.placement_fabrics import fabric_of, pairs

TREE = {"hosts_per_leaf": 8, "leaves": 16, "aggregation": 4}
EVERY = tuple(name for name in PLACEMENTS.names() if name != "file")


def prepared(allow_hosts: str | None = None, **job: Any) -> PreparedScenario:
    """32 ranks of a stencil, 8 on each host, on a tree of 128 hosts."""
    section = {
        "pattern": {"kind": "stencil2d", "dims": [8, 4], "size": "64 KiB"},
        "ranks_per_host": 8,
        **job,
    }
    scenario = parse({"fabric": {"fat_tree": TREE}, "job": [section]})
    return prepare(scenario, allow_hosts)


def ranks_of_hosts(ready: PreparedScenario, node: np.ndarray) -> dict[int, int]:
    return dict(Counter(ready.fabric.node_host[node].tolist()))


def test_candidates_move_whole_hosts_between_planes() -> None:
    """The second of two ranks of a host has its adapter in another plane, without a path."""
    topology = {"kind": "pgft", "children": [4, 2], "parents": [1, 2], "planes": 2}
    pattern = {"kind": "training", "tensor": 2, "data": 8, "activation": "1 MiB"}
    pattern |= {"gradient": "1 MiB", "compute": "1 ms"}
    # Neighbours of the ring are on different leaves.
    job = {"pattern": pattern, "ranks_per_host": 2, "hosts": "0,4,1,5,2,6,3,7"}
    ready = prepare(parse({"fabric": {"topology": topology}, "job": [job]}))
    methods = ("block", "round-robin", "rcm", "metis")
    made, errors = make_candidates(ready, methods, None, lambda *_: None)
    src, dst, _ = ready.observed.program.traffic_matrix()
    half = ready.fabric.n_nodes // 2
    for node in made.values():
        host = ready.fabric.node_host[node]
        assert ((node[src] < half) == (node[dst] < half))[host[src] != host[dst]].all()
        assert (host[::2] == host[1::2]).all()
    assert errors == []

    def crossings(node: np.ndarray) -> int:
        leaf = ready.fabric.node_switch[node]
        return int(
            (leaf[src] != leaf[dst])[
                ready.fabric.node_host[node[src]] != ready.fabric.node_host[node[dst]]
            ].sum()
        )

    by_metis = next(node for variant, node in made.items() if variant.method == "metis")
    assert crossings(by_metis) < crossings(ready.observed.node) / 2


@pytest.mark.parametrize("placement", ["block", "round-robin", "round-robin-leaves", "random"])
def test_every_method_keeps_hosts_and_their_ranks(placement: str) -> None:
    """32 ranks, 8 a host, on 4 of 128 hosts; or, as the job has them, on 32."""
    ready = prepared(placement=placement)
    now = ranks_of_hosts(ready, ready.observed.node)
    hosts = {"block": 4, "round-robin": 32, "round-robin-leaves": 16}
    assert len(now) == hosts.get(placement, len(now))
    made, errors = make_candidates(ready, EVERY, None, lambda *_: None)
    assert not errors and len(made) > 1
    for node in made.values():
        assert ranks_of_hosts(ready, node) == now


def test_partly_filled_hosts_and_slots_are_kept() -> None:
    ready = prepared(hosts="4-5:3,20-30:7,90-100", placement="shift", placement_options={"by": 5})
    now = ranks_of_hosts(ready, ready.observed.node)
    assert len(set(now.values())) > 1
    made, errors = make_candidates(ready, EVERY, simulate(ready), lambda *_: None)
    assert not errors and len(made) > 3
    for node in made.values():
        assert ranks_of_hosts(ready, node) == now


def test_no_other_hosts_are_simulated_whoever_asks() -> None:
    """Packets and the fluid model refuse a placement that needs other hosts, or more of them."""
    ready = prepared()
    problem = ready.observed.problem
    spread = place("round-robin", problem)
    moved = ready.observed.node + 8
    for evaluate in (make_evaluate(ready), make_fluid_evaluate(ready, FluidOptions(windows=0))):
        with pytest.raises(PlacementError, match="which the job does not run on"):
            evaluate(Change(placement=moved, placement_name="moved"))
        with pytest.raises(PlacementError, match="'round-robin' puts ranks on host"):
            evaluate(Change(placement=spread, placement_name="round-robin"))
        evaluate(Change(placement=ready.observed.node[::-1].copy()))
    allowed = prepared("0-127")
    with pytest.raises(
        PlacementError,
        match="32 ranks on 32 hosts, 1 on each; the job runs with 32 ranks on 4 hosts, 8 on each",
    ):
        make_evaluate(allowed)(Change(placement=spread, placement_name="round-robin"))
    make_evaluate(allowed)(Change(placement=moved, placement_name="moved"))


def test_free_hosts_are_chosen_in_several_ways() -> None:
    """Our hosts are under leaves 0 and 1, another job's under 2 and 3; 4 to 7 are free."""
    pattern = {"kind": "ring", "ranks": 4, "size": "64 KiB"}
    jobs = [
        {"hosts": "0-1,8-9", "pattern": pattern},
        {"hosts": "16-18,24", "pattern": pattern, "observed": False, "name": "others"},
    ]
    fabric = {"fat_tree": {"hosts_per_leaf": 8, "leaves": 8, "aggregation": 2}}
    ready = prepare(parse({"fabric": fabric, "job": jobs}), "0-3,8-13,19-23,25-33,40-44")
    made, _ = make_candidates(ready, ["block"], None, lambda *_: None)
    hosts = {variant.hosts: set(ranks_of_hosts(ready, node)) for variant, node in made.items()}
    assert hosts[HostChoice.IN_USE] == {0, 1, 8, 9}
    leaves = {choice: {host // 8 for host in used} for choice, used in hosts.items()}
    assert len(leaves[HostChoice.FEWEST_SWITCHES]) == 1
    assert not leaves[HostChoice.OTHER_SWITCHES] & {0, 1}
    assert leaves[HostChoice.FEWEST_NEIGHBOURS] <= {0, 1, 4, 5}
    assert len(leaves[HostChoice.MOST_SWITCHES]) == 4
    assert not leaves[HostChoice.MOST_SWITCHES] & {2, 3}


def test_allowed_hosts_are_used_as_many_as_before() -> None:
    """Scattered over four leaves; eight hosts of one leaf are allowed as well."""
    ready = prepared("0,8,16,24,40-47", hosts="0,8,16,24")
    made, errors = make_candidates(ready, DEFAULT_METHODS, None, lambda *_: None)
    assert not errors
    where = {name: set(ranks_of_hosts(ready, node)) for name, node in made.items()}
    assert all(set(ranks_of_hosts(ready, node).values()) == {8} for node in made.values())
    elsewhere = {
        made: hosts for made, hosts in where.items() if made.hosts is HostChoice.FEWEST_SWITCHES
    }
    assert elsewhere and all(hosts == {40, 41, 42, 43} for hosts in elsewhere.values())
    in_use = {made: hosts for made, hosts in where.items() if made.hosts is HostChoice.IN_USE}
    assert all(hosts == {0, 8, 16, 24} for hosts in in_use.values())
    # Rank files name the hosts that are used.
    files, _ = rank_files(ready, made[next(iter(elsewhere))])
    for name in (ready.fabric.host_name[host] for host in (40, 43)):
        assert all(name in file.text for file in files if file.writer != "cray")
    # Where its own hosts are not allowed, the job leaves them.
    gone, _ = make_candidates(
        prepared("40-47", hosts="0,8,16,24"), DEFAULT_METHODS, None, lambda *_: None
    )
    assert gone and all(made.hosts is HostChoice.FEWEST_SWITCHES for made in gone)


def test_allowed_hosts_are_refused_with_the_reason() -> None:
    with pytest.raises(PlacementError, match="allows 3 hosts; the job runs on 4"):
        prepared("0-2")
    with pytest.raises(PlacementError, match="says how many slots hosts have"):
        prepared("0-7:8")
    with pytest.raises(PlacementError, match="has more than the 128 hosts") as caught:
        prepared("0-128")
    assert 'allow_hosts="0-128"' in str(caught.value)
    pattern = {"kind": "ring", "ranks": 8, "size": "64 KiB"}
    jobs = [
        {"hosts": "0-7", "pattern": pattern, "name": "mine"},
        {"hosts": "8-15", "pattern": pattern, "name": "theirs", "observed": False},
    ]
    scenario = parse({"fabric": {"fat_tree": TREE}, "job": jobs})
    with pytest.raises(PlacementError, match="is used by job 'theirs'"):
        prepare(scenario, "0-15")
    everywhere = prepare(scenario, "all").observed.footprint.allowed
    assert set(everywhere) == set(range(128)) - set(range(8, 16))


def test_compact_hosts_are_those_under_the_fewest_switches() -> None:
    fabric = fabric_of([(0,), (0,), (1,), (2,), (2,), (2,), (3,), (3,)], [0, 0, 1, 1])
    assert fewest_switches(fabric, range(8), 3) == [3, 4, 5]
    assert fewest_switches(fabric, range(8), 2) == [6, 7]  # the smallest leaf that holds both
    assert fewest_switches(fabric, range(8), 5) == [3, 4, 5, 6, 7]
    hot = np.zeros(fabric.n_switches, bool)
    hot[[2, 3]] = True
    assert fewest_switches(fabric, range(8), 3, hot) == [0, 1, 2]


def storage_fabric() -> Any:
    """Six compute nodes of two adapters, and what else a discovery of a cluster finds."""
    names = [
        "cn1",
        "cn2",
        "cn3",
        "cn4",
        "cn5",
        "cn6",
        "login1",
        "stor-01",
        "stor-02",
        "MT4123 ConnectX6   Mellanox Technologies",
        "0c42a10300303df7",
    ]
    adapter_load = [(0, 1)] * 6 + [(0, 1)] + [(0, 1)] * 2 + [(0, 1), (1,)]
    fabric = fabric_of(adapter_load, [0, 0], names)
    rates = fabric.link_gbps.copy()
    slow = np.isin(fabric.link_src, np.flatnonzero(np.isin(fabric.node_host, [7, 8])))
    rates[slow | slow[fabric.link_reverse]] = 50.0
    fabric.link_gbps = rates
    return fabric


def test_storage_and_login_hosts_are_no_default_hosts() -> None:
    fabric = storage_fabric()
    default_hosts = compute_hosts(fabric)
    assert list(default_hosts.hosts) == [0, 1, 2, 3, 4, 5] == hosts_from_spec("all", fabric)
    assert compute_hosts(fabric) is default_hosts, "they are found once"
    for part in ("stor-01", "50 Gb/s", "'login' in the name", 'hosts="0-10"', "no name"):
        assert part in default_hosts.note
    # Who names them has them.
    assert hosts_from_spec("0-10", fabric) == list(range(11))
    assert hosts_from_spec("all,login1", fabric) == [0, 1, 2, 3, 4, 5, 6]


def test_equal_hosts_are_taken_whatever_their_names() -> None:
    for names in (None, ["0c42a10300303df7", "a b", "c d"], ["oss1", "oss2", "oss3"]):
        fabric = fabric_of([(0,), (0,), (1,)], [0, 0], names)
        assert compute_hosts(fabric) == type(compute_hosts(fabric))((0, 1, 2), "")


def test_a_stated_slow_cable_excludes_no_host() -> None:
    port = "leaf00[1]"
    fabric = {"fat_tree": TREE, "degraded": [{"cable": port, "rate": "10 Gb/s"}]}
    pattern = {"kind": "ring", "ranks": 8, "size": "64 KiB"}
    ready = prepare(parse({"fabric": fabric, "job": [{"pattern": pattern}]}))
    assert len(hosts_from_spec("all", ready.fabric)) == 128 and not ready.notes


def discovery(folder: Path) -> Path:
    """What ibnetdiscover prints of four compute nodes, two storage servers and an unnamed one."""
    ends = [
        ("node01", "4xEDR"),
        ("node02", "4xEDR"),
        ("node03", "4xEDR"),
        ("node04", "4xEDR"),
        ("store01", "4xQDR"),
        ("store02", "4xQDR"),
        ("MT4123 ConnectX6   Mellanox Technologies", "4xEDR"),
    ]
    lines = [
        "switchguid=0x10(10)",
        'Switch\t36 "S-0000000000000010"\t\t# "leaf" enhanced port 0 lid 1 lmc 0',
    ]
    for port, (name, speed) in enumerate(ends, 1):
        guid = f"{0x100 + port:016x}"
        what = f"{name} HCA-1" if name.islower() else name
        lines.append(f'[{port}]\t"H-{guid}"[1]({guid}) \t\t# "{what}" lid {port + 1} {speed}')
    for port, (name, speed) in enumerate(ends, 1):
        guid = f"{0x100 + port:016x}"
        what = f"{name} HCA-1" if name.islower() else name
        lines += [
            "",
            f"caguid=0x{guid}",
            f'Ca\t1 "H-{guid}"\t\t# "{what}"',
            f'[1]({guid}) \t"S-0000000000000010"[{port}]\t\t# lid {port + 1} lmc 0 "leaf" '
            f"lid 1 {speed}",
        ]
    file = folder / "fabric.txt"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_the_screen_names_excluded_hosts_and_their_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fabric = discovery(tmp_path)
    for ranks, hosts in ((4, 4), (7, 0)):
        file = tmp_path / "job.toml"
        file.write_text(
            f'fabric.file = "{fabric}"\n[[job]]\n'
            f'pattern = {{kind = "ring", ranks = {ranks}, size = "64 KiB"}}\n'
        )
        out = tmp_path / "out"
        words = [
            "diagnose",
            str(file),
            "--out",
            str(out),
            "--quiet",
            "-v",
            "--seeds",
            "1",
            "--force",
        ]
        code = tailback(words)
        captured = capsys.readouterr()
        if not hosts:
            assert code == 2 and "hold 4" in captured.err and "store01" in captured.err
            continue
        screen = " ".join(captured.out.split())
        assert "note: hosts left out" in screen and "store01" in screen
        assert "--hosts 0-6" in screen
        assert tailback(["place", str(file), "--quiet", "--out", str(tmp_path / "ranks")]) == 0
        assert "note: hosts left out" in capsys.readouterr().out
        used = (tmp_path / "ranks" / "hosts.openmpi-seq").read_text()
        assert "node04" in used and "store" not in used
    # Named by their numbers all are used.
    assert tailback(["place", str(file), "--quiet", "--hosts", "0-6", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == []


def test_the_commands_take_the_hosts_to_allow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 4\nleaves = 4\naggregation = 1\n[[job]]\n"
        'pattern = {kind = "ring", ranks = 4, size = "64 KiB"}\nhosts = "0,4,8,12"\n'
    )
    words = ["place", str(file), "--quiet", "--format", "json", "--method", "block"]
    assert tailback(words) == 0
    assert len(json.loads(capsys.readouterr().out)["placements"]) == 1
    assert tailback([*words, "--allow-hosts", "all"]) == 0
    ranking = json.loads(capsys.readouterr().out)
    assert ranking["best"] == "block-compact"
    out = tmp_path / "out"
    words = ["diagnose", str(file), "--out", str(out), "--quiet", "--seeds", "1"]
    assert tailback([*words, "--allow-hosts", "0-1"]) == 2
    assert "--allow-hosts" in capsys.readouterr().err


def test_a_jobs_slots_are_those_of_its_ranks() -> None:
    fabric = fabric_of([(0, 1), (0, 1), (0, 1)], [0, 0])
    problem = problem_for(fabric, pairs(4, []), [0, 1, 2], 4, 1)
    node = np.array([2, 2, 5, 4], np.uint32)
    used_problem = restrict_to_used(problem, node)
    assert sorted(used_problem.slot_node.tolist()) == [2, 2, 4, 5]
    assert used_problem.slot_host.tolist() == [1, 1, 2, 2]


def test_traffic_within_a_host_is_no_adapters_work() -> None:
    """Rows of the grid stay within hosts: only the columns' messages cross the network."""
    ready = prepared()
    run = simulate(ready)
    host = ready.fabric.node_host[ready.observed.node]
    source, target, size = ready.observed.program.traffic_matrix()
    away = int(size[host[source] != host[target]].sum())
    assert 0 < away < size.sum()
    header = 64 * run.scenario.engine.header * len(size)
    assert away <= adapter_load(run).sent_bytes.sum() <= away + header
