"""Remedies of a diagnosis in a lab: routes, rates, repairs, placements; and what it cannot do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tailback._core import NetworkRouting
from tailback.errors import TailbackError
from tailback.lab.causes import Setting, apply
from tailback.lab.plan import Plan
from tailback.lab.record import write_links
from tailback.lab.remedies import RecommendedChange, apply_change
from tailback.lab.spec import load
from tailback.scenario.model import parse
from tailback.simulation import prepare, routes_for
from tests.factories.repository import ROOT


@pytest.fixture
def plan() -> Plan:
    return Plan(load(ROOT / "examples" / "lab" / "leaf-spine.toml"))


def changed(plan: Plan, change: RecommendedChange, *causes: str) -> Setting:
    """A setting with causes and then with the change."""
    setting = Setting.nominal(plan)
    for text in causes:
        apply(text, setting, plan)
    apply_change(change, setting, plan)
    return setting


def change(kind: str, name: str, **more: object) -> RecommendedChange:
    return replace(RecommendedChange(Path("diagnosis"), {name: kind}), **more)  # type: ignore[arg-type]


def routes(plan: Plan, leaf: str, setting: Setting) -> dict[str, list[str]]:
    """Spines by which a leaf reaches each host, from the commands for it."""
    commands = plan.settle(setting.rates_bps, setting.spines, static=setting.static)
    (command,) = [c for c in commands if c.arguments[:3] == ("ip", "-n", plan.namespace(leaf))]
    host_of = {plan.address(host).rpartition(".")[0]: host for host in plan.hosts}
    spine_of = {f"10.{100 + int(leaf[1])}.{spine[1]}.1": spine for spine in plan.spines}
    spines_to = {}
    for line in command.text.splitlines():
        words = line.split()
        host = host_of[words[2].rpartition(".")[0]]
        spines_to[host] = [spine_of[word] for word in words if word in spine_of]
    return spines_to


@pytest.mark.parametrize("name", ["static-routing", "d-mod-k-tables"])
def test_static_routes_take_the_simulated_spines(plan: Plan, name: str, tmp_path: Path) -> None:
    setting = changed(plan, change("routing", name), "one-spine:s1")
    assert not setting.causes and setting.remedies == [name]
    write_links(plan, tmp_path / "links.csv")
    ranks = {"kind": "ring", "ranks": 2, "size": "1 KiB"}
    fabric = {"file": str(tmp_path / "links.csv")}
    prepared = prepare(parse({"name": "lab", "fabric": fabric, "job": [{"pattern": ranks}]}))
    fabric, routed = prepared.fabric, routes_for(prepared.scenario, prepared.fabric, [*range(12)])
    rule = routed.rule or NetworkRouting.of_network(routed.network)
    names = [*fabric.node_name, *fabric.switch_name]
    for leaf in plan.leaves:
        for host, spines in routes(plan, leaf, setting).items():
            node = fabric.node_name.index(host)
            switch = fabric.switch_name.index(leaf)
            link = rule.deterministic_links(node)[switch]
            assert [names[fabric.link_dst[link]]] == spines


def test_even_routes_take_all_spines(plan: Plan) -> None:
    setting = changed(plan, change("routing", "even-routes"), "one-spine:s1")
    assert not setting.causes
    assert set(map(tuple, routes(plan, "l0", setting).values())) == {("s0", "s1")}


def test_repair_mends_named_cables_only(plan: Plan) -> None:
    slow = ("slow-cable:l2-s1=30%", "slow-cable:h00-l0=50%")
    setting = changed(plan, change("repair", "repaired-cables", cables=["s1[l2] → l2[s1]"]), *slow)
    numbers = {link.number for link in plan.cable("h00", "l0") or ()}
    assert set(setting.rates_bps) == numbers
    assert [cause["written"] for cause in setting.causes] == [slow[1]]


def test_rates_limit_what_hosts_send(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    # Ranks 0 and 1 are on h00, 2 and 3 on h10, 8 on h20: two of the pairs are one flow.
    rows = ["0,2,0.007", "1,3,0.007", "0,8,0.011", "0,1,0.05", "2,0,0.06"]
    file.write_text("\n".join(["src_rank,dst_rank,rate_gbps", *rows]) + "\n")
    setting = changed(plan, change("rate-control", "max-min-rates", rates_file=file))
    rate = {link.source: setting.rates_bps.get(link.number) for link in plan.links[:24:2]}
    assert rate["h00"] == 18_000_000 and rate["h10"] == 50_000_000 and rate["h01"] is None
    text = "\n".join(c.text for c in plan.settle(setting.rates_bps, setting.spines))
    assert text.count("rate 18000000bit") == 1


def test_parts_of_a_combined_remedy_add_up(plan: Plan, tmp_path: Path) -> None:
    good = Setting.nominal(plan).hosts
    (tmp_path / "hosts").write_text("\n".join(good) + "\n")
    both = RecommendedChange(
        tmp_path, {"static-routing": "routing", "tile": "placement"}, tmp_path / "hosts"
    )
    setting = changed(plan, both, "placement:by-leaf", "imbalance:2=3")
    assert setting.hosts == good and setting.static
    assert [cause["kind"] for cause in setting.causes] == ["imbalance"]


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("routing", "adaptive-routing", "by a hash or by the destination"),
        ("pattern", "nccl-tree", "a change of pattern, which the lab cannot make"),
        ("placement", "tile", "no rank file of placement 'tile'"),
        ("rate-control", "max-min-rates", "no rates of 'max-min-rates'"),
        ("repair", "repaired-cables", "names the cable 'x[1] → y[2]'"),
    ],
)
def test_impossible_changes_are_refused(plan: Plan, kind: str, name: str, says: str) -> None:
    with pytest.raises(TailbackError, match="diagnosis") as caught:
        changed(plan, change(kind, name, cables=["x[1] → y[2]"]))
    assert says in str(caught.value) and caught.value.remedy
