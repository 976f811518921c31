"""Whole sessions on a subnet made of Python: both plans, what fails, what is shown."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.collector import (
    Collection,
    CollectorSettings,
    Endpoint,
    MetricsBoard,
    SessionSummary,
)
from tailback.collector.endpoint import MAX_CONNECTIONS, parse_address
from tailback.collector.sweep import spread
from tailback.errors import FabricError
from tailback.io.exposition import label
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.analysis.port_inventory import PortInventory, from_discovery
from tailback.port_counters.analysis.sources import load
from tailback.port_counters.schema import CounterError, Flag
from tailback.port_counters.targets import PortTarget, read_targets
from tests.factories.collect_subnet import (
    FILE,
    MS,
    NARROW,
    FakeSubnet,
    after_sweeps,
    row_of_switches,
    session,
    table,
    unplug_after,
)
from tests.factories.repository import ROOT


def collect(
    subnet: FakeSubnet, out: Path, settings: CollectorSettings, board: MetricsBoard | None = None
) -> tuple[SessionSummary, list[str]]:
    lines: list[str] = []
    collection = Collection(out)
    try:
        made = session(subnet, settings, collection, board, lines.append, timeout_ms=20)
        return made.run(), lines
    finally:
        collection.close()


def test_sweeps_see_what_the_counters_did(tmp_path: Path) -> None:
    subnet = row_of_switches(3, 2)
    subnet.script[0x1001, 3] = [1000, 5000, 5001]
    settings, board = CollectorSettings(interval_ns=20 * MS, sweeps=4), MetricsBoard()
    summary, _ = collect(subnet, tmp_path / "c", settings, board)
    assert (summary.sweeps, summary.failed, summary.nodes, summary.ports) == (4, 0, 9, 16)
    readings, intervals = table(tmp_path / "c", "readings"), table(tmp_path / "c", "intervals")
    assert readings.height == summary.readings == 64 and intervals.height == 48
    mine = intervals.filter((pl.col("node_guid") == 0x1001) & (pl.col("port") == 3))
    read = readings.filter((pl.col("node_guid") == 0x1001) & (pl.col("port") == 3)).sort("time_ns")
    waits = read["xmit_wait_ticks"].to_list()
    assert mine.sort("time_ns")["xmit_wait_ticks"].to_list() == [
        b - a for a, b in itertools.pairwise(waits)
    ]
    assert mine["xmit_wait_ticks"].sum() == waits[-1] - waits[0] == 5001
    assert intervals["xmit_wait_ticks"].sum() == mine["xmit_wait_ticks"].sum()
    fraction = mine["xmit_wait_ticks"] * (32 * 4 * 8 / mine["capacity_gbps"]) / mine["interval_ns"]
    assert (mine["stall_fraction"] - fraction).abs().max() < 1e-12  # type: ignore[operator]
    # The analysis makes the same of the readings; it also calls a late reading a gap.
    order = ["node_guid", "port", "time_ns"]
    again = difference(readings).sort(order).drop("flags")
    assert again.equals(intervals.sort(order).drop("flags"))


def test_a_dead_node_costs_its_own_readings(tmp_path: Path) -> None:
    subnet = row_of_switches(3, 2)
    board = MetricsBoard()
    after_sweeps(subnet, board, 1, lambda: setattr(subnet.devices[0x1002], "dead", True))
    settings = CollectorSettings(interval_ns=100 * MS, sweeps=6)
    summary, lines = collect(subnet, tmp_path / "c", settings, board)
    readings = table(tmp_path / "c", "readings")
    counts = dict(readings.group_by("node_guid").len().iter_rows())
    dead = counts.pop(0x1002)
    assert 3 <= dead < 18 and summary.failed == 18 - dead and set(counts.values()) == {24, 18, 6}
    assert board.failed == {"switch2": summary.failed} and board.unreachable == 1
    assert any("switch2" in line and "timeout" in line for line in lines)
    events = [
        json.loads(line)
        for file in (tmp_path / "c" / "events").iterdir()
        for line in file.read_text().splitlines()
    ]
    assert sum(event.get("count", 0) for event in events) == summary.failed
    assert {event["node"] for event in events} == {"switch2"}


def test_names_differing_in_control_characters_are_distinct() -> None:
    names = ["a\x01", "a\x02", "a\u202e", "a\\x01", "a\\u202e", "a\n", "a\\n", "a?"]
    board = MetricsBoard()
    board.failed.update({name: place + 1 for place, name in enumerate(names)})
    lines = [line for line in board.metrics().split("\n") if "reads_failed_total{" in line]
    assert len({line.rsplit(" ", 1)[0] for line in lines}) == len(names)
    assert all(line.isprintable() for line in lines)


def test_consecutive_requests_go_to_different_devices() -> None:
    targets = [
        PortTarget(guid, "", True, port, guid, 1.0, 1.0, "given")
        for guid in range(17)
        for port in range(3)
    ]
    order = spread(targets)
    assert sorted(order) == list(range(51))
    assert len({targets[i].guid for i in order[:17]}) == 17


def test_changes_found_on_request_carry_true_intervals(tmp_path: Path) -> None:
    subnet = row_of_switches(2, 1)
    collection, board = Collection(tmp_path / "c"), MetricsBoard()
    lines: list[str] = []
    settings = CollectorSettings(interval_ns=20 * MS, sweeps=12)
    made = session(subnet, settings, collection, board, lines.append, timeout_ms=20)
    unplug_after(2, made, subnet, board)
    begun: list[set[str]] = []
    begin = board.begin

    def begin_again(*ports: Any) -> None:
        begin(*ports)
        begun.append(set(re.findall(r"^tailback_port_stall_ratio(.*) ", board.metrics(), re.M)))

    board.begin = begin_again  # type: ignore[method-assign]
    made.run()
    collection.close()
    assert [len(series) for series in begun] == [0, 4], "a rediscovery blanks no series"
    assert [line for line in lines if "ports" in line] == [
        "4 devices, 6 ports",
        "3 devices, 4 ports",
    ]
    intervals = table(tmp_path / "c", "intervals")
    per_port = intervals.filter(pl.col("node_guid") == 0x1000).group_by("port").len()
    readings = table(tmp_path / "c", "readings").filter(pl.col("node_guid") == 0x1000)
    counts = readings.group_by("port").len().join(per_port, on="port")
    assert (counts["len"] - counts["len_right"] == 1).all(), "the series goes on in a new segment"


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    subnet = row_of_switches(1, 1)
    for device in subnet.devices.values():
        device.no_agent = True
    with pytest.raises(CounterError, match="no port to read"):
        collect(subnet, tmp_path / "c", CollectorSettings(sweeps=1))


HOSTILE = 'a"b\\c\nd<script>{}\x1b[31m\u202e'


def test_no_name_breaks_out_of_a_metric(tmp_path: Path) -> None:
    subnet = row_of_switches(2, 1)
    subnet.devices[0x1000].name = HOSTILE.encode()
    subnet.devices[0x1001].ports[2].wait = 2**32 - 1
    subnet.script[0x1000, 1] = [0, 10**6]
    board = MetricsBoard()
    collect(subnet, tmp_path / "c", CollectorSettings(interval_ns=20 * MS, sweeps=3), board)
    sample = re.compile(r'[a-z_][a-z0-9_]*(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)+\})? [-0-9.e+naN]+')
    page = board.metrics()
    lines = page.rstrip("\n").split("\n")
    for line in lines:
        assert line.startswith(("# HELP ", "# TYPE ")) or sample.fullmatch(line), line
    names = [line.rsplit(" ", 1)[0] for line in lines if line[0] != "#"]
    assert len(names) == len(set(names)), "Prometheus refuses a sample told twice"
    assert "\x1b" not in page and "\u202e" not in page
    assert 'tailback_port_at_least{guid="0x0000000000001001",node="switch1",port="2"}' in page
    at_least = [line for line in lines if "at_least" in line and line.endswith(" 1")]
    assert len(at_least) == 1
    assert "tailback_collector_sweeps_total 3" in lines
    assert len(label("x" * 1_000_000)) == 128


def test_the_endpoint_is_a_loopback_page() -> None:
    endpoint = Endpoint("0", lambda: "page ü\n", lambda: 0)
    try:
        assert endpoint._server.server_address[0] == "127.0.0.1"
        base = f"http://127.0.0.1:{endpoint.port}"
        with urllib.request.urlopen(f"{base}/metrics", timeout=5) as answer:
            assert answer.read().decode() == "page ü\n"
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/etc/passwd", timeout=5)
        with pytest.raises(CounterError, match="cannot be served"):
            Endpoint(str(endpoint.port), lambda: "", lambda: 0)
    finally:
        endpoint.close()


@pytest.mark.slow
def test_slow_clients_share_one_page_and_are_limited() -> None:
    made: list[int] = []

    def page() -> str:
        made.append(1)
        return "x" * 20_000_000  # more than the system keeps for a client that does not read

    endpoint = Endpoint("0", page, lambda: 0, max_seconds=5.0)
    request = b"GET /metrics HTTP/1.1\r\n\r\n"
    slow: list[socket.socket] = []
    try:
        for number in range(MAX_CONNECTIONS + 8):
            client = socket.create_connection(("127.0.0.1", endpoint.port), timeout=30)
            client.sendall(request if number % 2 else request[:-2])  # half never finish to ask
            slow.append(client)
        silent = [*slow[MAX_CONNECTIONS:], *slow[:MAX_CONNECTIONS:2]]
        assert [_received(client) for client in silent] == [0] * len(silent), "refused or cut"
        # The others are as old and have read nothing yet.
        answers = [_received(client) for client in slow[1:MAX_CONNECTIONS:2]]
        assert all(answer is not None and answer < 20_000_000 for answer in answers)
        assert len(made) == 1
        with urllib.request.urlopen(
            f"http://127.0.0.1:{endpoint.port}/metrics", timeout=5
        ) as answer:
            assert len(answer.read()) == 20_000_000
    finally:
        for client in slow:
            client.close()
        endpoint.close()


def _received(client: socket.socket) -> int | None:
    """Bytes until the server ends the connection; None if the client's own time runs out first."""
    received = 0
    try:
        while part := client.recv(1 << 20):
            received += len(part)
    except TimeoutError:
        return None
    except OSError:
        pass
    return received


def test_page_is_made_once_a_sweep() -> None:
    board, made = MetricsBoard(), []
    board.begin([])

    def page() -> str:
        made.append(1)
        return board.metrics()

    endpoint = Endpoint("0", page, lambda: board.edition)
    try:
        for sweeps, pages in ((1, 1), (1, 1), (2, 2)):
            board.sweeps = sweeps
            board.readings += 1
            urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=5).read()
            assert len(made) == pages
    finally:
        endpoint.close()


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip; q=1", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000, br", False),
        ("x-gzip", False),
        ("", False),
    ],
)
def test_the_page_is_packed_for_who_accepts_it(accepted: str, packed: bool) -> None:
    endpoint = Endpoint("0", lambda: "page ü\n", lambda: 0)
    try:
        request = urllib.request.Request(
            f"http://127.0.0.1:{endpoint.port}/metrics", headers={"Accept-Encoding": accepted}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            body = answer.read()
            assert (answer.headers["Content-Encoding"] == "gzip") == packed
            assert int(answer.headers["Content-Length"]) == len(body)
        assert (gzip.decompress(body) if packed else body).decode() == "page ü\n"
    finally:
        endpoint.close()


def test_addresses() -> None:
    assert parse_address("9750") == ("127.0.0.1", 9750)
    assert parse_address("0.0.0.0:1") == ("0.0.0.0", 1)
    assert parse_address("[::1]:9") == ("::1", 9)
    for bad in ("", "x", "1:2:3", "host:70000", "-4"):
        with pytest.raises(CounterError, match="not an address"):
            parse_address(bad)


def test_ports_from_a_discovery_file(tmp_path: Path) -> None:
    path = tmp_path / "fabric"
    path.write_text(FILE)
    targets = {(t.guid, t.port): t for t in read_targets(path).targets}
    assert {k: t.lid for k, t in targets.items()} == {(0x1000, 4): 11, (0x2000, 1): 12}
    switch = targets[0x1000, 4]
    assert switch.tick_source == "model" and switch.tick_ns == pytest.approx(10.24, abs=0.01)
    assert switch.gbps == 100 and switch.peer_name == "h HCA-1"
    assert [t.guid for t in read_targets(path, hosts=False).targets] == [0x1000]
    assert read_targets(path, tick_ns=3.5).targets[0].tick_source == "given"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("src,dst,iface,rate_gbit\nn1,s,e0,100\nn2,s,e0,100\n", "no local identifiers"),
        (re.sub(r"lid \d+ ", "", FILE), "no local identifiers"),
        (FILE.replace("lid 11", "lid 60000").replace("lid 12", "lid 0"), "no local identifiers"),
    ],
)
def test_a_file_without_addresses_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "fabric"
    path.write_text(text)
    with pytest.raises(CounterError, match=message):
        read_targets(path)


def test_file_that_is_no_discovery_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hello").write_text("hello")
    with pytest.raises(FabricError, match="not a known fabric discovery"):
        read_targets(tmp_path / "hello")
    with pytest.raises(FabricError, match="cannot be read"):
        read_targets(tmp_path / "none")


PORTS = """\
CA    12  1 0x0000000000002001 4x EDR - SW    11  4 0x0000000000001000 ( 'h SW 7 8 0x9 ' - 'leaf' )
SW    11  4 0x0000000000001000 4x EDR - CA    12  1 0x0000000000002001 ( 'leaf' - 'h SW 7 8 0x9 ' )
SW    11  5 0x0000000000001000 4x EDR - SW    13  6 0x0000000000003000 ( 'leaf' - 'spine' )
SW    11  7 0x0000000000001000 4x ???                                    'leaf'
"""


def test_a_discovery_file_gives_a_port_per_line(tmp_path: Path) -> None:
    path = tmp_path / "fabric"
    path.write_text(PORTS)
    targets = {(t.guid, t.port): t for t in read_targets(path).targets}
    assert {key: (t.lid, t.gbps) for key, t in targets.items()} == {
        (0x1000, 4): (11, 100),
        (0x1000, 5): (11, 100),
        (0x2001, 1): (12, 100),
        (0x3000, 6): (13, 100),
    }
    assert targets[0x1000, 4].tick_source == "unknown"
    places = from_discovery(path)
    assert not any("identified by name only" in note for note in places.notes)
    assert set(places.ports["lid"].drop_nulls()) == {11, 12, 13}


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fabric"
    path.write_text(FILE.replace("[4] ", "[4 "))
    with pytest.raises(FabricError, match="line 6"):
        read_targets(path)


def test_wrap_and_reset_are_distinct_on_the_board(tmp_path: Path) -> None:
    subnet = row_of_switches(1, 2)
    subnet.devices[0x1000].ports[1].wait = 5_000_000
    subnet.script[0x1000, 1] = [5_000_000, 7]
    board = MetricsBoard()
    collect(subnet, tmp_path / "c", CollectorSettings(interval_ns=10 * MS, sweeps=4), board)
    assert board.resets == 1
    flags = table(tmp_path / "c", "intervals").filter(pl.col("port") == 1)["flags"]
    assert sum(Flag.RESET in Flag(f) for f in flags) == 1


def test_the_dashboard_asks_for_metrics_that_there_are(tmp_path: Path) -> None:
    board = MetricsBoard()
    subnet = row_of_switches(1, 1)
    collect(subnet, tmp_path / "c", CollectorSettings(interval_ns=MS, sweeps=2), board)
    served = set(re.findall(r"^# TYPE (\S+)", board.metrics(), re.M))
    docs = ROOT / "docs" / "how-to"
    dashboard = json.loads((docs / "grafana-dashboard.json").read_text(encoding="utf-8"))
    asked = set()
    for panel in dashboard["panels"]:
        for query in panel["targets"]:
            asked |= set(re.findall(r"tailback_\w+", query["expr"]))
    assert asked and asked <= served
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


WIDEST = {"mask2": 2}
"""A device with all counters in 64 bits."""


@pytest.mark.parametrize("facts", [{}, {"mask": NARROW}, WIDEST])
def test_rising_errors_reach_table_page_and_findings(tmp_path: Path, facts: dict[str, int]) -> None:
    """Two sessions: errors rise within the first, between them, and are reset in the second."""
    subnet = row_of_switches(2, 1)
    for device in subnet.devices.values():
        device.__dict__.update(facts)
    old, bad = subnet.devices[0x1000].ports[1], subnet.devices[0x1001].ports[1]
    old.errors = {"LinkDownedCounter": 3}
    board, settings = MetricsBoard(), CollectorSettings(interval_ns=20 * MS, sweeps=3)
    after_sweeps(subnet, board, 1, lambda: bad.errors.update(SymbolErrorCounter=7, VL15Dropped=1))
    collect(subnet, tmp_path / "c", settings, board)
    page = board.metrics()
    assert re.search(r'tailback_port_symbol_error_total\{.*port="1".*\} 7\n', page)
    assert len(re.findall(r"^tailback_port_symbol_error_total\{.* 0$", page, re.M)) == 5
    bad.errors["SymbolErrorCounter"] = 12
    board = MetricsBoard()
    after_sweeps(subnet, board, 1, lambda: bad.errors.update(SymbolErrorCounter=4))
    collect(subnet, tmp_path / "c", settings, board)
    source = load([tmp_path / "c"])
    row, dropped = source.port_events(PortInventory()).to_dicts()
    # 7 and 5 before the reset, 4 after it; the three link downs are of an earlier time.
    assert (row["finding"], row["node_name"], row["port"], row["count"]) == (
        "errors",
        "switch1",
        1,
        16,
    )
    end = "Extended" if facts == WIDEST else ""
    assert row["counters"] == [f"SymbolErrorCounter{end}"] and not source.unknown
    assert (dropped["finding"], dropped["counters"]) == ("management", [f"VL15Dropped{end}"])


@pytest.mark.parametrize("facts", [{}, WIDEST])
def test_counter_at_its_maximum_is_lower_bound(tmp_path: Path, facts: dict[str, int]) -> None:
    subnet = row_of_switches(1, 1)
    subnet.devices[0x1000].__dict__.update(facts)
    subnet.devices[0x1000].ports[1].errors = {"LocalLinkIntegrityErrors": 15}
    collect(subnet, tmp_path / "c", CollectorSettings(interval_ns=20 * MS, sweeps=2))
    rows = load([tmp_path / "c"]).port_events(PortInventory())
    # 15 is the largest value of 4 bits, and a value like others of 64.
    assert rows["full"].to_list() == ([] if facts else [["LocalLinkIntegrityErrors"]])


def test_healthy_ports_store_no_errors(tmp_path: Path) -> None:
    subnet = row_of_switches(2, 2)
    collect(subnet, tmp_path / "c", CollectorSettings(interval_ns=20 * MS, sweeps=3))
    assert table(tmp_path / "c", "errors").height == 0
    file = tmp_path / "c" / "errors" / "000001.parquet"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    notes = load([tmp_path / "c"]).notes
    assert any(
        "without counters of errors: errors/000001.parquet: damaged or edited" in n for n in notes
    )
