"""Answers of a Prometheus server: counters of ports as readings, and what is refused."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.collector import MetricsBoard
from tailback.collector.readings import RAW
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.findings.port_events import port_events
from tailback.port_counters.readers import READERS, merged, read_counters, reader_of
from tailback.port_counters.readers.prometheus import METRICS
from tailback.port_counters.schema import CounterError
from tailback.port_counters.targets import PortTarget
from tests.factories.counter_files import put

TAILBACK = {
    "__name__": "tailback_port_xmit_bytes_total",
    "node": "leaf0",
    "port": "3",
    "guid": "0x00000000000000ab",
    "instance": "collector:9433",
}
TIMES = (1_700_000_000, 1_700_000_010.5)


def series(metric: dict[str, str], *values: object) -> dict[str, Any]:
    """A series of a range query with values as the server writes them: as text."""
    pairs = [[time, str(value)] for time, value in zip(TIMES, values, strict=False)]
    return {"metric": metric, "values": pairs}


def answer(*result: dict[str, Any], status: str = "success") -> str:
    return json.dumps({"status": status, "data": {"resultType": "matrix", "result": list(result)}})


def test_metrics_of_collect_become_readings_of_one_port(tmp_path: Path) -> None:
    waits = {**TAILBACK, "__name__": "tailback_port_xmit_wait_ticks_total"}
    packets = {**TAILBACK, "__name__": "tailback_port_xmit_packets_total"}
    text = answer(
        series(TAILBACK, 2**63 + 1, 2**63 + 2001), series(packets, 7, 9), series(waits, 5, 11)
    )
    path = put(tmp_path, "answer.json", text)
    assert reader_of(path, None) is READERS["prometheus"]
    rows = read_counters(path).readings.sort("time_ns")
    assert rows["time_ns"].to_list() == [1_700_000_000 * 10**9, 1_700_000_010_500_000_000]
    assert set(rows["node_guid"]) == {0xAB} and set(rows["port"]) == {3}
    assert set(rows["node_name"]) == {"leaf0"}
    # A float has 53 bits: counters of long uptimes would lose their last digits.
    assert rows["data_bytes"].to_list() == [2**63 + 1, 2**63 + 2001]
    assert rows["packets"].to_list() == [7, 9]
    assert rows["xmit_wait_ticks"].to_list() == [5, 11]


def test_metrics_of_node_exporter_name_interfaces_and_adapters(tmp_path: Path) -> None:
    ethernet = {
        "__name__": "node_network_transmit_bytes_total",
        "instance": "h1:9100",
        "device": "eth1",
    }
    dropped = {**ethernet, "__name__": "node_network_transmit_drop_total"}
    adapter = {
        **ethernet,
        "__name__": "node_infiniband_port_data_transmitted_bytes_total",
        "device": "mlx5_0",
        "port": "1",
    }
    path = put(
        tmp_path,
        "a.json",
        answer(
            series(ethernet, 10, 20),
            series(dropped, 0, 4),
            series(adapter, 100, 300),
            series({**adapter, "device": "mlx5_1"}, 500, 900),
        ),
    )
    rows = read_counters(path).readings.sort("node_name", "time_ns")
    # The name of a host, not of the exporter on it; adapters of one host stay apart.
    assert rows["node_name"].to_list() == ["h1"] * 2 + ["h1 mlx5_0"] * 2 + ["h1 mlx5_1"] * 2
    assert rows["interface"].to_list() == ["eth1", "eth1", None, None, None, None]
    assert rows["data_bytes"].to_list() == [10, 20, 100, 300, 500, 900]
    assert rows["drops"].to_list() == [0, 4, None, None, None, None]
    assert rows["port"].to_list() == [1] * 6


NETDEV, QUEUE = "node_network_transmit_drop_total", "node_qdisc_drops_total"


@pytest.mark.parametrize(
    ("counts", "drops"),
    [
        ({NETDEV: [3, 5]}, [3, 5]),
        ({QUEUE: [3, 5]}, [3, 5]),
        # What the queue drops never reaches the interface.
        ({NETDEV: [3, 5], QUEUE: [7, 90]}, [10, 95]),
        ({NETDEV: [30, 50], QUEUE: [7, 9]}, [37, 59]),
        # One counter of two collectors.
        ({NETDEV: [3, 5], "node_ethtool_tx_dropped": [3, 5], QUEUE: [1, 2]}, [4, 7]),
        ({NETDEV: [3], QUEUE: [1, 2]}, [4, None]),
        ({"ifOutDiscards": [3, 5]}, [3, 5]),
        ({}, [None, None]),
    ],
)
def test_drops_of_queue_and_interface_are_added(
    counts: dict[str, list[int]], drops: list[int | None], tmp_path: Path
) -> None:
    port = {"instance": "h1:9100", "device": "eth1"}
    bytes_sent = series({**port, "__name__": "node_network_transmit_bytes_total"}, 10, 20)
    rows = [series({**port, "__name__": name}, *values) for name, values in counts.items()]
    path = put(tmp_path, "a.json", answer(bytes_sent, *rows))
    assert read_counters(path).readings.sort("time_ns")["drops"].to_list() == drops
    names = {NETDEV: "tx_dropped", QUEUE: "qdisc_drops", "node_ethtool_tx_dropped": "tx_dropped"}
    columns = {names.get(name, name): [*values, ""][:2] for name, values in counts.items()}
    lines = [",".join(["time,node,iface,tx_bytes", *columns])]
    lines += [
        ",".join([f"{10**9 + at},h1,eth1,{at}", *(str(values[at]) for values in columns.values())])
        for at in (0, 1)
    ]
    table = put(tmp_path, "a.csv", "\n".join(lines) + "\n")
    assert read_counters(table).readings.sort("time_ns")["drops"].to_list() == drops


def test_gzip_files_and_instant_answers_are_read(tmp_path: Path) -> None:
    sample = {"metric": TAILBACK, "value": [TIMES[0], "17"]}
    text = json.dumps({"status": "success", "data": {"resultType": "vector", "result": [sample]}})
    path = tmp_path / "answer.json.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert read_counters(path).readings["data_bytes"].to_list() == [17]


def test_unknown_metrics_are_named(tmp_path: Path) -> None:
    other = {"__name__": "node_cpu_seconds_total", "instance": "h1"}
    path = put(tmp_path, "a.json", answer(series(other, 1, 2), series(TAILBACK, 1, 2)))
    assert read_counters(path).unknown == ["node_cpu_seconds_total"]
    path = put(tmp_path, "b.json", answer(series(other, 1, 2)))
    with pytest.raises(CounterError, match="none of its 1 series") as error:
        read_counters(path)
    named = re.findall(r"\b(?:tailback|node|infiniband)_\w+", str(error.value.remedy))
    assert named and set(named) <= set(METRICS)


EXPORTERS = (
    (
        {"__name__": "node_infiniband_{}", "instance": "h1:9100", "device": "mlx5_0", "port": "1"},
        ("port_data_transmitted_bytes_total", "port_transmit_wait_total", "rate_bytes_per_second"),
        "h1 mlx5_0",
    ),
    (
        {
            "__name__": "infiniband_switch_port_{}",
            "guid": "0x00000000000000ab",
            "port": "1",
            "instance": "monitor:9315",
        },
        ("transmit_data_bytes_total", "transmit_wait_total", "rate_bytes_per_second"),
        "0x00000000000000ab",
    ),
    (
        {
            "__name__": "infiniband_hca_port_{}",
            "guid": "0x00000000000000ab",
            "hca": "n1 HCA-1",
            "port": "1",
            "instance": "monitor:9315",
        },
        ("transmit_data_bytes_total", "transmit_wait_total", "rate_bytes_per_second"),
        "0x00000000000000ab",
    ),
)


@pytest.mark.parametrize(("labels", "metrics", "device"), EXPORTERS)
def test_exporters_give_bytes_ticks_and_rate(
    tmp_path: Path, labels: dict[str, str], metrics: tuple[str, ...], device: str
) -> None:
    values = ((0, 6 * 10**11), (10, 310), (12.5e9, 12.5e9))
    text = answer(
        *(
            series(labels | {"__name__": labels["__name__"].format(metric)}, *value)
            for metric, value in zip(metrics, values, strict=True)
        )
    )
    counters = read_counters(put(tmp_path, "a.json", text))
    assert counters.unknown == []
    rows = counters.readings
    assert rows["node_name"].unique().to_list() == [device]
    assert rows["capacity_gbps"].to_list() == [pytest.approx(100.0)] * 2
    assert rows["xmit_wait_ticks"].to_list() == [10, 310]


def ibqueryerrors_exporter(metric: str) -> dict[str, str]:
    """Labels of github.com/guilbaults/infiniband-exporter."""
    return {
        "__name__": f"infiniband_{metric}",
        "component": "switch",
        "local_name": "switch1",
        "local_guid": "0x506b4b03005d3101",
        "local_port": "2",
        "remote_guid": "0x506b4b0300e5e461",
        "remote_port": "1",
        "remote_name": "node1 mlx5_0",
        "instance": "monitor:9683",
    }


@pytest.mark.parametrize(("gbps", "lanes", "rate"), [("25.78125", 4, 100.0), ("106.25", 2, 200.0)])
def test_words_of_ibqueryerrors_become_bytes(
    tmp_path: Path, gbps: str, lanes: int, rate: float
) -> None:
    values = {
        "portxmitdata_total": (10, 30),
        "portrcvdata_total": (5, 7),
        "portxmitpkts_total": (3, 4),
        "portxmitwait_total": (100, 900),
        "symbolerrorcounter_total": (0, 12),
        "linkdownedcounter_total": (1, 2),
        "portlocalphysicalerrors_total": (0, 5),
        "portinactivediscards_total": (0, 6),
        "speed": (gbps, gbps),
        "width": (lanes, lanes),
    }
    text = answer(*(series(ibqueryerrors_exporter(name), *v) for name, v in values.items()))
    counters = read_counters(put(tmp_path, "a.json", text))
    assert counters.unknown == []
    first, second = counters.readings.sort("time_ns").to_dicts()
    assert (first["node_name"], first["port"]) == ("switch1", 2)
    assert first["node_guid"] == 0x506B4B03005D3101
    assert (second["data_bytes"], second["received_bytes"]) == (120, 28)
    assert (second["packets"], second["xmit_wait_ticks"]) == (4, 900)
    assert second["capacity_gbps"] == pytest.approx(rate, rel=0.003)
    (far,) = counters.far_ends.to_dicts()
    assert (far["peer_name"], far["peer_port"]) == ("node1 mlx5_0", 1)
    rises = port_events(counters.events)
    assert dict(rises.select("finding", "count").iter_rows()) == {
        "errors": 12 + 1 + 5,
        "discarded-sent": 6,
    }


def test_errors_and_marks_are_read_beside_the_counters(tmp_path: Path) -> None:
    errors = TAILBACK | {"__name__": "infiniband_switch_port_symbol_error_total"}
    counters = read_counters(
        put(tmp_path, "a.json", answer(series(TAILBACK, 1, 2), series(errors, 3, 9)))
    )
    assert counters.unknown == [] and counters.events["value"].to_list() == [3, 9]
    assert port_events(counters.events)["count"].to_list() == [6]


def test_pages_of_exporters_are_readings(tmp_path: Path) -> None:
    pages = []
    for number, (sent, marks) in enumerate(((10**9, 0), (7 * 10**9 + 1, 1234))):
        page = put(
            tmp_path,
            f"t{number}.prom",
            "# HELP node_infiniband_port_data_transmitted_bytes_total sent\n"
            "# TYPE node_infiniband_port_data_transmitted_bytes_total counter\n"
            f'node_infiniband_port_data_transmitted_bytes_total{{device="m\\"0",port="1"}} {sent}\n'
            f'node_infiniband_port_transmit_wait_total{{device="m\\"0",port="1"}} 0\n'
            f'node_infiniband_rate_bytes_per_second{{device="m\\"0",port="1"}} 2.5e+10\n'
            f'node_infiniband_np_cnp_packets_sent_total{{device="m\\"0",port="1"}} {marks}\n'
            "node_load1 0.5\nnode_filefd NaN 1700000000000\n",
        )
        pages.append(read_counters(page, time_ns=number * 60 * 10**9))
    both = merged(pages)
    (row,) = difference(both.readings).to_dicts()
    assert (row["node_name"], row["port"]) == ('m"0', 1)
    assert row["data_bytes"] == 6 * 10**9 + 1 and row["stall_fraction"] == 0.0
    assert row["utilization"] == pytest.approx(0.1 / 25, rel=1e-6)
    assert port_events(both.events)["finding"].to_list() == ["notifying"]
    assert set(both.unknown) == {"node_load1", "node_filefd"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("node_x{a=b} 1", "not a sample"),
        ("node_infiniband_port_transmit_wait_total x", "number"),
        ("node_load1 1", "none of its 1 samples"),
    ],
)
def test_damaged_pages_are_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(CounterError, match=message):
        read_counters(put(tmp_path, "a.prom", f"# TYPE node_load1 gauge\n{line}\n"))


def test_page_of_the_collector_is_read(tmp_path: Path) -> None:
    target = PortTarget(guid=7, node_name="leaf", switch=True, port=3, lid=4, gbps=100.0)
    board = MetricsBoard()
    board.begin([target.with_tick()])
    for sweep in (1, 2):
        rows = np.zeros(1, RAW)
        rows["time_ns"], rows["wait"], rows["words"] = sweep * 10**9, 1000 * sweep, 250 * sweep
        board.update(rows)
    page = put(tmp_path, "metrics.prom", board.metrics())
    (row,) = read_counters(page, time_ns=0).readings.to_dicts()
    assert (row["node_guid"], row["node_name"], row["port"]) == (7, "leaf", 3)
    assert (row["xmit_wait_ticks"], row["data_bytes"]) == (2000, 2000)
    assert row["capacity_gbps"] == 100.0


@pytest.mark.parametrize(
    "value", ["-1", "inf", "-Inf", "NaN", "1e400", "twelve", "", str(2**64), "1" * 300]
)
def test_impossible_counter_values_are_refused_with_series(tmp_path: Path, value: str) -> None:
    path = put(tmp_path, "a.json", answer(series(TAILBACK, 1, 2), series(TAILBACK, 3, value)))
    with pytest.raises(CounterError, match="has the value") as error:
        read_counters(path)
    assert (error.value.file, error.value.place) == (path, "series 2")
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (["text"], "has no metric"),
        ([{"metric": TAILBACK}], "has no values"),
        ([{"metric": TAILBACK, "values": [[1, "2", 3]]}], "has the value"),
        ([{"metric": TAILBACK, "values": [1]}], "has the value"),
        ([{"metric": TAILBACK, "values": [[-5, "2"]]}], "has the value"),
        ([{"metric": TAILBACK, "values": [[1e300, "2"]]}], "has the value"),
        ([], "has no series"),
    ],
)
def test_damaged_series_are_refused(tmp_path: Path, result: list[Any], message: str) -> None:
    with pytest.raises(CounterError, match=message) as error:
        read_counters(put(tmp_path, "a.json", answer(*result)))
    assert error.value.remedy


def test_server_errors_are_quoted_truncation_is_refused(tmp_path: Path) -> None:
    failed = {"status": "error", "errorType": "bad_data", "error": "parse \x1b[31m error"}
    with pytest.raises(CounterError, match=r"is an error response: .*parse") as error:
        read_counters(put(tmp_path, "a.json", json.dumps(failed)))
    assert "\x1b" not in str(error.value)
    complete = answer(series(TAILBACK, 1, 2))
    with pytest.raises(CounterError, match="is not JSON"):
        read_counters(put(tmp_path, "b.json", complete[:-9]))
    cut = tmp_path / "c.json.gz"
    packed = bytearray(gzip.compress(complete.encode()))
    for damaged in (packed[:-12], packed[:30] + b"\xff" * 8 + packed[38:]):
        cut.write_bytes(damaged)
        with pytest.raises(CounterError, match="gzip") as error:
            read_counters(cut, "prometheus")
        assert error.value.file == cut
    with pytest.raises(CounterError, match="is not JSON"):
        read_counters(put(tmp_path, "d.json", "[" * 100_000), "prometheus")


@pytest.mark.parametrize(
    "text", ['{"jobs": [], "status": "success"}', '{"scenario": {}}', "[]", "time,node\n1,2\n"]
)
def test_files_of_others_are_left_to_others(tmp_path: Path, text: str) -> None:
    assert not READERS["prometheus"].sniff(put(tmp_path, "a.json", text))
    assert not READERS["prometheus"].sniff(tmp_path)


def test_two_readings_of_a_port_are_an_interval(tmp_path: Path) -> None:
    waits = {**TAILBACK, "__name__": "tailback_port_xmit_wait_ticks_total"}
    path = put(tmp_path, "a.json", answer(series(TAILBACK, 1, 2001), series(waits, 0, 100)))
    rows = read_counters(path).all_intervals(tick_ns=10.0)
    assert rows["interval_ns"].to_list() == [10_500_000_000]
    assert rows["data_bytes"].to_list() == [2000]
    assert rows["stall_ns"].to_list() == [1000.0]
