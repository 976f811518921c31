"""Far ends of ports by their counters and by the fabric."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tailback.api.counters import counters
from tailback.cli.queues_screen import queues_screen
from tailback.port_counters.far_ends import contradictions, described
from tailback.port_counters.readers import FAR_ENDS, merged
from tailback.port_counters.readers.prometheus import PortSeries

LINKS = "src,dst,iface,dst_iface,rate_mbit\ns0,l0,p0,up,40\ns0,l1,p1,up,40\ns0,l2,p2,up,40\n"
PEERS = {("s0", 1): "l0[1]", ("s0", 2): "l1[1]", ("s0", 3): "l2[1]"}


def stated(*rows: tuple[int, str, int | None]) -> pl.DataFrame:
    """Far ends of ports of s0: its port, and device and port at the other end."""
    table = [(0, "s0", port, None, peer, number) for port, peer, number in rows]
    return pl.DataFrame(table, schema=FAR_ENDS, orient="row")


@pytest.mark.parametrize(
    ("far_ends", "ports"),
    [
        (stated((1, "l0", None), (2, "l1", None)), []),
        (stated((1, "l1", None), (2, "l0", None)), [1, 2]),
        (stated((1, "L0.cluster.org", None), (2, "l1", 1)), []),
        (stated((1, "l0", 7), (2, "l1", 1)), [1]),
        (stated((1, "elsewhere", None), (2, "l1", None), (3, "l2", None)), [1]),
        (stated((1, "uplink A", None), (2, "uplink B", None)), []),
        (stated((1, "l0", None), (1, "l2", None)), [1]),
    ],
    ids=["same", "swapped", "domain", "port", "not in the fabric", "other names", "moved later"],
)
def test_far_ends_are_compared_by_device(far_ends: pl.DataFrame, ports: list[int]) -> None:
    assert [each.port for each in contradictions(far_ends, PEERS, {})] == ports


def test_contradiction_names_ports_and_both_peers() -> None:
    swapped = contradictions(stated((1, "l1", None), (2, "l0", None)), PEERS, {})
    assert (
        "s0[1] is connected to l1 by the counters and to l0[1] by links.csv; s0[2] is connected to "
        "l0 by the counters and to l1[1] by links.csv"
    ) in described(swapped, "links.csv")


@pytest.mark.parametrize("swapped", [False, True])
def test_contradicted_cabling_is_on_the_first_screen(swapped: bool, tmp_path: Path) -> None:
    links, table = tmp_path / "links.csv", tmp_path / "counters.csv"
    links.write_text(LINKS)
    rows = [
        f"2026-11-22T11:06:1{second}Z,s0,p{port},l{(1 - port if swapped else port)},"
        f"{second * 1000},{second},0"
        for second in range(3)
        for port in range(2)
    ]
    header = "time_utc,node,iface,peer,tx_bytes,tx_packets,qdisc_backlog"
    table.write_text("\n".join([header, *rows]) + "\n")
    result = counters(table, fabric=links)
    assert result.queues is not None
    screen = " ".join(" ".join(queues_screen(result.queues, result.verdict, [], None, [])).split())
    assert ("s0[p0] is connected to l1 by the counters" in screen) == swapped
    assert result.queues.peers["s0", 1] == ("l1" if swapped else "l0[up]")


def test_exporters_state_far_ends() -> None:
    """As ``tailback collect`` labels its metrics; a port that was recabled stays one port."""
    series = PortSeries()
    for second, peer in enumerate(("l0", "l0", "l1")):
        labels = {"__name__": "tailback_port_xmit_bytes_total", "node": "s0", "port": "1"}
        series.add({**labels, "guid": "0x1", "peer": peer}, [(second * 10**9, 1000 * second)])
    link = {"peer": "l0", "peer_port": "7", "width": "4x", "speed": "EDR"}
    named = {"__name__": "tailback_port_info", "node": "s0", "port": "1", "guid": "0x1"}
    assert series.knows("tailback_port_info")
    series.add({**named, **link}, [(0, 1)])
    data = merged([series.data()])
    assert data.far_ends.select("node_name", "port", "peer_name", "peer_port").rows() == [
        ("s0", 1, "l0", 7),
        ("s0", 1, "l1", None),
    ]
    assert data.readings["node_name"].to_list() == ["s0"] * 3
