"""Tails of measured traffic: injection, ingestion, files, packets and use, as Jha et al. show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tailback as tb
from tailback.port_counters.analysis.traffic_levels import TRAFFIC_LEVELS
from tailback.port_counters.readers import read_counters

HEAD = (
    "#Time, Time_usec, CompId, X+_traffic (B), X+_packets (1), RDMA_tx_bytes, RDMA_rx_bytes, "
    "SMSG_tx_bytes, SMSG_rx_bytes, write_bytes#stats.a, write_bytes#stats.b, read_bytes#stats.a, "
    "nettopo_mesh_coord_X, nettopo_mesh_coord_Y, nettopo_mesh_coord_Z\n"
)
MINUTES = 20


def blue_waters(folder: Path) -> Path:
    """Two nodes of one router: in minute k each injects k GB by RDMA and 1 GB in short messages."""
    path, lines = folder / "ldms.csv", []
    for node in (7, 8):
        sent = 0
        for minute in range(MINUTES + 1):
            sent += minute
            giga, files = 10**9, 3 * 10**8 * minute * (node == 7)
            cells = [60 * minute, 0, node, sent * giga, sent * 10**6, sent * giga]
            cells += [2 * sent * giga, minute * giga, 0, files, 2 * files, 0, 1, 2, 3]
            lines.append(", ".join(map(str, cells)))
    path.write_text(HEAD + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def levels(tmp_path: Path) -> pl.DataFrame:
    table = tb.counters(blue_waters(tmp_path), levels=True).tables["traffic_levels"]
    assert dict(table.schema) == TRAFFIC_LEVELS.polars_schema
    return table


def exceeded(levels: pl.DataFrame, measured: str, share: float) -> dict[str, Any]:
    row = (pl.col("measured") == measured) & (pl.col("share_above") == share)
    return levels.filter(row).row(0, named=True)


def test_injection_is_of_all_adapters_together(levels: pl.DataFrame) -> None:
    injected = [2 * 8 * (minute + 1) / 60 for minute in range(1, MINUTES + 1)]
    median = exceeded(levels, "injection", 0.5)
    assert median["gbps"] == pytest.approx(sum(injected) / MINUTES)
    assert median["intervals"] == MINUTES and median["of"] == "all hosts together"
    ingested = exceeded(levels, "ingestion", 0.1)["gbps"]
    # Two of twenty minutes had more.
    assert 2 * 8 * 2 * 18 / 60 <= ingested <= 2 * 8 * 2 * 19 / 60


def test_files_are_of_single_nodes(levels: pl.DataFrame) -> None:
    """Both file systems of node 7 together take 0.9 GB a minute, node 8 uses none."""
    assert exceeded(levels, "files", 0.1)["gbps"] == pytest.approx(8 * 0.9 / 60, rel=0.03)
    assert exceeded(levels, "files", 0.1)["intervals"] == 2 * MINUTES


def test_packets_are_by_class(levels: pl.DataFrame) -> None:
    row = exceeded(levels, "packets", 0.1)
    assert row["of"] == "Port X+" and row["packets_per_s"] == pytest.approx(19e6 / 60, rel=0.08)
    assert exceeded(levels, "utilization", 0.5)["utilization"] > 0


def test_rare_levels_need_as_many_intervals(levels: pl.DataFrame) -> None:
    assert set(levels.filter(measured="injection")["share_above"]) == {0.5, 0.1}


def test_columns_of_nodes_are_no_links(tmp_path: Path) -> None:
    counters = read_counters(blue_waters(tmp_path))
    assert counters.unknown == []
    names = set(counters.readings["node_name"])
    nodes = {f"component {n} {part}" for n in (7, 8) for part in ("adapter", "files")}
    assert names == {"(1,2,3)", *nodes}
    assert tb.counters(blue_waters(tmp_path)).levels is None


def test_switch_ports_tell_what_adapters_do_not() -> None:
    """Only what ports of a switch sent was read: the ingestion of its hosts, no injection."""
    folder = Path(__file__).parents[3] / "examples"
    files = [folder / f"counters/leaf06-12h0{minute}.txt" for minute in (0, 1)]
    fabric = folder / "demo/fabric.ibnetdiscover"
    analysis = tb.counters(files, every_ns=60 * 10**9, fabric=fabric, levels=True)
    sent = analysis.frame.filter(pl.col("port_type") == "down")["sent_bytes"].sum()
    rates = analysis.levels
    assert rates is not None and rates.filter(measured="injection").is_empty()
    (median,) = rates.filter(measured="ingestion")["gbps"]
    assert median == pytest.approx(8 * sent / (60 * 10**9)) and median > 0
