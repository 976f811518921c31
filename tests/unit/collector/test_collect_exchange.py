"""Many requests on the way, and no node that costs another one anything."""

from __future__ import annotations

import pytest

from tailback.collector import mad as mads
from tailback.collector.discovery import discover
from tailback.collector.exchange import MadExchange, Reply, Request
from tailback.collector.subnet import survey
from tailback.port_counters.targets import Subnet
from tests.factories.collect_subnet import Clock, FakeSubnet, row_of_switches

MS = 1_000_000


def ask(exchange: MadExchange, lid: int, tag: object = None) -> None:
    mad = mads.performance_get(mads.PORT_COUNTERS, 1)
    exchange.submit(Request(lid, mads.CLASS_PERFORMANCE, lid, mad, tag))


def make(subnet: FakeSubnet, **options: object) -> MadExchange:
    return MadExchange(subnet, clock=subnet.clock, **options)  # type: ignore[arg-type]


def by_lid(replies: list[Reply]) -> dict[int, list[str]]:
    problems: dict[int, list[str]] = {}
    for reply in replies:
        problems.setdefault(reply.request.lid, []).append(reply.problem)
    return problems


def test_transmission_windows_hold_and_requests_settle_once() -> None:
    subnet = row_of_switches(4, clock=Clock())
    exchange = make(subnet, window=5, per_node=2)
    for number in range(240):
        ask(exchange, 1 + number // 20, number)
    replies = list(exchange.results())
    assert sorted(r.request.tag for r in replies) == list(range(240))
    assert not any(r.problem for r in replies)
    assert subnet.most == 5 and max(subnet.most_to.values()) == 2
    assert exchange.totals.sent == exchange.totals.answered == 240


@pytest.mark.parametrize("silent", [False, True], ids=["kernel tells", "nobody tells"])
def test_a_dead_node_costs_its_own_reads_only(silent: bool) -> None:
    alive = row_of_switches(8, clock=Clock())
    exchange = make(alive)
    for number in range(480):
        ask(exchange, 1 + number % 24)
    list(exchange.results())
    begun = 1_000_000_000
    took_alive = alive.now() - begun

    subnet = row_of_switches(8, clock=Clock(), silent=silent)
    next(d for d in subnet.devices.values() if d.lid == 5).dead = True
    exchange = make(subnet, timeout_ms=100, retries=1)
    for number in range(480):
        ask(exchange, 1 + number % 24)
    replies = list(exchange.results())
    problems = by_lid(replies)
    assert problems.pop(5).count("") == 0
    assert all(not any(p) for p in problems.values()), "nobody else may lose a reading"
    last_good = max(r.received_ns for r in replies if not r.problem) - begun
    assert last_good <= 2 * took_alive, "nobody else may wait for it"
    # Two requests at once, each sent twice, and the node is given up: 4 of 40 ever leave.
    assert exchange.totals.failed == {"timeout": 2, "given up": 18}
    assert exchange.unresponsive_nodes == [5]


def test_an_abandoned_node_is_retried_with_one_request() -> None:
    subnet = row_of_switches(clock=Clock())
    device = next(d for d in subnet.devices.values() if d.lid == 4)
    device.dead = True
    exchange = make(subnet, timeout_ms=10, retries=0)
    for _ in range(6):
        ask(exchange, 4)
    list(exchange.results())
    sent = exchange.totals.sent
    exchange.reset_unresponsive()
    for _ in range(6):
        ask(exchange, 4)
    list(exchange.results())
    assert exchange.totals.sent == sent + 1
    device.dead = False
    exchange.reset_unresponsive()
    for _ in range(6):
        ask(exchange, 4)
    assert [r.problem for r in exchange.results()] == [""] * 6
    assert exchange.unresponsive_nodes == []


def test_a_slow_node_holds_nobody_up() -> None:
    subnet = row_of_switches(4, clock=Clock())
    next(d for d in subnet.devices.values() if d.lid == 2).delay_ns = 90 * MS
    exchange = make(subnet, timeout_ms=200)
    for number in range(120):
        ask(exchange, 1 + number % 12)
    replies = list(exchange.results())
    assert not any(r.problem for r in replies)
    others = max(r.received_ns for r in replies if r.request.lid != 2)
    assert others < 1_000_000_000 + 90 * MS


def test_lost_requests_are_repeated() -> None:
    subnet = row_of_switches(clock=Clock(), drop_every=7)
    exchange = make(subnet, timeout_ms=5, retries=3)
    for number in range(90):
        ask(exchange, 1 + number % 9)
    assert not any(r.problem for r in exchange.results())
    assert exchange.totals.repeated == exchange.totals.sent - 90 > 10


def test_a_late_answer_is_taken_for_no_other() -> None:
    subnet = row_of_switches(clock=Clock(), silent=True)
    device = next(d for d in subnet.devices.values() if d.lid == 1)
    device.delay_ns = 400 * MS
    exchange = make(subnet, timeout_ms=100, retries=0)
    ask(exchange, 1, "late")
    assert [r.problem for r in exchange.results()] == ["timeout"]
    device.delay_ns = 400 * MS
    exchange.reset_unresponsive()
    ask(exchange, 2, "other")
    replies = list(exchange.results())
    while not exchange.totals.late:
        ask(exchange, 2, "other")
        replies += exchange.results()
        subnet.clock.now += 50 * MS
    assert {r.request.lid for r in replies} == {2}


def test_the_rate_cap_holds() -> None:
    subnet = row_of_switches(clock=Clock())
    exchange = make(subnet, rate=1000)
    for number in range(500):
        ask(exchange, 1 + number % 9)
    list(exchange.results())
    at = subnet.at_ns
    assert at[-1] - at[0] >= 0.47e9
    worst = max(sum(1 for t in at if s <= t < s + 100 * MS) for s in at)
    assert worst <= 100 + 21, "a pause is made up for by 20 ms' worth at most"


def test_discovery_finds_active_ports_and_their_abilities() -> None:
    subnet = row_of_switches(3, 2, clock=Clock())
    subnet.devices[0x1001].mask2 = 2
    subnet.devices[0x2001].mask = 0x1100
    subnet.devices[0x2010].no_agent = True
    exchange = make(subnet)
    discovery = survey(exchange, discover(exchange))
    ports = {(t.guid, t.port): t for t in discovery.targets}
    expected = {
        (d.guid, n)
        for d in subnet.devices.values()
        for n, p in d.ports.items()
        if p.peer and d.guid != 0x2010
    }
    assert set(ports) == expected
    uplink = ports[0x1001, 3]
    assert (uplink.node_name, uplink.peer_name, uplink.peer_port) == ("switch1", "switch0", 4)
    assert uplink.gbps == pytest.approx(54.545, abs=0.001)
    assert uplink.tick_ns == pytest.approx(18.77, abs=0.01) and uplink.tick_high_ns is None
    assert uplink.extended_wait and uplink.lid == subnet.devices[0x1001].lid
    assert not ports[0x2001, 1].extended and ports[0x2001, 1].wait
    assert ports[0x2000, 1].extended and not ports[0x2000, 1].extended_wait
    assert [name for name, _ in discovery.problems] == ["host1-0 HCA-1"]


def test_discovery_reports_and_bypasses_a_dead_switch() -> None:
    subnet = row_of_switches(4, 2, clock=Clock())
    subnet.devices[0x1002].dead = True
    discovery = discover(make(subnet, timeout_ms=5))
    assert {t.guid for t in discovery.targets} == {
        d.guid
        for d in subnet.devices.values()
        if (d.guid & 0xFFF) < 0x20 and d.guid not in (0x1002, 0x1003)
    }
    assert discovery.problems == [("switch1", "port 4: the device behind it is not known: timeout")]


def test_a_device_with_silent_agent_stays_listed() -> None:
    subnet = row_of_switches(2, 1, clock=Clock())
    exchange = make(subnet, timeout_ms=5)
    first = survey(exchange, discover(exchange))
    bare = discover(exchange)
    subnet.devices[0x1001].dead = True
    again = survey(exchange, bare, first.targets)
    assert again.targets == first.targets
    fresh = survey(make(subnet, timeout_ms=5), Subnet(bare.targets))
    assert {t.extended for t in fresh.targets if t.guid == 0x1001} == {False}


def test_unanswered_requests_are_repeated_as_configured() -> None:
    subnet = row_of_switches(1, clock=Clock())
    next(d for d in subnet.devices.values() if d.lid == 1).dead = True
    exchange = make(subnet, retries=2)
    ask(exchange, 1)
    assert [reply.problem for reply in exchange.results()] == ["timeout"]
    assert (subnet.sent, exchange.totals.sent, exchange.totals.repeated) == (3, 3, 2)


def test_only_consecutive_losses_abandon_a_node() -> None:
    """An answer between two that were lost says that the node is there."""
    subnet = row_of_switches(1, clock=Clock())
    device = next(d for d in subnet.devices.values() if d.lid == 1)
    exchange = make(subnet, retries=0)
    problems = []
    for dead in (True, False, True, False):
        device.dead = dead
        ask(exchange, 1)
        problems += [reply.problem for reply in exchange.results()]
    assert problems == ["timeout", "", "timeout", ""]


def test_the_reading_instant_is_halfway_to_the_answer() -> None:
    subnet = row_of_switches(1, clock=Clock())
    next(d for d in subnet.devices.values() if d.lid == 1).delay_ns = 30_000
    exchange = make(subnet)
    ask(exchange, 1)
    (reply,) = exchange.results()
    assert (reply.middle_ns, reply.turnaround_ns) == (subnet.at_ns[0] + 15_000, 30_000)


@pytest.mark.parametrize(
    ("device_id", "tick", "low_bytes", "high_bytes", "source"),
    [
        (0xFFFF, None, 8, 128, "unknown"),
        (0xFFFF, 31, 32, 128, "unknown"),
        (0xFFFF, 0, 8, 128, "unknown"),
        # Their ticks are known, so they are not asked.
        (0xCB20, 3, 128, None, "model"),
        (0xD2F0, 3, 8, None, "model"),
    ],
)
def test_unknown_devices_are_asked_once_for_ticks(
    device_id: int, tick: int | None, low_bytes: int, high_bytes: int | None, source: str
) -> None:
    subnet = row_of_switches(2, 1, clock=Clock())
    for device in subnet.devices.values():
        device.device_id, device.tick = device_id, tick
    exchange = make(subnet)
    discovery = survey(exchange, discover(exchange))
    for target in discovery.targets:
        if target.switch:
            assert target.tick_ns == pytest.approx(low_bytes * 8 / target.gbps)
            high = None if high_bytes is None else pytest.approx(high_bytes * 8 / target.gbps)
            assert (target.tick_high_ns, target.tick_source) == (high, source)
    sent = subnet.sent
    again = survey(exchange, discovery, discovery.targets)
    agents = len({target.lid for target in discovery.targets})
    assert subnet.sent - sent == agents and again.targets == discovery.targets
    assert bool(discovery.notes) == (high_bytes is not None)
