"""Readers of port counters: units, what is missing, and errors with line and column."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

import tailback as tb
from tailback.errors import TailbackError
from tailback.port_counters.analysis.port_inventory import from_discovery
from tailback.port_counters.analysis.sources import load
from tailback.port_counters.findings.port_events import port_events
from tailback.port_counters.readers import (
    READERS,
    merged,
    read_counters,
    read_part,
    read_series,
)
from tailback.port_counters.readers.engine_run import from_run
from tailback.port_counters.readers.ldms_csv import read as read_ldms
from tailback.port_counters.schema import INTERVALS, READINGS, U32_MAX, U64_MAX, CounterError, Flag
from tests.factories.counter_files import put, run_tables, sysfs
from tests.factories.public_data import real

PLAIN = """\
# Port counters: Lid 7 port 3 (CapMask: 0x1300)
PortSelect:......................3
CounterSelect2:..................0x00
SymbolErrorCounter:..............4
PortXmitData:....................4294967295
PortXmitPkts:....................10
PortXmitWait:....................100
"""
WIDE = """\
# Port extended counters: Lid 7 port 3 (CapMask: 0x5300 CapMask2: 0x0000002)
PortSelect:......................3
PortXmitData:....................5000000000
PortXmitPkts:....................11
PortXmitWait:....................6000000000
"""


def test_perfquery_plain(tmp_path: Path) -> None:
    counters = read_counters(put(tmp_path, "a.txt", PLAIN), time_ns=5)
    row = counters.readings.row(0, named=True)
    assert counters.readings.schema == pl.Schema(READINGS.polars_schema)
    assert (row["time_ns"], row["port"], row["node_name"]) == (5, 3, "lid 7")
    assert (row["data_bytes"], row["xmit_wait_ticks"]) == (4 * 4294967295, 100)
    assert counters.unknown == []
    assert counters.events.select("node_name", "port", "counter").rows() == [
        ("lid 7", 3, "SymbolErrorCounter")
    ]


CONTROL = """\
# PortXmitConCtrl counters: Lid 7 port 3
PortSelect:......................3
PortXmitTimeCong:................5000
# PortRcvConCtrl counters: Lid 7 port 3
PortPktRcvFECN:..................12
"""


def test_perfquery_counters_of_congestion_control(tmp_path: Path) -> None:
    """``perfquery --xmitcc``: time in the congested state, beside the plain counters or alone."""
    both = read_counters(put(tmp_path, "a.txt", PLAIN + CONTROL))
    assert (both.readings.height, both.readings["xmit_wait_ticks"][0], both.unknown) == (1, 100, [])
    assert both.events.select("counter", "value").rows() == [
        ("SymbolErrorCounter", 4),
        ("PortXmitTimeCong", 5000),
        ("PortPktRcvFECN", 12),
    ]
    alone = read_counters(put(tmp_path, "b.txt", CONTROL))
    assert alone.events["counter"].to_list() == ["PortXmitTimeCong", "PortPktRcvFECN"]
    assert alone.readings["xmit_wait_ticks"].to_list() == [None]
    with pytest.raises(CounterError, match="appears twice"):
        read_counters(put(tmp_path, "c.txt", CONTROL + CONTROL))


def test_errors_in_both_widths_count_once(tmp_path: Path) -> None:
    """15 is the largest value of the narrow counter, and one like others of the wide one."""
    line = "LocalLinkIntegrityErrors:....15\n"
    events = read_counters(put(tmp_path, "a.txt", WIDE + line + PLAIN + line)).events
    counters = dict(events.select("counter", "value").iter_rows())
    assert counters == {"LocalLinkIntegrityErrorsExtended": 15, "SymbolErrorCounter": 4}
    assert port_events(events.filter(pl.col("value") == 15)).is_empty()


SAMPLES_CONTROL = """\
# PortSamplesControl: Lid 7 port 3
OpCode:..........................0x00
PortSelect:......................3
Tick:............................0x0f
CounterWidth:....................4
"""


@pytest.mark.parametrize("separate", [True, False])
def test_stated_tick_applies_to_stalls(tmp_path: Path, separate: bool) -> None:
    """The tick is 16 bytes of the port or of each of four lanes, in either order of the files."""
    net = put(tmp_path, "net", 'Switch 36 "S-7" # "sw" port 0 lid 7\n[3] "H-8"[1] # "h" 4xEDR\n')
    later = PLAIN.replace("Wait:....................100", "Wait:....................200")
    texts = [PLAIN, SAMPLES_CONTROL, later] if separate else [SAMPLES_CONTROL + PLAIN, later]
    files = [put(tmp_path, f"{number}.txt", text) for number, text in enumerate(texts)]
    source = load(files, every_ns=10**9)
    row = source.intervals(from_discovery(net), None)[0].rows.collect().row(0, named=True)
    assert row["interval_ns"] == 10**9 and not source.unknown
    assert row["stall_ns"] == pytest.approx(100 * 16 * 8 / 100)
    assert row["stall_high_fraction"] == pytest.approx(100 * 16 * 4 * 8 / 100 / 1e9)


def test_absent_sampling_states_no_tick(tmp_path: Path) -> None:
    text = SAMPLES_CONTROL.replace("0x0f", "0x00")
    assert read_counters(put(tmp_path, "a.txt", PLAIN + text)).stated_ticks == {}
    wrong = put(tmp_path, "b.txt", PLAIN + text.replace("0x00\nCounter", "0x100\nCounter"))
    with pytest.raises(CounterError, match="Tick 256 does not fit") as caught:
        read_counters(wrong)
    assert caught.value.place == "line 11, column 34"


def test_perfquery_wide_wins_over_plain(tmp_path: Path) -> None:
    text = PLAIN + WIDE
    row = read_counters(put(tmp_path, "0x00000000000000ab.out", text)).readings.row(0, named=True)
    assert row["node_guid"] == 0xAB
    assert (row["data_bytes"], row["packets"]) == (20_000_000_000, 11)
    assert (row["xmit_wait_ticks"], row["wait_limit"], row["flags"]) == (
        6_000_000_000,
        2**64 - 1,
        0,
    )


@pytest.mark.parametrize(
    "text",
    [
        WIDE.replace("0x0000002", "0x0000000").replace("6000000000", "0"),
        PLAIN.replace("0x1300", "0x0300").replace(":....................100", ":......0"),
    ],
)
def test_an_uncounted_wait_is_null_not_zero(tmp_path: Path, text: str) -> None:
    row = read_counters(put(tmp_path, "a.txt", text)).readings.row(0, named=True)
    assert row["xmit_wait_ticks"] is None
    assert row["flags"] & Flag.NO_COUNTER


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (
            PLAIN.replace(":....................100", ":....................1o0"),
            "line 7, column 34",
            "not a counter value",
        ),
        (WIDE.replace("5000000000", str(2**64)), "line 3, column 34", "not a counter value"),
        (PLAIN + PLAIN, "line 8, column 1", "appears twice without a time stamp"),
        (PLAIN + "what is this\n", "line 8, column 1", "not a counter"),
        (PLAIN + "PortXmitWait:...1\n", "line 8, column 1", "appears twice"),
        (
            PLAIN.replace("PortXmitPkts:....................10", "PortXmitPkts:....5000000000"),
            "line 6, column 18",
            "32-bit",
        ),
    ],
)
def test_perfquery_mistakes(tmp_path: Path, text: str, place: str, message: str) -> None:
    with pytest.raises(CounterError, match=message) as error:
        read_counters(put(tmp_path, "a.txt", text))
    assert error.value.place == place


def test_ibqueryerrors(tmp_path: Path) -> None:
    name = 'evil "<b>$(x)'
    text = (
        f'Errors for "{name}"\n'
        "   GUID 0x2c9 port 1: [PortXmitWait == 12] [PortXmitData == 8 (32.0B)] [X == 3]\n"
        "   GUID 0x2c9 port 2: [PortXmitPkts == 5000000000 (4.6G)]\n"
        "   GUID 0x2c9 port ALL: [PortXmitWait == 12]\n\n## Summary: 1\n"
    )
    counters = read_counters(put(tmp_path, "a.txt", text))
    assert counters.readings["node_name"].to_list() == [name, name]
    assert counters.readings["data_bytes"].to_list() == [32, None]
    assert counters.readings["xmit_wait_ticks"].to_list() == [12, None]
    assert counters.unknown == ["X"]
    damaged = read_counters(put(tmp_path, "b.txt", text.replace("== 12]", "== 1x2]", 1)))
    assert damaged.readings["data_bytes"].to_list() == [None]
    assert "1 damaged row (b.txt, line 2, column 40: '1x2' is not a" in damaged.left_out[0]


def test_a_page_states_rates_and_names_of_adapters(tmp_path: Path) -> None:
    """As infiniband_exporter does: by GUID, in metrics of their own."""
    page = (
        "# TYPE infiniband_hca_info gauge\n"
        'infiniband_hca_info{guid="0xab",hca="n1 HCA-1",lid="133"} 1\n'
        'infiniband_hca_rate_bytes_per_second{guid="0xab"} 1.25e+10\n'
        'infiniband_hca_port_transmit_wait_total{guid="0xab",port="1",switch=""} 7\n'
        'infiniband_hca_uplink_info{guid="0xab",hca="n1 HCA-1",port="1",switch="",uplink="leaf1",'
        'uplink_guid="0x1",uplink_lid="9",uplink_port="11",uplink_type="SW"} 1\n'
    )
    counters = read_counters(put(tmp_path, "a.prom", page))
    (row,) = counters.readings.iter_rows(named=True)
    assert (row["port"], row["capacity_gbps"], row["xmit_wait_ticks"]) == (1, 100.0, 7)
    assert row["node_name"] == "n1 HCA-1" and not counters.unknown
    (far,) = counters.far_ends.iter_rows(named=True)
    assert (far["peer_name"], far["peer_port"]) == ("leaf1", 11)


def test_a_single_reading_tells_losses_and_full_counters(tmp_path: Path) -> None:
    text = (
        'Errors for "leaf1"\n'
        "   GUID 0x2c9 port 1: [PortXmitDiscards == 40] [PortXmitWait == 4294967295]\n"
        "   GUID 0x2c9 port 2: [PortXmitDiscards == 2] [PortXmitWait == 5]\n"
    )
    facts = tb.counters([put(tmp_path, "a.txt", text)]).facts
    notes = " ".join(facts["notes"])
    assert "leaf1[1] discarded 40 packets (2 on 1 other port) before this reading" in notes
    assert "ports whose stall counter is full: 1, like leaf1[1]" in notes


def test_sysfs_one_missing_counter_costs_nobody_else(tmp_path: Path) -> None:
    counters = read_counters(sysfs(tmp_path))
    rows = counters.readings
    assert rows["node_guid"].to_list() == [0x0002C903000000AB] * 2
    assert rows["data_bytes"].to_list() == [4000, 4000]
    assert rows["xmit_wait_ticks"].to_list() == [17, None]
    assert rows["capacity_gbps"].to_list() == [100.0, 100.0]
    assert rows["flags"].to_list() == [0, Flag.NO_COUNTER]
    assert counters.unknown == [] and set(counters.events["counter"]) == {"symbol_error"}
    put(tmp_path, "ib/mlx5_0/ports/1/counters/port_xmit_data", "-4")
    with pytest.raises(CounterError, match="not a counter value") as error:
        read_counters(tmp_path / "ib")
    assert error.value.file is not None
    assert error.value.file.name == "port_xmit_data"


GEMINI = (
    "#Time, Time_usec, CompId, X+_traffic (B), X+_packets (1), X+_credit_stall (ns), "
    "X+_inq_stall (ns), X+_sendlinkstatus (1), Tesla_K20X.gpu_temp, nettopo_mesh_coord_X, "
    "nettopo_mesh_coord_Y, nettopo_mesh_coord_Z\n"
    "100.5, 500000, 7, 0, 0, 0, 0, 12, 30, 1, 2, 3\n"
    "160.5, 500000, 7, 141000000000, 9, 120000000000, 24000000000, 12, 30, 1, 2, 3\n"
)


def test_gemini_counters(tmp_path: Path) -> None:
    counters = read_counters(put(tmp_path, "a.csv", GEMINI))
    assert counters.unknown == ["Tesla_K20X.gpu_temp"]
    assert counters.coordinates.rows() == [("(1,2,3)", 1, 2, 3)]
    row = counters.all_intervals().row(0, named=True)
    assert (row["direction"], row["node_name"], row["interval_ns"]) == ("X+", "(1,2,3)", 60 * 10**9)
    # 12 of 24 lanes: half of 9.4 GB/s. They are on 4 to 8 tiles, which share the stall.
    assert row["capacity_gbps"] == pytest.approx(37.6)
    assert row["utilization"] == pytest.approx(0.5)
    assert row["stall_fraction"] == pytest.approx(0.25)
    assert row["internal_stall_fraction"] == pytest.approx(0.05)
    assert row["flags"] == Flag.AT_LEAST


@pytest.mark.parametrize(
    ("lanes", "tiles", "least"),
    [
        ("24", 8, 8),
        ("23", 8, 8),
        ("22", 8, 8),
        ("21", 8, 7),
        ("9", 8, 3),
        ("8", 8, 3),
        ("2", 2, 1),
        ("1", 1, 1),
        ("0", 8, 0),
        ("", 8, 8),
        ("30", 8, 8),
    ],
)
def test_a_gemini_link_that_lost_lanes(tmp_path: Path, lanes: str, tiles: int, least: int) -> None:
    head = "#Time, CompId, Y+_traffic (B), X+_traffic (B), X+_credit_stall (ns), "
    rows = [f"{60 * n}.5, 7, 0, 0, {n * 6 * 10**9}, {lanes}\n" for n in (1, 2)]
    text = head + "X+_sendlinkstatus (1)\n" + "".join(rows)
    intervals = read_counters(put(tmp_path, "a.csv", text)).all_intervals()
    row = intervals.filter(pl.col("direction") == "X+").row(0, named=True)
    # A tenth of a minute on one tile.
    assert row["stall_fraction"] == pytest.approx(0.1 / tiles)
    assert row["flags"] == (Flag.AT_LEAST if least < tiles else 0)
    gbps = None if lanes == "0" else pytest.approx(75.2 * min(int(lanes or 24), 24) / 24)
    assert row["capacity_gbps"] == gbps


def test_gemini_percentages(tmp_path: Path) -> None:
    head = (
        "#Time, X-_SAMPLE_GEMINI_LINK_CREDIT_STALL (% x1e6), "
        "X-_SAMPLE_GEMINI_LINK_USED_BW (% x1e6), nettopo_mesh_coord_Z, nettopo_mesh_coord_Y, "
        "nettopo_mesh_coord_X\n"
    )
    put(tmp_path, "HEADER", head)
    counters = read_counters(put(tmp_path, "day.csv", "60,25000000,5000000,0,0,4\n"))
    row = counters.all_intervals().row(0, named=True)
    assert counters.readings.height == 0
    assert (row["stall_fraction"], row["utilization"]) == (0.25, pytest.approx(0.05))
    assert (row["time_ns"], row["direction"]) == (60 * 10**9, "X-")


def test_other_samplers(tmp_path: Path) -> None:
    aries = "#Time,Time_usec,ProducerName,traffic_007 (B),stalled_007 (ns)\n1.0,0,nid1,5,6\n"
    row = read_counters(put(tmp_path, "a.csv", aries)).readings.row(0, named=True)
    assert (row["node_name"], row["port"], row["data_bytes"], row["stall_ns"]) == ("nid1", 7, 5, 6)
    system = (
        "#Time,Time_usec,ProducerName,ib.port_xmit_data#mlx4_0.1,ib.port_xmit_data.rate#mlx4_0.1,"
        "ib.port_xmit_wait#mlx4_0.1\n1.0,0,n1,10,2.5,4294967295\n"
    )
    counters = read_counters(put(tmp_path, "b.csv", system))
    row = counters.readings.row(0, named=True)
    assert (row["node_name"], row["data_bytes"]) == ("n1 mlx4_0", 40)
    assert row["xmit_wait_ticks"] == 4294967295
    assert counters.unknown == ["ib.port_xmit_data.rate#mlx4_0.1"]
    network = (
        "#Time,Time_usec,ProducerName,component_id,remote,lid,port,port_query_time,PortXmitData,"
        "PortXmitPkts,PortXmitWait,PortXmitData\n1.0,0,leaf1,1,3.2,3,2,0.5,1,2,3,50\n"
    )
    row = read_counters(put(tmp_path, "c.csv", network)).readings.row(0, named=True)
    assert (row["port"], row["data_bytes"], row["turnaround_ns"]) == (2, 200, 500_000_000)


def test_a_stopped_sampler_is_no_idle_port(tmp_path: Path) -> None:
    """The sampler reads PortCounters, whose 32 bits stop at all ones; no column says so."""
    text = "#Time,Time_usec,ProducerName,lid,port,PortXmitData,PortXmitPkts,PortXmitWait\n"
    for second, (data, packets, wait) in enumerate(
        [(1, 2, 4294967000), (4294967295, 3, 4294967295), (4294967295, 4, 4294967295), (9, 5, 7)]
    ):
        text += f"{second}.0,0,n1,3,2,{data},{packets},{wait}\n"
    counters = read_counters(put(tmp_path, "c.csv", text))
    latched = Flag.LATCHED | Flag.AT_LEAST | Flag.DATA_LATCHED | Flag.DATA_AT_LEAST
    made = counters.all_intervals(tick_ns=1.0)
    assert made["xmit_wait_ticks"].to_list() == [295, None, 7]
    assert made["data_bytes"].to_list() == [4 * 4294967294, None, 36]
    assert [Flag(f) for f in made["flags"]] == [
        latched,
        latched,
        Flag.RESET | Flag.AT_LEAST | Flag.DATA_AT_LEAST,
    ]


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        (", 9, 120", ", nine, 120", "line 3, column 33", "not a number"),
        (", 30, 1, 2, 3\n160", ", 30, 1, 2\n160", "line 2, column 43", "11 fields"),
        ("160.5", "nan", "line 3, column 1", "not a number"),
        ("1, 2, 3\n160", "1, 2, 3, 4\n160", "line 2, column 49", "13 fields"),
    ],
)
def test_damaged_ldms_row_is_left_out(
    tmp_path: Path, old: str, new: str, place: str, message: str
) -> None:
    assert old in GEMINI
    counters = read_ldms(put(tmp_path, "a.csv", GEMINI.replace(old, new, 1)))
    intact = read_ldms(put(tmp_path, "b.csv", GEMINI))
    assert f"1 damaged row (a.csv, {place}: " in counters.left_out[0]
    assert message in counters.left_out[0] and intact.left_out == []
    assert counters.readings.height == intact.readings.height / 2
    header, row, _ = GEMINI.replace(old, new, 1).split("\n", 2)
    if place.startswith("line 2"):
        with pytest.raises(CounterError, match=message):
            read_ldms(put(tmp_path, "c.csv", f"{header}\n{row}\n"))


def test_engine_rows_are_the_same_rows() -> None:
    intervals = from_run(run_tables()).intervals  # type: ignore[arg-type]
    assert intervals.schema == pl.Schema(INTERVALS.polars_schema)
    assert intervals["link"].to_list() == [0, 0, 1, 1]
    assert intervals["time_ns"].to_list() == [1000, 1500, 1000, 1500]
    assert intervals["stall_fraction"].to_list() == [0.0, 0.2, 0.0, 0.0]
    assert intervals["utilization"].to_list() == [0.0, 0.8, 0.0, 0.0]


def test_an_engine_stall_spans_its_windows() -> None:
    """The engine books it where it ends; a second of stall does not fit into half a window."""
    run = run_tables()
    truth = run.tables["truth"].with_columns(stall_ps=pl.lit(700_000, pl.UInt64))
    run.tables["truth"] = truth
    intervals = from_run(run).intervals  # type: ignore[arg-type]
    assert intervals["stall_ns"].to_list() == [200.0, 500.0, 0.0, 0.0]
    assert intervals["stall_fraction"].to_list() == [0.2, 1.0, 0.0, 0.0]


def test_a_collection(tmp_path: Path) -> None:
    rows = from_run(run_tables()).intervals  # type: ignore[arg-type]
    put(tmp_path, "c/collection.json", "{}")
    put(tmp_path, "c/segments/000003.segment", "")
    (tmp_path / "c" / "intervals").mkdir()
    for number, part in enumerate((rows.head(2), rows.tail(2))):
        part.write_parquet(tmp_path / "c" / "intervals" / f"{number:06d}.parquet")
    counters = read_counters(tmp_path / "c")
    assert counters.intervals.equals(rows)
    assert counters.notes == [
        "1 segment not finished and left out; "
        "where no collector runs any more: tailback collect --compact",
        "2 of 2 segments have no SHA-256, so damage to them may go unnoticed",
        "2 segments without counters of errors: errors/000000.parquet: does not exist",
    ]
    put(tmp_path, "c/intervals/000009.parquet", "PAR1")
    counters = read_counters(tmp_path / "c")
    assert counters.intervals.equals(rows)
    assert counters.notes[0].startswith("left out: 000009.parquet: damaged")
    for number in range(2):
        put(tmp_path, f"c/intervals/{number:06d}.parquet", "")
    with pytest.raises(CounterError) as error:
        read_counters(tmp_path / "c")
    assert error.value.file is not None
    assert error.value.file.name == "000000.parquet"


def test_folder_of_files_is_read_as_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "night"
    folder.mkdir()
    files = [put(folder, f"{n}.txt", PLAIN.replace("100", str(1000 * n + 100))) for n in range(2)]
    for number, file in enumerate(files):
        os.utime(file, ns=(number * 10**9, number * 10**9))
    assert load([folder]).counters.readings.equals(load(files).counters.readings)


def test_sysfs_beside_another_file_is_read(tmp_path: Path) -> None:
    sysfs(tmp_path)
    put(tmp_path, "SOURCE", "from a cluster")
    source = load([tmp_path])
    assert source.counters.readings.height == 2
    assert source.notes[0].startswith("left out: SOURCE")


def test_the_way_in(tmp_path: Path) -> None:
    with pytest.raises(CounterError, match="no such file"):
        read_counters(tmp_path / "none")
    with pytest.raises(CounterError, match="no reader recognises"):
        read_counters(put(tmp_path, "a.txt", "hello"))
    with pytest.raises(CounterError, match="the file is empty"):
        read_counters(put(tmp_path, "a.txt", ""))
    with pytest.raises(TailbackError, match="unknown counter-source"):
        read_counters(put(tmp_path, "a.txt", PLAIN), "perfqery")
    a, b = put(tmp_path, "a.txt", PLAIN), put(tmp_path, "b.txt", PLAIN.replace("100", "1100"))
    with pytest.raises(CounterError, match="this is a directory"):
        read_counters(tmp_path, "perfquery")
    os.utime(a, ns=(0, 0))
    os.utime(b, ns=(10**9, 10**9))
    both = read_series([a, b]).all_intervals(tick_ns=1.0)
    assert both["stall_ns"].to_list() == [1000.0]
    assert READERS.names() == [
        "collection",
        "cxi",
        "engine-run",
        "ethernet-csv",
        "ethtool",
        "exposition",
        "gnmi",
        "ibdiagnet",
        "ibqueryerrors",
        "influx-line",
        "ldms-csv",
        "mlxlink",
        "opapmaquery",
        "perfquery",
        "perfquery-rounds",
        "prometheus",
        "recorded-infiniband",
        "sonic",
        "sysfs",
        "ufm-csv",
    ]


@pytest.mark.data
def test_real_perfquery_outputs() -> None:
    folder = real("exporter-fixtures/perfquery")
    switch = read_counters(folder / "0x7cfe9003009ce5b0.out").readings
    assert switch["port"].to_list() == [1, 2]
    assert switch["xmit_wait_ticks"].to_list() == [22730501, 36510964]
    assert set(switch["node_guid"]) == {0x7CFE9003009CE5B0}
    adapter = read_counters(folder / "0x7cfe9003003b4bde.out").readings.row(0, named=True)
    assert adapter["data_bytes"] == 4 * 9049592493976
    assert adapter["xmit_wait_ticks"] is None
    many = read_counters(real("ibsim-samples/perfquery-l-36ports.txt")).readings
    assert many["port"].to_list() == list(range(1, 37))


@pytest.mark.data
def test_real_ibqueryerrors_and_sysfs() -> None:
    fabric = read_counters(real("ibsim-samples/ys135.ibqueryerrors-data.txt"))
    assert fabric.readings.height == 1763
    assert fabric.readings.row(0, named=True)["xmit_wait_ticks"] == 1286300
    tree = read_counters(real("procfs-sysfs/infiniband")).readings
    assert tree.select("node_name", "port", "xmit_wait_ticks").rows() == [
        ("hfi1_0", 1, 0),
        ("mlx4_0", 1, 3599),
        ("mlx4_0", 2, 3846),
        ("mlx5_0", 1, 0),
    ]


@pytest.mark.data
def test_real_ldms_headers(tmp_path: Path) -> None:
    head = real("ldms/bluewaters_full.HEADER.20160115").read_text().strip()
    names = head.split(", ")
    rows = "".join(
        ",".join(str(60 * t) if i == 0 else str(i * t) for i in range(len(names))) + "\n"
        for t in (1, 2)
    )
    counters = read_counters(put(tmp_path, "a.csv", head + "\n" + rows))
    assert counters.readings["direction"].drop_nulls().n_unique() == 6
    # Also bytes by RDMA and short messages, and of three file systems, both ways.
    assert len(counters.unknown) + 3 + 3 + 6 * 5 + 6 * 3 + 4 + 6 == len(names)
    at = names.index("X+_traffic (B)")
    first = counters.readings.filter(pl.col("direction") == "X+")
    assert first["data_bytes"].to_list() == [at, 2 * at]
    monet = real("ldms/bluewaters_monet.HEADER").read_text().strip()
    row = ",".join(["60"] + ["1000000"] * 18 + ["3", "2", "1"])
    counters = read_counters(put(tmp_path, "b.csv", monet + "\n" + row + "\n"))
    assert counters.unknown == []
    assert counters.intervals["stall_fraction"].to_list() == [0.01] * 6
    assert counters.coordinates.row(0) == ("(1,2,3)", 1, 2, 3)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "ports"), [("cray_gemini_r_sampler", 8), ("cray_aries_r_sampler", 50)]
)
def test_real_cray_samples(tmp_path: Path, name: str, ports: int) -> None:
    """Real numbers of ldms_ls, written the way store_csv writes them."""
    lines = real(f"ldms/{name}.ldms_ls.txt").read_text().split("\n")
    pairs = [line.split(None, 2) for line in lines if line.strip().startswith("U64")]
    head = ",".join(["#Time", "Time_usec", "ProducerName", *(p[2].strip() for p in pairs)])
    row = ",".join(["1421272080.009395", "9395", "nid", *(p[1] for p in pairs)])
    counters = read_counters(put(tmp_path, "a.csv", head + "\n" + row + "\n"))
    assert counters.readings.height == ports
    assert counters.readings["time_ns"].unique().to_list() == [1421272080009395000]
    wanted = {
        "cray_gemini_r_sampler": ("Y+", 5443101840963, 1937719501518),
        "cray_aries_r_sampler": (None, 2808457000, 276319362),
    }[name]
    rows = counters.readings.select("direction", "data_bytes", "stall_ns").rows()
    assert wanted in rows


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a.txt",
            "# Port extended counters: Lid 7 port 3 (CapMask: 0x5300 CapMask2: 0x0000002)\n"
            "PortXmitData:....................1\nPortRcvData:.....................25\n"
            "PortRcvPkts:.....................9\n",
        ),
        (
            "b.prom",
            "# TYPE infiniband_switch_port_receive_data_bytes_total counter\n"
            'infiniband_switch_port_receive_data_bytes_total{guid="0x1",port="3"} 100\n'
            'infiniband_switch_port_receive_packets_total{guid="0x1",port="3"} 9\n',
        ),
        (
            "c.csv",
            "timestamp,node_guid,port_num,PortXmitData,PortRcvDataExtended,PortRcvPktsExtended\n"
            "1700000000000000,0x1,3,1,25,9\n",
        ),
        ("d.txt", "infiniband,host=n1,port=3 port_rcv_data=25i,port_rcv_packets=9i 1700000000\n"),
        (
            "e.csv",
            "#Time,Time_usec,ProducerName,ib.port_rcv_data#mlx5_0.3,ib.port_rcv_packets#mlx5_0.3\n"
            "1700000000,0,n1,25,9\n",
        ),
    ],
)
def test_received_counters_are_read(tmp_path: Path, name: str, text: str) -> None:
    (row,) = read_counters(put(tmp_path, name, text)).readings.to_dicts()
    assert (row["port"], row["received_bytes"], row["received_packets"]) == (3, 100, 9)


DB_CSV = """START_NODES
NodeDesc,NumPorts,NodeType,NodeGUID
"MF0;leaf01:MQM9700/U1",65,2,0x1
END_NODES

START_PM_INFO
NodeGUID,PortGUID,PortNumber,LinkDownedCounter,LinkDownedCounterExt,PortXmitData,PortXmitDataExtended,\
PortXmitWaitExt,PortRcvDataExtended,PortRcvPkts,PortFECUncorrectableBlockCounter,Unheard
0x1,0x1,3,255,300,4294967295,25,7,50,9,6,N/A
END_PM_INFO
""".replace("\\\n", "")


def test_ibdiagnet_gives_names_and_wide_counters(tmp_path: Path) -> None:
    data = read_counters(put(tmp_path, "ibdiagnet2.db_csv", DB_CSV), time_ns=5)
    (row,) = data.readings.to_dicts()
    assert (row["node_name"], row["port"], row["time_ns"]) == ("MF0;leaf01:MQM9700/U1", 3, 5)
    assert (row["data_bytes"], row["data_limit"], row["xmit_wait_ticks"]) == (100, U64_MAX, 7)
    assert (row["received_bytes"], row["received_packets"]) == (200, 9)
    assert dict(data.events.select("counter", "value").iter_rows()) == {
        "LinkDownedCounterExtended": 300,
        "PortFECUncorrectableBlockCounter": 6,
    }


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [("0x1,0x1,3", "0x1,3", "line 8"), (",25,", ",2x,", "line 8"), ("PM_INFO", "X", "PM_INFO")],
)
def test_damaged_ibdiagnet_is_refused(tmp_path: Path, old: str, new: str, place: str) -> None:
    with pytest.raises(CounterError, match=place):
        read_counters(put(tmp_path, "a.db_csv", DB_CSV.replace(old, new)))


def test_damaged_ibdiagnet_row_costs_itself(tmp_path: Path) -> None:
    rows = DB_CSV.replace("END_PM", "0x1,0x1,4,0,0,0,2x,0,0,0,0,N/A\n0x1,0x1,5\nEND_PM")
    data = read_counters(put(tmp_path, "a.db_csv", rows), time_ns=5)
    assert data.readings["port"].to_list() == [3]
    (note,) = data.notes
    assert note.startswith("left out: 2 damaged rows (a.db_csv, line 9, column 7: '2x' is not")


def test_waits_above_32_bits_are_no_full_counter(tmp_path: Path) -> None:
    text = (
        "START_PM_INFO\nNodeGUID,PortNumber,PortXmitWait\n0x1,1,4294967295\n0x1,2,4294967296\n"
        "0x2,1,4294967295\nEND_PM_INFO\n"
    )
    data = read_counters(put(tmp_path, "a.db_csv", text), time_ns=5)
    assert data.readings["wait_limit"].to_list() == [U64_MAX, U64_MAX, U32_MAX]


@pytest.mark.parametrize(
    "text",
    [
        """{"source": "leaf01:6030", "timestamp": 1700000000000000000,
        "prefix": "interfaces/interface[name=Ethernet1]/state/counters", "updates": [
        {"Path": "out-octets", "values": {"out-octets": "4711"}},
        {"Path": "in-errors", "values": {"in-errors": "2"}}]}
        {"sync-response": true}""",
        """[{"name": "default", "timestamp": 1700000000000000000, "tags": {"source": "leaf01",
        "interface_name": "Ethernet1"}, "values": {
        "/interfaces/interface/state/counters/out-octets": 4711,
        "/interfaces/interface/state/counters/in-errors": 2}}]""",
    ],
)
def test_gnmi_counters_are_read(tmp_path: Path, text: str) -> None:
    data = read_counters(put(tmp_path, "a.json", text))
    (row,) = data.readings.to_dicts()
    assert (row["node_name"], row["interface"], row["data_bytes"]) == ("leaf01", "Ethernet1", 4711)
    assert data.events.select("counter", "value").row(0) == ("in_errors", 2)


def test_damaged_gnmi_names_its_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", '{"timestamp": 1}\n{"out-octets": }\n{"timestamp": 2}')
    with pytest.raises(CounterError, match="line 2, column 16"):
        read_counters(path)


@pytest.mark.parametrize("before", ["", "["])
@pytest.mark.parametrize("cut", ["", '{"time', '{"timestamp": 17, "tags": ', '{"a": tru'])
def test_cut_gnmi_keeps_complete_documents(tmp_path: Path, before: str, cut: str) -> None:
    document = {
        "timestamp": 1_700_000_000_000_000_000,
        "tags": {"source": "leaf01", "interface_name": "Ethernet1"},
        "values": {"/state/counters/in-octets": 4711, "/state/counters/in-pkts": 9},
    }
    separator = "," if before else "\n"
    data = read_counters(put(tmp_path, "a.json", f"{before}{json.dumps(document)}{separator}{cut}"))
    (row,) = data.readings.to_dicts()
    assert (row["received_bytes"], row["received_packets"]) == (4711, 9)
    assert bool(data.notes) == bool(before or cut)
    assert all("a.json, line" in note for note in data.notes)


def test_damaged_port_was_not_at_threshold(tmp_path: Path) -> None:
    """A port that a damaged line hides did not wait from its threshold on."""
    first = (
        'Errors for "a"\n   GUID 0x1 port 1: [PortXmitWait == 1x0]\n'
        "   GUID 0x1 port 2: [PortXmitWait == 50]\n"
    )
    last = first.replace("1x0", "900000").replace("== 50", "== 60")
    parts = [
        read_part(put(tmp_path, f"{n}.txt", text), time_ns=n * 10**9)
        for n, text in ((1, first), (2, last))
    ]
    readings = merged(parts).readings.filter(pl.col("port") == 1)
    assert readings["xmit_wait_ticks"].to_list() == [900000]


CUT_WITHIN_A_PORT = {
    "perfquery": (
        "# Port counters: Lid 2 port 1 (CapMask: 0x1600)\nPortXmitData:..7\nPortXmitWait:..812\n"
        "# Port counters: Lid 2 port 2 (CapMask: 0x1600)\nPortXmitData:..9\nPortXmitWait:..1234"
    ),
    "ibqueryerrors": (
        'Errors for "leaf"\n   GUID 0x1 port 1: [PortXmitData == 7] [PortXmitWait == 812]\n'
        "   GUID 0x1 port 2: [PortXmitData == 9] [PortXmitWait == 1234]"
    ),
    "ethtool": (
        "# a eth0 1790000000\nNIC statistics:\n     tx_bytes: 7\n     tx_pause: 812\n"
        "# a eth1 1790000000\nNIC statistics:\n     tx_bytes: 9\n     tx_pause: 1234"
    ),
}


@pytest.mark.parametrize("name", CUT_WITHIN_A_PORT)
@pytest.mark.parametrize("lost", [0, 2])
def test_port_at_the_cut_is_left_out(tmp_path: Path, name: str, lost: int) -> None:
    """The last number may lack digits: it would count as a reset, or as less."""
    text = CUT_WITHIN_A_PORT[name]
    complete = load([put(tmp_path, name, f"{text}\n")])
    assert complete.counters.readings["port"].n_unique() == 2
    assert not complete.counters.left_out
    cut = load([put(tmp_path, name, text[: len(text) - lost])])
    assert cut.counters.readings["port"].n_unique() == 1
    (note,) = cut.counters.left_out
    assert note.startswith("left out: 1 damaged") and name in note


def test_port_with_fewer_fields_than_others_is_cut(tmp_path: Path) -> None:
    text = CUT_WITHIN_A_PORT["perfquery"]
    cut = load([put(tmp_path, "x.txt", text[: text.rindex("PortXmitWait")])])
    assert cut.counters.readings["port"].to_list() == [1]
    assert "the file ends within this port" in cut.counters.left_out[0]


def test_cut_number_of_a_port_blames_no_other(tmp_path: Path) -> None:
    """``port 1`` may be the begin of ``port 12``."""
    text = CUT_WITHIN_A_PORT["perfquery"] + "\n# Port counters: Lid 2 port 1"
    cut = load([put(tmp_path, "x.txt", text)])
    assert cut.counters.readings["port"].to_list() == [1, 2]
    assert "left out: 1 damaged port" in cut.counters.left_out[0]
