"""Answers of a Prometheus server: counters of ports as readings, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tailback.port_counters.readers import READERS, read_counters, reader_of
from tailback.port_counters.readers.prometheus import METRICS
from tailback.port_counters.schema import CounterError
from tests.factories.counter_files import put

TAILBACK = {"__name__": "tailback_port_xmit_bytes_total", "node": "leaf0", "port": "3",
            "guid": "0x00000000000000ab", "instance": "collector:9433"}  # fmt: skip
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
    ethernet = {"__name__": "node_network_transmit_bytes_total", "instance": "h1:9100",
                "device": "eth1"}  # fmt: skip
    dropped = {**ethernet, "__name__": "node_network_transmit_drop_total"}
    adapter = {**ethernet, "__name__": "node_infiniband_port_data_transmitted_bytes_total",
               "device": "mlx5_0", "port": "1"}  # fmt: skip
    path = put(tmp_path, "a.json", answer(
        series(ethernet, 10, 20), series(dropped, 0, 4), series(adapter, 100, 300),
        series({**adapter, "device": "mlx5_1"}, 500, 900),
    ))  # fmt: skip
    rows = read_counters(path).readings.sort("node_name", "time_ns")
    # The name of a host, not of the exporter on it; adapters of one host stay apart.
    assert rows["node_name"].to_list() == ["h1"] * 2 + ["h1 mlx5_0"] * 2 + ["h1 mlx5_1"] * 2
    assert rows["interface"].to_list() == ["eth1", "eth1", None, None, None, None]
    assert rows["data_bytes"].to_list() == [10, 20, 100, 300, 500, 900]
    assert rows["drops"].to_list() == [0, 4, None, None, None, None]
    assert rows["port"].to_list() == [1] * 6


def test_a_gzip_file_and_an_answer_of_one_instant(tmp_path: Path) -> None:
    one = {"metric": TAILBACK, "value": [TIMES[0], "17"]}
    text = json.dumps({"status": "success", "data": {"resultType": "vector", "result": [one]}})
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
    assert all(name in str(error.value.remedy) for name in METRICS)


@pytest.mark.parametrize(
    "value", ["-1", "inf", "-Inf", "NaN", "1e400", "twelve", "", str(2**64), "1" * 300]
)
def test_values_that_no_counter_has_are_refused_with_their_series(
    tmp_path: Path, value: str
) -> None:
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


def test_an_error_of_the_server_is_quoted_and_a_cut_file_refused(tmp_path: Path) -> None:
    failed = {"status": "error", "errorType": "bad_data", "error": "parse \x1b[31m error"}
    with pytest.raises(CounterError, match=r"is an error response: .*parse") as error:
        read_counters(put(tmp_path, "a.json", json.dumps(failed)))
    assert "\x1b" not in str(error.value)
    whole = answer(series(TAILBACK, 1, 2))
    with pytest.raises(CounterError, match="is not JSON"):
        read_counters(put(tmp_path, "b.json", whole[:-9]))
    cut = tmp_path / "c.json.gz"
    packed = bytearray(gzip.compress(whole.encode()))
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
