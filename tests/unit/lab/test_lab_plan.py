"""What a lab will consist of: all without touching the machine."""

import ipaddress
from itertools import pairwise
from pathlib import Path

import pytest

from tailback.lab.plan import Plan
from tailback.lab.spec import load, parse

EXAMPLE = Path(__file__).parents[3] / "examples" / "lab" / "leaf-spine.toml"


@pytest.fixture
def plan() -> Plan:
    return Plan(load(EXAMPLE))


def test_every_host_leaf_and_spine_has_a_cable(plan: Plan) -> None:
    assert len(plan.links) == 2 * (12 + 4 * 2)
    assert [link.number for link in plan.links] == list(range(1, 41))
    pairs = {(link.source, link.target) for link in plan.links}
    assert len(pairs) == 40
    assert {("l2", "s1"), ("s1", "l2"), ("h31", "l3")} <= pairs
    assert ("h31", "l2") not in pairs
    assert {link.mbit for link in plan.links if "s" in link.source + link.target} == {40.0}
    assert {link.mbit for link in plan.links if "h" in link.source + link.target} == {50.0}


def test_addresses_are_unique_and_cables_share_networks(plan: Plan) -> None:
    assert len({link.address for link in plan.links}) == len(plan.links)
    for there, back in zip(plan.links[::2], plan.links[1::2], strict=True):
        network = ipaddress.ip_network(f"{there.address}/24", strict=False)
        assert ipaddress.ip_address(back.address) in network
        assert (there.source, there.target) == (back.target, back.source)
    for host in plan.hosts:
        assert plan.address(host) in {link.address for link in plan.links if link.source == host}


def test_the_largest_lab_has_distinct_addresses_and_interfaces() -> None:
    data = {"fabric": {"leaves": 10, "spines": 10, "hosts_per_leaf": 10}, "job": {"hosts": ["h99"]}}
    plan = Plan(parse(data))
    assert len({link.address for link in plan.links}) == len(plan.links) == 400
    assert len({(link.source, link.interface) for link in plan.links}) == len(plan.links)
    assert all(ipaddress.ip_address(link.address) for link in plan.links)


def test_addresses_of_ipv6_end_like_those_of_ipv4() -> None:
    old, new = (
        Plan(
            parse(
                {
                    "fabric": {"leaves": 10, "spines": 10, "hosts_per_leaf": 10, "ip": ip},
                    "job": {"hosts": ["h00"]},
                }
            )
        )
        for ip in (4, 6)
    )
    assert len({link.address for link in new.links}) == 400
    for there, back in zip(new.links[::2], new.links[1::2], strict=True):
        network = ipaddress.ip_network(f"{there.address}/64", strict=False)
        assert ipaddress.ip_address(back.address) in network
    ends = {old.address_end(host) for host in old.hosts}
    assert len(ends) == 100 and ends == {new.address_end(host) for host in new.hosts}
    for host in new.hosts:
        leaf = ipaddress.ip_network(f"fd10:{host[1]}::/32")
        assert ipaddress.ip_address(new.address(host)) in leaf
    spine = _lines(new, "s3", "ip", new.spines)
    assert "route add fd10:7::/32 via fd10:107:3::6b:302" in spine
    assert "addr add fd10:107:3::6b:301/64 dev l7 nodad" in spine
    leaves = _lines(new, "l7", "ip", ["s3"])
    assert "addr add fd10:107:3::6b:302/64 dev s3 nodad" in leaves
    assert "route replace fd10:2:4::/64 nexthop via fd10:107:3::6b:301" in leaves
    assert all("-6" in command.arguments for command in new.configure())


def test_an_interface_has_the_number_of_its_link(plan: Plan) -> None:
    lines = plan.create().text.splitlines()
    for there, back in zip(plan.links[::2], plan.links[1::2], strict=True):
        line = next(text for text in lines if f" index {1000 + there.number} " in text)
        assert line.startswith(f"link add {there.interface} index {1000 + there.number} netns ")
        assert f"peer name {back.interface} index {1000 + back.number} netns " in line
    attached = "\n".join(command.text for command in plan.attach(Path("/bpf")))
    assert attached.count("/bpf/tailback_egress") == len(plan.links)
    assert attached.count("/bpf/tailback_ingress") == len(plan.hosts)


def _lines(plan: Plan, node: str, program: str, spines: list[str]) -> list[str]:
    commands = [plan.create(), *plan.configure(), *plan.settle({}, spines)]
    wanted = (program, "-n", plan.namespace(node))
    return [
        line
        for command in commands
        if command.arguments[:3] == wanted
        for line in command.text.splitlines()
    ]


def test_a_leaf_reaches_others_by_all_spines(plan: Plan) -> None:
    both = [line for line in _lines(plan, "l1", "ip", ["s0", "s1"]) if "route" in line]
    assert both == [
        f"route replace 10.{leaf}.{host}.0/24 nexthop via 10.101.0.1 nexthop via 10.101.1.1"
        for leaf in (0, 2, 3)
        for host in range(3)
    ]
    routes = [line for line in _lines(plan, "l1", "ip", ["s1"]) if "route" in line]
    assert routes == [
        f"route replace 10.{leaf}.{host}.0/24 nexthop via 10.101.1.1"
        for leaf in (0, 2, 3)
        for host in range(3)
    ]


def test_rates_are_nominal_unless_said_otherwise(plan: Plan) -> None:
    slow = next(link for link in plan.links if (link.source, link.target) == ("l2", "s1"))
    text = "\n".join(command.text for command in plan.settle({slow.number: 7_000_000}, plan.spines))
    assert text.count("rate 7000000bit burst 6000 limit 400000") == 1
    assert text.count("rate 40000000bit") == 15
    assert text.count("rate 50000000bit") == 24


def test_commands_touch_only_namespaces_of_the_lab(plan: Plan) -> None:
    mine = {plan.namespace(node) for node in plan.nodes}
    for command in [plan.create(), *plan.configure(), *plan.settle({}, plan.spines)]:
        if "-n" in command.arguments:
            assert command.arguments[2] in mine
            continue
        for line in command.text.splitlines():
            words = line.split()
            named = {
                after
                for word, after in pairwise(words)
                if word in ("netns", "add") and after.startswith("tblab")
            }
            assert named
            assert named <= mine
