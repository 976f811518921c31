"""What changes under a collector that runs for months, and what must not end it."""

from __future__ import annotations

import errno
import re
import threading
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tailback.cli as command_line
from tailback.cli.collect import collect
from tailback.collector import Collection, CollectorSettings, MadExchange, MetricsBoard
from tailback.collector import session as sessions
from tailback.collector.discovery import discover
from tailback.collector.readings import RAW
from tailback.collector.segments import SegmentWriter
from tailback.collector.subnet import keep_unseen, survey
from tailback.port_counters.schema import Flag
from tailback.port_counters.targets import PortTarget
from tests.factories.collect_subnet import (
    FILE,
    MS,
    FakeSubnet,
    after_sweeps,
    row_of_switches,
    session,
    table,
    unplug_after,
)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command_line.cli.commands, "collect", collect)


def quick(subnet: FakeSubnet) -> MadExchange:
    return MadExchange(subnet, timeout_ms=5, retries=1, clock=subnet.clock)


def test_an_unfinished_discovery_file_ends_no_collector(tmp_path: Path) -> None:
    subnet = row_of_switches(1, 1)
    file = tmp_path / "fabric"
    file.write_text(FILE)
    collection, lines = Collection(tmp_path / "c"), []
    settings = CollectorSettings(interval_ns=5 * MS, sweeps=4, fabric=file, rediscover_ns=1)
    subnet.devices[0x1000].lid, subnet.devices[0x2000].lid = 11, 12
    board = MetricsBoard()
    made = session(subnet, settings, collection, board, lines.append)
    after_sweeps(subnet, board, 1, lambda: file.write_text(FILE.replace("[4] ", "[4 ")))
    assert made.run().sweeps == 4
    collection.close()
    assert any("the ports are kept" in line for line in lines), lines


def found_again(
    subnet: FakeSubnet, *, hosts: bool = True
) -> tuple[set[tuple[int, int]], list[str]]:
    """Discover with everything there, then as ``subnet`` is now: the ports and the problems."""
    everything = row_of_switches(3, 1)
    targets = survey(quick(everything), discover(quick(everything))).targets
    now = keep_unseen(discover(quick(subnet), hosts=hosts), targets)
    return {(t.guid, t.port) for t in now.targets}, [problem for _, problem in now.problems]


def test_ports_behind_an_answer_that_was_lost_stay() -> None:
    everything, problems = found_again(row_of_switches(3, 1))
    assert len(everything) == 10 and problems == []
    subnet = row_of_switches(3, 1)
    subnet.devices[0x1001].dead = True
    there, problems = found_again(subnet)
    assert there == everything and "kept ports that could not be seen: 7" in problems


def test_down_ports_and_vanished_devices_are_dropped() -> None:
    everything, _ = found_again(row_of_switches(3, 1))
    subnet = row_of_switches(3, 1)
    # The cable between the second and the third switch is pulled, and all that was asked answers.
    subnet.devices[0x1001].ports[3].state = 1
    there, problems = found_again(subnet)
    assert everything - there == {(0x1001, 3), (0x1002, 1), (0x1002, 2), (0x2020, 1)}
    assert problems == []


def test_a_reassigned_address_is_asked_anew() -> None:
    subnet = row_of_switches(3, 1)
    subnet.devices[0x1002].dead = True
    subnet.devices[0x2010].lid = subnet.devices[0x1002].lid
    there, _ = found_again(subnet)
    assert (0x1002, 1) not in there and (0x2020, 1) in there


def test_a_busy_agent_is_not_left_out() -> None:
    class Busy(FakeSubnet):
        def _performance(self, device: object, attribute: int, mad: bytearray) -> None:
            mad[4:6] = b"\0\1"

    subnet = Busy(row_of_switches(1, 1).devices)
    discovery = survey(quick(subnet), discover(quick(subnet)))
    assert len(discovery.targets) == 2
    assert [problem for _, problem in discovery.problems] == 2 * ["no performance agent: busy"]


def test_a_change_elsewhere_leaves_series_without_gaps(tmp_path: Path) -> None:
    subnet = row_of_switches(2, 1)
    collection, board = Collection(tmp_path / "c"), MetricsBoard()
    settings = CollectorSettings(interval_ns=20 * MS, sweeps=8)
    made = session(subnet, settings, collection, board)
    unplug_after(2, made, subnet, board)
    made.run()
    collection.close()
    intervals = table(tmp_path / "c", "intervals")
    assert len(list((tmp_path / "c" / "intervals").iterdir())) == 2
    assert not (intervals["flags"] & int(Flag.GAP)).sum()


def test_a_hangup_between_sweeps_moves_none(tmp_path: Path) -> None:
    subnet = row_of_switches(2, 1)
    collection, board, lines = Collection(tmp_path / "c"), MetricsBoard(), []
    settings = CollectorSettings(interval_ns=300 * MS, sweeps=3)
    made = session(subnet, settings, collection, board, lines.append)
    unplug_after(1, made, subnet, board)
    made.run()
    collection.close()
    assert len([line for line in lines if "ports" in line]) == 2
    intervals = table(tmp_path / "c", "intervals").filter(pl.col("node_guid") == 0x1000)
    assert intervals["interval_ns"].min() > 299 * MS  # type: ignore[operator]
    assert intervals["interval_ns"].max() < 301 * MS  # type: ignore[operator]
    gone = table(tmp_path / "c", "readings").filter(pl.col("node_guid") == 0x1001)
    assert gone.filter(pl.col("port") == 1).height == 1, "what is gone is not asked again"


def test_readings_reach_the_disk_between_sweeps_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = SegmentWriter.sync

    def counting(segment: SegmentWriter) -> None:
        synced.append(segment.size_bytes)
        sync(segment)

    monkeypatch.setattr(SegmentWriter, "sync", counting)
    monkeypatch.setattr(sessions, "SYNC_NS", 100 * MS)
    monkeypatch.setattr(sessions, "FLUSH_NS", 0)
    collection, board = Collection(tmp_path / "c"), MetricsBoard()
    settings = CollectorSettings(interval_ns=60_000 * MS)
    subnet = row_of_switches(2, 1)
    made = session(subnet, settings, collection, board)

    subnet.clock.when(lambda: len(synced) == 2, made.stop)
    made.run()
    collection.close()
    # Once with the first reading and once with the others, while no sweep is under way.
    assert len(synced) == 2 and synced[1] > synced[0]
    assert subnet.clock.now < settings.interval_ns, "long before the next sweep"


def test_a_port_without_the_counter_has_no_sample(tmp_path: Path) -> None:
    subnet = row_of_switches(1, 1)
    subnet.devices[0x1000].mask = 0x0300
    collection, board = Collection(tmp_path / "c"), MetricsBoard()
    session(subnet, CollectorSettings(interval_ns=MS, sweeps=2), collection, board).run()
    collection.close()
    waits = [line for line in board.metrics().splitlines() if "_wait_ticks_total{" in line]
    assert len(waits) == 1 and 'guid="0x0000000000002000"' in waits[0]


def test_nobody_who_reads_the_news_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = import_module("tailback.cli.collect")
    echo = module.click.echo

    def closed(message: str, err: bool = False) -> None:
        if err:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        echo(message)

    monkeypatch.setattr(module, "UmadPort", lambda *_: row_of_switches(1, 1))
    monkeypatch.setattr(module.click, "echo", closed)
    arguments = ["--out", str(tmp_path / "c"), "--sweeps", "1", "--metrics", "0"]
    assert command_line.run(["collect", *arguments]) == 0
    assert "2 devices, 2 ports; 1 sweep, 2 readings, 0 failed" in capsys.readouterr().out


def test_a_silent_port_leaves_the_metrics_until_answering() -> None:
    def ports(board: MetricsBoard) -> set[str]:
        return set(re.findall(r'tailback_port_stall_ratio\{guid="(0x[0-9a-f]+)"', board.metrics()))

    board = MetricsBoard()
    board.begin([PortTarget(g, f"n{g}", True, 1, g, 10.0, 22.0, "given") for g in (1, 2)])
    both, first = {f"0x{g:016x}" for g in (1, 2)}, {f"0x{1:016x}"}
    shown = []
    for sweep in range(8):
        rows = np.zeros(2 if sweep < 2 or sweep == 7 else 1, RAW)
        rows["target"] = np.arange(len(rows))
        rows["time_ns"], rows["wait"] = 10**9 * (sweep + 1), 10**6 * sweep * (1 + rows["target"])
        board.update(rows)
        board.sweeps = sweep + 1
        shown.append(ports(board))
        named = {agent.target.guid for agent in board.worst(5)}
        assert named == {int(guid, 16) for guid in shown[-1]}
    # Two sweeps with both, two that may have been missed, and the third in a row is one too many.
    assert shown == [set(), both, both, both, first, first, first, both]


def test_a_full_table_disk_ends_no_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, refused = threading.Event(), threading.Event()
    full.set()
    write = pl.DataFrame.write_parquet

    def writing(frame: pl.DataFrame, file: Path, **options: object) -> None:
        if full.is_set():
            refused.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        write(frame, file, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pl.DataFrame, "write_parquet", writing)
    monkeypatch.setattr(sessions, "FLUSH_NS", 0)
    collection, board, lines = Collection(tmp_path / "c"), MetricsBoard(), []
    settings = CollectorSettings(interval_ns=20 * MS, sweeps=12, roll_ns=40 * MS)
    subnet = row_of_switches(1, 1)
    made = session(subnet, settings, collection, board, lines.append)

    def make_room() -> None:
        # Tables are written on a thread of their own, which need not have come to it yet.
        assert refused.wait(60)
        full.clear()

    after_sweeps(subnet, board, 8, make_room)
    summary = made.run()
    collection.close()
    assert summary.sweeps == 12 and collection.segments() == []
    assert any("segments are not converted" in line and "No space" in line for line in lines), lines
    assert table(tmp_path / "c", "readings").height == summary.readings == 24
    assert table(tmp_path / "c", "intervals").height == 22


@pytest.mark.slow
def test_a_dead_device_is_reported_once_each_time(tmp_path: Path) -> None:
    subnet = row_of_switches(3, 2)
    board, collection, lines = MetricsBoard(), Collection(tmp_path / "c"), []
    made = session(
        subnet, CollectorSettings(interval_ns=500 * MS, sweeps=60), collection, board, lines.append
    )
    dead = subnet.devices[0x1002]
    after_sweeps(subnet, board, 2, lambda: setattr(dead, "dead", True))
    after_sweeps(subnet, board, 50, lambda: setattr(dead, "dead", False))
    summary = made.run()
    collection.close()
    reports = [line for line in lines if "switch2" in line]
    assert len(reports) == 2
    assert reports[0].startswith("'switch2': reads failed (") and "timeout" in reports[0]
    assert reports[1] == f"'switch2' answers again: {summary.failed} readings failed meanwhile"
    assert summary.failed == 48 * 3 == board.failed["switch2"]


HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize("step_ns", [0, -HOUR_NS, HOUR_NS])
@pytest.mark.parametrize("same_boot", [True, False])
def test_clock_steps_invent_no_interval_and_blank_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_ns: int, same_boot: bool
) -> None:
    subnet = row_of_switches(1, 1)
    boards = []
    for number in range(2):
        start = 1_700_000_000 * 10**9 + number * step_ns
        monkeypatch.setattr(sessions, "_boot", lambda boot=number: 1 if same_boot else 1 + boot)
        monkeypatch.setattr(sessions.time, "time_ns", lambda start=start: start + subnet.clock.now)
        collection, board = Collection(tmp_path / "c"), MetricsBoard()
        settings = CollectorSettings(interval_ns=20 * MS, sweeps=1 if number else 3)
        session(subnet, settings, collection, board, timeout_ms=20).run()
        collection.close()
        boards.append(board)
    port = table(tmp_path / "c", "intervals").filter(node_guid=0x1000, port=1).sort("time_ns")
    across = port.filter((pl.col("flags") & int(Flag.GAP)) > 0)
    if same_boot:
        assert across.height == 1 and across["interval_ns"][0] < 100 * MS
        assert "tailback_port_stall_ratio{" in boards[1].metrics()
    else:  # nothing tells a step from the time that passed
        assert across.height == (0 if step_ns < 0 else 1)


def test_board_shows_ports_only_once_read() -> None:
    target = PortTarget(1, "n1", True, 1, 1, 100.0, 10.0, "given")
    earlier = np.zeros(1, RAW)
    earlier["time_ns"], earlier["wait"] = 1000, 5
    board = MetricsBoard()
    board.begin([target], earlier)
    assert not re.search(r"^tailback_port_", board.metrics(), re.M)
    later = earlier.copy()
    later["time_ns"], later["wait"] = 2000, 55
    board.update(later)
    assert re.search(r"^tailback_port_stall_ratio\{.*\} 0.5$", board.metrics(), re.M)
