"""Whose counters these are: by GUID, by local identifier, by name; and what stays unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.fabric.topologies import build
from tailback.port_counters.analysis.classes import classify
from tailback.port_counters.analysis.port_inventory import (
    PortInventory,
    fill_ticks,
    from_discovery,
    from_run,
    name_ports,
    with_classes,
)
from tailback.port_counters.schema import READINGS, conform
from tailback.scenario.model import parse
from tailback.simulation import simulate

DISCOVERY = """\
vendid=0x2c9
devid=0xcb20
switchguid=0x10(10)
Switch\t36 "S-0000000000000010"\t\t# "sw" enhanced port 0 lid 4 lmc 0
[1]\t"H-0000000000000030"[1](31) \t\t# "n1 HCA-1" lid 6 4xEDR
[2]\t"S-0000000000000020"[1]\t\t# "sw" lid 5 4xEDR

vendid=0x2c9
devid=0xc738
switchguid=0x20(20)
Switch\t36 "S-0000000000000020"\t\t# "sw" enhanced port 0 lid 5 lmc 0
[1]\t"S-0000000000000010"[2]\t\t# "sw" lid 4 4xEDR
[2]\t"H-0000000000000040"[1](41) \t\t# "n2 HCA-1" lid 7 4xFDR

vendid=0x2c9
devid=0x1017
caguid=0x30
Ca\t1 "H-0000000000000030"\t\t# "n1 HCA-1"
[1](31) \t"S-0000000000000010"[1]\t\t# lid 6 lmc 0 "sw" lid 4 4xEDR

vendid=0x2c9
devid=0x1003
caguid=0x40
Ca\t1 "H-0000000000000040"\t\t# "n2 HCA-1"
[1](41) \t"S-0000000000000020"[2]\t\t# lid 7 lmc 0 "sw" lid 5 4xFDR
"""
"""Two switches of one name, of two families, each with a host."""


@pytest.fixture
def places(tmp_path: Path) -> PortInventory:
    path = tmp_path / "net"
    path.write_text(DISCOVERY)
    return from_discovery(path)


def named(places: PortInventory, **row: Any) -> dict[str, Any]:
    base = {"time_ns": 0, "xmit_wait_ticks": 5, "port": 1, "node_name": ""}
    frame = conform(READINGS, pl.DataFrame([base | row]))
    out, _ = name_ports(frame, places)
    assert out.columns == frame.columns and out.height == 1
    return out.row(0, named=True)


@pytest.mark.parametrize(
    ("row", "name", "tick", "tick_high"),
    [
        (
            {"node_guid": 0x10, "node_name": "mlx5_0", "port": 2},
            "sw 0x0000000000000010",
            10.24,
            None,
        ),
        (
            {"node_guid": 0x20, "node_name": "mlx4_0", "port": 1},
            "sw 0x0000000000000020",
            10.24,
            None,
        ),
        ({"node_name": "lid 5", "port": 2}, "sw 0x0000000000000020", 18.77, None),
        ({"node_name": "lid 4", "port": 1}, "sw 0x0000000000000010", 10.24, None),
        ({"node_name": "n2 HCA-1"}, "n2 HCA-1", 1.173, 18.77),
        ({"node_guid": 0x30, "node_name": "mlx5_0"}, "n1 HCA-1", 0.64, 10.24),
    ],
)
def test_a_port_is_found(
    places: PortInventory, row: dict[str, Any], name: str, tick: float, tick_high: float | None
) -> None:
    out = named(places, **row)
    assert out["node_name"] == name
    assert out["tick_ns"] == pytest.approx(tick, rel=0.01)
    assert out["tick_high_ns"] == (
        None if tick_high is None else pytest.approx(tick_high, rel=0.01)
    )
    assert out["capacity_gbps"] is not None


@pytest.mark.parametrize(
    ("stated", "tick", "tick_high"), [(8, 2.56, None), (4, 1.28, None), (0, 10.24, None)]
)
def test_stated_tick_of_known_switch_wins(
    places: PortInventory, stated: int, tick: float, tick_high: float | None
) -> None:
    ports = places.with_stated_ticks({"lid 4": stated} if stated else {})
    for row in ({"node_name": "lid 4"}, {"node_guid": 0x10}):
        out = named(ports, **row)
        assert (out["tick_ns"], out["tick_high_ns"]) == (pytest.approx(tick), tick_high)
    other = named(ports, node_name="lid 5", port=2)
    assert other == named(places, node_name="lid 5", port=2)


PORT_LINES = """\
CA   6 1 0x31 4x EDR - SW   4 1 0x10 ( 'n1 HCA-1' - 'sw' )
CA   7 1 0x41 2x HDR - SW   4 2 0x10 ( 'n2 HCA-1' - 'sw' )
SW   4 1 0x10 4x EDR - CA   6 1 0x31 ( 'sw' - 'n1 HCA-1' )
SW   4 2 0x10 2x HDR - CA   7 1 0x41 ( 'sw' - 'n2 HCA-1' )
"""
BLOCKS = """\
Switch\t36 "S-0000000000000010"\t\t# "sw" port 0
[1]\t"H-0000000000000030"[1](31) \t\t# "n1 HCA-1" 4xEDR
[2]\t"H-0000000000000040"[1](41) \t\t# "n2 HCA-1" 2xHDR

Ca\t1 "H-0000000000000030"\t\t# "n1 HCA-1"
[1](31) \t"S-0000000000000010"[1]\t\t# "sw" 4xEDR

Ca\t1 "H-0000000000000040"\t\t# "n2 HCA-1"
[1](41) \t"S-0000000000000010"[2]\t\t# "sw" 2xHDR
"""
"""The same fabric without device ids, and here without local identifiers: widths are left."""


@pytest.mark.parametrize("text", [PORT_LINES, BLOCKS])
def test_widths_narrow_ticks_of_unknown_devices(tmp_path: Path, text: str) -> None:
    (tmp_path / "net").write_text(text)
    ports = from_discovery(tmp_path / "net").ports.sort("name", "port")
    ticks = dict(zip(ports["name"] + ports["port"].cast(str), ports["tick_high"], strict=True))
    assert ports["tick"].to_list() == [pytest.approx(0.64)] * 4
    # 25 Gb/s a lane and all adapters are ambiguous; only Quantum has switch ports of HDR.
    assert ticks == {"n1 HCA-11": 10.24, "n2 HCA-11": pytest.approx(5.12, rel=0.01)} | {
        "sw1": 10.24,
        "sw2": None,
    }


def test_what_two_ports_are_called_names_neither(places: PortInventory) -> None:
    assert named(places, node_name="sw", port=1)["node_name"] == "sw"
    assert named(places, node_name="sw", port=1)["capacity_gbps"] is None


def test_what_the_source_tells_itself_stays(places: PortInventory) -> None:
    row = named(places, node_name="lid 4", port=1, capacity_gbps=25.0, tick_ns=7.0)
    assert (row["capacity_gbps"], row["tick_ns"]) == (25.0, 7.0)


def test_ports_of_another_fabric_are_told(places: PortInventory) -> None:
    rows = pl.DataFrame({"time_ns": [0] * 3, "port": [1, 2, 9], "node_name": ["lid 99"] * 3})
    out, notes = name_ports(conform(READINGS, rows), places)
    assert out["node_name"].to_list() == ["lid 99"] * 3
    assert notes == ["ports that are not in the fabric: 3, like those of 'lid 99'"]


def test_classes_and_peers(places: PortInventory) -> None:
    table = with_classes(pl.DataFrame(), places)
    classes = {
        (r["node_name"], r["port"]): (r["category"], r["port_type"])
        for r in table.iter_rows(named=True)
    }
    assert classes["n1 HCA-1", 1] == ("Host", "up")
    assert classes["sw 0x0000000000000010", 1] == ("Leaf", "down")
    peers = {(r["name"], r["port"]): r["peer"] for r in places.ports.iter_rows(named=True)}
    assert peers["sw 0x0000000000000010", 1] == "n1 HCA-1[1]"


@pytest.mark.parametrize(
    ("topology", "classes"),
    [
        ({"kind": "torus", "dims": [3, 3]}, {"Leaf down", "Leaf flat"}),
        (
            {"kind": "modified-k-ary-n-tree", "k": 2, "n": 3, "width": 2},
            {"ToR up", "ToR down", "Leaf up", "Leaf down", "Leaf flat", "Spine down", "Spine flat"},
        ),
        (
            {"kind": "k-ary-n-tree", "k": 2, "n": 4},
            {
                "Tier0 up",
                "Tier0 down",
                "Tier1 up",
                "Tier1 down",
                "Tier2 up",
                "Tier2 down",
                "Tier3 down",
            },
        ),
    ],
)
def test_a_run_classes_ports_as_its_fabric_does(
    topology: dict[str, Any], classes: set[str], tmp_path: Path
) -> None:
    """By the tier of the switch: that of a flat link is one higher."""
    job = {"pattern": {"kind": "ring", "ranks": 8, "size": "4 KiB"}}
    simulate(parse({"fabric": {"topology": topology}, "job": [job]})).write(tmp_path / "run")
    table = from_run(tmp_path / "run").classes
    assert table.equals(classify(build(topology)))
    switches = table.filter(pl.col("category") != "Host")
    assert set(switches.select(pl.format("{} {}", "category", "port_type")).to_series()) == classes


def test_ticks_by_speed_and_by_word() -> None:
    rows = conform(
        READINGS,
        pl.DataFrame(
            {
                "time_ns": [0] * 3,
                "port": [1, 2, 3],
                "node_name": ["a"] * 3,
                "xmit_wait_ticks": [1, 1, None],
                "capacity_gbps": [54.5, None, None],
            }
        ),
    )
    out, notes = fill_ticks(rows, None)
    assert out["tick_ns"].to_list() == [pytest.approx(8 * 8 / 54.5), None, None]
    assert out["tick_high_ns"].to_list() == [pytest.approx(8 * 32 * 4 / 54.5), None, None]
    assert "between 1.17 and 18.8 ns" in notes[0] and "time: 1;" in notes[1]
    out, notes = fill_ticks(rows, 7.5)
    assert out["tick_ns"].to_list() == [7.5] * 3 and notes == []


def test_without_a_fabric_directions_are_the_classes() -> None:
    rows = pl.DataFrame({"node_name": ["a", "a"], "port": [0, 1], "direction": ["X+", None]})
    table = with_classes(rows, PortInventory())
    assert table["port_type"].to_list() == ["X+", "any"]
    assert table["category"].to_list() == ["Port", "Port"]
