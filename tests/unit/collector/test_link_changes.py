"""Changes of links and switches: seen within a poll, named with both ends, without a blank."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.collector import Collection, CollectorSettings, MetricsBoard
from tailback.port_counters.changes import LinkStates, changes_of, described
from tailback.port_counters.schema import CounterError, Flag
from tailback.port_counters.targets import PortTarget, ports_frame, targets_of
from tests.factories.collect_subnet import (
    MS,
    FakeSubnet,
    Port,
    after_sweeps,
    row_of_switches,
    session,
    table,
)

MIDDLE, LAST = 0x1001, 0x1002


def cut(subnet: FakeSubnet, guid: int, port: int) -> Callable[[], None]:
    """Undo a cable; returns what plugs it in again."""
    here = subnet.devices[guid].ports
    peer, far_port = here[port].peer or (0, 0)
    there = subnet.devices[peer].ports
    ends = here[port], there[far_port]
    here[port], there[far_port] = Port(state=1), Port(state=1)

    def mend() -> None:
        here[port], there[far_port] = ends

    return mend


def watched(subnet: FakeSubnet, out: Path, *acts: Callable[[], Any]) -> tuple[list[Any], str]:
    """Do something every four sweeps; the changes that were recorded, and the last metrics."""
    collection, board = Collection(out), MetricsBoard()
    settings = CollectorSettings(interval_ns=20 * MS, sweeps=4 * (len(acts) + 1), states_ns=20 * MS)
    made = session(subnet, settings, collection, board)
    for number, act in enumerate(acts, start=1):
        after_sweeps(subnet, board, 4 * number, act)
    made.run()
    collection.close()
    lines = [line for file in sorted((out / "events").iterdir()) for line in file.open()]
    changes = changes_of(json.loads(line) for line in lines).to_dicts()
    columns = ("change", "node_name", "port", "peer_name", "peer_port", "before", "after", "links")
    return [tuple(change[name] for name in columns) for change in changes], board.metrics()


def test_a_cable_is_cut_and_mended(tmp_path: Path) -> None:
    subnet, mend = row_of_switches(3, 1), []
    changes, metrics = watched(
        subnet,
        tmp_path / "c",
        lambda: mend.append(cut(subnet, MIDDLE, 1)),
        lambda: mend[0](),
    )
    ends = ("switch1", 1, "host1-0 HCA-1", 1)
    assert changes == [("link down", *ends, None, None, 1), ("link up", *ends, None, None, 1)]
    assert metrics.count("tailback_port_up{") == 10 and "tailback_port_up{}" not in metrics
    assert 'changes_total{change="link down"} 1' in metrics
    intervals = table(tmp_path / "c", "intervals")
    others = intervals.filter((pl.col("node_guid") == LAST) | (pl.col("node_guid") == 0x1000))
    assert others.height == 4 * 11 and not (others["flags"] & int(Flag.GAP)).sum()


def test_a_link_down_is_zero_in_the_metrics(tmp_path: Path) -> None:
    subnet = row_of_switches(2, 1)
    _, metrics = watched(subnet, tmp_path / "c", lambda: cut(subnet, MIDDLE, 1))
    down = re.findall(r'tailback_port_up\{.*node="(.*?)",port="(\d+)".*\} 0', metrics)
    assert down == [("switch1", "1"), ("host1-0 HCA-1", "1")]


def test_a_narrow_link_has_both_widths(tmp_path: Path) -> None:
    subnet = row_of_switches(2, 1)

    def narrow() -> None:
        for guid, port in ((0x1000, 3), (MIDDLE, 2)):
            subnet.devices[guid].ports[port].width = 1

    changes, metrics = watched(subnet, tmp_path / "c", narrow)
    assert changes == [("width", "switch0", 3, "switch1", 2, "4x", "1x", 1)]
    described = re.findall(r'port_info\{.*node="switch0",port="(\d+)",(.*)\} 1', metrics)
    assert described == [
        ("1", 'peer="host0-0 HCA-1",peer_port="1",width="4x",speed="FDR"'),
        ("3", 'peer="switch1",peer_port="2",width="1x",speed="FDR"'),
    ]


def test_swapped_cables_are_two_changes(tmp_path: Path) -> None:
    subnet = row_of_switches(2, 2)

    def swap() -> None:
        ports = subnet.devices[0x1000].ports, subnet.devices[MIDDLE].ports
        ports[0][1], ports[1][1] = ports[1][1], ports[0][1]
        subnet.devices[0x2000].ports[1].peer = (MIDDLE, 1)
        subnet.devices[0x2010].ports[1].peer = (0x1000, 1)
        subnet.devices[0x1000].ports[1].errors["LinkDownedCounter"] = 1

    changes, _ = watched(subnet, tmp_path / "c", swap)
    assert changes == [
        ("link flapped", "switch0", 1, "host0-0 HCA-1", 1, None, "1", 1),
        ("recabled", "switch0", 1, "host1-0 HCA-1", 1, "host0-0 HCA-1[1]", "host1-0 HCA-1[1]", 1),
        ("recabled", "switch1", 1, "host0-0 HCA-1", 1, "host1-0 HCA-1[1]", "host0-0 HCA-1[1]", 1),
    ]


def test_a_lost_switch_is_one_change(tmp_path: Path) -> None:
    subnet, mend = row_of_switches(3, 2), []
    changes, _ = watched(
        subnet,
        tmp_path / "c",
        lambda: mend.append(cut(subnet, MIDDLE, 4)),
        lambda: mend[0](),
    )
    assert changes == [
        ("switch lost", "switch2", 0, None, 0, None, None, 3),
        ("switch found", "switch2", 0, None, 0, None, "back", 3),
    ]


def test_a_switch_back_before_a_poll_is_found(tmp_path: Path) -> None:
    subnet, mend = row_of_switches(3, 2), []
    collection, board, out = Collection(tmp_path / "c"), MetricsBoard(), tmp_path / "c"
    settings = CollectorSettings(interval_ns=200 * MS, sweeps=16, states_ns=2000 * MS)
    made = session(subnet, settings, collection, board)

    def lose() -> None:
        mend.append(cut(subnet, MIDDLE, 4))
        # Failed readings tell before the poll comes to the ports.
        subnet.devices[LAST].dead = True

    def bring_back() -> None:
        subnet.devices[LAST].dead = False
        mend[0]()

    after_sweeps(subnet, board, 4, lose)
    after_sweeps(subnet, board, 5, bring_back)
    made.run()
    collection.close()
    lines = [line for file in sorted((out / "events").iterdir()) for line in file.open()]
    assert changes_of(map(json.loads, lines))["change"].to_list() == ["switch lost", "switch found"]


def test_a_change_while_no_collector_ran(tmp_path: Path) -> None:
    subnet = row_of_switches(2, 2)
    watched(subnet, tmp_path / "c")
    cut(subnet, MIDDLE, 1)
    collection = Collection(tmp_path / "c")
    settings = CollectorSettings(interval_ns=20 * MS, sweeps=1)
    session(subnet, settings, collection).run()
    collection.close()
    events = (tmp_path / "c" / "events" / "000002.jsonl").read_text().splitlines()
    (change,) = changes_of(map(json.loads, events)).to_dicts()
    last = pl.read_parquet(tmp_path / "c" / "intervals" / "000001.parquet")["time_ns"].max()
    assert (change["change"], change["earliest_ns"]) == ("link down", last)


def port(guid: int, number: int, peer: tuple[int, int], **facts: Any) -> PortTarget:
    facts = {"gbps": 100.0, "lanes": 4, "peer_name": f"d{peer[0]}", **facts}
    far = {"peer_guid": peer[0], "peer_port": peer[1]}
    return PortTarget(guid, f"d{guid}", True, number, guid, **far, **facts)


def cable(a: tuple[int, int], b: tuple[int, int]) -> list[PortTarget]:
    return [port(*a, b), port(*b, a)]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_cable_that_moved_is_down_nowhere(at_once: bool) -> None:
    unchanged = cable((2, 2), (3, 1))
    links = LinkStates([*cable((1, 1), (2, 1)), *unchanged])
    if not at_once:
        assert [described(c) for c in links.update([*unchanged, port(1, 2, (9, 1))])] == [
            "d1[1] → d2[1]: link down",
            "d1[2] → d9[1]: link up",
        ]
        assert set(links.down) == {(1, 1), (2, 1)}
    made = links.update([*cable((1, 7), (2, 1)), *unchanged, port(1, 2, (9, 1))])
    assert described(made[0]) == "d2[1]: recabled from d1[1] to d1[7]"
    assert len(made) == 1 + at_once and links.down == {}


def test_ports_come_back_from_their_table() -> None:
    targets = [port(1, 1, (2, 1)), port(2, 1, (1, 1), gbps=0.0, peer_name="")]
    assert targets_of(ports_frame(targets)) == targets


@pytest.mark.parametrize("damage", [{"port": -1}, {"time_ns": "noon"}, {"gbps": []}])
def test_a_damaged_event_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(CounterError, match="an event is damaged"):
        changes_of([{"time_ns": 1, "what": "link down", **damage}])
