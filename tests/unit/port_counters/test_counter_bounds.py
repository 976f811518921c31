"""What no counter can do, and what a counter that is full still tells, wherever it is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.cli import run
from tailback.collector import MetricsBoard
from tailback.collector.readings import RAW, Rows
from tailback.fabric.readers import read_fabric
from tailback.port_counters.analysis.evolution import from_fabric
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.readers import read_series
from tailback.port_counters.readers.model import CounterData
from tailback.port_counters.schema import INTERVALS, READINGS, SIMULATED, Flag, conform
from tailback.port_counters.targets import PortTarget
from tests.factories.counter_files import put
from tests.factories.repository import ROOT

SECOND = 10**9
TOP = 2**32 - 1
EDR_TICK_NS = 45.0e9 / 2**32
FABRIC = """\
switchguid=0xa(a)
Switch 36 "S-000000000000000a" # "leaf" base port 0 lid 1 lmc 0
[1] "H-0000000000000010"[1](11) # "n1 HCA-1" lid 2 4xEDR
[2] "H-0000000000000020"[1](21) # "n2 HCA-1" lid 3 4xEDR

caguid=0x10
Ca 1 "H-0000000000000010" # "n1 HCA-1"
[1](11) "S-000000000000000a"[1] # lid 2 lmc 0 "leaf" lid 1 4xEDR

caguid=0x20
Ca 1 "H-0000000000000020" # "n2 HCA-1"
[1](21) "S-000000000000000a"[2] # lid 3 lmc 0 "leaf" lid 1 4xEDR
"""


def readings(**columns: list[int | None] | float | str) -> pl.DataFrame:
    """Two readings of one EDR port, a second apart."""
    row: dict[str, object] = {
        "time_ns": [0, SECOND],
        "node_name": "leaf",
        "port": 1,
        "capacity_gbps": 100.0,
        "tick_ns": EDR_TICK_NS,
        "wait_limit": TOP,
        **columns,
    }
    two = {name: v if isinstance(v, list) else [v, v] for name, v in row.items()}
    return conform(READINGS, pl.DataFrame(two))


@pytest.mark.parametrize(
    ("column", "rise", "flag"),
    [
        ("xmit_wait_ticks", 2 * SECOND / EDR_TICK_NS, Flag.IMPOSSIBLE),
        ("stall_ns", 2 * SECOND, Flag.IMPOSSIBLE),
        ("internal_stall_ns", 2 * SECOND, Flag.IMPOSSIBLE),
        ("data_bytes", 25 * SECOND, Flag.DATA_IMPOSSIBLE),
        ("packets", SECOND, Flag.DATA_IMPOSSIBLE),
    ],
)
def test_a_rise_beyond_speed_has_no_number(column: str, rise: float, flag: Flag) -> None:
    row = difference(readings(**{column: [7, 7 + int(rise)]})).row(0, named=True)
    assert Flag(row["flags"]) == flag
    columns = (
        "xmit_wait_ticks",
        "stall_ns",
        "stall_fraction",
        "internal_stall_fraction",
        "data_bytes",
        "packets",
        "utilization",
    )
    assert [name for name in columns if row[name] is not None] == []
    honest = difference(readings(**{column: [7, 7 + int(rise / 2)]})).row(0, named=True)
    assert honest["flags"] == 0
    assert any(honest[name] is not None for name in columns)


def test_unknown_speed_and_tick_assume_the_fastest_link() -> None:
    unknown: dict[str, list[int | None]] = {
        "capacity_gbps": [None, None],
        "tick_ns": [None, None],
        "wait_limit": [None, None],
    }
    rises = readings(xmit_wait_ticks=[0, 100 * SECOND], data_bytes=[0, 10**13], **unknown)
    (flags,) = difference(rises)["flags"]
    assert Flag(flags) == Flag.IMPOSSIBLE | Flag.DATA_IMPOSSIBLE
    some = readings(xmit_wait_ticks=[0, SECOND], data_bytes=[0, 25 * SECOND], **unknown)
    assert difference(some)["flags"].to_list() == [0]


def test_a_simulated_packet_is_booked_at_once() -> None:
    rises = readings(time_ns=[0, 10], data_bytes=[0, 4096], source=SIMULATED)
    assert difference(rises).select("data_bytes", "flags").row(0) == (4096, 0)


def test_derived_intervals_are_bounded_too() -> None:
    row = {
        "time_ns": [SECOND] * 2,
        "interval_ns": [SECOND] * 2,
        "capacity_gbps": [54.5] * 2,
        "stall_fraction": [475.2, 0.5],
        "utilization": [0.1, 9.0],
    }
    intervals = CounterData(intervals=conform(INTERVALS, pl.DataFrame(row))).all_intervals()
    assert intervals["stall_fraction"].to_list() == [None, 0.5]
    assert intervals["utilization"].to_list() == [0.1, None]
    assert intervals["flags"].to_list() == [int(Flag.IMPOSSIBLE), int(Flag.DATA_IMPOSSIBLE)]


def rows(waits: list[int], words: list[int], second: int) -> Rows:
    out = np.zeros(len(waits), RAW)
    out["target"], out["time_ns"] = np.arange(len(waits)), (second + 1) * SECOND
    out["wait"], out["words"] = waits, words
    return out


def watched(*sweeps: list[int], words: list[list[int]] | None = None) -> MetricsBoard:
    """A board that saw PortXmitWait of each port, sweep by sweep, a second apart."""
    board = MetricsBoard()
    board.begin(
        [
            PortTarget(g, f"n{g}", True, 1, g, 100.0, EDR_TICK_NS, "given", extended=True)
            for g in range(1, len(sweeps[0]) + 1)
        ]
    )
    for second, waits in enumerate(sweeps):
        board.update(rows(waits, words[second] if words else [0] * len(waits), second))
        board.sweeps = second + 1
    return board


def samples(board: MetricsBoard, name: str) -> dict[str, float]:
    series = re.findall(rf'^{name}{{guid="0x0*(\d+)".*}} (\S+)$', board.metrics(), re.M)
    return {guid: float(value) for guid, value in series}


def test_an_impossible_live_reading_is_dropped_and_counted() -> None:
    board = watched([0, 0], [TOP - 5, 10**6], words=[[0, 0], [2**40, 5]])
    assert samples(board, "tailback_port_stall_ratio").keys() == {"2"}
    assert [port.target.guid for port in board.worst(5)] == [2]
    assert "tailback_collector_impossible_readings_total 1" in board.metrics()


def test_a_live_jump_to_full_is_disbelieved() -> None:
    board = watched([0], [TOP], [TOP])
    assert samples(board, "tailback_port_latched_stall_seconds") == {}
    assert board.worst(5) == []


def test_full_counter_keeps_its_last_measured_stall() -> None:
    busy = int(0.5 * SECOND / EDR_TICK_NS)
    short = busy // 10
    half = pytest.approx(0.5)
    # It stalls half of the time; its counter fills up a tenth of that after the second reading.
    waits = [[TOP - busy - short, 0], [TOP - short, busy], [TOP, 2 * busy], [TOP, 3 * busy]]
    for sweeps in (waits[:2], waits[:3], waits):
        board = watched(*sweeps)
        assert samples(board, "tailback_port_stall_ratio") == {"1": half, "2": half}
        assert sum(samples(board, "tailback_port_lost_gbps").values()) == pytest.approx(100)
    assert samples(board, "tailback_port_at_least") == {"1": 1}
    assert samples(board, "tailback_port_latched_stall_seconds") == {"1": pytest.approx(45)}
    assert [port.target.guid for port in board.worst(5)] == [1, 2]


def test_full_counter_is_no_suspect_while_sending() -> None:
    busy = int(0.5 * SECOND / EDR_TICK_NS)
    nine_tenths = int(0.9 * 100e9 / 8 / 4)
    board = watched([TOP - busy], [TOP], [TOP], words=[[0], [0], [nine_tenths]])
    assert samples(board, "tailback_port_stall_ratio") == {"1": pytest.approx(0.1, abs=1e-6)}


def test_counter_that_was_reset_is_measured_again() -> None:
    busy = int(0.5 * SECOND / EDR_TICK_NS)
    board = watched([TOP - busy], [TOP], [0], [0])
    assert samples(board, "tailback_port_stall_ratio") == {"1": 0.0}
    assert samples(board, "tailback_port_latched_stall_seconds") == {}


def test_counter_first_seen_full_claims_no_bandwidth() -> None:
    board = watched([TOP], [TOP])
    assert samples(board, "tailback_port_lost_gbps") == {"1": 0.0}
    assert samples(board, "tailback_port_latched_stall_seconds") == {"1": pytest.approx(45)}


def test_64_bit_counter_at_32_ones_is_full() -> None:
    board = MetricsBoard()
    board.begin([PortTarget(1, "n1", True, 1, 1, 100.0, EDR_TICK_NS, "given", extended_wait=True)])
    for second in range(2):
        board.update(rows([TOP], [0], second))
        board.sweeps = second + 1
    assert samples(board, "tailback_port_latched_stall_seconds") == {"1": pytest.approx(45)}


def test_the_dashboard_shows_full_counters() -> None:
    docs = ROOT / "docs" / "how-to"
    panels = json.loads((docs / "grafana-dashboard.json").read_text(encoding="utf-8"))["panels"]
    full = "tailback_port_latched_stall_seconds"
    asked = {p["title"]: [t["expr"] for t in p["targets"]] for p in panels}
    ranked = [e for group in asked.values() for e in group if re.search(r"topk.*(lost|stall)", e)]
    assert len(ranked) == 3 and all(f"and {full}) or topk" in expr for expr in ranked)
    assert asked["Ports whose stall counter is full"] == [f"count({full}) or vector(0)"]


def collection(folder: Path, waits: dict[int, list[int]]) -> Path:
    """A collection of leaf's ports: their PortXmitWait, a second apart."""
    (folder / "intervals").mkdir(parents=True)
    (folder / "collection.json").write_text('{"what": "port counters", "format": 1}')
    frames = [
        difference(
            readings(
                time_ns=[SECOND * n for n in range(len(values))],
                node_name=["leaf"] * len(values),
                node_guid=[10] * len(values),
                port=[port] * len(values),
                source=["umad"] * len(values),
                capacity_gbps=[100.0] * len(values),
                tick_ns=[EDR_TICK_NS] * len(values),
                wait_limit=[TOP] * len(values),
                xmit_wait_ticks=list(values),
                data_bytes=list(range(len(values))),
            )
        )
        for port, values in waits.items()
    ]
    pl.concat(frames).write_parquet(folder / "intervals" / "000001.parquet")
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.txt"
    path.write_text(FABRIC)
    return path


def test_full_counters_decide_the_headline_and_rank_first(
    tmp_path: Path, fabric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = int(0.5 * SECOND / EDR_TICK_NS)
    where = collection(tmp_path / "c", {1: [TOP] * 4, 2: [0, busy, 2 * busy, 3 * busy]})
    text = said(capsys, "counters", where, "--fabric", fabric)
    assert "PORTS STALL" in text and "the stall counters of 1 of 2 ports are full" in text
    assert "1 other waited 1 % of their time or more" in " ".join(text.split())
    table = text[text.index("LINKS THAT STALL MOST") :].split("\n")
    assert re.match(r"  leaf\[1\] → n1 HCA-1\[1\] +≥ 45 s", table[2])
    assert re.match(r"  leaf\[2\] → n2 HCA-1\[1\] +50 %", table[3])
    facts = json.loads(said(capsys, "counters", where, "--fabric", fabric, "--format", "json"))
    worst = facts["worst_ports"]
    assert (facts["verdict"], facts["full_counters"]) == ("stalls", 1)
    assert [(row["port"], row["stall_at_least"]) for row in worst] == [(1, 0.0), (2, None)]
    assert worst[0]["latched_stall_seconds"] == pytest.approx(45)


def test_a_counter_filling_during_reading_bounds_its_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = int(0.8 * SECOND / EDR_TICK_NS)
    where = collection(tmp_path / "c", {1: [TOP - busy, TOP, TOP, TOP, TOP]})
    (row,) = json.loads(said(capsys, "counters", where, "--format", "json"))["worst_ports"]
    assert row["stall_at_least"] == pytest.approx(0.2)
    assert row["lost_gbps"] == pytest.approx(20)


def test_impossible_readings_are_counted_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = collection(tmp_path / "c", {1: [0, 1000, 1000], 2: [0, 0, 0]})
    file = where / "intervals" / "000001.parquet"
    jump = pl.when((pl.col("port") == 1) & (pl.col("xmit_wait_ticks") > 0))
    pl.read_parquet(file).with_columns(
        stall_fraction=jump.then(475.2).otherwise("stall_fraction"),
        xmit_wait_ticks=jump.then(TOP).otherwise("xmit_wait_ticks").cast(pl.UInt64),
    ).write_parquet(file)
    text = said(capsys, "counters", where)
    assert "LITTLE STALL" in text and "475" not in text and "47520" not in text
    assert re.search(r"^ +1  with more stall than time: left out$", text, re.M)
    assert "leaf[1]" in text[text.index("NOTES") :]


TWO_INSTANTS = (1_700_000_000, 1_700_000_060)
WAITS = {1: (TOP, TOP), 2: (1000, 1000 + 10**9)}
"""PortXmitWait of two ports: one is full, the other waits 22 s of a minute at a tick of 22 ns."""


def prometheus(folder: Path, metric: str, labels: dict[int, dict[str, str]]) -> list[object]:
    series = [
        {
            "metric": {"__name__": metric, **labels[port]},
            "values": [[at, f"{v}.0"] for at, v in zip(TWO_INSTANTS, values, strict=True)],
        }
        for port, values in WAITS.items()
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    return [put(folder, "answer.json", json.dumps(answer))]


def from_collector(folder: Path) -> list[object]:
    labels = {port: {"node": "leaf", "port": str(port)} for port in WAITS}
    return prometheus(folder, "tailback_port_xmit_wait_ticks_total", labels)


def from_node_exporter(folder: Path) -> list[object]:
    labels = {
        port: {"instance": "n1:9100", "device": "mlx5_0", "port": str(port)} for port in WAITS
    }
    return prometheus(folder, "node_infiniband_port_transmit_wait_total", labels)


def from_sysclassib(folder: Path) -> list[object]:
    head = "#Time,Time_usec,ProducerName," + ",".join(
        f"ib.port_xmit_wait#mlx5_0.{port}" for port in WAITS
    )
    lines = [f"{at},0,n1,{WAITS[1][n]},{WAITS[2][n]}" for n, at in enumerate(TWO_INSTANTS)]
    return [put(folder, "ib.csv", "\n".join([head, *lines]) + "\n")]


def from_ibnet(folder: Path) -> list[object]:
    lines = [
        f"{at},0,n1,{port},7,{values[n]}"
        for n, at in enumerate(TWO_INSTANTS)
        for port, values in WAITS.items()
    ]
    head = "#Time,Time_usec,ProducerName,port,lid,PortXmitWait"
    return [put(folder, "ibnet.csv", "\n".join([head, *lines]) + "\n")]


def from_recording(folder: Path) -> list[object]:
    head = "time_utc,node,iface,tx_bytes,tx_packets,xmit_wait"
    lines = [
        f"{at},n1,mlx5_0/{port},0,0,{values[n]}"
        for n, at in enumerate(TWO_INSTANTS)
        for port, values in WAITS.items()
    ]
    return [put(folder, "infiniband-n1-0.csv", "\n".join([head, *lines]) + "\n")]


def from_sysfs(folder: Path) -> list[object]:
    for n in range(2):
        for port, values in WAITS.items():
            put(folder, f"{n}/mlx5_0/ports/{port}/counters/port_xmit_wait", f"{values[n]}\n")
    return [folder / "0", folder / "1", "--every", "60 s"]


def from_perfquery(folder: Path, kind: str = "", capabilities: str = "0x1300") -> list[object]:
    files = [
        put(
            folder,
            f"{n}.txt",
            "".join(
                f"# Port {kind}counters: Lid 7 port {port} (CapMask: {capabilities})\n"
                f"PortXmitWait:....{values[n]}\n"
                for port, values in WAITS.items()
            ),
        )
        for n in range(2)
    ]
    return [*files, "--every", "60 s"]


def from_perfquery_extended(folder: Path) -> list[object]:
    return from_perfquery(folder, "extended ", "0x5300 CapMask2: 0x0000002")


def from_ibqueryerrors(folder: Path) -> list[object]:
    files = [
        put(
            folder,
            f"{n}.txt",
            'Errors for "leaf"\n'
            + "".join(
                f"   GUID 0xa port {port}: [PortXmitWait == {values[n]}]\n"
                for port, values in WAITS.items()
            ),
        )
        for n in range(2)
    ]
    return [*files, "--every", "60 s"]


def archived_readings(**columns: object) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "time_ns": [at * SECOND for at in TWO_INSTANTS] * 2,
            "node_guid": [10] * 4,
            "node_name": ["leaf"] * 4,
            "port": [1, 1, 2, 2],
            "xmit_wait_ticks": [*WAITS[1], *WAITS[2]],
            **columns,
        }
    )


def from_archive_of_intervals(folder: Path) -> list[object]:
    rows = difference(conform(READINGS, archived_readings()), tick_ns=22.0)
    rows.write_parquet(folder / "part-0.parquet")
    return [folder]


@pytest.mark.parametrize(
    "source",
    [
        from_collector,
        from_node_exporter,
        from_sysclassib,
        from_ibnet,
        from_recording,
        from_sysfs,
        from_perfquery,
        from_perfquery_extended,
        from_ibqueryerrors,
        from_archive_of_intervals,
    ],
)
def test_full_counter_ranks_first_in_every_source(
    source: Callable[[Path], list[object]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*source(tmp_path), "--tick", "22 ns"]
    text = said(capsys, "counters", *arguments)
    assert "VERDICT  PORTS STALL" in text and "the stall counters of 1 of 2 ports are full" in text
    facts = json.loads(said(capsys, "counters", *arguments, "--format", "json"))
    assert facts["full_counters"] == 1
    first, second = facts["worst_ports"]
    assert (first["port"], second["port"]) == (1, 2)
    assert first["stall_at_least"] == 0.0 and second["stall_at_least"] is None
    assert second["stall_fraction"] == pytest.approx(22 / 60)


@pytest.mark.parametrize("last", [TOP, TOP - 1000])
def test_full_counter_needs_no_tick_to_be_reported(
    last: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stood there before, or it got there in the only interval."""
    text = "# Port counters: Lid 7 port 1 (CapMask: 0x1300)\nPortXmitWait:....{}\n"
    files = [put(tmp_path, f"{n}.txt", text.format(v)) for n, v in enumerate((last, TOP))]
    shown = said(capsys, "counters", *files, "--every", "60 s")
    assert "the stall counters of 1 of 1 port are full" in shown


def test_full_data_counter_is_no_stall(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "# Port counters: Lid 7 port 1 (CapMask: 0x1300)\nPortXmitData:..{}\nPortXmitWait:..5\n"
    files = [put(tmp_path, f"{n}.txt", text.format(TOP)) for n in range(2)]
    shown = said(capsys, "counters", *files, "--every", "60 s", "--tick", "22 ns")
    assert "LITTLE STALL" in shown
    assert "with a counter of data or packets at its largest value" in shown


def test_counter_reset_since_is_ranked_by_its_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = collection(tmp_path / "c", {1: [TOP, TOP, 0, 0, 0, 0], 2: [0] * 6})
    text = said(capsys, "counters", where)
    assert "LITTLE STALL" in text and "are full" not in text
    assert "with a stall counter at its largest value" in text


def test_last_restricts_the_rate_to_the_window_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = int(0.5 * SECOND / EDR_TICK_NS)
    where = collection(tmp_path / "c", {1: [0, busy, 2 * busy, 2 * busy, 2 * busy]})
    for last, verdict, share in (((), "stalls", 0.25), (("--last", "2 s"), "quiet", 0.0)):
        facts = json.loads(said(capsys, "counters", where, "--format", "json", *last))
        assert facts["verdict"] == verdict
        assert facts["worst_ports"][0]["stall_fraction"] == pytest.approx(share)


def test_full_counters_of_two_error_reports_are_said(
    tmp_path: Path, fabric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for number in range(2):
        files.append(tmp_path / f"q{number}.txt")
        files[-1].write_text(
            'Errors for 0xa "leaf"\n'
            f"   GUID 0xa port 1: [PortXmitWait == {TOP}] [PortXmitData == {900 + number}]\n"
        )
    assert read_series(files).readings.height == 2
    for more in ((), ("--fabric", fabric)):
        text = said(capsys, "counters", *files, "--every", "10 s", *more)
        assert "PORTS STALL" in text and "the stall counters of 1 of 1 port are full" in text
        # The tick of an unknown switch with EDR ports is 0.64 ns at least.
        assert ("≥ 2.75 s" in text) == bool(more)


def test_a_full_counters_link_is_in_the_evolution(
    tmp_path: Path, fabric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = collection(tmp_path / "c", {1: [TOP] * 4, 2: [0] * 4})
    page = tmp_path / "page.html"
    text = said(capsys, "evolution", where, "--fabric", fabric, "--out", page)
    assert text.startswith("3 features in 1 evolutions")
    assert "≥ 40.0" in page.read_text() and "stall counter is full" in page.read_text()


def test_a_jumping_link_is_not_in_the_evolution(fabric: Path) -> None:
    network = read_fabric(fabric)
    intervals = difference(
        readings(
            time_ns=[0, SECOND, 2 * SECOND],
            node_name=["leaf"] * 3,
            port=[1] * 3,
            capacity_gbps=[100.0] * 3,
            tick_ns=[EDR_TICK_NS] * 3,
            wait_limit=[TOP] * 3,
            xmit_wait_ticks=[0, TOP, TOP],
        )
    ).with_columns(link=pl.lit(0, pl.UInt32))
    assert from_fabric(intervals, network).features.is_empty()
