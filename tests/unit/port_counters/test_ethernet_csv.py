"""Counters of Ethernet interfaces from CSV: names, times, joins and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tailback.api.counters import counters
from tailback.port_counters.analysis.port_inventory import from_discovery
from tailback.port_counters.analysis.sources import load
from tailback.port_counters.readers import read_counters, read_series, reader_of
from tailback.port_counters.schema import CounterError, Flag

HEAD = "time_utc,node,iface,tx_bytes,tx_packets,qdisc_backlog,qdisc_drops,rx_bytes\n"
ROWS = HEAD + (
    "2026-11-22T11:06:10Z,l0,swp2,1000,10,0,0,7\n"
    "2026-11-22T11:06:10Z,l0,swp10,0,0,500,3,7\n"
    "2026-11-22T11:06:11Z,l0,swp2,126000,110,1500,0,7\n"
    "2026-11-22T11:06:11Z,l0,swp10,50,1,900,5,7\n"
)
LINKS = "src,dst,iface,dst_iface,rate_mbit\nh0,l0,e0,swp10,4\nh1,l0,e0,swp2,2\nl0,h2,swp3,e0,2\n"


def put(folder: Path, text: str | bytes, name: str = "c.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_readings_and_intervals(tmp_path: Path) -> None:
    data = read_counters(put(tmp_path, ROWS))
    assert data.unknown == ["rx_bytes"]
    first = data.readings.row(0, named=True)
    assert first["time_ns"] == 1_795_345_570_000_000_000
    assert (first["interface"], first["port"], first["flags"]) == ("swp2", 1, 0)
    rows = {row["interface"]: row for row in data.all_intervals().iter_rows(named=True)}
    assert (rows["swp2"]["data_bytes"], rows["swp2"]["packets"]) == (125_000, 100)
    assert (rows["swp2"]["backlog_before_bytes"], rows["swp2"]["backlog_bytes"]) == (0, 1500)
    assert (rows["swp10"]["drops"], rows["swp10"]["stall_fraction"]) == (2, None)
    assert rows["swp10"]["port"] == 2


def test_compressed_and_in_several_files(tmp_path: Path) -> None:
    lines = ROWS.splitlines(keepends=True)
    # The second file knows one interface only: the numbers of ports must not depend on that.
    a = put(tmp_path, gzip.compress("".join(lines[:3]).encode()), "a.csv.gz")
    b = put(tmp_path, HEAD + lines[4], "b.csv")
    both = read_series([a, b]).all_intervals()
    assert both.select("interface", "port", "drops").rows() == [("swp10", 2, 2)]
    assert reader_of(a).__name__.endswith("ethernet_csv")


def test_ports_join_links_by_device_and_interface(tmp_path: Path) -> None:
    places = from_discovery(put(tmp_path, LINKS, "links.csv"))
    source = load(
        [
            put(
                tmp_path,
                ROWS + "2026-11-22T11:06:11Z,l0,eth9,1,1,0,0,1\n"
                "2026-11-22T11:06:12Z,l0,eth9,9,1,0,0,1\n",
            )
        ]
    )
    archive, notes = source.intervals(places, None)
    rows = {row["interface"]: row for row in archive.rows.collect().iter_rows(named=True)}
    assert places.fabric is not None
    names = [places.fabric.link_name(i) for i in range(places.fabric.n_links)]
    assert names[rows["swp2"]["link"]] == "l0[swp2] → h1[e0]"
    assert rows["swp2"]["capacity_gbps"] == pytest.approx(0.002)
    assert rows["swp2"]["utilization"] == pytest.approx(0.5)
    assert rows["swp10"]["capacity_gbps"] == pytest.approx(0.004)
    # What the fabric does not have keeps a number of its own, and is said.
    assert rows["eth9"]["link"] is None and rows["eth9"]["port"] > 32768
    assert any("not in the fabric: 1" in note for note in notes)


def test_names_of_other_samplers_and_times_as_numbers(tmp_path: Path) -> None:
    text = "Timestamp;Device;ifName;ifHCOutOctets;ifOutDiscards;ifHighSpeed\n" + "".join(
        f"{1_795_345_570 + k}.25;sw 1;Ethernet1/1;{k * 1000};{k};10000\n" for k in range(2)
    )
    row = read_counters(put(tmp_path, text)).all_intervals().row(0, named=True)
    assert (row["time_ns"], row["interval_ns"]) == (1_795_345_571_250_000_000, 10**9)
    assert (row["data_bytes"], row["drops"], row["capacity_gbps"]) == (1000, 1, 10.0)
    assert row["backlog_bytes"] is None


def test_a_counter_set_back_is_a_lower_bound(tmp_path: Path) -> None:
    text = HEAD + "".join(
        f"2026-11-22T11:06:1{k}Z,l0,e0,{sent},{sent},0,{drops},0\n"
        for k, (sent, drops) in enumerate([(1000, 9), (200, 2)])
    )
    row = read_counters(put(tmp_path, text)).all_intervals().row(0, named=True)
    assert (row["data_bytes"], row["drops"]) == (200, 2)
    assert row["flags"] & Flag.RESET and row["flags"] & Flag.DATA_AT_LEAST


OCTETS = "time,sysName,ifName,ifOutOctets,ifOutUcastPkts,ifSpeed\n"


@pytest.mark.parametrize(
    ("mbps", "before", "after", "sent", "flags"),
    [
        # A second of 1 Gb/s is less than the range: one wrap at most, counted in bytes.
        (1000, 2**32 - 100, 100, 200, Flag.WRAP),
        (1000, 5, 105, 100, Flag(0)),
        # Not from the last quarter: it was set back.
        (1000, 2**31, 100, 100, Flag.RESET | Flag.DATA_AT_LEAST),
        # 40 s of it are more: how often it wrapped is unknown.
        (40_000, 2**31, 100, 2**31 + 100, Flag.WRAP | Flag.DATA_AT_LEAST),
        (40_000, 5, 105, 100, Flag.DATA_AT_LEAST),
        # At its largest value it has not stopped.
        (1000, 2**32 - 101, 2**32 - 1, 100, Flag(0)),
    ],
)
def test_octets_of_32_bits_wrap(
    tmp_path: Path, mbps: int, before: int, after: int, sent: int, flags: Flag
) -> None:
    speed = min(mbps * 10**6, 2**32 - 1)
    text = OCTETS + f"1764300000,s,e0,{before},1,{speed}\n1764300001,s,e0,{after},2,{speed}\n"
    data = read_counters(put(tmp_path, text))
    row = data.all_intervals().row(0, named=True)
    assert (row["data_bytes"], Flag(row["flags"])) == (sent, flags)
    # The largest value of ifSpeed is that of every higher rate.
    assert row["capacity_gbps"] == (1.0 if mbps == 1000 else None)
    assert any("ifOutOctets counts 32 bits" in note for note in data.notes)


def test_octets_beyond_32_bits_are_wider(tmp_path: Path) -> None:
    text = OCTETS + f"1764300000,s,e0,{2**33},1,\n1764300001,s,e0,{2**33 + 9},2,\n"
    data = read_counters(put(tmp_path, text))
    assert data.all_intervals()["data_bytes"].to_list() == [9] and not data.notes


@pytest.mark.parametrize(("speed", "shown"), [("25000", "25 Gb/s"), ("0", "down"), ("-1", "down")])
def test_a_port_that_loses_speed_is_named(tmp_path: Path, speed: str, shown: str) -> None:
    text = "time,node,iface,tx_bytes,speed\n" + "".join(
        f"17643000{k}0,s,{port},{k}000,{speed if port == 'e1' and k > 1 else 100000}\n"
        for k in range(4)
        for port in ("e0", "e1")
    )
    analysis = counters(put(tmp_path, text))
    assert analysis.queues is not None and analysis.queues.kind == "slower"
    assert (
        "s[e1] came down once to a lower speed in the time of the counters "
        f"(from 100 Gb/s to {shown})" in (analysis.facts["sentence"])
    )


@pytest.mark.slow
def test_a_full_port_without_queues_is_named(tmp_path: Path) -> None:
    text = "time,node,iface,tx_bytes,tx_packets,speed\n" + "".join(
        f"17643000{k}0,s,{port},{k * sent},{k * sent // 1500},1000\n"
        for k in range(4)
        for port, sent in (("e0", 500_000_000), ("e1", 1_235_000_000))
    )
    analysis = counters(put(tmp_path, text))
    assert analysis.queues is not None and analysis.queues.kind == "busy"
    assert analysis.facts["sentence"].startswith(
        "1 of 2 links sent at the nominal rate for a time, such as s[e1]"
    )
    half = "".join(line for line in text.splitlines(keepends=True) if ",e1," not in line)
    analysis = counters(put(tmp_path, half))
    assert analysis.queues is not None and analysis.queues.kind == "unknown"
    assert "the busiest, s[e0], used 40 % of its rate" in analysis.facts["sentence"]


def test_readings_that_do_not_move_say_so(tmp_path: Path) -> None:
    text = HEAD + "".join(f"2026-11-22T11:06:1{k}Z,l0,e0,5,5,0,0,0\n" for k in range(3))
    assert "no counter moved" in counters(put(tmp_path, text)).facts["sentence"]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(CounterError, match="without a column for the node"):
        read_counters(put(tmp_path, "time,chassis,iface,tx_bytes\n1764300000,s,e0,1\n"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + "2026-11-22T11:06:10Z,l0,e0,x,1,0,0,0\n", "line 2, column 4 (tx_bytes): 'x' is"),
        (HEAD + "2026-11-22T11:06:10Z,l0,e0,-5,1,0,0,0\n", "'-5' is not a whole number"),
        (HEAD + "yesterday,l0,e0,1,1,0,0,0\n", "line 2, column 1 (time_utc): 'yesterday' is no"),
        (HEAD + ",l0,e0,1,1,0,0,0\n", "line 2, column 1 (time_utc): the field is empty"),
        (HEAD + "2026-11-22T11:06:10Z,,e0,1,1,0,0,0\n", "line 2, column 2 (node): the field is"),
        (
            HEAD + "2026-11-22T11:06:10Z,l0,e0,1\n",
            "line 2, column 5: 4 fields where the header has 8",
        ),
        ("time,node,iface,tx_bytes\n2026-11-22T11:06:10,l0,e0,1\n", "has no time zone"),
    ],
)
def test_wrong_files_are_refused_with_their_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(CounterError) as caught:
        read_counters(put(tmp_path, text))
    message = str(caught.value)
    assert says in message and "c.csv" in message and "remedy: " in message
    assert "\x1b" not in message


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("l0,\x1b[2Jswp,zero", "line {line}, column 4 (tx_bytes): 'zero' is not a whole number"),
        ("l0,swp10,0,0,0,0,0,0,0,0,0", "fields where the header has"),
        ("l0,swp10,-1", "line {line}, column 4 (tx_bytes): '-1' is not a whole number"),
    ],
)
def test_damaged_row_is_left_out(tmp_path: Path, damage: str, says: str) -> None:
    assert "l0,swp10,0" in ROWS
    line = ROWS[: ROWS.index("l0,swp10,0")].count("\n") + 1
    intact = read_counters(put(tmp_path, ROWS))
    counters = read_counters(put(tmp_path, ROWS.replace("l0,swp10,0", damage, 1)))
    assert counters.readings.height == intact.readings.height - 1
    assert counters.left_out[0].startswith("left out: 1 damaged row (c.csv, line ")
    assert says.format(line=line) in counters.left_out[0]
    assert counters.notes[0] == counters.left_out[0] and not intact.left_out


def test_cut_files_never_end_in_a_traceback(tmp_path: Path) -> None:
    packed = gzip.compress(ROWS.encode())
    for end in range(0, len(packed), 7):
        with pytest.raises(CounterError):
            read_counters(put(tmp_path, packed[:end], "c.csv.gz"))
    for end in range(len(HEAD), len(ROWS), 3):
        try:
            read_counters(put(tmp_path, ROWS[:end])).all_intervals()
        except CounterError as error:
            assert error.remedy


def test_an_empty_table_has_a_note(tmp_path: Path) -> None:
    data = read_counters(put(tmp_path, HEAD))
    assert data.readings.is_empty() and data.notes == ["c.csv: no row under its header"]


@pytest.mark.parametrize(
    ("column", "value", "gbps"),
    [
        ("speed", "25000", 25.0),
        ("ifHighSpeed", "25000", 25.0),
        ("rate_gbit", "25", 25.0),
        ("speed_Gb/s", "25", 25.0),
        ("speed_GB/s", "3.125", 25.0),
        ("rate_MBps", "3125", 25.0),
        ("rate_Bps", "3125000000", 25.0),
    ],
)
def test_rate_column_states_bits_or_bytes(
    tmp_path: Path, column: str, value: str, gbps: float
) -> None:
    text = f"time_utc,node,iface,tx_bytes,{column}\n2026-11-22T11:06:10Z,s0,l0,1,{value}\n"
    assert read_counters(put(tmp_path, text)).readings["capacity_gbps"].to_list() == [gbps]


def test_rate_unit_in_capitals_is_refused(tmp_path: Path) -> None:
    text = "time_utc,node,iface,tx_bytes,RATE_MBPS\n2026-11-22T11:06:10Z,s0,l0,1,5\n"
    with pytest.raises(CounterError, match="may be bits or bytes"):
        read_counters(put(tmp_path, text))
