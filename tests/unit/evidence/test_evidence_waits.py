"""Wait states and the split of the measured time, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.evidence import MeasuredRun, measure
from tests.factories.evidence_traces import collective, late_sender, receive, send
from tests.factories.otf2_traces import Build, writing

MS = 10**9
US = 10**6


@pytest.fixture
def write(tmp_path: Path) -> Build:
    return writing(tmp_path)


def run(path: Path) -> MeasuredRun:
    out = measure(path, environment={})
    sums = out.tables["split"].group_by("rank").agg(pl.col("value_ps").sum())
    # Whatever the trace: parts of every rank, and their means, are the measured time.
    assert sums["value_ps"].to_list() == [out.measured.elapsed_ps] * out.measured.n_ranks
    assert sum(part.ps for part in out.measured.parts) == out.measured.elapsed_ps
    for part in out.measured.parts:
        assert part.low_ps <= part.ps <= part.high_ps
    return out


def part(out: MeasuredRun, rank: int, name: str) -> int:
    rows = out.tables["split"].filter((pl.col("rank") == rank) & (pl.col("part") == name))
    return int(rows["value_ps"].sum())


def waits(out: MeasuredRun, kind: str) -> dict[int, int]:
    rows = out.tables["waits"].filter((pl.col("kind") == kind) & (pl.col("value_ps") > 0))
    return dict(rows.select("rank", "value_ps").iter_rows())


def test_a_receive_waits_for_a_sender_that_computes(write: Build) -> None:
    out = run(write(late_sender()))
    # Enter of the send, 3.001 ms, less enter of the receive, 0.001 ms.
    assert waits(out, "late_sender") == {1: 3 * MS}
    assert out.measured.elapsed_ps == 3_004 * US
    # The sender computed 3 ms more since the barrier: that is what the receiver waited for.
    assert part(out, 1, "imbalance") == 3 * MS
    assert part(out, 1, "late_sender") == 0
    assert part(out, 0, "computation") == 3 * MS + 1_500_000
    assert out.measured.latecomers[0].rank == 0
    assert out.measured.latecomers[0].waited_ps == 3 * MS
    # A barrier of 1 µs and a least latency of 0.1 µs leave the clocks open by 0.9 µs either way.
    row = out.tables["waits"].filter(pl.col("kind") == "late_sender").row(0, named=True)
    assert (row["low_ps"], row["high_ps"]) == (3 * MS - 900_000, 3 * MS + 900_000)


def test_a_sender_delayed_in_mpi_is_late(write: Build) -> None:
    # Rank 0 is in a send to rank 2 for 3 ms before it sends to rank 1.
    first, last = collective(0, 1_000), collective(3_003_000, 3_004_000)
    out = run(
        write(
            [
                [*first, *send(1_000, 3_001_000, to=2), *send(3_001_000, 3_001_500, to=1), *last],
                [*first, *receive(1_000, 3_003_000, source=0), *last],
                [*first, *receive(1_000, 3_001_000, source=0), *last],
            ]
        )
    )
    assert waits(out, "late_sender") == {1: 3 * MS}
    assert part(out, 1, "late_sender") == 3 * MS
    assert part(out, 1, "imbalance") == 0
    assert part(out, 0, "transfer") + part(out, 0, "wait_barrier") >= 3 * MS


def test_a_send_waits_for_its_receive_unless_gone(write: Build) -> None:
    first, last = collective(0, 1_000), collective(4_003_000, 4_004_000)
    receiver = [*first, *receive(2_001_000, 2_002_000, source=0), *last]
    held = run(write([[*first, *send(1_000, 2_002_000, to=1), *last], receiver]))
    assert waits(held, "late_receiver") == {0: 2 * MS}
    eager = run(write([[*first, *send(1_000, 2_000_000, to=1), *last], receiver]))
    assert waits(eager, "late_receiver") == {}


def test_members_of_an_allreduce_wait_for_the_last(write: Build) -> None:
    enters, leaves = (1_000, 2_001_000, 501_000), (2_002_000, 2_002_000, 2_302_000)
    out = run(
        write(
            [
                [
                    *collective(0, 1_000),
                    *collective(enter, leave, "ALLREDUCE"),
                    *collective(2_400_000, 2_401_000),
                ]
                for enter, leave in zip(enters, leaves, strict=True)
            ]
        )
    )
    assert waits(out, "wait_nxn") == {0: 2 * MS, 2: 1_500 * US}
    assert waits(out, "nxn_completion") == {2: 300 * US}
    # All of the waiting is for computation of rank 1: (2 + 1.5 + 0) / 3 ms.
    assert out.measured.part("imbalance") == pytest.approx(3_500 * US / 3, abs=1)
    assert out.measured.wait_states["wait_nxn"] == 3_500 * US // 3
    # Computation of 0, 2 and 0.5 ms, and 0.398, 0.398 and 0.098 ms before the last barrier.
    useful = np.array([398, 2_398, 598]) * US
    assert out.measured.efficiency.load_balance == pytest.approx(useful.mean() / useful.max())
    assert out.measured.efficiency.communication == pytest.approx(2_398 / 2_401)
    assert out.measured.efficiency.parallel == pytest.approx(useful.mean() / (2_401 * US))


def test_the_root_counts_in_broadcast_and_reduction(write: Build) -> None:
    first, last = collective(0, 1_000), collective(9_000_000, 9_001_000)
    enters = (3_001_000, 1_000, 2_001_000)
    broadcast = run(
        write([[*first, *collective(enter, 3_002_000, "BCAST", root=0), *last] for enter in enters])
    )
    assert waits(broadcast, "late_broadcast") == {1: 3 * MS, 2: 1 * MS}
    reduction = run(
        write(
            [[*first, *collective(enter, 3_002_000, "REDUCE", root=1), *last] for enter in enters]
        )
    )
    assert waits(reduction, "early_reduce") == {1: 3 * MS}


def test_early_ends_are_separate_from_late_starts(write: Build) -> None:
    first = collective(0, 1_000)
    out = run(
        write(
            [
                [*first, *send(1_000, 2_000, to=1)],
                [*first, *receive(1_000, 4_002_000, source=0)],
            ]
        )
    )
    # Rank 0 ends 4 ms before rank 1.
    assert part(out, 0, "not_running") == 4 * MS == out.measured.part("not_running") * 2
    assert out.measured.ended_early_ps == 2 * MS and out.measured.outside_model_ps == 0


def iterations(compute: Any, n: int = 10, ranks: int = 4) -> list[list[tuple[Any, ...]]]:
    """Computation of `compute(rank, iteration)` µs, then a barrier that takes 1 µs."""
    scripts = [list(collective(0, 1_000)) for _ in range(ranks)]
    time = 1_000
    for turn in range(n):
        enters = [time + 1_000 * compute(rank, turn) for rank in range(ranks)]
        time = max(enters) + 1_000
        for script, enter in zip(scripts, enters, strict=True):
            script += collective(enter, time)
    return scripts


def test_imbalance_comes_again_and_noise_does_not(write: Build) -> None:
    uneven = run(write(iterations(lambda rank, turn: 3_000 if rank == 2 else 1_000)))
    # Three of four ranks wait 2 ms in each of ten iterations.
    assert uneven.measured.part("imbalance") == 10 * 3 * 2 * MS // 4
    assert uneven.measured.part("noise") == 0
    assert [late.rank for late in uneven.measured.latecomers] == [2]
    assert uneven.measured.latecomers[0].waited_ps == 60 * MS
    # It computes three times as long as the median rank.
    assert uneven.measured.latecomers[0].excess_ps == 20 * MS
    assert uneven.measured.slow_rank_waits_ps == 10 * 3 * 2 * MS // 4
    jitter = run(write(iterations(lambda r, turn: 6_000 if (r, turn) == (1, 4) else 1_000)))
    # Once three ranks wait 5 ms.
    assert jitter.measured.part("noise") == 3 * 5 * MS // 4
    assert jitter.measured.part("imbalance") == 0
    # In all it computes half as long again as the median rank, but it is not slow.
    assert jitter.measured.slow_rank_waits_ps == 0
    turns = run(write(iterations(lambda r, turn: 3_000 if r == turn % 4 else 1_000, 8)))
    assert turns.measured.part("imbalance") + turns.measured.part("noise") > 0
    assert turns.measured.slow_rank_waits_ps == 0
    # What takes longer on all ranks at once is neither.
    together = run(write(iterations(lambda r, turn: 6_000 if turn == 4 else 1_000)))
    assert together.measured.part("noise") == together.measured.part("imbalance") == 0


def test_a_wait_is_traced_to_the_computing_rank(write: Build) -> None:
    # Rank 0 computes 3 ms; rank 1 waits for it, and rank 2 for rank 1.
    first, last = collective(0, 1_000), collective(3_010_000, 3_011_000)
    out = run(
        write(
            [
                [*first, *send(3_001_000, 3_002_000, to=1), *last],
                [
                    *first,
                    *receive(1_000, 3_003_000, source=0),
                    *send(3_003_000, 3_004_000, to=2),
                    *last,
                ],
                [*first, *receive(1_000, 3_005_000, source=1), *last],
            ]
        )
    )
    assert waits(out, "late_sender") == {1: 3 * MS, 2: 3_002 * US}
    assert part(out, 1, "imbalance") == 3 * MS
    assert part(out, 2, "imbalance") == pytest.approx(3 * MS, abs=3 * US)
    assert part(out, 2, "late_sender") == pytest.approx(2 * US, abs=3 * US)
    assert [late.rank for late in out.measured.latecomers] == [0]


def test_waiting_for_a_slow_transfer_is_no_imbalance(write: Build) -> None:
    # Each iteration rank 1 receives for 8 ms, then all compute 2 ms, then they reduce.
    scripts: list[list[tuple[Any, ...]]] = [list(collective(0, 1_000)) for _ in range(3)]
    time = 1_000
    for _ in range(5):
        scripts[0] += send(time, time + 1_000, to=1)
        scripts[1] += receive(time, time + 8_000_000, source=0)
        done = (1_000, 8_000_000, 0)
        end = time + 10_002_000
        for script, after in zip(scripts, done, strict=True):
            script += collective(time + after + 2_000_000, end, "ALLREDUCE")
        time = end
    out = run(write(scripts))
    assert part(out, 2, "wait_nxn") == 5 * 8 * MS
    assert out.measured.part("imbalance") == 0
    assert part(out, 1, "transfer") >= 5 * 8 * MS - 5 * 2 * US


def test_dataless_calls_and_pauses_have_their_parts(write: Build) -> None:
    from otf2.enums import MeasurementMode

    script = [
        *collective(0, 1_000),
        (1_000, "enter", "MPI_Cart_create"),
        (501_000, "leave", "MPI_Cart_create"),
        (600_000, "measurement_on_off", MeasurementMode.OFF),
        (700_000, "measurement_on_off", MeasurementMode.ON),
        *collective(801_000, 802_000),
    ]
    out = run(write([script, script]))
    assert part(out, 0, "other_mpi") == 500 * US
    assert part(out, 0, "not_recorded") == 300 * US
    assert part(out, 0, "computation") == 0


def test_the_measured_time_lies_between_init_and_finalize(write: Build) -> None:
    script = [
        (0, "enter", "MPI_Init"),
        (900_000, "leave", "MPI_Init"),
        *collective(1_000_000, 1_001_000),
        (1_101_000, "enter", "MPI_Finalize"),
        (5_000_000, "leave", "MPI_Finalize"),
    ]
    out = run(write([script, script]))
    assert out.measured.elapsed_ps == 201 * US
    assert part(out, 0, "computation") == 200 * US


def dependencies(out: MeasuredRun) -> tuple[int, int]:
    """Waits for computation, and their part in chains of ranks, ps over all ranks."""
    rows = out.tables["waits"]
    computing = rows["imbalance_ps"].sum() + rows["noise_ps"].sum()
    assert out.measured.dependency_waits_ps == rows["dependency_ps"].sum() // out.measured.n_ranks
    return int(computing), int(rows["dependency_ps"].sum())


def pipeline(stages: int) -> list[list[tuple[Any, ...]]]:
    """Each stage receives, computes 1 ms and sends on; then all meet in a barrier."""
    scripts = []
    for stage in range(stages):
        ready = 1_000 + 1_000_000 * stage
        script = list(collective(0, 1_000))
        if stage:
            script += receive(1_000, ready, source=stage - 1)
        if stage + 1 < stages:
            script += send(ready + 1_000_000, ready + 1_000_500, to=stage + 1)
        enter = ready + 1_000_000 + (500 if stage + 1 < stages else 0)
        end = 1_001_000 + 1_000_000 * stages
        scripts.append([*script, *collective(enter, end)])
    return scripts


def test_stages_of_a_pipeline_depend_on_one_another(write: Build) -> None:
    waited, chained = dependencies(run(write(pipeline(4))))
    # 1 + 2 + 3 ms in receives and as much at the end.
    assert waited == pytest.approx(12 * MS, rel=0.01)
    assert chained == waited


def test_a_pair_that_takes_turns_is_no_chain(write: Build) -> None:
    # The first computes before it sends, the second after it has received.
    waited, chained = dependencies(run(write(pipeline(2))))
    assert waited == pytest.approx(2 * MS, rel=0.01)
    assert chained == 0


def test_a_reply_depends_on_its_request(write: Build) -> None:
    first, last = collective(0, 1_000), collective(3_010_000, 3_011_000)
    out = run(
        write(
            [
                [
                    *first,
                    *send(1_000, 2_000, to=1),
                    *receive(2_000, 3_004_000, source=1),
                    *last,
                ],
                [
                    *first,
                    *receive(1_000, 2_500, source=0),
                    *send(3_002_500, 3_003_000, to=0),
                    *last,
                ],
            ]
        )
    )
    waited, chained = dependencies(out)
    assert waited == pytest.approx(3 * MS, rel=0.01) and chained == waited


def test_computation_before_a_receipt_is_no_dependency(write: Build) -> None:
    # Rank 1 computes 3 ms before it receives, and 1 ms before it sends.
    first, last = collective(0, 1_000), collective(4_010_000, 4_011_000)
    out = run(
        write(
            [
                [*first, *send(1_000, 2_000, to=1), *last],
                [
                    *first,
                    *receive(3_001_000, 3_002_000, source=0),
                    *send(4_002_000, 4_002_500, to=2),
                    *last,
                ],
                [*first, *receive(1_000, 4_004_000, source=1), *last],
            ]
        )
    )
    rows = out.tables["waits"].filter((pl.col("rank") == 2) & (pl.col("kind") == "late_sender"))
    assert rows["imbalance_ps"].sum() == pytest.approx(4 * MS, rel=0.01)
    assert rows["dependency_ps"].sum() == pytest.approx(1 * MS, rel=0.01)
