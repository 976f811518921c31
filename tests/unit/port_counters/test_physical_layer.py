"""Error rates of links, correction, virtual lanes and Omni-Path, from what their tools print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailback as tb
from tailback import cli
from tailback.port_counters.findings.port_events import SPEED
from tailback.port_counters.readers import CounterData, read_counters
from tailback.port_counters.schema import U64_MAX, CounterError
from tests.factories.counter_files import MLXLINK, OPAPMAQUERY, SECONDS, put


def counts(data: CounterData) -> dict[tuple[str, int], dict[str, int]]:
    """Value of each counter of each port at its last reading."""
    out: dict[tuple[str, int], dict[str, int]] = {}
    for row in data.events.sort("time_ns").iter_rows(named=True):
        out.setdefault((row["node_name"], row["port"]), {})[row["counter"]] = row["value"]
    return out


def test_one_mlxlink_text_gives_errors_per_bit(tmp_path: Path) -> None:
    result = tb.counters(put(tmp_path, "a.txt", MLXLINK))
    assert result.verdict.kind == "faults"
    (link,) = result.facts["ill_links"]
    assert link["node_name"] == "n1 mlx5_0" and "went down once" in link["what"]
    # The rate that the tool itself states has one digit.
    assert link["errors_per_bit"] == pytest.approx(4000 / (100e9 * 600), rel=1e-6)
    assert f"{link['errors_per_bit']:.0e}" == "7e-11"


def test_mlxlink_json_is_its_text(tmp_path: Path) -> None:
    text = read_counters(put(tmp_path, "a.txt", MLXLINK))
    sections = {
        "Operational Info": {"State": "Active", "Speed": "IB-EDR", "Width": "4x"},
        "Physical Counters and BER Info": {
            "Time Since Last Clear [Min]": "10.0",
            "Effective Physical Errors": "4000",
            "Raw Physical Errors Per Lane": {"values": ["700", "20", "3", "4"]},
            "Link Down Counter": "1",
            "Link Error Recovery Counter": "0",
        },
    }
    answer = json.dumps({"result": {"output": sections}, "status": {"code": 0}}, indent=4)
    printed = f"# n1 mlx5_0 {SECONDS}\n{answer}\n"
    data = read_counters(put(tmp_path, "b.txt", printed))
    assert data.events.equals(text.events) and data.readings.equals(text.readings)
    assert counts(data)["n1 mlx5_0", 1]["raw_physical_errors"] == 727
    with pytest.raises(CounterError, match="JSON"):
        read_counters(put(tmp_path, "c.txt", printed.replace('"result"', '"r"')))


def test_what_correction_leaves_counts_once(tmp_path: Path) -> None:
    symbols = "Symbol Errors                      : 9\n"
    text = MLXLINK.replace("Effective Physical Errors", f"{symbols}Effective Physical Errors")
    down = text.replace("Active", "Polling").replace("mlx5_0", "mlx5_1/2").replace("10.0", "N/A")
    data = read_counters(put(tmp_path, "a.txt", text + down))
    ports = counts(data)
    assert ports["n1 mlx5_0", 1]["symbol_errors_after_correction"] == 9
    assert "effective_physical_errors" not in ports["n1 mlx5_0", 1]
    assert ports["n1 mlx5_1", 2][SPEED] == 0 and SPEED not in ports["n1 mlx5_0", 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# n1 mlx5_0 1700000000\n", "", "not named"),
        ("4000", "40x0", "line 14"),
        (": 10.0", ": soon", "minutes"),
        ("\n\n", "", "ends within"),
    ],
)
def test_damaged_mlxlink_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = MLXLINK.rstrip() if old == "\n\n" else MLXLINK.replace(old, new)
    with pytest.raises(CounterError, match=message):
        read_counters(put(tmp_path, "a.txt", text))


def test_omni_path_flits_and_waits_are_read(tmp_path: Path) -> None:
    files = [
        put(
            tmp_path,
            f"{n}.txt",
            OPAPMAQUERY.format(seconds=SECONDS + n, mb=0, flits=f, bad=n, wait=w),
        )
        for n, (f, w) in enumerate([(0, 5), (10**9, 5 + 390_625_000)])
    ]
    data = read_counters(files[1])
    (row,) = data.readings.to_dicts()
    assert (row["node_name"], row["port"], row["data_bytes"]) == ("n1 hfi1_0", 1, 8 * 10**9)
    assert (row["received_bytes"], row["received_packets"]) == (56, 3)
    assert (row["wait_limit"], row["tick_ns"], data.unknown) == (U64_MAX, 0.64, [])
    result = tb.counters(files)
    (port,) = result.verdict.ports.to_dicts()
    assert port["stall_fraction"] == pytest.approx(0.25)
    assert set(result.verdict.events["finding"]) == {"errors", "marking", "waited"}
    with pytest.raises(CounterError, match="not named"):
        read_counters(put(tmp_path, "c.txt", files[0].read_text().partition("\n")[2]))


LANES = """\
# PortVLXmitWaitCounters counters: Lid 7 port 3
PortSelect:......................3
CounterSelect:...................0x0000
PortVLXmitWait0:.................{}
PortVLXmitWait1:.................{}
# PortVLXmitTimeCong counters: Lid 7 port 3
PortSelect:......................3
PortVLXmitTimeCong0:.............{}
PortVLXmitTimeCong1:.............{}
# SwPortVLCongestion counters: Lid 7 port 3
PortSelect:......................3
SWPortVLCongestion0:.............{}
SWPortVLCongestion1:.............{}
# PortSLRcvFECN counters: Lid 7 port 3
PortSLRcvFECN0:..................{}
PortSLRcvFECN1:..................{}
# PortExtendedSpeedsCounters with RS-FEC Active counters: Lid 7 port 3
PortFECUncorrectableBlockCtr:....{}
PortFECCorrectedSymbolCtr:.......{}
"""


def test_counters_by_virtual_lane_are_findings(tmp_path: Path) -> None:
    texts = [LANES.format(*[0] * 10), LANES.format(5, 700, 6, 900, 2, 3, 4, 5, 1, 80)]
    files = [put(tmp_path, f"{n}.txt", text) for n, text in enumerate(texts)]
    data = read_counters(files[0])
    assert data.readings.height == 1 and data.unknown == []
    events = tb.counters(files, every_ns=60 * 10**9).verdict.events
    # Lanes wait at the same time or not: the longest is the least that the port did.
    assert dict(events.select("finding", "count").iter_rows()) == {
        "errors": 1,
        "discarded-sent": 5,
        "congested": 900,
        "waited": 700,
        "marked": 9,
        "corrected": 80,
    }


DETAILS = """\
# PortRcvErrorDetails counters: Lid 7 port 3
PortSelect:......................3
PortLocalPhysicalErrors:.........{0}
PortMalformedPktErrors:..........{0}
PortLoopingErrors:...............{0}
"""
WHOLE = """\
# Port counters: Lid 7 port 3 (CapMask: 0x1300)
PortRcvErrors:...................{0}
PortXmitWait:....................0
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [(DETAILS, {"errors": 12, "unrouted": 6}), (WHOLE + DETAILS, {"errors": 6})],
)
def test_kinds_of_receive_errors_count_once(
    tmp_path: Path, text: str, expected: dict[str, int]
) -> None:
    files = [put(tmp_path, f"{count}.txt", text.format(count)) for count in (0, 6)]
    events = tb.counters(files, every_ns=60 * 10**9).verdict.events
    assert dict(events.select("finding", "count").iter_rows()) == expected


PHY = """\
START_NODES
NodeDesc,NumPorts,NodeType,NodeGUID
"leaf01",65,2,0x1
END_NODES

START_PHY_DB16
NodeGuid,PortGuid,PortNum,Version,{fields}
0x1,0x1,3,1,600000,60000000000000,{errors},5000,0,0,0,0,0,0,0,0,8,11,7,11,7,11
END_PHY_DB16
""".replace("{fields}", ",".join(f"field{n}" for n in range(18)))


def test_ibdiagnet_states_errors_of_the_physical_layer(tmp_path: Path) -> None:
    path = put(tmp_path, "ibdiagnet2.db_csv", PHY.format(errors=4000))
    data = read_counters(path, time_ns=SECONDS * 10**9)
    first, last = sorted(set(data.events["time_ns"]))
    assert (last - first) == 600 * 10**9
    assert counts(data)["leaf01", 3] == {
        "effective_physical_errors": 4000,
        "phy_corrected_bits": 5000,
    }
    # 7E-11 of these bits are 4,200 errors: other fields than those meant are refused.
    with pytest.raises(CounterError, match="not a rate of 7E-11"):
        read_counters(put(tmp_path, "b.db_csv", PHY.format(errors=5)))


CONGESTED = """\
# PortXmitConCtrl counters: Lid 7 port 3
PortXmitTimeCong:................{}
"""


def test_next_step_names_counters_no_file_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [put(tmp_path, f"{n}.txt", CONGESTED.format(n)) for n in (1, 9)]
    assert cli.run(["counters", *map(str, files), "--every", "60 s"]) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "add PortXmitWait and the bytes" in printed and "--fabric" not in printed


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("# Port counters: Lid 7 port 255\nPortXmitWait:..7\n", "only sums", "perfquery -l"),
        ('Errors for "s"\n   GUID 0x1 port ALL: [PortXmitWait == 4]\n', "only sums", "single"),
        ("## Summary: 3 nodes checked, 0 bad nodes found\n", "none was above", "--data"),
        ("perfquery: iberror: failed: perfquery\n", "iberror: failed", "run it again"),
        ("bash: perfquery: command not found\n", "command not found", "run it again"),
        ("CA: n1 mlx5_0:\n      0x2  26  1[  ] ==( 4X 14.0625 Gbps", "cables", "as the fabric"),
        ("vendid=0x2c9\ndevid=0xc738\n", "cables", "as the fabric"),
    ],
)
def test_what_is_no_counter_is_named(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    with pytest.raises(CounterError, match=message) as error:
        read_counters(put(tmp_path, "a.txt", text))
    assert remedy in str(error.value)
