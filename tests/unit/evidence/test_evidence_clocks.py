"""Clocks: OTF2's own offsets, offsets and drifts found from messages, repair of the rest."""

from __future__ import annotations

import csv
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.evidence import clocks as clocks_module
from tailback.evidence import measure
from tailback.evidence.causality import correct
from tailback.evidence.clocks import ClockConstraints, constraints, solve
from tailback.traffic.readers.otf2.reader import find_anchor, load
from tailback.traffic.readers.otf2.times import record
from tailback.traffic.readers.recorded_run import RecordedRun
from tests.factories.evidence_traces import Script, collective, late_sender, receive, send, shifted
from tests.factories.otf2_traces import EZTRACE16, Build, writing
from tests.factories.public_data import real

MS = 10**9
US = 10**6


@pytest.fixture
def write(tmp_path: Path) -> Build:
    return writing(tmp_path)


def recorded(path: Path) -> RecordedRun:
    anchor = find_anchor(path)
    return record(load(anchor), anchor)


def early(bounds: ClockConstraints) -> int:
    """By how much the earliest message is received before it can be, picoseconds."""
    return int(max(-bounds.slack_ps.min(initial=0), 0))


def ping_pong(times: list[int], clock: np.ndarray | None = None) -> list[Script]:
    """Rank 0 sends to 1 and 1 back; each message takes 2 µs; rank 1's clock may be another one."""
    scripts: list[Script] = [[], []]
    for time in times:
        there = [time, time + 1_000, time + 2_000, time + 3_000, time + 4_000, time + 5_000]
        scripts[0] += [*send(there[0], there[1], to=1), *receive(there[1], there[5], source=1)]
        theirs = there if clock is None else (np.array(there) + np.interp(there, times, clock))
        back = [int(value) for value in theirs]
        scripts[1] += [*receive(back[0], back[2], source=0), *send(back[3], back[4], to=0)]
    return scripts


def test_offsets_that_the_tracer_recorded_are_applied(write: Build) -> None:
    plain = write(late_sender())
    # Rank 1 is 1 ms ahead and gains 0.1 %: -1 ms must be added, and more later.
    ahead = [(time + 1_000_000 + time // 1_000, *call) for time, *call in late_sender()[1]]
    last = ahead[-1][0]
    true_last = late_sender()[1][-1][0]
    offsets = [[(0, 0), (true_last, 0)], [(1_000_000, -1_000_000), (last, true_last - last)]]
    corrected = write([late_sender()[0], ahead], offsets=offsets)
    a, b = measure(plain, environment={}), measure(corrected, environment={})
    assert b.measured.clocks.recorded_offsets == 4
    assert a.measured.clocks.recorded_offsets == 0
    enter_a, enter_b = (run.tables["calls"]["enter_ps"].to_numpy() for run in (a, b))
    assert np.abs(enter_a - enter_b).max() <= 2_000
    assert b.measured.clocks.unit == "none"


def test_a_shifted_clock_gives_the_true_waits(write: Build) -> None:
    scripts = late_sender()
    true = measure(write(scripts), environment={}).measured
    path = write([scripts[0], shifted(scripts[1], 7_000_000)])
    run = measure(path, environment={})
    measured = run.measured
    assert measured.clocks.unit == "rank"
    assert measured.clocks.violated > 0
    assert measured.clocks.left == 0
    offset = run.tables["hosts"]["offset_ps"].to_list()
    # The barriers take 1 µs and a message 0.1 µs at least: the offset is open by 0.9 µs either way.
    assert offset[1] - offset[0] == pytest.approx(-7 * MS, abs=900_000)
    assert measured.clocks.error_ps == pytest.approx(1_800_000, abs=10_000)
    assert measured.elapsed_ps == pytest.approx(true.elapsed_ps, abs=2 * US)
    for name in ("imbalance", "transfer", "computation"):
        assert measured.part(name) == pytest.approx(true.part(name), abs=2 * US)
    row = run.tables["waits"].filter(pl.col("kind") == "late_sender").row(0, named=True)
    assert row["low_ps"] <= 3 * MS <= row["high_ps"]


def test_a_rank_may_begin_before_the_first_clock(write: Build) -> None:
    scripts = late_sender()
    before = [(-1_000_000, *event[1:]) if event[0] == 0 else event for event in scripts[1]]
    run = measure(write([scripts[0], shifted(before, 7_000_000)]), environment={})
    assert run.measured.elapsed_ps == pytest.approx(4_004 * US, abs=2 * US)
    sums = run.tables["split"].group_by("rank").agg(pl.col("value_ps").sum())["value_ps"]
    assert set(sums.to_list()) == {run.measured.elapsed_ps}
    assert run.tables["hosts"]["start_ps"].min() == 0


def test_the_measured_time_begins_at_zero(write: Build) -> None:
    """Counters are cut to the time from 0 on: messages before or after it would be lost."""
    ahead, behind = late_sender()
    run = measure(write([shifted(ahead, 9_000_000), behind]), environment={})
    assert run.tables["hosts"]["start_ps"].min() == 0
    assert run.tables["calls"]["leave_ps"].max() <= run.measured.elapsed_ps
    assert run.tables["transfers"]["recv_enter_ps"].max() <= run.measured.elapsed_ps


def test_no_wait_is_claimed_beyond_the_clocks(write: Build) -> None:
    # The barriers leave the clocks open by 0.4 ms; the sender is 0.3 ms late.
    first, last = collective(0, 400_000), collective(800_000, 1_200_000)
    path = write(
        [
            [*first, *send(700_000, 701_000, to=1), *last],
            [*first, *receive(400_000, 799_000, source=0), *last],
        ]
    )
    run = measure(path, latency=lambda src, dst: np.zeros(len(src), np.int64), environment={})
    row = run.tables["waits"].filter(pl.col("kind") == "late_sender").row(0, named=True)
    assert (row["value_ps"], row["low_ps"]) == (0, 0)
    assert row["high_ps"] >= 300 * US
    assert run.measured.part("imbalance") == run.measured.part("late_sender") == 0


def test_hosts_have_one_clock_unless_their_ranks_disagree(write: Build) -> None:
    scripts = [[*collective(0, 1_000), *collective(2_000, 3_000)] for _ in range(4)]
    hosts = ["a", "a", "b", "b"]
    by_host = [*scripts[:2], *(shifted(script, 5_000_000) for script in scripts[2:])]
    run = measure(write(by_host, hosts=hosts), environment={})
    assert run.measured.clocks.unit == "host"
    assert run.tables["hosts"]["host"].to_list() == hosts
    offset = run.tables["hosts"]["offset_ps"].to_list()
    assert offset[0] == offset[1] and offset[2] == offset[3]
    assert offset[2] - offset[0] == pytest.approx(-5 * MS, abs=US)
    by_rank = [shifted(script, 5_000_000 * rank) for rank, script in enumerate(scripts)]
    run = measure(write(by_rank, hosts=hosts), environment={})
    assert run.measured.clocks.unit == "rank"
    offset = run.tables["hosts"]["offset_ps"].to_list()
    assert np.diff(offset) == pytest.approx([-5 * MS] * 3, abs=US)


def test_drift_is_found_where_no_offset_fits(write: Build) -> None:
    times = list(range(0, 2 * 10**9, 10**7))
    # 20 millionths over 2 s: 40 µs, where a message leaves 2 µs.
    scripts = ping_pong(times, clock=3_000_000 + 2e-5 * np.array(times))
    trace = recorded(write(scripts))
    clocks = solve(constraints(trace), 2, None, 1_000)
    assert clocks.violated > 0 and clocks.left == 0
    assert clocks.drift[1] - clocks.drift[0] == pytest.approx(-2e-5, abs=2e-6)
    moved, repair = correct(trace, clocks)
    assert repair.moved == 0
    assert early(constraints(moved)) <= 1_000
    assert measure(write(scripts), environment={}).measured.clocks.drifting


def test_what_neither_offset_nor_drift_mends_is_repaired(write: Build) -> None:
    times = list(range(0, 10**8, 10**6))
    jump = np.zeros(len(times))
    jump[40:60] = 300_000
    trace = recorded(write(ping_pong(times, clock=jump)))
    clocks = solve(constraints(trace), 2, None, 1_000)
    assert clocks.left > 0
    moved, repair = correct(trace, clocks)
    assert repair.left == 0
    assert repair.moved > 0
    assert early(constraints(moved)) <= 2
    calls = moved.calls
    same = calls.rank[1:] == calls.rank[:-1]
    assert (calls.enter_ps <= calls.leave_ps).all()
    assert (calls.leave_ps[:-1] <= calls.enter_ps[1:])[same].all()
    report = measure(write(ping_pong(times, clock=jump)), environment={}).measured.clocks
    assert report.repaired == clocks.left
    assert report.largest_repair_ps > 0
    assert report.left == 0


@pytest.mark.parametrize("ahead_ps", [-20 * MS, 20 * MS])
def test_ranks_of_one_way_messages_start_together(ahead_ps: int) -> None:
    """Nothing comes back, so messages bound the second clock from one side only."""
    sent = np.arange(100 * MS, 200 * MS, 10 * MS)
    ranks = np.zeros(len(sent), np.int64), np.ones(len(sent), np.int64)
    received = sent + 5 * MS + ahead_ps
    messages = ClockConstraints(*ranks, sent, received, np.full(len(sent), US))
    started = np.array([99 * MS, 99 * MS + ahead_ps])
    clocks = solve(messages, 2, None, 1_000, started_ps=started)
    if ahead_ps > 0:  # Without a violation, clocks are used as recorded.
        assert clocks.unit == "none"
        return
    np.testing.assert_allclose(np.diff(clocks.offset_ps), -ahead_ps, atol=US)
    unknown = solve(messages, 2, None, 1_000)
    np.testing.assert_allclose(np.diff(unknown.offset_ps), -ahead_ps - 5 * MS, atol=2 * US)


def test_messages_bound_a_common_start() -> None:
    """A rank that starts late stays late where messages in both directions show it."""
    sent = np.arange(100 * MS, 200 * MS, 10 * MS)
    back = sent + 2 * US - 20 * MS
    first, second = np.zeros(len(sent), np.int64), np.ones(len(sent), np.int64)
    messages = ClockConstraints(
        np.concatenate([first, second]),
        np.concatenate([second, first]),
        np.concatenate([sent, back]),
        np.concatenate([back, sent + 4 * US]),
        np.full(2 * len(sent), US),
    )
    started = np.array([90 * MS, 75 * MS])
    clocks = solve(messages, 2, None, 1_000, started_ps=started)
    np.testing.assert_allclose(np.diff(clocks.offset_ps), 20 * MS, atol=2 * US)


def test_bounds_through_one_clock_hold_all_pairs(
    write: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    shift = [0, *rng.integers(-9_000_000, 9_000_000, 5).tolist()]
    scripts: list[Script] = [[] for _ in shift]
    time = 10_000_000
    for _ in range(20):
        enter = time + rng.integers(0, 3_000, len(shift))
        time = int(enter.max()) + 1_000
        for rank, script in enumerate(scripts):
            script += shifted(collective(int(enter[rank]), time + 300 * rank), shift[rank])
        time += 20_000
    bounds = constraints(recorded(write(scripts)))
    dense = solve(bounds, 6, None, 1_000)
    monkeypatch.setattr(clocks_module, "_MATRIX", 2)
    star = solve(bounds, 6, None, 1_000)
    assert dense.left == star.left == 0
    for clocks in (dense, star):
        assert clocks.offset_ps - clocks.offset_ps[0] == pytest.approx(
            -np.array(shift) * 1e3, abs=3 * US
        )
    a, b = (side.ravel() for side in np.meshgrid(np.arange(6), np.arange(6)))
    true = -np.array(shift) * 1e3
    for clocks in (dense, star):
        wrong = (true[b] - true[a]) - (clocks.offset_ps[b] - clocks.offset_ps[a])
        assert (wrong <= clocks.later(a, b) + 2_000).all()


@pytest.mark.data
def test_traces_with_distant_clocks_are_joined() -> None:
    report = measure(real(EZTRACE16), environment={}).measured.clocks
    assert report.unit == "rank"
    assert report.largest_offset_ps > 100 * MS
    assert report.left == 0


@pytest.mark.data
@pytest.mark.parametrize(("name", "pairs_up_to"), [("r8", 10**7), ("r9", 10**7), ("r9", 0)])
def test_offsets_hold_the_truth_within_their_bounds(
    name: str, pairs_up_to: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of large collectives only the last to enter and the first to leave are compared with all.
    monkeypatch.setattr(clocks_module, "_ALL_PAIRS", pairs_up_to)
    with tarfile.open(real(f"real-lab/{name}.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / name
    with (folder / "clock.csv").open() as file:
        zero = [float(row["trace_zero_unix_s"]) for row in csv.DictReader(file)]
    true = (np.array(zero) - zero[0]) * 1e12
    trace = recorded(folder / "trace")
    clocks = solve(constraints(trace), trace.n_ranks, None, trace.resolution_ps)
    assert clocks.unit == "rank"
    assert clocks.largest_ps > 40 * MS
    a, b = (side.ravel() for side in np.meshgrid(np.arange(16), np.arange(16)))
    wrong = (true[b] - true[a]) - (clocks.offset_ps[b] - clocks.offset_ps[a])
    # clock.csv itself is good to a microsecond or two.
    assert (wrong <= clocks.later(a, b) + 2 * US).all()
