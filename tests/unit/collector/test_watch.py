"""A collection watched while it is written: hot links, congestion trees, changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tailback as tb
from tailback.cli import run
from tailback.cli.watch import draw_course
from tailback.collector import Collection, CollectorSettings, MetricsBoard
from tailback.port_counters.analysis.live_state import LiveState
from tailback.port_counters.schema import INTERVALS, conform
from tailback.port_counters.targets import PORTS
from tests.factories.collect_subnet import (
    MS,
    FakeSubnet,
    Port,
    after_sweeps,
    row_of_switches,
    session,
)

SPAN_NS = 2_000 * MS


def collected(
    out: Path, act: Callable[[FakeSubnet, int], object], sweeps: int = 8, **settings: Any
) -> FakeSubnet:
    """A collection of three switches in a row; something happens after each sweep."""
    subnet, collection, board = row_of_switches(3, 2), Collection(out), MetricsBoard()
    made = session(subnet, CollectorSettings(20 * MS, sweeps, **settings), collection, board)
    for sweep in range(1, sweeps):
        after_sweeps(subnet, board, sweep, lambda sweep=sweep: act(subnet, sweep))
    made.run()
    collection.close()
    return subnet


def back_up(subnet: FakeSubnet, sweep: int) -> None:
    """A slow host at the last switch holds up the others, one more after the fourth sweep."""
    ticks = 500_000
    subnet.devices[0x1002].ports[1].wait += ticks
    subnet.devices[0x1001].ports[4].wait += ticks
    if sweep > 4:
        subnet.devices[0x1000].ports[4].wait += ticks


def test_tree_has_its_root_and_grows(tmp_path: Path) -> None:
    looks: list[Any] = []
    watched: list[Any] = []

    def act(subnet: FakeSubnet, sweep: int) -> None:
        if not watched:
            watched.append(tb.watch(tmp_path / "c", span_ns=SPAN_NS))
        looks.append(watched[0].look())
        back_up(subnet, sweep)

    collected(tmp_path / "c", act, sweeps=9)
    sizes = [[tree.ports for tree in look.view.trees] for look in looks]
    assert sizes[0] == [] and sizes[3] == [2] and sizes[-1] == [3]
    (tree,) = looks[-1].view.trees
    assert tree.roots == ["switch2[1] → host2-0 HCA-1[1]"] and tree.at_host
    assert {port.name for port in looks[-1].view.hottest} == {
        "switch0[4] → switch1[3]",
        "switch1[4] → switch2[3]",
        "switch2[1] → host2-0 HCA-1[1]",
    }
    watched[0].close()


def test_finished_collection_looks_like_a_running_one(tmp_path: Path) -> None:
    looks: list[Any] = []

    def act(subnet: FakeSubnet, sweep: int) -> None:
        back_up(subnet, sweep)
        if sweep == 7:
            looks.append(tb.watch(tmp_path / "c", span_ns=SPAN_NS).look())

    collected(tmp_path / "c", act)
    after = tb.watch(tmp_path / "c", span_ns=SPAN_NS).look()
    assert [tree.roots for tree in looks[0].view.trees] == [t.roots for t in after.view.trees]
    assert looks[0].view.ports == after.view.ports and after.view.time_ns > looks[0].view.time_ns


def test_new_segments_go_on(tmp_path: Path) -> None:
    looks: list[Any] = []
    watched: list[Any] = []

    def act(subnet: FakeSubnet, sweep: int) -> None:
        watched[:] = watched or [tb.watch(tmp_path / "c", span_ns=SPAN_NS)]
        looks.append(watched[0].look().view)
        back_up(subnet, sweep)

    collected(tmp_path / "c", act, roll_ns=50 * MS)
    assert [len(view.hottest) for view in looks] == [0, 2, 2, 2, 2, 3, 3]
    assert not any(np.isnan(port.stall) for port in looks[-1].hottest)


def test_full_port_downstream_is_the_root(tmp_path: Path) -> None:
    def act(subnet: FakeSubnet, sweep: int) -> None:
        subnet.devices[0x1001].ports[4].wait += 500_000
        subnet.devices[0x1002].ports[1].words += 28_000_000  # 0.8 of 20 ms at 54.5 Gb/s

    collected(tmp_path / "c", act, sweeps=5)
    (tree,) = tb.watch(tmp_path / "c", span_ns=SPAN_NS).look().view.trees
    assert tree.roots == ["switch2[1] → host2-0 HCA-1[1]"] and not tree.at_host


def test_what_went_down_does_not_wait_upward() -> None:
    """Two leaves of a spine: the way down to one waits for its hosts, not for its way up."""
    host, leaf, spine = (10, 11), (20, 21), 30
    cables = [
        (leaf[0], 1, host[0]),
        (leaf[1], 1, host[1]),
        (leaf[0], 2, spine),
        (leaf[1], 2, spine),
    ]
    rows = []
    for number, (switch, port, far) in enumerate(cables):
        far_port = number - 1 if far == spine else 1
        rows.append((switch, port, far, far_port, True))
        rows.append((far, far_port, switch, port, far == spine))
    ports = pl.DataFrame(
        [
            {"node_guid": a, "node_name": f"d{a}", "switch": is_switch, "port": p, "lid": 1}
            | {"peer_guid": b, "peer_name": f"d{b}", "peer_port": q, "capacity_gbps": 100.0}
            | {"lanes": 4}
            for a, p, b, q, is_switch in rows
        ],
        schema=PORTS.polars_schema,
    )
    stalled = [(spine, 1), (leaf[0], 2), (leaf[0], 1)]
    intervals = pl.DataFrame(
        [
            {"time_ns": 10**9, "interval_ns": 10**9, "node_guid": a, "port": p}
            | {"stall_fraction": 0.5, "utilization": 0.4}
            for a, p in stalled
        ]
    )
    state = LiveState(SPAN_NS, 10, 0.1)
    state.set_ports(ports)
    state.update(conform(INTERVALS, intervals))
    trees = state.look(8).trees
    assert sorted(tree.ports for tree in trees) == [1, 2]
    assert {tree.roots[0] for tree in trees} == {"d20[2] → d30[1]", "d20[1] → d10[1]"}


@pytest.mark.parametrize("columns", [80, 160])
def test_screen_fits_the_terminal(
    tmp_path: Path,
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def act(subnet: FakeSubnet, sweep: int) -> None:
        back_up(subnet, sweep)
        if sweep == 6:
            subnet.devices[0x1001].ports[1] = Port(state=1)
            subnet.devices[0x2010].ports[1] = Port(state=1)

    collected(tmp_path / "c", act, states_ns=20 * MS, sweeps=12)
    monkeypatch.setenv("COLUMNS", str(columns))
    command = ["watch", str(tmp_path / "c"), "--once", "--span", "1 s"]
    assert run(command) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.split("\n"))) < columns
    parts = ("tailback counters", "LINKS THAT LOSE MOST", "CONGESTION TREES", "slow host")
    for part in (*parts, "link down", "█"):
        assert part in text
    assert len(text.splitlines()) <= 30
    assert run([*command, "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["trees"][0]["at_host"] and facts["changes"][0]["change"] == "link down"


def test_other_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", str(tmp_path), "--once"]) == 2
    assert "no collection" in capsys.readouterr().err


def test_course_shows_its_peaks() -> None:
    course = np.array([np.nan, np.nan, 0.0, 0.01, 0.5, 1.0])
    assert draw_course(course, 3) == "·▁█" and draw_course(course, 99) == "·· ▁▄█"
