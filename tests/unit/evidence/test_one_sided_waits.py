"""Time in one-sided calls: waits at fences are told, those in other calls are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback import diagnose
from tailback.evidence import MeasuredRun, measure
from tailback.report.rank_timeline import KINDS, rank_timeline
from tests.factories.otf2_traces import Build, writing

US = 10**6
"""Picoseconds."""

RANKS, EPOCHS, EPOCH_US = 4, 20, 1000
Script = list[tuple[Any, ...]]


@pytest.fixture
def write(tmp_path: Path) -> Build:
    return writing(tmp_path)


def during(name: str, start_us: int, end_us: int, *records: tuple[Any, ...]) -> Script:
    """One call; the clock of the traces has a resolution of a nanosecond."""
    inside = [(1000 * start_us + 1 + at, *record) for at, record in enumerate(records)]
    return [(1000 * start_us, "enter", name), *inside, (1000 * end_us, "leave", name)]


def epoch(rank: int, turn: int, computing_us: int, window: str = "window") -> Script:
    """Compute, put to the next rank, and fence until the end of the epoch."""
    begin = 10 + turn * EPOCH_US
    enter = begin + computing_us
    put = ("rma_put", window, (rank + 1) % RANKS, 8000, turn)
    return [
        *during("MPI_Put", enter, enter + 2, put),
        *during("MPI_Win_fence", enter + 2, begin + EPOCH_US),
    ]


def fenced(late: int | None, **options: Any) -> list[Script]:
    """Epochs in which one rank, or nobody, computes for 900 µs and the others for 180 µs."""
    return [
        during("MPI_Win_fence", 0, 10)
        + [
            event
            for turn in range(EPOCHS)
            for event in epoch(rank, turn, 900 if rank == late else 180, **options)
        ]
        for rank in range(RANKS)
    ]


def exposed() -> list[Script]:
    """Post, start, put, complete and wait, most of the time in waiting."""
    return [
        [
            event
            for turn in range(EPOCHS)
            for begin in [turn * EPOCH_US]
            for event in (
                *during("MPI_Win_post", begin, begin + 1),
                *during("MPI_Win_start", begin + 200, begin + 201),
                *during(
                    "MPI_Put",
                    begin + 201,
                    begin + 203,
                    ("rma_put", "window", (rank + 1) % RANKS, 8000, turn),
                ),
                *during("MPI_Win_complete", begin + 203, begin + 205),
                *during("MPI_Win_wait", begin + 205, begin + 990),
            )
        ]
        for rank in range(RANKS)
    ]


def written(write: Build, scripts: list[Script], **options: Any) -> Path:
    hosts = [f"n{rank}" for rank in range(RANKS)]
    windows = {"window": "MPI_COMM_WORLD", **options.pop("windows", {})}
    return write(scripts, windows=windows, creator="Score-P 8.0", hosts=hosts, **options)


def part(out: MeasuredRun, name: str) -> int:
    return out.measured.part(name)


def test_ranks_in_a_fence_wait_for_the_computing(write: Build) -> None:
    out = measure(written(write, fenced(late=0)))
    # Three of four ranks wait from 182 to 902 µs of each epoch.
    assert part(out, "imbalance") == EPOCHS * 720 * US * 3 // 4
    assert part(out, "other_mpi") == part(out, "one_sided") == 0
    assert [late.rank for late in out.measured.latecomers] == [0]


def test_unmarked_fences_match_within_one_communicator_only(
    write: Build,
) -> None:
    mixed = fenced(late=0)
    for rank, script in enumerate(mixed):
        script += epoch(rank, EPOCHS, 180, window="other")
    same = measure(written(write, mixed, windows={"other": "MPI_COMM_WORLD"}))
    assert part(same, "imbalance") > 0 and part(same, "one_sided") == 0
    apart = measure(
        written(write, mixed, comms={"all": list(range(RANKS))}, windows={"other": "all"})
    )
    assert part(apart, "imbalance") == 0 and part(apart, "one_sided") > 0


def test_recorded_fences_match_across_communicators(
    write: Build,
) -> None:
    """Two pairs of ranks, of which the second has more epochs than the first."""
    from otf2.enums import CollectiveOp, RmaSyncLevel

    scripts: list[Script] = []
    for rank in range(RANKS):
        window, epochs = ("left", EPOCHS) if rank < 2 else ("right", EPOCHS + 1)
        end = ("rma_collective_end", CollectiveOp.BARRIER, RmaSyncLevel.PROCESS, window, 0, 0, 0)
        script = during("MPI_Win_fence", 0, 10, ("rma_collective_begin",), end)
        for turn in range(epochs):
            begin = 10 + turn * EPOCH_US
            enter = begin + (900 if rank % 2 else 180)
            put = ("rma_put", window, 1 - rank % 2, 8000, turn)
            script += during("MPI_Put", enter, enter + 2, put)
            script += during(
                "MPI_Win_fence", enter + 2, begin + EPOCH_US, ("rma_collective_begin",), end
            )
        scripts.append(script)
    comms = {"a": [0, 1], "b": [2, 3]}
    path = written(write, scripts, comms=comms, windows={"left": "a", "right": "b"})
    out = measure(path)
    # One rank of each pair waits from 182 to 902 µs of each epoch.
    assert part(out, "imbalance") == (2 * EPOCHS + 1) * 720 * US // 4
    assert part(out, "one_sided") == 0
    waits = out.tables["waits"].filter(pl.col("kind") == "wait_barrier")
    pairs = set(zip(waits["rank"].to_list(), waits["partner"].to_list(), strict=True))
    assert pairs <= {(0, 1), (1, 0), (2, 3), (3, 2)}
    timeline = rank_timeline(out.tables, windows=3)
    assert timeline is not None
    drawn = dict(zip(timeline.kinds, timeline.totals_ps.sum(axis=1).tolist(), strict=True))
    assert drawn.get("one_sided", 0) == 0


def test_ranks_with_unequal_fence_counts_are_unmatched(write: Build) -> None:
    uneven = fenced(late=0)
    uneven[1] += during("MPI_Win_fence", 30_000, 30_001)
    out = measure(written(write, uneven))
    assert part(out, "imbalance") == 0 and part(out, "one_sided") > 0


def test_the_timeline_has_the_parts_of_the_split(write: Build) -> None:
    for scripts in (fenced(late=None), exposed()):
        tables = measure(written(write, scripts)).tables
        timeline = rank_timeline(tables, windows=3)
        assert timeline is not None
        sums = dict(
            tables["split"]
            .filter(pl.col("value_ps") > 0)
            .group_by("part")
            .agg(pl.col("value_ps").sum())
            .iter_rows()
        )
        drawn = dict(zip(timeline.kinds, timeline.totals_ps.sum(axis=1).tolist(), strict=True))
        assert {kind: ps for kind, ps in drawn.items() if ps} == sums
    assert "one_sided" in KINDS


@pytest.mark.parametrize("scripts", [fenced(late=None), exposed()], ids=["fenced", "exposed"])
def test_mostly_one_sided_programs_are_not_called_healthy(
    scripts: list[Script], write: Build, tmp_path: Path
) -> None:
    """820 of 1000 µs are in calls for messages that need less than a microsecond."""
    (tmp_path / "net.csv").write_text(
        "src,dst,rate_gbit\n" + "".join(f"n{rank},s,100\n" for rank in range(RANKS))
    )
    diagnosis = diagnose(written(write, scripts), fabric=tmp_path / "net.csv").diagnosis
    assert diagnosis.cause == "undetermined" and "not explained by any cause" in diagnosis.headline
    assert diagnosis.not_explained_ps > 0.7 * diagnosis.elapsed_ps
