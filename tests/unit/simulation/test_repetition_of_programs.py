"""Programs whose ranks are unequal, with steps left out: against whole runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate

TREE = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}}
Step = Callable[[int, int], list[list[str]]]
"""The operations of each rank in a step: a function of the step's number and the ranks'."""


def halo(rank: int, ranks: int) -> list[str]:
    """Exchange with both neighbours."""
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    return [
        f"irecv {left} 7 30000 6",
        f"irecv {right} 7 30000 6",
        f"isend {right} 7 30000 6",
        f"isend {left} 7 30000 6",
        "waitall 4",
    ]


def both(folder: Path, step: Step, ranks: int, steps: int, repeat: int = 1) -> tuple[Run, Run]:
    """The whole run and the one with steps left out, of a trace."""
    lines = [f"{rank} init" for rank in range(ranks)]
    for number in range(steps):
        for rank, operations in enumerate(step(number, ranks)):
            lines += [f"{rank} {operation}" for operation in operations]
    lines += [f"{rank} finalize" for rank in range(ranks)]
    (folder / "app.ti").write_text("\n".join(lines) + "\n")
    job = {"trace": str(folder / "app.ti"), "repeat": repeat}
    engine = {"routing": "deterministic"}
    complete, skipped = (
        simulate(
            prepare(
                parse({"fabric": TREE, "job": [job], "engine": engine | {"skip_repeats": skip}})
            ),
            threads=1,
        )
        for skip in (False, True)
    )
    return complete, skipped


def pipeline(_: int, ranks: int) -> list[list[str]]:
    """The first and the last rank have half of the operations of the others."""
    return [
        [
            *([f"recv {rank - 1} 7 30000 6"] if rank else []),
            "compute 30000",
            *([f"send {rank + 1} 7 30000 6"] if rank < ranks - 1 else []),
        ]
        for rank in range(ranks)
    ]


def gather(_: int, ranks: int) -> list[list[str]]:
    """The root has many times the operations of the others, which wait for it."""
    workers = range(1, ranks)
    root = [f"send {rank} 7 20000 6" for rank in workers]
    root += [f"recv {rank} 8 40000 6" for rank in workers]
    others = [
        ["recv 0 7 20000 6", f"compute {1000 * rank}", "send 0 8 40000 6"] for rank in workers
    ]
    return [root, *others]


def collective(_: int, ranks: int) -> list[list[str]]:
    """Every collective has a tag of its own."""
    return [["compute 20000", *halo(rank, ranks), "allreduce 64 0 6"] for rank in range(ranks)]


def seventh(number: int, ranks: int) -> list[list[str]]:
    """A collective in every seventh round."""
    return [
        ["compute 20000", *halo(rank, ranks), *(["allreduce 64 0 6"] if number % 7 == 6 else [])]
        for rank in range(ranks)
    ]


@pytest.mark.parametrize(
    ("step", "steps"), [(pipeline, 200), (gather, 400), (collective, 200), (seventh, 420)]
)
def test_steps_of_traces_are_found(tmp_path: Path, step: Step, steps: int) -> None:
    complete, skipped = both(tmp_path, step, 16, steps)
    (simulated,), (total,) = (skipped.summary["skipped"][key] for key in ("simulated", "steps"))
    assert simulated < 0.4 * total
    facts = skipped.summary["skipped"]
    assert facts["elapsed_low_ps"] <= complete.elapsed_ps <= facts["elapsed_high_ps"]
    assert skipped.summary["messages"] == complete.summary["messages"]


def test_a_lagging_receiver_is_not_skipped(tmp_path: Path) -> None:
    # Senders of small messages wait for nobody and repeat themselves exactly.
    def step(_: int, ranks: int) -> list[list[str]]:
        receiver = [f"recv {rank} 7 4000 6" for rank in range(ranks - 1)] + ["compute 60000"]
        return [["compute 20000", f"send {ranks - 1} 7 4000 6"] for _ in range(ranks - 1)] + [
            receiver
        ]

    for repeat, steps in ((1, 200), (200, 1)):
        complete, skipped = both(tmp_path, step, 8, steps, repeat)
        assert skipped.elapsed_ps == complete.elapsed_ps


@pytest.mark.parametrize("per_step", [5_000, 60_000])
def test_a_rank_without_messages_takes_its_own_time(tmp_path: Path, per_step: int) -> None:
    def step(_: int, ranks: int) -> list[list[str]]:
        return [["compute 20000", *halo(rank, ranks - 1)] for rank in range(ranks - 1)] + [
            [f"compute {per_step}"]
        ]

    for repeat, steps in ((1, 300), (300, 1)):
        complete, skipped = both(tmp_path, step, 8, steps, repeat)
        silent, silent_skipped = (
            run.tables["ranks"].row(7, named=True) for run in (complete, skipped)
        )
        assert silent_skipped == silent
        assert abs(skipped.elapsed_ps / complete.elapsed_ps - 1) < 0.02
        assert skipped.summary["end_ps"] == skipped.tables["ranks"]["finish_ps"].max()


def test_a_rank_that_slows_ends_a_stretch(tmp_path: Path) -> None:
    # The mean over the ranks changes by 0.6 %, less than a drift that is noticed.
    def step(number: int, ranks: int) -> list[list[str]]:
        slow = [number >= 150 and rank == 3 for rank in range(ranks)]
        return [
            [f"compute {110_000 if slow[rank] else 100_000}", *halo(rank, ranks)]
            for rank in range(ranks)
        ]

    complete, skipped = both(tmp_path, step, 16, 300)
    assert abs(skipped.elapsed_ps / complete.elapsed_ps - 1) < 0.01
    assert skipped.tables["skips"].height >= 2


def test_moving_computations_end_a_stretch(tmp_path: Path) -> None:
    # What each rank computes in a step stays the same, but no longer at the same time as others.
    def step(number: int, ranks: int) -> list[list[str]]:
        first = [
            50_000 if number < 150 else 80_000 if rank % 2 else 20_000 for rank in range(ranks)
        ]
        return [
            [
                f"compute {first[rank]}",
                *halo(rank, ranks),
                f"compute {100_000 - first[rank]}",
                f"send {rank ^ 1} 3 100 6",
                f"recv {rank ^ 1} 3 100 6",
            ]
            for rank in range(ranks)
        ]

    complete, skipped = both(tmp_path, step, 16, 300)
    assert abs(skipped.elapsed_ps / complete.elapsed_ps - 1) < 0.01
    assert skipped.tables["skips"].height >= 2


def test_noise_of_computations_is_no_change(tmp_path: Path) -> None:
    noise = np.random.default_rng(7).normal(100_000, 10_000, (300, 16)).astype(int)

    def step(number: int, ranks: int) -> list[list[str]]:
        return [[f"compute {noise[number, rank]}", *halo(rank, ranks)] for rank in range(ranks)]

    complete, skipped = both(tmp_path, step, 16, 300)
    assert skipped.summary["skipped"]["simulated"][0] < 100
    facts = skipped.summary["skipped"]
    assert facts["elapsed_low_ps"] <= complete.elapsed_ps <= facts["elapsed_high_ps"]
