"""``tailback counters``: from files to a verdict on one screen, tables; every mistake."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.cli import run as tailback
from tailback.collector import (
    Collection,
    CollectorSession,
    CollectorSettings,
    MadExchange,
    MetricsBoard,
)
from tailback.port_counters.schema import INTERVALS, conform
from tests.factories import torus_archive
from tests.factories.cli_counters import FABRIC, LEAF, plain, print_counters, refused
from tests.factories.collect_subnet import row_of_switches
from tests.factories.repository import ROOT

JSON = ("--format", "json")
SECOND = 1_000_000_000
TOP = 2**32 - 1
CYCLE_NS = 10.24
"""Tick of a Switch-IB at 100 Gb/s."""


def snapshot(path: Path, lid: int, ports: dict[int, tuple[int, int]]) -> Path:
    """What perfquery prints of some ports: words sent and PortXmitWait."""
    text = "".join(
        f"# Port extended counters: Lid {lid} port {port} (CapMask: 0x5300 CapMask2: 0x2)\n"
        f"PortXmitData:....{words}\nPortXmitWait:....{wait}\nQP1Dropped:..0\n"
        for port, (words, wait) in ports.items()
    )
    path.write_text(text)
    return path


def pair(folder: Path) -> list[Path]:
    """A minute of leaf08: port 17 (to spine01) stalls a quarter of it, port 1 (to a host) not."""
    wait = round(15 * SECOND / CYCLE_NS)
    words = 60 * 100 * 10**9 // 8 // 4 // 10  # a tenth of 100 Gb/s
    return [
        snapshot(folder / "1.txt", 136, {1: (10**12, 5), 17: (5, 10**9)}),
        snapshot(folder / "2.txt", 136, {1: (10**12 + words, 5), 17: (5 + words, 10**9 + wait)}),
    ]


def test_counters_after_a_reset_prove_no_little_stall(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = pair(tmp_path)
    last = snapshot(tmp_path / "3.txt", 136, {1: (7, 0), 17: (9, 0)})
    words = ["counters", str(first), str(last), "--every", "60 s", "--fabric", str(FABRIC)]
    assert tailback(words) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "UNDETERMINED" in text and "2 of 2 ports were reset between" in text


def test_the_verdict_names_link_share_and_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = print_counters(capsys, *pair(tmp_path), "--every", "60 s", "--fabric", FABRIC, "-v")
    assert "PORTS STALL" in text
    assert "1 of 2 ports waited for credit 1 % of their time or more" in text
    row = next(line for line in text.split("\n") if "leaf08[17]" in line)
    assert row.split() == ["leaf08[17]", "→", "spine01[8]", "25", "%", "25", "%", "10", "%", "25"]
    assert "Leaf up" in text and "Leaf down" in text
    assert "the bottleneck is further along the path" in text
    assert "NOT USED  columns QP1Dropped" in text
    assert "10.2 ns" in text, "where the tick is from is said"


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = print_counters(capsys, *LEAF, "--every", "60 s", "--fabric", FABRIC)
    page = (ROOT / "docs" / "how-to" / "counters.md").read_text(encoding="utf-8")
    _, heading, shown = page.partition("VERDICT  PORTS STALL\n")
    for part in (heading + shown.partition("…\n$ tailback simulate")[0]).split("…\n"):
        assert part.count("\n") >= 3 and part in text


def test_json_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = pair(tmp_path)
    facts = json.loads(
        print_counters(capsys, *files, "--every", "60 s", "--fabric", FABRIC, "--format", "json")
    )
    worst: dict[str, Any] = facts["worst_ports"][0]
    assert (worst["node_name"], worst["port"]) == ("leaf08", 17)
    assert worst["stall_fraction"] == pytest.approx(0.25, rel=1e-6)
    assert worst["lost_gbps"] == pytest.approx(25.0, rel=0.05)
    assert facts["verdict"] == "stalls"
    assert facts["unknown"] == ["QP1Dropped"]
    groups = {(g["category"], g["port_type"]): g for g in facts["groups"]}
    assert groups["Leaf", "up"]["stalled_percent"] == 100.0
    assert groups["Leaf", "down"]["stalled_percent"] == 0.0


def test_what_counters_cannot_tell_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = pair(tmp_path)
    shown = print_counters(capsys, *files, "--every", "60 s", "--fabric", FABRIC, "-v")
    text = " ".join(shown.split())
    assert "WHAT COUNTERS CANNOT TELL whose data waited: ours or another job's; why: " in text
    assert "within an interval (60 s)" in text
    assert "WHERE IT MAY START no port that was read downstream of those that wait was 70 %" in text
    facts = json.loads(
        print_counters(capsys, *files, "--every", "60 s", "--fabric", FABRIC, "--format", "json")
    )
    assert facts["full_ports"] == [] and len(facts["cannot_tell"]) == 4
    # A diagnosis of counters is refused in favour of what counters can say.
    assert tailback(["diagnose", str(files[0])]) == 2
    assert "tailback counters" in capsys.readouterr().err


def test_a_full_port_without_waits_may_start_congestion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "naive.toml"
    path.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 4\nleaves = 4\naggregation = 4\n[[job]]\n"
        'pattern = {kind = "reduce-naive", ranks = 16, size = "64 KiB", arrays = 8}\n'
    )
    assert tailback(["simulate", str(path), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    capsys.readouterr()
    facts = json.loads(print_counters(capsys, tmp_path / "run", "--format", "json"))
    # The receiver's own link: everybody waits for it, and it never does.
    assert [(port["node_name"], port["port"]) for port in facts["full_ports"]] == [("leaf0", 1)]
    assert "1 port downstream of those that wait was 70 % full" in facts["may_begin"]


def test_nothing_is_claimed_without_a_tick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = pair(tmp_path)
    text = print_counters(capsys, *files, "--every", "60 s", "--tick", "22 ns")
    assert "lid 136[17]" in text and "54 %" in text
    text = print_counters(capsys, *files, "--every", "60 s", code=3)
    assert "UNDETERMINED" in text and "--tick" in text


def test_a_given_tick_counts_for_collections_and_archives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collection = Collection(tmp_path / "sweep")
    subnet = row_of_switches(2, 1)
    for device in subnet.devices.values():
        for port in device.ports:
            subnet.script[device.guid, port] = [1000 * n for n in range(1, 20)]
    settings = CollectorSettings(interval_ns=10**7, sweeps=3)
    CollectorSession(settings, MadExchange(subnet), collection, MetricsBoard()).run()
    collection.close()
    for what in ("sweep", "sweep/intervals/000001.parquet"):
        ports = [
            json.loads(print_counters(capsys, tmp_path / what, *JSON, *tick))["worst_ports"]
            for tick in (("--tick", "22 ns"), ("--tick", "2.2 ns"))
        ]
        reported, scaled = (sorted(port["stall_fraction"] for port in part) for part in ports)
        assert len(reported) and scaled == pytest.approx([share / 10 for share in reported])
        assert all(port["stall_high_fraction"] is None for part in ports for port in part)


def test_one_look_is_no_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = print_counters(capsys, pair(tmp_path)[0], code=3)
    assert "two or more readings" in text and "tailback collect" in text


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        # A reset of one port leaves open whether the fall of another is a wrap.
        (4, {"lower bound of data or packets only (≥)": "4", "counter that was reset": "2"}),
        (10**9, {"counter that wrapped": "1"}),
    ],
)
def test_latched_wrapped_and_reset_counters_are_told(
    words: int, shown: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = plain(
        tmp_path / "1.txt",
        136,
        {
            1: (5, TOP - 1000),
            2: (TOP - 10, 7),
            17: (10**9, 10**9),
            18: (5, 9),
        },
    )
    last = plain(
        tmp_path / "2.txt",
        136,
        {
            1: (6, TOP),
            2: (89, 7),
            17: (words, 10**9),
            18: (6, 10**7),
        },
    )
    text = print_counters(capsys, first, last, "--every", "1 s", "--fabric", FABRIC, "-v")
    noticed = text[text.index("NOTICED") :].split("\n\n")[0]
    rows = {
        line.strip().split("  ", 1)[1].split(" a ", 1)[1]: line.split()[0]
        for line in noticed.strip().split("\n")[2:]
    }
    assert rows.pop("stall counter at its largest value") == "1"
    assert rows.pop("lower bound of the stall only (≥)")
    assert rows == shown
    assert "≥" in next(line for line in text.split("\n") if "leaf08[1]" in line)


def test_a_port_always_full_is_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [plain(tmp_path / f"{n}.txt", 136, {1: (5 + n, 100), 17: (5 + n, TOP)}) for n in (1, 2)]
    text = print_counters(capsys, *files, "--every", "1 s", "--fabric", FABRIC)
    assert "PORTS STALL" in text
    assert "the stall counters of 1 of 2 ports are full" in " ".join(text.split())
    assert "leaf08[17]" in text


def test_tables_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    files = pair(tmp_path)
    print_counters(capsys, *files, "--every", "60 s", "--fabric", FABRIC, "--out", out, "--csv")
    tables = {f"{table}.{form}" for table in ("ports", "groups") for form in ("parquet", "csv")}
    assert {path.name for path in out.iterdir()} >= {"counters.json", *tables}
    ports = pl.read_parquet(out / "ports.parquet")
    assert ports["node_name"].to_list() == ["leaf08", "leaf08"]
    assert ports["category"].to_list() == ["Leaf", "Leaf"]
    facts = json.loads((out / "counters.json").read_text())
    assert facts["counters"]["verdict"] == "stalls"
    assert "exists" in refused(capsys, *files, "--every", "60 s", "--out", out)
    print_counters(capsys, *files, "--every", "60 s", "--tick", "22 ns", "--out", out, "--force")


def test_torus_is_listed_by_direction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = torus_archive.write(tmp_path / "torus", 12, shape=(5, 4, 4))
    text = print_counters(capsys, path, "-v")
    rows = text[text.index("BY TIER") :].split("\n")[2:8]
    assert [row.split()[0][0] for row in rows][:2] == ["X", "X"]
    assert "cannot be combined with other files" in refused(capsys, path, path)


def test_an_archive_of_a_tree_is_read_piecewise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.DataFrame(
        {
            "time_ns": [SECOND, 2 * SECOND] * 2,
            "interval_ns": [SECOND] * 4,
            "node_name": ["leaf08"] * 4,
            "port": [1, 1, 17, 17],
            "stall_fraction": [0.0, 0.0, 0.6, 0.8],
            "utilization": [0.1, 0.1, 0.4, 0.2],
            "capacity_gbps": [100.0] * 4,
        }
    )
    folder = tmp_path / "a"
    folder.mkdir()
    for number in range(2):
        frame[2 * number : 2 * number + 2].write_parquet(folder / f"part-{number}.parquet")
    text = print_counters(capsys, folder, "--fabric", FABRIC, "--out", tmp_path / "o")
    assert "leaf08[17]" in text and "70 %" in text and "Leaf up" in text


EVIL = '<img src=x onerror=alert(1)>\n\x1b[2J"; rm -rf / #$(id)`id`\u202e'


def test_hostile_names_reach_no_terminal_page_or_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate((EVIL, "=cmd|' /C calc'!A0", "x" * 1_000_000)):
        folder = tmp_path / f"a{number}"
        folder.mkdir()
        rows = pl.DataFrame(
            {
                "time_ns": [1, 2],
                "interval_ns": [1, 1],
                "node_name": [name] * 2,
                "port": [1, 1],
                "stall_fraction": [0.5, 0.5],
                "utilization": [0.5, 0.5],
                "source": [name] * 2,
            }
        )
        conform(INTERVALS, rows).write_parquet(folder / "part-0.parquet")
        out = tmp_path / f"out{number}"
        text = print_counters(capsys, folder, "--out", out, "--csv")
        assert "\x1b" not in text and "\u202e" not in text
        if name.startswith("="):
            lines = (out / "ports.csv").read_text().split("\n")
            assert all(not cell.startswith("=") for line in lines for cell in line.split(","))
            assert any("'=cmd" in line for line in lines)


def test_mistakes_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = pair(tmp_path)
    assert "no such file" in refused(capsys, tmp_path / "gone.txt")
    assert "perfquery" in refused(capsys, files[0], "--reader", "perfqery")
    assert "--tick" in refused(capsys, *files, "--tick", "22")
    assert "picosecond" in refused(capsys, *files, "--every", "0 s")
    assert "Glade=^glade" in refused(capsys, *files, "--subsystem", "Glade")
    assert "gone.net" in refused(capsys, *files, "--fabric", tmp_path / "gone.net")
    broken = tmp_path / "broken.txt"
    broken.write_text(re.sub(r"(PortXmitWait:\.+).*", r"\1one", files[0].read_text()))
    text = refused(capsys, broken)
    assert "broken.txt: line 3, column 18" in text and "remedy" in text
    text = print_counters(capsys, files[0], broken, code=3)
    assert "left out: broken.txt: line 3, column 18" in text
    assert "correct what was left out" in text
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(b"PAR1")
    assert "cut.parquet" in refused(capsys, cut)
    assert "subsystem" in refused(
        capsys, *files, "--every", "1 s", "--fabric", FABRIC, "--subsystem", "X=("
    )


def test_damaged_port_loses_no_other_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last = pair(tmp_path)
    last.write_text(last.read_text().replace("PortXmitWait:....5\n", "PortXmitWait:....-5\n"))
    text = print_counters(capsys, first, last, "--every", "60 s", "--fabric", FABRIC)
    assert "leaf08[17]" in text and "1 of 1 ports waited" in text
    head = " ".join(text.split("\n\n")[0].split())
    assert "left out: 1 damaged port (2.txt, line 3, column 18: '-5' is not a counter" in head


def test_long_analysis_fits_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    case = ROOT / "examples" / "lab" / "slow-cable"
    files = (case / "counters.csv.gz", "--fabric", case / "links.csv")
    short, long = print_counters(capsys, *files), print_counters(capsys, *files, "-v")
    assert "MORE  -v prints notes" in short and "NOTES" not in short
    assert "NOTES" in long and "devices with one cable" in long
    verdict, *steps = short.split("\n\n")
    assert verdict.startswith("VERDICT") and steps[0].startswith("NEXT  check that cable")


@pytest.mark.slow
def test_instants_that_cannot_be_true_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copies have other times of writing; a wrong order or --every makes impossible rates."""
    files = [tmp_path / "first.txt", tmp_path / "second.txt"]
    for file, original in zip(files, LEAF, strict=True):
        file.write_bytes(original.read_bytes())
    fabric = ("--fabric", FABRIC)
    for apart, expected in ((0.0, "written at the same instant"), (0.01, "more than is possible")):
        for number, file in enumerate(files):
            os.utime(file, (1e9 + number * apart,) * 2)
        message = refused(capsys, *files, *fabric)
        assert "second.txt" in message and expected in message and "--every, the time" in message
    os.utime(files[1], (1e9 + 60,) * 2)
    assert "4 of 20 ports waited" in print_counters(capsys, *files, *fabric)
    message = refused(capsys, *reversed(files), *fabric, "--every", "60 s")
    assert "20 of 20 active ports" in message and "in the order in which they were read" in message
    refused(capsys, *files, *fabric, "--every", "1 ms")


def test_ports_that_a_cut_file_lost_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = LEAF[1].read_text()
    cut = tmp_path / "cut.txt"
    cut.write_text(text[: text.index("# Port extended counters: Lid 134 port 11")])
    shown = print_counters(capsys, LEAF[0], cut, "--every", "60 s", "--fabric", FABRIC)
    assert "only one reading" in shown and "leaf06[11]" in shown


@pytest.mark.parametrize(
    "option", [("--threshold", "nan"), ("--subsystem", "x=["), ("--tick", "1e400 s")]
)
def test_options_that_mean_nothing(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert option[0] in refused(capsys, *LEAF, "--every", "60 s", *option)
