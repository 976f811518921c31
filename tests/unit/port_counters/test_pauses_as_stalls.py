"""Pauses of Ethernet count as stalls: the same classes, the same verdict."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import tailback as tb
from tailback.cli import run
from tailback.port_counters.readers import read_counters
from tests.factories.counter_files import put

LINKS = """\
src,dst,rate_gbps,src_kind,dst_kind,src_port,dst_port
leaf1,spine1,40,switch,switch,swp1,swp9
leaf1,h1,40,switch,host,swp2,eth0
"""


def printed(folder: Path, number: int, paused_us: int) -> Path:
    """Statistics of two ports of a leaf, of which one is paused."""
    text = "".join(
        f"# leaf1 {name} {1_700_000_000 + 10 * number} 40000\nNIC statistics:\n"
        f"     tx_bytes_phy: {number * 10**9}\n     tx_packets_phy: {number * 10**6}\n"
        f"     tx_bytes: 0\n     tx_discards_phy: 0\n"
        f"     rx_prio3_pause: {number * paused * 12}\n"
        f"     rx_prio3_pause_duration: {number * paused}\n"
        for name, paused in (("swp1", paused_us), ("swp2", 0))
    )
    return put(folder, f"{number}.txt", text)


def test_paused_ports_have_classes_and_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [printed(tmp_path, number, 3_000_000) for number in range(3)]
    fabric = put(tmp_path / "f", "links.csv", LINKS)
    result = tb.counters(files, fabric=fabric)
    assert result.verdict.kind == "stalls" and result.queues is None
    worst = result.frame.row(0, named=True)
    assert (worst["interface"], worst["stall_fraction"]) == ("swp1", pytest.approx(0.3))
    assert worst["utilization"] == pytest.approx(0.02), "bytes of the wire, not of the kernel"
    assert (worst["category"], worst["port_type"], worst["lost_gbps"]) == ("Leaf", "up", 12.0)
    assert run(["counters", *map(str, files), "--fabric", str(fabric)]) == 0
    text = capsys.readouterr().out
    assert "were paused by their far ends" in text and "Leaf up" in text


def test_queues_of_paused_ports_have_classes_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "time,node,interface,tx_bytes,tx_packets,qdisc_backlog,rx_prio3_pause_duration,speed\n"
    rows = [
        f"{1_700_000_000 + n},leaf1,{name},{n * 10**8},{n * 10**5},0,{n * paused},40000\n"
        for n in range(20)
        for name, paused in (("swp1", 500_000), ("swp2", 0))
    ]
    counters = put(tmp_path, "a.csv", head + "".join(rows))
    fabric = put(tmp_path / "f", "links.csv", LINKS)
    assert run(["counters", str(counters), "--fabric", str(fabric)]) == 0
    text = capsys.readouterr().out
    assert "PORTS ARE PAUSED" in text and "BY TIER AND DIRECTION" in text and "Leaf up" in text


def test_a_sonic_switch_is_judged_by_its_pauses(tmp_path: Path) -> None:
    files = []
    for number in range(2):
        counters = {
            "SAI_PORT_STAT_IF_OUT_OCTETS": str(number * 10**9),
            "SAI_PORT_STAT_IF_OUT_DISCARDS": str(7 * number),
            "SAI_PORT_STAT_PFC_3_RX_PKTS": str(900 * number),
            "EST_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US": str(2_500_000 * number),
            "SAI_PORT_STAT_WRED_DROPPED_PACKETS": str(3 * number),
            "SAI_PORT_STAT_PFC_4_RX_PAUSE_DURATION_US": "N/A",
        }
        dump = {
            "COUNTERS_PORT_NAME_MAP": {"type": "hash", "value": {"Ethernet8": "oid:0x10"}},
            "COUNTERS:oid:0x10": {"type": "hash", "value": counters},
        }
        path = put(tmp_path / str(number), "leaf1.json", json.dumps(dump))
        os.utime(path, (1_700_000_000, 1_700_000_000 + 10 * number))
        files.append(path)
    result = tb.counters(files)
    row = result.frame.row(0, named=True)
    assert (row["node_name"], row["interface"]) == ("leaf1", "Ethernet8")
    assert row["stall_fraction"] == pytest.approx(0.25) and result.verdict.kind == "stalls"
    (link,) = result.facts["ill_links"]
    assert link["signs"] == ["discards"] and link["what"] == "7 discards; 3 discards"


def test_an_unnamed_block_is_refused_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path, "a.txt", "NIC statistics:\n     tx_bytes: 1\n")
    assert run(["counters", str(path)]) == 2
    text = capsys.readouterr().err
    assert "line 1" in text and "not named" in text and "echo" in text


def test_points_of_telegraf_are_readings(tmp_path: Path) -> None:
    text = "".join(
        f"infiniband,device=mlx5_0,host=n1,port=1 port_xmit_data={n * 250}i,port_xmit_wait={n}i,"
        f"port_rcv_data=9i,symbol_error={3 * n}i {1_700_000_000 + 10 * n}\n"
        f"cpu,host=n1 usage=0.5 {1_700_000_000 + 10 * n}\n"
        for n in range(2)
    )
    data = read_counters(put(tmp_path, "a.line", text))
    assert data.readings["data_bytes"].to_list() == [0, 1000]
    assert data.readings["node_name"].unique().to_list() == ["n1 mlx5_0"]
    assert data.events.filter(counter="symbol_error")["value"].to_list() == [0, 3]
    assert data.unknown == [] and data.readings["received_bytes"].max() == 36


def test_samples_of_ufm_are_readings(tmp_path: Path) -> None:
    text = "timestamp,source_id,node_guid,port_num,node_description,PortXmitDataExtended,"
    text += "PortXmitWaitExtended,LinkDownedCounterExtended\n"
    rows = [f"{1_700_000_000_000_000 + t},0x1,0xab,3,leaf1,{t},{t},0\n" for t in (0, 0, 30_000_000)]
    data = read_counters(put(tmp_path, "a.csv", text + "".join(rows)))
    assert data.readings.height == 2, "the endpoint repeats a sample until the next"
    assert data.readings["data_bytes"].to_list() == [0, 120_000_000]
    assert data.readings["node_guid"].to_list() == [0xAB, 0xAB]
    assert data.events.filter(counter="LinkDownedCounterExtended").height == 2
