"""Links that need a hand: which, why, since when, and what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tailback as tb
from tailback.cli import run
from tailback.collector import Collection, CollectorSettings, MetricsBoard
from tailback.port_counters.changes import changes_of
from tailback.port_counters.findings.conservation import (
    are_credible,
    link_balances,
    wrong_pairs_note,
)
from tailback.port_counters.findings.ill_links import ill_links, without
from tailback.port_counters.findings.port_events import READINGS
from tests.factories.collect_subnet import (
    MS,
    FakeSubnet,
    Port,
    after_sweeps,
    row_of_switches,
    session,
)
from tests.factories.repository import ROOT

GBPS = 54.545
SECOND = 10**9


def collected(out: Path, act: Callable[[FakeSubnet], Any], sweeps: int = 12) -> Path:
    """A collection of three switches in a row; something happens after three sweeps."""
    subnet, collection, board = row_of_switches(3, 2), Collection(out), MetricsBoard()
    settings = CollectorSettings(interval_ns=20 * MS, sweeps=sweeps, states_ns=20 * MS)
    made = session(subnet, settings, collection, board)
    after_sweeps(subnet, board, 3, lambda: act(subnet))
    made.run()
    collection.close()
    return out


def errors(subnet: FakeSubnet) -> None:
    port = subnet.devices[0x1001].ports[4]
    port.errors |= {"SymbolErrorCounter": 5000, "LinkDownedCounter": 1}
    port.wait += 60_000


def unplugged(subnet: FakeSubnet) -> None:
    subnet.devices[0x1001].ports[1] = Port(state=1)
    subnet.devices[0x2010].ports[1] = Port(state=1)


def narrow(subnet: FakeSubnet) -> None:
    subnet.devices[0x1000].ports[4].width = subnet.devices[0x1001].ports[3].width = 1


def test_errors_are_no_slow_receiver(tmp_path: Path) -> None:
    result = tb.counters(collected(tmp_path / "c", errors))
    assert result.verdict.kind == "faults"
    (link,) = result.tables["ill_links"].to_dicts()
    assert link["link"] == "switch1[4] → switch2[3]" and link["signs"] == ["errors", "flapped"]
    assert link["what"] == "5,000 symbol errors; went down once"
    assert link["errors"] == 5000 and link["between_switches"]
    seconds = (result.verdict.end_ns - result.verdict.start_ns) / 1e9
    assert link["errors_per_bit"] == pytest.approx(5000 / (GBPS * 1e9 * seconds), rel=0.2)
    assert result.verdict.start_ns < link["since_ns"] < result.verdict.end_ns


def test_a_link_that_is_down_is_not_healthy(tmp_path: Path) -> None:
    result = tb.counters(collected(tmp_path / "c", unplugged))
    assert result.verdict.kind == "down"
    (link,) = result.facts["ill_links"]
    assert link["link"] == "switch1[1] → host1-0 HCA-1[1]" and link["what"] == "down"
    assert link["lost_gbps"] == pytest.approx(GBPS, abs=0.01) and not link["between_switches"]
    assert [change["change"] for change in result.facts["changes"]] == ["link down"]


def test_a_link_that_lost_lanes_is_listed(tmp_path: Path) -> None:
    result = tb.counters(collected(tmp_path / "c", narrow))
    assert result.verdict.kind == "slower"
    (link,) = result.facts["ill_links"]
    assert "width 4x → 1x" in link["what"] and link["signs"][0] == "width"
    assert link["lost_gbps"] == pytest.approx(0.75 * GBPS, abs=0.01)
    # The collection has no counter of errors of this link.
    assert link["errors"] is None and link["errors_per_bit"] is None


def test_the_screen_names_links_and_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = collected(tmp_path / "c", unplugged)
    assert run(["counters", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "VERDICT  LINKS ARE DOWN" in text and max(map(len, text.split("\n"))) < 80
    assert re.search(r"switch1\[1\] → host1-0 HCA-1\[1\] +down +[-\d]{10} \d\d:\d\d +54\.5", text)
    assert re.search(r"WHAT CHANGED\n.*\n.*switch1\[1\] → host1-0 HCA-1\[1\] +link down", text)


def test_a_muted_link_is_not_listed(tmp_path: Path) -> None:
    folder, muted = collected(tmp_path / "c", unplugged), tmp_path / "muted"
    muted.write_text("# known\nhost1-0 HCA-1[1]  # switched off\nswitch9\n")
    result = tb.counters(folder, muted=muted)
    assert result.verdict.kind == "unknown" and result.facts["ill_links"] == []
    assert "links that need a hand and are muted: 1" in result.verdict.notes
    assert "muted names without such a link: switch9" in result.verdict.notes


def test_a_running_collector_is_read_completely(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subnet, out = row_of_switches(2, 1), tmp_path / "c"
    collection, board = Collection(out), MetricsBoard()
    made = session(subnet, CollectorSettings(interval_ns=20 * MS, sweeps=6), collection, board)
    shown: list[dict[str, Any]] = []

    def look() -> None:
        run(["counters", str(out), "--since", "7 d", "--format", "json"])
        shown.append(json.loads(capsys.readouterr().out))

    after_sweeps(subnet, board, 4, look)
    made.run()
    collection.close()
    assert shown[0]["intervals"] == 3 * 6 and not any("segment" in n for n in shown[0]["notes"])
    assert tb.counters(out).verdict.intervals == 5 * 6, "nothing is lost or counted twice"


def test_a_restart_is_told_from_a_reset(tmp_path: Path) -> None:
    def restart(subnet: FakeSubnet) -> None:
        for port in subnet.devices[0x1001].ports.values():
            port.words = port.packets = port.wait = 0
        subnet.devices[0x1001].dead = True

    def reset(subnet: FakeSubnet) -> None:
        for port in subnet.devices[0x1001].ports.values():
            port.words = port.packets = port.wait = 0

    for act, kind in ((reset, "counters reset"), (restart, "restarted")):
        out = tmp_path / kind.split()[0]
        subnet, collection, board = row_of_switches(3, 2), Collection(out), MetricsBoard()
        for device in subnet.devices.values():
            for port in device.ports.values():
                port.words, port.packets, port.wait = 10**6, 10**4, 10**6
        settings = CollectorSettings(interval_ns=200 * MS, sweeps=10)
        made = session(subnet, settings, collection, board)
        after_sweeps(subnet, board, 3, lambda act=act, subnet=subnet: act(subnet))
        after_sweeps(subnet, board, 6, lambda d=subnet.devices[0x1001]: setattr(d, "dead", False))
        made.run()
        collection.close()
        (change,) = tb.counters(out).verdict.changes.to_dicts()
        assert (change["change"], change["node_name"], change["links"]) == (kind, "switch1", 4)


def transferring(
    out: Path, received: Callable[[int], int], cables: int = 3, sweeps: int = 40
) -> tb.CountersResult:
    """A collection whose switches send 10 MB/s to their neighbours, and what of it arrives."""
    subnet, collection, board = row_of_switches(cables, 1), Collection(out), MetricsBoard()
    made = session(subnet, CollectorSettings(20 * MS, sweeps), collection, board)

    def send(sweep: int) -> None:
        for left in range(cables - 1):
            words = 2_500_000 * sweep
            subnet.devices[0x1000 + left].ports[3].words = words
            subnet.devices[0x1001 + left].ports[2].received_words = received(left) * words // 100
        after_sweeps(subnet, board, sweep + 1, lambda: send(sweep + 1))

    send(1)
    made.run()
    collection.close()
    return tb.counters(out)


def test_lost_packets_name_cable_and_direction(tmp_path: Path) -> None:
    result = transferring(tmp_path / "c", lambda left: 40 if left == 1 else 100)
    (link,) = result.facts["ill_links"]
    assert link["link"] == "switch1[3] → switch2[2]" and link["signs"] == ["unequal"]
    assert link["what"] == "60.0 % lost from switch1[3] on"
    assert result.verdict.kind == "unequal"
    balances = result.tables["link_balances"]
    assert balances["missing_bytes"].count() == 1 and balances.height == 10


def balanced(*received_gb: int) -> pl.DataFrame:
    """Balances of links of 100 Gb/s that sent 100 GB in 100 s, read 2 s apart at their ends."""
    count = len(received_gb)
    column = {
        "node_name": [f"{side}{n}" for side in "ab" for n in range(count)],
        "port": [1] * 2 * count,
        "interface": pl.Series([None] * 2 * count, dtype=pl.String),
        "sent_bytes": [100 * SECOND] * count + [0] * count,
        "received_bytes": [0] * count + [gb * SECOND for gb in received_gb],
        "sent_peak_gbps": [10.0] * 2 * count,
        "received_peak_gbps": [10.0] * 2 * count,
        "start_ns": [0] * count + [2 * SECOND] * count,
        "end_ns": [100 * SECOND] * count + [102 * SECOND] * count,
    }
    frame = pl.DataFrame(column).with_columns(
        sent_ns=100 * SECOND,
        received_ns=100 * SECOND,
        seconds=100.0,
        intervals=100,
        capacity_gbps=100.0,
    )
    return link_balances(frame, {(f"a{n}", 1): f"b{n}[1]" for n in range(count)})


def test_sampling_error_is_no_difference() -> None:
    rows = balanced(99, 96, 93, 100, 107)
    assert rows["error_bytes"].to_list() == pytest.approx([7.5e9] * 5)
    assert rows["missing_bytes"].count() == 0 and are_credible(rows)
    assert balanced(80, 100, 130)["missing_bytes"].to_list() == [20 * SECOND, None, -30 * SECOND]


def ends_of_bursts(draws: int, lost: float) -> pl.DataFrame:
    """Balances of links with bursts, whose ends are read at their own times."""
    rng = np.random.Generator(np.random.Philox(key=[51, draws]))
    grid = np.arange(0, 60_000)  # ms
    rows = []
    for number in range(draws):
        on = np.repeat(rng.random(600) < rng.choice([0.02, 0.2, 0.9]), 100)
        sent = np.append(0, np.cumsum(on * 12.5e6 * rng.random()))  # bytes, below 100 Gb/s
        for side, arrived in (("a", 1.0), ("b", 1.0 - lost)):
            reads = np.arange(rng.integers(0, 5000), 60_000, rng.integers(500, 5000))
            reads = np.minimum(reads + rng.integers(0, 200, len(reads)), len(grid))
            bytes_, length = np.diff(sent[reads] * arrived), np.diff(reads) * 1e6
            rate = float((8 * bytes_ / length).max())
            total, time = int(bytes_.sum()), int(length.sum())
            rows.append(
                {"node_name": f"{side}{number}", "port": 1, "interface": None}
                | {"capacity_gbps": 100.0, "intervals": len(length), "seconds": time / 1e9}
                | {"start_ns": int(reads[0] * 1e6), "end_ns": int(reads[-1] * 1e6)}
                | {"sent_bytes": total if side == "a" else 0, "sent_ns": time}
                | {"received_bytes": total if side == "b" else 0, "received_ns": time}
                | {"sent_peak_gbps": rate, "received_peak_gbps": rate}
            )
    frame = pl.DataFrame(rows, schema_overrides={"interface": pl.String})
    return link_balances(frame, {(f"a{n}", 1): f"b{n}[1]" for n in range(draws)})


def test_bursts_between_readings_are_no_loss() -> None:
    assert ends_of_bursts(300, 0.0)["missing_bytes"].count() == 0
    assert ends_of_bursts(300, 0.5)["missing_bytes"].count() > 150


def test_differing_ends_everywhere_blame_the_fabric() -> None:
    rows = balanced(30, 250, 20, 100)
    assert not are_credible(rows) and wrong_pairs_note(rows).startswith("3 of 4 busy links")


def ports(**columns: list[Any]) -> pl.DataFrame:
    """Ports as ``verdict.assess`` has them."""
    count = len(next(iter(columns.values())))
    base = {
        "node_guid": [1] * count,
        "node_name": ["leaf"] * count,
        "port": list(range(1, count + 1)),
        "interface": [None] * count,
        "category": ["Leaf"] * count,
        "port_type": ["up"] * count,
        "capacity_gbps": [100.0] * count,
        "utilization": [None] * count,
        "seconds": [10.0] * count,
        "end_ns": [10 * SECOND] * count,
    }
    schema = {"node_guid": pl.UInt64, "port": pl.UInt16, "interface": pl.String}
    floats = {"utilization": pl.Float64, "capacity_gbps": pl.Float64}
    return pl.DataFrame(base | columns, schema_overrides=schema | floats)


def ill(frame: pl.DataFrame, events: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    peers = {("leaf", port): f"spine{port}[7]" for port in range(1, 20)}
    readings = pl.DataFrame(schema=READINGS)
    result = ill_links(frame, readings, changes_of(events or []), peers)
    return result.to_dicts()


def test_a_slower_link_stands_out_of_its_kind() -> None:
    (link,) = ill(ports(capacity_gbps=[100.0, 100.0, 25.0, 100.0]))
    assert link["what"] == "25 Gb/s, where 3 of its 4 equivalents have 100"
    assert link["link"] == "leaf[3] → spine3[7]" and link["lost_gbps"] == 75.0


@pytest.mark.parametrize("rates", [[100.0, 100.0, 25.0, 25.0], [100.0, 25.0, 100.0]])
def test_mixed_or_few_rates_tell_nothing(rates: list[float]) -> None:
    assert ill(ports(capacity_gbps=rates)) == []


def test_a_link_beside_busy_ones_is_idle() -> None:
    (link,) = ill(ports(utilization=[0.5, 0.55, 0.1, 0.6]))
    assert link["signs"] == ["idle"] and link["lost_gbps"] == pytest.approx(45)
    assert link["what"] == "carries 10 %, where its 3 equivalents carry 50 % to 60 %"


@pytest.mark.parametrize("used", [[0.5, 0.3, 0.2, 0.6], [0.04, 0.05, 0.001, 0.04], [0.5, 0.1, 0.5]])
def test_uneven_or_light_load_is_not_idle(used: list[float]) -> None:
    assert ill(ports(utilization=used)) == []


def event(time_s: int, what: str, port: int, peer: str, **facts: Any) -> dict[str, Any]:
    return {
        "time_ns": time_s * SECOND,
        "what": what,
        "node_name": "leaf",
        "port": port,
        "peer_name": peer,
        "peer_port": 7,
        "gbps": 100.0,
        **facts,
    }


def test_a_link_that_came_back_flapped() -> None:
    down, up = event(2, "link down", 1, "spine1"), event(6, "link up", 1, "spine1")
    (link,) = ill(ports(port=[1]), [down, up])
    assert link["what"] == "went down once, for 4 s" and link["since_ns"] == 2 * SECOND


def test_a_recabled_link_is_not_down() -> None:
    moved = event(6, "recabled", 2, "spine1", before="leaf[1]", after="spine1[7]")
    assert ill(ports(port=[1]), [event(2, "link down", 1, "spine1"), moved]) == []


def test_what_came_back_is_not_lost() -> None:
    lost = {"time_ns": SECOND, "what": "switch lost", "node_name": "spine9", "links": 4}
    (link,) = ill(ports(port=[1]), [lost])
    assert (link["link"], link["what"]) == ("spine9", "lost, with 4 links")
    back = {**lost, "time_ns": 2 * SECOND, "what": "switch found", "after": "back"}
    assert ill(ports(port=[1]), [lost, back]) == []


def test_either_end_mutes_a_link() -> None:
    frame = ports(capacity_gbps=[100.0, 100.0, 25.0, 100.0])
    result = pl.DataFrame(ill(frame), schema_overrides={"port": pl.UInt16})
    for name in ("leaf", "leaf[3]", "spine3", "spine3[7]"):
        assert without(result, [name])[0].is_empty(), name
    assert without(result, ["leaf[1]"])[0].height == 1


def test_page_of_undated_counters_has_no_dates(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.html", ROOT / "examples"
    files = [str(folder / "counters" / f"leaf06-12h0{minute}.txt") for minute in (0, 1)]
    fabric = str(folder / "demo" / "fabric.ibnetdiscover")
    command = ["counters", *files, "--every", "60 s", "--fabric", fabric, "--html", str(page)]
    assert run(command) == 0
    assert "1 device, 60 s" in page.read_text() and "1970" not in page.read_text()


def test_page_shows_links_changes_and_course(tmp_path: Path) -> None:
    def act(subnet: FakeSubnet) -> None:
        unplugged(subnet)
        subnet.devices[0x1001].name = b"<i>switch1</i>"
        subnet.devices[0x1000].ports[4].wait += 800_000

    folder, page = collected(tmp_path / "c", act), tmp_path / "week.html"
    assert run(["counters", str(folder), "--since", "7 d", "--html", str(page)]) == 0
    text = page.read_text()
    for part in ("switch1[1] → host1-0 HCA-1[1] is down", "Links that need a hand", "link down"):
        assert part in text
    assert "switch0[4] → &lt;i&gt;switch1&lt;/i&gt;[3]" in text
    # Cells below a hundredth are empty, and a port without others has no course.
    assert text.count("<rect") >= text.count('class="course"') >= 1
    assert "<script" not in text and "<i>" not in text
