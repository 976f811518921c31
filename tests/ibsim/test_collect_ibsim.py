"""The collector against real opensm and ibsim, through the real libibumad."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.collector.segments import read_segment
from tailback.port_counters.schema import Flag
from tailback.scenario.model import Scenario
from tailback.simulation import prepare, simulate
from tests.factories.ibsim_subnet import Subnet, missing, wait_for, write_net

pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(bool(missing()), reason=f"needs Debian packages: {' '.join(missing())}"),
]
SHAPE = {"tors": 2, "hosts": 4, "orcas": 1, "leaves": 2, "spines": 2}
LONGEST_TICK_NS = 8 * 32 * 4 / (4 * 14.0625 * 64 / 66)


@pytest.fixture(scope="module")
def subnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subnet]:
    folder = tmp_path_factory.mktemp("ibsim")
    write_net(folder / "fabric.net", **SHAPE)
    with Subnet(folder / "fabric.net", folder) as running:
        # Every test starts from this, as each may run in a process of its own.
        running.collect("first", sweeps=1)
        yield running


def fabric_file(subnet: Subnet) -> Path:
    path = subnet.folder / "fabric.ibnetdiscover"
    if not path.exists():
        path.write_text(subnet.run("ibnetdiscover"))
    return path


def key(row: dict[str, object]) -> str:
    """The name ibsim has for a port's device."""
    return f"{'H' if 'HCA' in str(row['node_name']) else 'S'}-{row['node_guid']:016x}"


def count_readings(path: Path) -> int:
    """Readings in a segment that is being written."""
    segment = read_segment(path) if path.exists() else None
    return 0 if segment is None else len(segment.rows)


def table(subnet: Subnet, out: str, name: str) -> pl.DataFrame:
    return pl.read_parquet(subnet.folder / out / name / "*.parquet")


def test_what_was_set_is_what_is_read(subnet: Subnet) -> None:
    """Both stores of counters, every port, against perfquery as the second opinion."""
    ports = table(subnet, "first", "readings").sort("node_guid", "port").to_dicts()
    assert len(ports) == 2 * (8 + 8 + 2 * 18), "both ends of every cable"
    assert len({p["node_guid"] for p in ports}) == 8 + 2 + 2 + 2
    assert {round(p["capacity_gbps"], 1) for p in ports} == {54.5}
    lines, expected = [], {}
    for number, p in enumerate(ports):
        wait, words, packets = 1000 + number, 2**40 + 7 * number, 2**33 + number
        expected[p["node_guid"], p["port"]] = (wait, words * 4, packets)
        at = f'PerformanceSet "{key(p)}"[{p["port"]}]'
        lines += [
            f"{at} PortCounters.PortXmitWait={wait}",
            f"{at} PortCountersExtended.PortXmitData={words}",
            f"{at} PortCountersExtended.PortXmitPkts={packets}",
        ]
    subnet.console(lines)
    summary = subnet.collect("second", sweeps=1)
    assert summary["failed"] == 0 and summary["ports"] == len(ports)
    readings = {
        (r["node_guid"], r["port"]): r for r in table(subnet, "second", "readings").to_dicts()
    }
    for place, (wait, sent, packets) in expected.items():
        row = readings[place]
        assert row["xmit_wait_ticks"] == wait
        # Requests and answers themselves are counted on the links they cross.
        assert 0 <= row["data_bytes"] - sent < 10**6 and 0 <= row["packets"] - packets < 10**4
    # The real tool as a second opinion; the subnet manager has survived and finds it the path.
    port_guid = ports[0]["node_guid"] + 1
    text = subnet.run("perfquery", "-G", hex(port_guid), "1")
    assert re.search(r"PortXmitWait:\.*1000\b", text), text


def drive(
    subnet: Subnet, places: dict[tuple[str, int], dict[str, Any]], truth: pl.DataFrame, windows: int
) -> None:
    """Set the counters of ibsim to a run's stalls, window by window, and collect each time."""
    # One engine picosecond is a microsecond here, so that a tick is fine beside a window.
    wait = dict.fromkeys(places, 0)
    zero = [
        f'PerformanceSet "{key(p)}"[{port}] PortCounters.PortXmitWait=0'
        for (_, port), p in places.items()
    ]
    subnet.console(zero)
    subnet.collect("driven", sweeps=1)
    for window in range(windows):
        lines = []
        for row in truth.filter(pl.col("window") == window).iter_rows(named=True):
            place = (row["src_name"], row["src_port"])
            wait[place] += round(row["stall_ps"] * 0.001 / places[place]["tick_ns"])
            lines.append(
                f'PerformanceSet "{key(places[place])}"[{place[1]}] '
                f"PortCounters.PortXmitWait={wait[place]}"
            )
        subnet.console(lines)
        subnet.collect("driven", sweeps=1)


@pytest.mark.slow
def test_stalls_of_a_simulated_run_come_back(subnet: Subnet) -> None:
    """The engine's truth goes into ibsim tick by tick and comes out of ``tailback collect``."""
    scenario = Scenario.model_validate(
        {
            "name": "fan-in",
            "fabric": {"file": str(fabric_file(subnet))},
            "job": [
                {
                    "pattern": {
                        "kind": "reduce-naive",
                        "ranks": 8,
                        "arrays": 12,
                        "size": "64 KiB",
                        "root": 0,
                    }
                }
            ],
            "engine": {"packet": "2 KiB", "buffer": "8 KiB", "eager": "1 MiB"},
            "telemetry": {"windows": 4},
        }
    )
    run = simulate(prepare(scenario))
    links = run.tables["links"].select("link", "src_name", "src_port")
    truth = run.tables["truth"].join(links, on="link")
    windows = run.tables["windows"]
    assert truth["stall_ps"].sum() > 0, "a run without stalls proves nothing"
    places = {(r["node_name"], r["port"]): r for r in table(subnet, "first", "readings").to_dicts()}
    drive(subnet, places, truth, windows.height)
    intervals = table(subnet, "driven", "intervals").sort("time_ns")
    intervals = intervals.with_columns(
        window=pl.int_range(pl.len()).over("node_guid", "port").cast(pl.UInt32)
    )
    assert intervals["window"].max() == windows.height - 1
    assert intervals.filter(pl.col("flags") & int(Flag.AT_LEAST) != 0).height == 0
    lengths = windows.with_columns(ps=pl.col("end_ps") - pl.col("start_ps"))
    both = (
        intervals.join(
            truth,
            left_on=["node_name", "port", "window"],
            right_on=["src_name", "src_port", "window"],
            how="left",
        )
        .join(lengths, on="window")
        .with_columns(pl.col("stall_ps").fill_null(0))
    )
    assert both.height == len(places) * windows.height
    read = both["stall_ns"] / (both["ps"] * 0.001)
    engine = both["stall_ps"] / both["ps"]
    step = LONGEST_TICK_NS / (both["ps"] * 0.001)
    assert ((read - engine).abs() <= step).all(), "equal within one tick"
    assert engine.max() > 0.1  # type: ignore[operator]
    assert step.max() < 0.01  # type: ignore[operator]


@pytest.mark.slow
def test_a_live_collector_misses_nothing(subnet: Subnet) -> None:
    row = table(subnet, "first", "readings").filter(~pl.col("node_name").str.contains("HCA"))
    port = row.sort("node_guid", "port").to_dicts()[0]
    at = f'PerformanceSet "{key(port)}"[{port["port"]}] PortCounters.PortXmitWait'
    subnet.console([f"{at}=0"])
    child = subnet.start(
        "collect", "--out", "live", "--interval", "40 ms", "--metrics", "0", "--format", "json"
    )
    try:
        segment = subnet.folder / "live" / "segments" / "000001.segment"
        ports = table(subnet, "first", "readings").n_unique(["node_guid", "port"])

        def read_twice() -> None:
            # One sweep may be under way; the next reads what was set.
            seen = count_readings(segment)
            assert wait_for(lambda: count_readings(segment) >= seen + 2 * ports, 60)

        # Only from the first reading on is there something to be missed.
        read_twice()
        total = 0
        for _ in range(8):
            total += 500_000
            subnet.console([f"{at}={total}"])
            read_twice()
        subnet.console([f"{at}=3"])
        read_twice()
        subnet.console([f"{at}={2**32 - 1}"])
        read_twice()
        read_twice()
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=20)
    finally:
        child.kill()
    assert child.returncode == 0, err
    assert json.loads(out)["resets"] == 1
    mine = (
        table(subnet, "live", "intervals")
        .filter((pl.col("node_guid") == port["node_guid"]) & (pl.col("port") == port["port"]))
        .sort("time_ns")
    )
    at_least, reset = int(Flag.AT_LEAST), int(Flag.RESET)
    plain = mine.filter(pl.col("flags") & at_least == 0)
    assert plain["xmit_wait_ticks"].sum() == total
    back = mine.filter(pl.col("flags") & reset != 0)
    assert back["xmit_wait_ticks"].to_list() == [3]
    # No port waits for 94 s within a sweep.
    jump = mine.filter(pl.col("flags") & int(Flag.IMPOSSIBLE) != 0)
    assert jump["xmit_wait_ticks"].to_list() == [None] and jump["stall_fraction"][0] is None
    assert set(mine.filter(pl.col("time_ns") > jump["time_ns"][0])["stall_fraction"]) == {None}


def test_a_cut_off_switch_costs_its_own_readings(subnet: Subnet) -> None:
    """ibsim drops half of what one device gets, and all of another's: only they lose readings."""
    first = table(subnet, "first", "readings")
    host = first.filter(pl.col("node_name").str.contains("ys001n02")).to_dicts()[0]
    child = subnet.start(
        "collect",
        "--out",
        "cut",
        "--interval",
        "100 ms",
        "--sweeps",
        "12",
        "--timeout",
        "300 ms",
        "--retries",
        "1",
        "--format",
        "json",
    )
    try:
        assert wait_for((subnet.folder / "cut/segments/000001.segment").exists, 10)
        subnet.console([f'Error "{key(host)}" 100'])
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
        subnet.console([f'Error "{key(host)}" 0'])
    assert child.returncode == 0, err
    summary = json.loads(out)
    counts = dict(table(subnet, "cut", "readings").group_by("node_guid").len().iter_rows())
    lost = 12 - counts.pop(host["node_guid"], 0)
    assert summary["failed"] == lost > 0 and "ys001n02" in err
    ports = dict(first.group_by("node_guid").len().iter_rows())
    assert counts == {guid: 12 * ports[guid] for guid in counts}
    assert summary["sweeps"] == 12


def test_ports_of_a_discovery_file_are_those_discovered(subnet: Subnet) -> None:
    path = fabric_file(subnet)
    subnet.collect("file", sweeps=1, fabric=str(path))
    columns = ["node_guid", "port", "node_name", "capacity_gbps", "tick_ns"]
    here = table(subnet, "file", "readings").select(columns).sort("node_guid", "port")
    there = table(subnet, "first", "readings").select(columns).sort("node_guid", "port")
    assert here.equals(there)
