"""Errors, pauses and ticks of known and unknown length reach the verdict from every source."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

import tailback as tb
from tailback.cli.counters_screen import screen
from tailback.cli.queues_screen import queues_screen
from tailback.inference.explain import port_event_statements
from tailback.port_counters.findings import port_verdict
from tailback.port_counters.readers import read_counters
from tests.factories.counter_files import put, sysfs

MINUTE = 60 * 10**9

PERFQUERY = """\
# Port counters: Lid 7 port 3 (CapMask: 0x1400)
PortSelect:......................3
SymbolErrorCounter:..............{errors}
PortXmitData:....................5000
PortXmitPkts:....................11
PortXmitWait:....................0
"""
IBQUERYERRORS = """\
Errors for 0x2c9 "leaf"
   GUID 0x2c9 port 3: [SymbolErrorCounter == {errors}] [PortXmitWait == 4]
"""


def files_of(source: str, folder: Path, first: int, last: int) -> list[Path]:
    """Two readings of one port in the format of a source, with its symbol errors."""
    both = (first, last)
    if source in ("perfquery", "ibqueryerrors", "mail"):
        text = PERFQUERY if source == "perfquery" else IBQUERYERRORS
        quoted = source == "mail"
        texts = [text.format(errors=value) for value in both]
        return [
            put(
                folder,
                f"{n}.txt",
                "".join(f"> {line}\n" for line in table.splitlines()) if quoted else table,
            )
            for n, table in enumerate(texts)
        ]
    if source == "sysfs":
        out = []
        for number, value in enumerate(both):
            sysfs(folder / str(number))
            put(folder, f"{number}/ib/mlx5_0/ports/1/counters/symbol_error", f"{value}\n")
            out.append(folder / str(number) / "ib")
        return out
    if source == "sysclassib":
        rows = "".join(f"{60 * n},0,n1,5,7,{value}\n" for n, value in enumerate(both))
        head = "#Time,Time_usec,ProducerName,ib.port_xmit_wait#mlx5_0.1,ib.port_xmit_data#mlx5_0.1,"
        return [put(folder, "a.csv", head + "ib.symbol_error#mlx5_0.1\n" + rows)]
    if source == "ibnet":
        rows = "".join(f"{60 * n},0,n1,7,3,5,{value}\n" for n, value in enumerate(both))
        head = "#Time,Time_usec,ProducerName,lid,port,PortXmitWait,SymbolErrorCounter\n"
        return [put(folder, "a.csv", head + rows)]
    if source == "ethernet":
        rows = "".join(f"{10**9 + 60 * n},s1,e1,7000,{value}\n" for n, value in enumerate(both))
        return [put(folder, "a.csv", "time,node,interface,tx_bytes,rx_crc_errors\n" + rows)]
    metric = {"__name__": "node_infiniband_symbol_error_total", "device": "m", "port": "1"}
    values = [[60 * n + 10**9, str(value)] for n, value in enumerate(both)]
    sent = [[60 * n + 10**9, "7"] for n in range(2)]
    data = metric | {"__name__": "node_infiniband_port_data_transmitted_bytes_total"}
    result = [{"metric": metric, "values": values}, {"metric": data, "values": sent}]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return [put(folder, "a.json", json.dumps(answer))]


SOURCES = (
    "perfquery",
    "ibqueryerrors",
    "mail",
    "sysfs",
    "sysclassib",
    "ibnet",
    "ethernet",
    "prometheus",
)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("first", "last", "faulty"), [(3, 9, True), pytest.param(9, 9, False, marks=pytest.mark.slow)]
)
def test_rising_errors_are_a_fault_in_every_source(
    source: str, first: int, last: int, faulty: bool, tmp_path: Path
) -> None:
    files = files_of(source, tmp_path, first, last)
    untimed = source in ("perfquery", "ibqueryerrors", "mail", "sysfs")
    counters = tb.counters(files, every_ns=MINUTE if untimed else None)
    assert (counters.verdict.kind == "faults") == faulty
    assert not any("ymbol" in name or "crc" in name for name in counters.verdict.unknown)
    events = counters.verdict.events
    assert events["finding"].to_list() == (["errors"] if faulty else [])
    if faulty:
        (row,) = events.to_dicts()
        assert row["count"] == last - first
        text = "\n".join(screen(counters.verdict, counters.inventory, counters.source.kinds, None))
        assert "LINKS HAVE ERRORS" in text and "6 errors on its link" in text


@pytest.mark.parametrize(
    ("thresholds", "least"),
    [("", 899), (" [SymbolErrorCounter = 0]", 900), (" [SymbolErrorCounter = 200]", 700)],
)
def test_errors_above_a_threshold_are_a_lower_bound(
    thresholds: str, least: int, tmp_path: Path
) -> None:
    summary = "\n## Summary: 3 nodes checked, 1 bad\n##          9 ports checked\n##\n"
    summary += f"## Thresholds:{thresholds}\n" if thresholds else "##\n"
    line = "   GUID 0x2c9 port {}: [PortXmitWait == 4]{}\n"
    errors = " [SymbolErrorCounter == {}]"
    texts = [
        line.format(3, "") + line.format(4, errors.format(2) if not thresholds else ""),
        line.format(3, errors.format(900)) + line.format(4, ""),
    ]
    head = 'Errors for 0x2c9 "leaf"\n'
    files = [put(tmp_path, f"{n}.txt", head + text + summary) for n, text in enumerate(texts)]
    counters = tb.counters(files, every_ns=MINUTE)
    (row,) = counters.verdict.events.to_dicts()
    bounded = least < 900
    assert (row["count"], row["at_least"]) == (least, bounded)
    shown = f"{'≥ ' * bounded}{least} errors on its link"
    text = " ".join("\n".join(screen(counters.verdict, counters.inventory, ["x"], None)).split())
    assert shown in text and shown in counters.facts["sentence"]
    assert counters.facts["events"][0]["at_least"] == bounded
    (statement,) = port_event_statements(counters.verdict.events)
    assert shown in statement.statement and statement.ports[0].at_least == bounded


@pytest.mark.parametrize("source", ["perfquery", "ibqueryerrors", "sysfs", "prometheus"])
def test_full_error_counter_is_a_fault(source: str, tmp_path: Path) -> None:
    files = files_of(source, tmp_path, 65535, 65535)
    untimed = source != "prometheus"
    counters = tb.counters(files, every_ns=MINUTE if untimed else None)
    assert counters.verdict.kind == "faults"
    assert "≥ 65,535 errors" in counters.facts["sentence"]


def ethernet(folder: Path, *, paused: float, sent: float, columns: str) -> Path:
    """Forty seconds of a port of 40 Gb/s with a long queue.

    Args:
        folder: Where the file goes.
        paused: Share of the time that it was paused.
        sent: Share of its rate that it sent.
        columns: Further columns: pause frames, ``duration``, or both.
    """
    head = ["time,node,interface,tx_bytes,tx_packets,qdisc_backlog,drops,speed"]
    names = {"frames": "rx_prio3_pause", "duration": "rx_prio3_pause_duration"}
    chosen = [name for name in names if name in columns]
    head += [names[name] for name in chosen]
    rows = [",".join(head)]
    for second in range(40):
        counted = {
            "frames": round(second * 1000 * (paused > 0)),
            "duration": round(second * 1e6 * paused),
        }
        data = round(5e9 * sent * second)
        rows.append(
            f"{1_700_000_000 + second},s1,p1,{data},{data // 1500},2000000000000,0,40000,"
            + ",".join(str(counted[name]) for name in chosen)
        )
    rows = [row.rstrip(",") for row in rows]
    return put(folder, "ports.csv", "\n".join(rows) + "\n")


@pytest.mark.parametrize("share", [0.05, 0.3, 0.75, 0.99])
def test_a_paused_port_is_no_slow_link(share: float, tmp_path: Path) -> None:
    # At the rate of the link while it is not paused: 24 of 1,524 bytes of a frame are not counted.
    sent = 1500 / 1524 * (1 - share)
    path = ethernet(tmp_path, paused=share, sent=sent, columns="frames, duration")
    counters = tb.counters(path)
    assert counters.queues is not None and counters.queues.kind == "paused"
    (row,) = counters.queues.paused.to_dicts()
    assert row["paused_share"] == pytest.approx(share, rel=1e-6)
    assert counters.frame["stall_fraction"].to_list() == [pytest.approx(share, rel=1e-6)]
    assert counters.verdict.unknown == []
    text = " ".join(" ".join(queues_screen(counters.queues, counters.verdict, ["x"], None)).split())
    assert "paused by its far end" in text and "check that cable" not in text
    assert "none were counted" not in text


def test_slow_link_is_found_beside_its_pauses(tmp_path: Path) -> None:
    path = ethernet(tmp_path, paused=0.5, sent=0.1, columns="duration")
    counters = tb.counters(path)
    assert counters.queues is not None and counters.queues.kind == "degraded"
    (row,) = counters.queues.of("degraded").to_dicts()
    assert row["served_gbps"] == pytest.approx(40 * 0.1 / 0.5, rel=1e-3)


def test_pauses_of_unknown_length_excuse_a_slow_link(tmp_path: Path) -> None:
    kinds = {}
    for paused in (0.0, 0.7):
        path = ethernet(tmp_path, paused=paused, sent=0.2, columns="frames")
        counters = tb.counters(path)
        assert counters.queues is not None
        kinds[paused] = counters.queues.kind
    assert kinds[0.0] == "degraded" and kinds[0.7] != "degraded"


def test_page_states_the_verdict_on_queues(tmp_path: Path) -> None:
    path = ethernet(tmp_path, paused=0.0, sent=0.2, columns="frames")
    counters = tb.counters(path, course=True)
    assert counters.queues is not None
    page = counters.write_page(tmp_path / "page.html").read_text()
    headline = port_verdict.sentence(counters.queues)
    assert f"<h1>{headline}</h1>" in page.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("fault", ["degraded", "paused", "drops", "errors"])
def test_fault_before_the_last_seconds_is_no_suspect(fault: str, tmp_path: Path) -> None:
    rows = ["time,node,interface,tx_bytes,tx_packets,qdisc_backlog,drops,speed,rx_pause,rx_errors"]
    rows[0] = rows[0].replace("rx_pause", "rx_prio3_pause_duration")
    for second in range(60):
        early = min(second, 30)
        queue = 2 * 10**12 * (fault == "degraded" and second <= 30)
        counts = [1000 * early * (fault == kind) for kind in ("drops", "paused", "errors")]
        sent = 10**9 * second
        values = [sent, sent // 1500, queue, counts[0], 40000, 400 * counts[1], counts[2]]
        rows.append(f"{10**9 + second},s1,p1," + ",".join(map(str, values)))
    path = put(tmp_path, "ports.csv", "\n".join(rows) + "\n")
    verdicts = [tb.counters(path, last_ns=last) for last in (None, 20 * 10**9)]
    queues = [counters.queues for counters in verdicts if counters.queues is not None]
    assert len(queues) == 2 and queues[0].kind == {"errors": "faults"}.get(fault, fault)
    assert queues[1].kind not in ("degraded", "paused", "drops", "faults")
    assert queues[1].events.is_empty() and verdicts[1].verdict.events.is_empty()


@pytest.mark.slow
def test_open_questions_follow_from_what_was_counted(tmp_path: Path) -> None:
    for columns, asked in (("duration", False), ("", True)):
        path = ethernet(tmp_path, paused=0.5, sent=0.4, columns=columns)
        counters = tb.counters(path)
        assert ("pause frames" in " ".join(counters.facts["cannot_tell"])) == asked


FABRIC = """\
vendid=0x2c9
{device}
switchguid=0x10(10)
Switch\t41 "S-0000000000000010"\t\t# "leaf" enhanced port 0 lid 7 lmc 0
[3]\t"H-0000000000000030"[1](31) \t\t# "n1 mlx5_0" lid 113 {link}

vendid=0x2c9
devid=0x101b
caguid=0x30
Ca\t1 "H-0000000000000030"\t\t# "n1 mlx5_0"
[1](31) \t"S-0000000000000010"[3]\t\t# lid 113 lmc 0 "leaf" lid 7 {link}
"""


def stalls(folder: Path, device: str, link: str, ticks: int) -> tb.CountersResult:
    """The analysis of a switch port with so many ticks in a minute."""
    fabric = put(folder, "fabric", FABRIC.format(device=device, link=link))
    text = PERFQUERY.replace("# Port counters", "# Port extended counters").replace(
        "(CapMask: 0x1400)", "(CapMask: 0x5300 CapMask2: 0x0000002)"
    )
    files = [
        put(
            folder,
            f"{n}.txt",
            text.format(errors=0)
            .replace("Wait:....................0", f"Wait:....................{wait}")
            .replace("Data:....................5000", f"Data:....................{5000 + n}"),
        )
        for n, wait in enumerate((0, ticks))
    ]
    return tb.counters(files, fabric=fabric, every_ns=MINUTE)


@pytest.mark.parametrize(
    ("device", "link", "tick_ns"),
    [
        ("devid=0xd2f0", "2xHDR", 0.64),
        pytest.param("devid=0xd2f0", "4xHDR", 0.32, marks=pytest.mark.slow),
        ("devid=0xd2f4", "2xHDR", 0.64),
        pytest.param("devid=0xd2f2", "2xNDR", 0.32, marks=pytest.mark.slow),
        ("", "2xHDR", 0.64),
        ("devid=0xc738", "4xFDR", 18.7733),
        pytest.param("devid=0xc738", "4xQDR", 32.0, marks=pytest.mark.slow),
        ("devid=0xcb20", "4xFDR", 18.7733),
    ],
)
@pytest.mark.parametrize("share", [pytest.param(0.05, marks=pytest.mark.slow), 1.0])
def test_stall_of_split_or_slow_ports_is_exact(
    device: str, link: str, tick_ns: float, share: float, tmp_path: Path
) -> None:
    counters = stalls(tmp_path, device, link, round(share * MINUTE / tick_ns))
    (row,) = counters.frame.to_dicts()
    assert row["stall_fraction"] == pytest.approx(share, rel=1e-4)
    assert row["stall_high_fraction"] is None and counters.verdict.kind == "stalls"


@pytest.mark.slow
def test_unknown_tick_is_an_interval_in_the_verdict(tmp_path: Path) -> None:
    seen = set()
    for rule_ns, share in itertools.product((0.64, 10.24), (0.0005, 0.004, 0.05, 0.5, 1.0)):
        counters = stalls(tmp_path, "", "4xEDR", round(share * MINUTE / rule_ns))
        (row,) = counters.frame.to_dicts()
        assert row["stall_fraction"] <= share * 1.0001
        assert row["stall_high_fraction"] >= share * 0.9999
        kind = counters.verdict.kind
        # Never confident against the truth.
        assert kind == "unknown" or (kind == "stalls") == (share >= counters.verdict.threshold)
        seen.add(kind)
    assert seen == {"stalls", "quiet", "unknown"}


def test_port_without_ticks_is_quiet(tmp_path: Path) -> None:
    counters = stalls(tmp_path, "", "4xEDR", 0)
    assert counters.verdict.kind == "quiet"
    bare = tb.counters(files_of("ibnet", tmp_path, 1, 1))
    assert bare.frame["stall_fraction"].to_list() == [0.0]


@pytest.mark.parametrize(
    ("device", "rate", "low", "high"),
    [
        ("hfi1_0", "100 Gb/sec (4X EDR)", 0.64, None),
        ("mlx5_0", "100 Gb/sec (4X EDR)", 0.64, 10.24),
        ("mlx5_0", "100 Gb/sec (2X HDR)", 0.64, 5.12),
    ],
)
def test_adapters_have_the_bounds_of_their_width(
    device: str, rate: str, low: float, high: float | None, tmp_path: Path
) -> None:
    for name, text in (("counters/port_xmit_wait", "5"), ("rate", rate)):
        put(tmp_path, f"ib/{device}/ports/1/{name}", text)
    (row,) = read_counters(tmp_path / "ib", time_ns=0).readings.to_dicts()
    assert row["tick_ns"] == pytest.approx(low)
    assert row["tick_high_ns"] == (None if high is None else pytest.approx(high))
