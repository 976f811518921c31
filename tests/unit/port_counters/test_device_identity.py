"""Two devices of one name, in every reader: their counters are never subtracted or added up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tailback.errors import TailbackError
from tailback.port_counters.analysis.port_inventory import PortInventory
from tailback.port_counters.analysis.sources import CounterSource, load
from tailback.port_counters.readers import READERS
from tailback.port_counters.schema import INTERVALS, conform
from tests.factories.counter_files import put

START_S = 1_764_300_000
STEP_S = 30

STATED = ("ethtool", "exposition", "opapmaquery", "sonic")
"""Readers of snapshots whose files have times here."""

Row = tuple[int, int, int]
"""Number of the instant, number of the device and the bytes that it has sent."""

BOTH: list[Row] = [(0, 1, 4000), (0, 2, 80_000), (1, 1, 5000), (1, 2, 80_400)]
ONE_MISSES = BOTH[:3]


def table(header: str, line: Callable[[int, int, int], str]) -> Callable[..., list[Path]]:
    """A writer of one file with a line for each row."""

    def write(folder: Path, rows: list[Row]) -> list[Path]:
        lines = [line(START_S + STEP_S * at, device, sent) for at, device, sent in rows]
        return [put(folder, "counters.csv", "\n".join([header, *lines, ""]))]

    return write


def pages(folder: Path, rows: list[Row]) -> list[Path]:
    """Pages of node_exporter on two hosts, which state the host and the time."""
    text = (
        "# TYPE node_infiniband_port_data_transmitted_bytes_total counter\n"
        'node_infiniband_port_data_transmitted_bytes_total{{device="mlx5_0",port="1"}} {sent}\n'
        'node_uname_info{{nodename="n{device}"}} 1\nnode_time_seconds {time}\n'
    )
    return [
        put(
            folder,
            f"{number}.prom",
            text.format(sent=sent, device=device, time=START_S + STEP_S * at),
        )
        for number, (at, device, sent) in enumerate(rows)
    ]


def queried(folder: Path, rows: list[Row]) -> list[Path]:
    """Outputs of ibqueryerrors, one for each instant."""
    texts: dict[int, str] = {}
    for at, device, sent in rows:
        line = f"   GUID 0x{device:x} port 1: [PortXmitWait == 1] [PortXmitData == {sent // 4}]\n"
        texts[at] = texts.get(at, "") + f'Errors for 0x{device:x} "sw"\n' + line
    return [put(folder, f"{at}.txt", text) for at, text in texts.items()]


def printed(folder: Path, rows: list[Row]) -> list[Path]:
    """Outputs of perfquery, named by GUID."""
    text = "# Port extended counters: Lid 7 port 1 (CapMask: 0x5300 CapMask2: 0x2)\n"
    return [
        put(folder, f"0x{device:016x}.{at}", f"{text}PortXmitData:.....{sent // 4}\n")
        for at, device, sent in rows
    ]


def series(folder: Path, rows: list[Row]) -> list[Path]:
    """The answer of a server for adapters of one name in two clusters."""
    values: dict[int, list[tuple[int, str]]] = {}
    for at, device, sent in rows:
        values.setdefault(device, []).append((START_S + STEP_S * at, str(sent)))
    labels = {
        "__name__": "node_infiniband_port_data_transmitted_bytes_total",
        "instance": "n:9100",
        "device": "mlx5_0",
        "port": "1",
    }
    result = [
        {"metric": {**labels, "cluster": f"c{device}"}, "values": pairs}
        for device, pairs in values.items()
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return [put(folder, "answer.json", json.dumps(answer))]


def trees(folder: Path, rows: list[Row]) -> list[Path]:
    """Copies of the sysfs trees of two hosts."""
    for at, device, sent in rows:
        base = f"{at}{device}/mlx5_0"
        put(folder, f"{base}/ports/1/counters/port_xmit_data", f"{sent // 4}\n")
        put(folder, f"{base}/node_guid", f"0002:c903:0000:000{device}\n")
        for file in (folder / base / "ports/1/counters").iterdir():
            os.utime(file, (START_S, START_S + STEP_S * at))
    return [folder / f"{at}{device}" for at, device, _ in rows]


def telemetry(folder: Path, rows: list[Row]) -> list[Path]:
    """Copies of the sysfs trees of the Slingshot adapters of two hosts."""
    for at, device, sent in rows:
        base = f"{at}{device}/cxi0/device"
        put(folder, f"{base}/telemetry/hni_sts_tx_ok_octets", f"{sent}@{START_S + STEP_S * at}.0\n")
        put(folder, f"{base}/properties/nid", f"0x{device}\n")
    return [folder / f"{at}{device}" for at, device, _ in rows]


def collection(folder: Path, rows: list[Row]) -> list[Path]:
    """A collection: its rows are intervals already."""
    sent = {(at, device): total for at, device, total in rows}
    differences = [
        (device, total - sent[0, device]) for (at, device), total in sent.items() if at == 1
    ]
    frame = pl.DataFrame(
        {
            "time_ns": (START_S + STEP_S) * 10**9,
            "interval_ns": STEP_S * 10**9,
            "node_guid": [device for device, _ in differences],
            "node_name": "sw",
            "port": 1,
            "data_bytes": [difference for _, difference in differences],
        }
    )
    (folder / "intervals").mkdir()
    conform(INTERVALS, frame).write_parquet(folder / "intervals" / "000000.parquet")
    put(folder, "collection.json", "{}")
    return [folder]


def printed_by_ethtool(folder: Path, rows: list[Row]) -> list[Path]:
    """What ethtool prints on two hosts."""
    text = "# n{n} eth0 {time}\nNIC statistics:\n     tx_bytes: {sent}\n"
    return [
        put(folder, f"{at}-{n}.txt", text.format(n=n, time=START_S + STEP_S * at, sent=sent))
        for at, n, sent in rows
    ]


def omni_path(folder: Path, rows: list[Row]) -> list[Path]:
    """What opapmaquery prints on two hosts."""
    text = "# n{n} hfi1_0 {time}\nPort Number   1\n    Xmit Data     0 MB ({flits} Flits)\n"
    return [
        put(folder, f"{at}-{n}.txt", text.format(n=n, time=START_S + STEP_S * at, flits=sent // 8))
        for at, n, sent in rows
    ]


def dumped(folder: Path, rows: list[Row]) -> list[Path]:
    """Dumps of two switches."""
    for at, n, sent in rows:
        document = {
            "COUNTERS_PORT_NAME_MAP": {"value": {"Ethernet0": "oid:0x1"}},
            "COUNTERS:oid:0x1": {"value": {"SAI_PORT_STAT_IF_OUT_OCTETS": str(sent)}},
        }
        path = put(folder, f"s{n}.{at}.json", json.dumps(document))
        os.utime(path, (START_S, START_S + STEP_S * at))
    return [folder / f"s{n}.{at}.json" for at, n, _ in rows]


def streamed(folder: Path, rows: list[Row]) -> list[Path]:
    """What gnmic prints of two switches."""
    documents = [
        {
            "source": f"s{n}",
            "timestamp": (START_S + STEP_S * at) * 10**9,
            "prefix": "interfaces/interface[name=Ethernet0]/state/counters",
            "updates": [{"Path": "out-octets", "values": {"out-octets": str(sent)}}],
        }
        for at, n, sent in rows
    ]
    return [put(folder, "a.json", json.dumps(documents))]


def diagnosed(folder: Path, rows: list[Row]) -> list[Path]:
    """Tables of ibdiagnet, one for each instant, with two devices of one name."""
    names = "START_NODES\nNodeDesc,NodeGUID\nsw,0x1\nsw,0x2\nEND_NODES\n"
    head = "START_PM_INFO\nNodeGUID,PortNumber,PortXmitDataExtended\n"
    texts: dict[int, str] = {}
    for at, device, sent in rows:
        texts[at] = texts.get(at, names + head) + f"0x{device:x},1,{sent // 4}\n"
    return [put(folder, f"{at}.db_csv", f"{text}END_PM_INFO\n") for at, text in texts.items()]


WRITERS: dict[str, Callable[[Path, list[Row]], list[Path]]] = {
    "collection": collection,
    "ethernet-csv": table(
        "time,node,iface,cluster,tx_bytes", lambda time, n, sent: f"{time},sw,p1,c{n},{sent}"
    ),
    "ethtool": printed_by_ethtool,
    "exposition": pages,
    "gnmi": streamed,
    "ibdiagnet": diagnosed,
    "ibqueryerrors": queried,
    "influx-line": table(
        "# export",
        lambda time, n, sent: (
            f"infiniband,cluster=c{n},device=m,host=n,port=1 port_xmit_data={sent // 4}i {time}"
        ),
    ),
    "opapmaquery": omni_path,
    "ldms-csv": table(
        "#Time,ProducerName,component_id,ib.port_xmit_data#mlx5_0.1",
        lambda time, n, sent: f"{time}.0{n},n,{n},{sent // 4}",
    ),
    "cxi": telemetry,
    "perfquery": printed,
    "prometheus": series,
    "recorded-infiniband": table(
        "time_utc,node,iface,tx_bytes,tx_packets,xmit_wait",
        lambda time, n, sent: f"{time},n,mlx5_{n}/1,{sent},0,0",
    ),
    "sonic": dumped,
    "sysfs": trees,
    "ufm-csv": table(
        "timestamp,node_guid,port_num,node_description,PortXmitDataExtended",
        lambda time, n, sent: f"{time}000000,0x{n},1,sw,{sent // 4}",
    ),
}


def read(folder: Path, name: str, rows: list[Row]) -> tuple[CounterSource, pl.DataFrame, list[str]]:
    """What the readers give for some rows: the source, its intervals and all notes."""
    paths = WRITERS[name](folder, rows)
    timed = READERS[name].HAS_TIME_STAMPS or name in STATED
    source = load(paths, None, every_ns=None if timed else STEP_S * 10**9)
    archive, notes = source.intervals(PortInventory(), None)
    return source, archive.rows.collect(), [*source.notes, *notes]


def test_every_reader_of_files_is_tested() -> None:
    # A simulated run names each of its devices once and is never combined with another source;
    # rounds of perfquery have LIDs alone, mlxlink has no bytes.
    assert {*WRITERS, "engine-run", "mlxlink", "perfquery-rounds"} == set(READERS.names())


@pytest.mark.parametrize("name", WRITERS)
def test_equal_names_stay_two_devices(name: str, tmp_path: Path) -> None:
    _, intervals, _ = read(tmp_path, name, BOTH)
    assert sorted(intervals["data_bytes"].to_list()) == [400, 1000]


@pytest.mark.parametrize("name", WRITERS)
def test_missing_device_gives_no_interval(name: str, tmp_path: Path) -> None:
    _, intervals, notes = read(tmp_path, name, ONE_MISSES)
    assert intervals["data_bytes"].to_list() == [1000]
    if name != "collection":  # Its collector notes what it could not read.
        assert "only one reading" in " ".join(notes)


@pytest.mark.parametrize("name", ["ethernet-csv", "influx-line", "ldms-csv", "prometheus"])
def test_names_told_apart_are_noted(name: str, tmp_path: Path) -> None:
    source, intervals, notes = read(tmp_path, name, BOTH)
    assert intervals["node_name"].n_unique() == 2
    assert source.counters.readings["node_name"].str.contains(r"\(\w+ \w+\)$").all()
    assert "names that several devices have: 1" in " ".join(notes)


@pytest.mark.parametrize("name", ["ethernet-csv", "ldms-csv", "prometheus", "recorded-infiniband"])
def test_devices_of_two_files_stay_apart(name: str, tmp_path: Path) -> None:
    paths = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        rows = [row for row in BOTH if row[1] == number]
        paths += WRITERS[name](tmp_path / str(number), rows)
    rows = load(paths).intervals(PortInventory(), None)[0].rows.collect()
    assert sorted(rows["data_bytes"].to_list()) == [400, 1000]


@pytest.mark.parametrize("name", WRITERS)
def test_describing_labels_leave_names_alone(name: str, tmp_path: Path) -> None:
    first_port = [row for row in BOTH if row[1] == 1]
    source, intervals, notes = read(tmp_path, name, first_port)
    assert intervals["data_bytes"].to_list() == [1000]
    assert not source.counters.readings["node_name"].str.contains("(", literal=True).any()
    assert "several devices" not in " ".join(notes)


def test_series_with_different_labels_make_one_port(tmp_path: Path) -> None:
    """A label of one metric alone, such as the kind of a queue, describes it."""
    metrics = [("transmit_bytes_total", {}), ("transmit_drop_total", {"queue": "0"})]
    result = [
        {
            "metric": {"__name__": f"node_network_{name}", "instance": "n", "device": "e0", **more},
            "values": [[START_S, "8"], [START_S + STEP_S, "12"]],
        }
        for name, more in metrics
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    source = load([put(tmp_path, "answer.json", json.dumps(answer))])
    rows = source.intervals(PortInventory(), None)[0].rows.collect()
    assert rows.select("node_name", "data_bytes", "drops").rows() == [("n", 4, 4)]


@pytest.mark.parametrize("every_s", [None, 60])
def test_stated_time_wins_over_others(every_s: int | None, tmp_path: Path) -> None:
    paths = pages(tmp_path, [row for row in BOTH if row[1] == 1])
    for number, path in enumerate(paths):
        os.utime(path, (START_S, START_S + 60 * number))
    source = load(paths, every_ns=None if every_s is None else every_s * 10**9)
    rows = source.intervals(PortInventory(), None)[0].rows.collect()
    assert rows["interval_ns"].to_list() == [STEP_S * 10**9]
    notes = " ".join(source.notes)
    assert "node_time_seconds" in notes
    assert ("every_ns= has no effect" in notes) == (every_s is not None)


def test_files_with_and_without_times_are_refused(tmp_path: Path) -> None:
    first, second = pages(tmp_path, [row for row in BOTH if row[1] == 1])
    second.write_text(second.read_text().replace("node_time_seconds", "node_boot_time_seconds"))
    with pytest.raises(TailbackError, match="1 of 2 files state the time"):
        load([first, second], every_ns=10**9)


def test_pages_in_one_file_are_refused(tmp_path: Path) -> None:
    first, second = pages(tmp_path, BOTH[:2])
    first.write_text(first.read_text() + second.read_text())
    with pytest.raises(TailbackError, match="has the name and labels of line 2"):
        load([first])


SUMMARY = "\n## Summary: {0} nodes checked, 1 bad nodes found\n##    {0} ports checked, 1 ports\n"
PORT = 'Errors for 0x1 "sw"\n   GUID 0x1 port 1: [PortXmitWait == 5]{}\n'
NEW = 'Errors for 0x2 "new"\n   GUID 0x2 port 1: [PortXmitWait == 900] [SymbolErrorCounter == 70]\n'


@pytest.mark.parametrize(
    ("before", "now", "waited", "errors"),
    [
        # The threshold is 0 unless the summary lists it.
        ("## Thresholds: \n", "## Thresholds: \n", 900, 70),
        ("## Thresholds: [PortXmitWait = 100][SymbolErrorCounter = 10]\n", "", 800, 60),
        # Without a list, it is below the smallest printed value.
        ("", "", 900 - 4, 1),
        # Counters that were suppressed, or whose query failed, are unknown.
        ("## Thresholds: \n## Suppressed: PortXmitWait SymbolErrorCounter\n", "", None, 0),
        ("## Thresholds: \n## 2 PMA query failures\n", "", None, 0),
    ],
)
def test_first_printed_counter_rose_above_threshold(
    before: str, now: str, waited: int | None, errors: int, tmp_path: Path
) -> None:
    summary = SUMMARY.format(40)
    files = [
        put(tmp_path, "0.txt", PORT.format("") + summary + before),
        put(tmp_path, "1.txt", PORT.format("") + NEW + summary + now),
    ]
    source = load(files, every_ns=60 * 10**9)
    rows = source.intervals(PortInventory(), 1.0)[0].rows.collect()
    new = rows.filter(pl.col("node_name") == "new")
    assert new["xmit_wait_ticks"].to_list() == ([] if waited is None else [waited])
    events = source.port_events(PortInventory())
    assert events["count"].sum() == errors


def test_unread_device_is_named_without_rise(tmp_path: Path) -> None:
    """Fewer devices were checked before: the device may not have been read."""
    files = [
        put(tmp_path, "0.txt", PORT.format("") + SUMMARY.format(39)),
        put(tmp_path, "1.txt", PORT.format("") + NEW + SUMMARY.format(40)),
    ]
    source = load(files, every_ns=60 * 10**9)
    rows = source.intervals(PortInventory(), 1.0)[0].rows.collect()
    assert rows["node_name"].to_list() == ["sw"]
    assert source.port_events(PortInventory()).is_empty()
    notes = " ".join(source.notes)
    assert "new[1]" in notes and "PortXmitWait 900" in notes


def test_reset_below_threshold_is_not_a_rise(tmp_path: Path) -> None:
    text = 'Errors for 0x1 "sw"\n   GUID 0x1 port 1: [LinkDownedCounter == 30]{}\n'
    limit = "## Thresholds: [PortXmitWait = 100]\n"
    waits = (" [PortXmitWait == 5000]", "", " [PortXmitWait == 4000]")
    files = [
        put(tmp_path, f"{number}.txt", text.format(wait) + SUMMARY.format(40) + limit)
        for number, wait in enumerate(waits)
    ]
    rows = load(files, every_ns=60 * 10**9).intervals(PortInventory(), 1.0)[0].rows.collect()
    assert rows["xmit_wait_ticks"].to_list() == [None, None]


def test_csv_without_column_names_it(tmp_path: Path) -> None:
    file = put(tmp_path, "a.csv", "time,box,ifName,ifHCOutOctets\n1764300000,s,p,1\n")
    with pytest.raises(TailbackError, match="without a column for the node") as caught:
        load([file])
    assert "'box'" in caught.value.message and "hostname" in (caught.value.remedy or "")
