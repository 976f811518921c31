"""Ranks against measured time: sums in windows that are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.evidence import measure
from tailback.report import FigureData, draw, make_case
from tailback.report.linked_views import ranks_data
from tailback.report.packing import Packer
from tailback.report.rank_timeline import OTHER_CALLS, RankTimeline, rank_timeline
from tests.factories.evidence_traces import collective, late_sender, receive, send
from tests.factories.otf2_traces import Build, writing
from tests.factories.report_data import make_run

US = 10**6


@pytest.fixture
def write(tmp_path: Path) -> Build:
    return writing(tmp_path)


def tables(path: Path) -> dict[str, pl.DataFrame]:
    return measure(path, environment={}).tables


def made(timeline: RankTimeline | None) -> RankTimeline:
    assert timeline is not None
    # Whatever the trace: every picosecond of every rank is in one window under one kind.
    window = np.diff(timeline.edges_ps)
    np.testing.assert_array_equal(timeline.spent_ps.sum(axis=0), window * timeline.ranks[:, None])
    return timeline


def spent(timeline: RankTimeline, kind: str, row: int) -> list[int]:
    """Microseconds of a kind in each window; none where it does not occur."""
    if kind not in timeline.kinds:
        return [0] * (len(timeline.edges_ps) - 1)
    out = timeline.spent_ps[timeline.kinds.index(kind), row] / US
    return [round(float(value), 3) for value in out]  # type: ignore[misc]


def test_a_recording_without_calls_inside_has_no_error(write: Build) -> None:
    """A program that ends after MPI_Init has a time course, too."""
    run_tables = tables(write(late_sender()))
    empty = {name: run_tables[name].clear() for name in ("calls", "waits")}
    made(rank_timeline({**run_tables, **empty}, windows=4))


def test_a_late_sender_window_by_window(write: Build) -> None:
    timeline = made(rank_timeline(tables(write(late_sender())), windows=4))
    # 3004 µs in four windows of 751 µs.
    assert timeline.edges_ps.tolist() == [0, 751 * US, 1502 * US, 2253 * US, 3004 * US]
    # Rank 1 enters its receive at 1 µs, rank 0 its send at 3001 µs.
    assert spent(timeline, "late_sender", 1) == [750, 751, 751, 748]
    # From 3001 to 3003 µs the message is on its way; the barriers end 1 µs after they begin.
    assert spent(timeline, "transfer", 1)[3] == 2 + 1
    # Rank 0 computes from 1 to 3001 µs and from the end of its send, 3001.5 µs, to 3003 µs.
    assert spent(timeline, "computation", 0) == [750, 751, 751, 748 + 1.5]
    assert spent(timeline, "transfer", 0)[3] == 0.5 + 1
    assert timeline.hosts == ["", ""] and timeline.first_rank.tolist() == [0, 1, 2]
    # The receive is the longest call of rank 1 in every window, rank 0 only computes in two.
    assert [timeline.calls[call] for call in timeline.call[1]] == ["MPI_Recv"] * 4
    assert timeline.call[0].tolist()[1:3] == [-1, -1]
    assert timeline.posted_ps.tolist() == [3001 * US]


def test_a_collective_has_a_wait_at_each_end(write: Build) -> None:
    enters, leaves = (1_000, 2_001_000, 501_000), (2_002_000, 2_002_000, 2_302_000)
    scripts = [
        [
            *collective(0, 1_000),
            *collective(enter, leave, "ALLREDUCE"),
            *collective(2_400_000, 2_401_000),
        ]
        for enter, leave in zip(enters, leaves, strict=True)
    ]
    timeline = made(rank_timeline(tables(write(scripts)), windows=1))
    # Rank 2 waits from 501 to 2001 µs for rank 1, and leaves 300 µs after the others.
    assert spent(timeline, "wait_nxn", 2) == [1500]
    assert spent(timeline, "nxn_completion", 2) == [300]
    # The rest of its 1801 µs, and two barriers of 1 µs.
    assert spent(timeline, "transfer", 2) == [1 + 2]
    halves = made(rank_timeline(tables(write(scripts)), windows=2))
    # Half of 2401 µs is 1200.5 µs.
    assert spent(halves, "wait_nxn", 2) == [1200.5 - 501, 2001 - 1200.5]
    assert spent(halves, "nxn_completion", 2) == [0, 300]


def test_time_without_a_record_is_no_computation(write: Build) -> None:
    # Recording is off from 1 to 9 µs on both ranks.
    from otf2.enums import MeasurementMode

    off = [
        (2_000, "measurement_on_off", MeasurementMode.OFF),
        (8_000, "measurement_on_off", MeasurementMode.ON),
    ]
    path = write([[*collective(0, 1_000), *off, *collective(9_000, 10_000)]] * 2)
    timeline = made(rank_timeline(tables(path), windows=1))
    assert spent(timeline, "not_recorded", 0) == [8]
    assert spent(timeline, "computation", 0) == [0]


def test_a_ranks_sums_are_its_split(write: Build) -> None:
    read = tables(write(late_sender()))
    timeline = made(rank_timeline(read, windows=7))
    # Imbalance and noise are waits; here they keep the kind they are of.
    waits = {"imbalance", "noise", "late_sender"}
    named = pl.when(pl.col("part").is_in(list(waits))).then(pl.lit("late_sender"))
    by = (
        read["split"]
        .group_by("rank", part=named.otherwise(pl.col("part")))
        .agg(pl.col("value_ps").sum())
    )
    parts = {(rank, part): value for rank, part, value in by.iter_rows() if value}
    totals = {
        (rank, kind): int(timeline.totals_ps[k, rank])
        for k, kind in enumerate(timeline.kinds)
        for rank in range(2)
        if timeline.totals_ps[k, rank]
    }
    assert totals == parts


def test_many_ranks_stand_in_groups_of_neighbours(write: Build) -> None:
    read = tables(write([list(collective(0, 1_000)) for _ in range(7)]))
    hosts = read["hosts"].with_columns(host=pl.format("n{}", pl.col("rank")))
    timeline = made(rank_timeline(read | {"hosts": hosts}, windows=1, rows=3))
    # Three in a row are the fewest that make three rows of seven ranks.
    assert timeline.first_rank.tolist() == [0, 3, 6, 7]
    assert timeline.hosts == ["n0 … n2", "n3 … n5", "n6"]
    assert timeline.spent_ps.sum(axis=(0, 2)).tolist() == [3 * US, 3 * US, US]


def test_calls_beyond_those_that_are_named(write: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailback.report.rank_timeline.CALLS_NAMED", 1)
    timeline = made(rank_timeline(tables(write(late_sender())), windows=4))
    assert timeline.calls == ["MPI_Recv", OTHER_CALLS]
    assert timeline.call[0].tolist() == [1, -1, -1, 1]


def test_nothing_to_draw_without_time(write: Build) -> None:
    read = tables(write(late_sender()))
    none = read["hosts"].with_columns(end_ps=pl.col("start_ps"))
    assert rank_timeline(read | {"hosts": none}) is None


def test_messages_join_windows_to_the_expected_run(write: Build) -> None:
    run = make_run()
    posts = run.tables["messages"]["post_ps"].sort()
    timeline = made(rank_timeline(tables(write(late_sender())), windows=4))
    # One message here, 952 there: no place is told.
    assert timeline.expected_ps(run) is None
    n = len(posts)
    # As many, one each picosecond from the second window on: a quarter of them in each 100 ps.
    same = replace(timeline, edges_ps=np.array([0, 100, 200, 300]), posted_ps=100 + np.arange(n))
    places = same.expected_ps(run)
    assert places is not None
    assert places.tolist() == [0, posts[0], posts[100], run.elapsed_ps]


def test_what_the_viewer_is_handed(write: Build) -> None:
    run = make_run()
    read = tables(write(late_sender()))
    timeline = made(rank_timeline(read, windows=4))
    packer = Packer()
    meta = ranks_data(packer, timeline, FigureData(run), [run])
    assert meta["expected_ps"] == [None]
    assert [kind["name"] for kind in meta["kinds"] if kind["wait"]] == ["late sender"]
    late = next(kind for kind in meta["kinds"] if kind["wait"])
    assert late["cells"]["n"] == late["total_ps"]["n"] * 4 == 8
    assert make_case(run, None, measured=read).ranks is not None
    assert make_case(run, None).ranks is None


def test_the_figure_for_paper(write: Build) -> None:
    run = make_run()
    drawn = draw("rank_timeline", make_case(run, None, measured=tables(write(late_sender()))))
    assert drawn is not None
    assert "measured time" in drawn.axes[0].get_xlabel()
    names = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert names == ["computation", "late sender", "transfer (rest inside MPI)"]
    assert draw("rank_timeline", make_case(run, None)) is None


def test_a_message_to_a_rank_that_receives_late(write: Build) -> None:
    first, last = collective(0, 1_000), collective(4_003_000, 4_004_000)
    timeline = made(
        rank_timeline(
            tables(
                write(
                    [
                        [*first, *send(1_000, 2_002_000, to=1), *last],
                        [*first, *receive(2_001_000, 2_002_000, source=0), *last],
                    ]
                )
            ),
            windows=2,
        )
    )
    # From 1 to 2001 µs, all of it before 2002 µs, the middle of the measured time.
    assert spent(timeline, "late_receiver", 0) == [2000, 0]
