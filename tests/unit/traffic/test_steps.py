"""Steps of programs are found, and can be left out."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tailback.traffic import patterns
from tailback.traffic.program import Label, Op, Program, ProgramBuilder
from tailback.traffic.step_detection import FEWEST_STEPS, find_steps
from tailback.traffic.steps import repeated
from tailback.traffic.transform import repeat

build = partial(patterns.build, line_gbps=100.0)
STEPS = FEWEST_STEPS + 6


def same(a: Program, b: Program) -> bool:
    """Whether two programs do the same; requests may have other numbers."""
    columns = ("rank_start", "kind", "peer", "amount", "tag", "label")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in columns)


def waited_for(program: Program) -> list[tuple[int, int]]:
    """Of each WAIT, its operation and that which it waits for."""
    posted = {}
    out = []
    for op, (rank, kind) in enumerate(zip(program.op_rank.tolist(), program.kind, strict=True)):
        key = (rank, int(program.request[op]))
        if kind == Op.WAIT:
            out.append((op, posted[key]))
        elif key[1] >= 0:
            assert key not in posted
            posted[key] = op
    return out


@pytest.mark.parametrize("kind", ["alltoall", "ring", "uniform"])
def test_fewer_repetitions_are_what_is_left(kind: str) -> None:
    once = build({"kind": kind, "ranks": 6, "size": "1 KiB"}, None, 1)
    kept = repeated(once, 50).only(np.array([0, 1, 2, 40, 49])).program
    expected = repeat(once, 5)
    assert same(kept, expected)
    assert waited_for(kept) == waited_for(expected)


def test_pattern_rounds_are_found_and_skipped() -> None:
    def stencil(rounds: int) -> Program:
        options = {"kind": "stencil2d", "dims": [3, 3], "size": "1 KiB", "compute": "1 us"}
        return build({**options, "rounds": rounds}, None, 1)

    steps = find_steps(stencil(STEPS))
    assert steps is not None
    repeats = np.flatnonzero(steps.kinds == 1)
    assert STEPS - 1 <= len(repeats) <= STEPS
    kept = np.setdiff1d(np.arange(steps.n_steps), repeats[5:-3])
    left = steps.only(kept).program
    complete = stencil(STEPS - (len(repeats) - 8))
    assert same(left, complete)
    assert waited_for(left) == waited_for(complete)


def two_ranks(sizes: list[int], compute: list[int]) -> Program:
    """Two ranks that exchange a message of each size; a step waits for the send of the last."""
    builder = ProgramBuilder("pair", 2)
    label = builder.label(Label("exchange", "MPI_Isend"))
    for rank in range(2):
        before = -1
        for size, ps in zip(sizes, compute, strict=True):
            builder.compute(rank, ps)
            builder.irecv(rank, 1 - rank, size, 1, label)
            sent = builder.isend(rank, 1 - rank, size, 1, label)
            if before >= 0:
                builder.wait(rank, before)
            before = sent
        builder.waitall(rank)
    return builder.build()


def test_a_wait_refers_to_the_kept_previous_step() -> None:
    steps = find_steps(two_ranks([64] * STEPS, [1000] * STEPS))
    assert steps is not None
    repeats = np.flatnonzero(steps.kinds == 1)
    kept = np.setdiff1d(np.arange(steps.n_steps), repeats[4:-4])
    left = steps.only(kept).program
    complete = two_ranks([64] * (STEPS - len(repeats) + 8), [1000] * (STEPS - len(repeats) + 8))
    assert waited_for(left) == waited_for(complete)


def test_computations_of_other_lengths_are_the_same_step() -> None:
    compute = list(range(1000, 1000 + STEPS))
    steps = find_steps(two_ranks([64] * STEPS, compute))
    assert steps is not None
    assert (steps.kinds == 1).sum() >= STEPS - 2
    assert steps.compute_ps.sum() == 2 * sum(compute)


def test_a_changing_program_has_two_kinds() -> None:
    steps = find_steps(two_ranks([64] * STEPS + [128] * STEPS, [1000] * 2 * STEPS))
    assert steps is not None
    kinds, counts = np.unique(steps.kinds, return_counts=True)
    assert (counts[kinds % 2 == 1] >= STEPS - 3).all()
    assert len(counts[kinds % 2 == 1]) == 2


def test_receives_posted_before_the_loop_make_no_steps() -> None:
    program = build({"kind": "ring", "ranks": 4, "size": "1 KiB", "messages": 2 * STEPS}, None, 1)
    assert find_steps(program) is None


def test_few_repetitions_are_no_loop() -> None:
    few = FEWEST_STEPS - 3
    assert find_steps(two_ranks([64] * few, [1000] * few)) is None


def test_kept_steps_have_their_programs_bounds() -> None:
    program = build(
        {
            "kind": "minighost",
            "dims": [2, 2, 1],
            "steps": STEPS,
            "compute": "1 us",
            "imbalance": 0.5,
        },
        None,
        1,
    )
    for steps in (find_steps(program), repeated(program, 7)):
        assert steps is not None
        kept = np.array([0, 1, 2, 4, 5])
        only = steps.only(kept)
        assert np.array_equal(steps.operation_bounds(kept), only.bounds)
        assert np.array_equal(steps.message_bounds(kept), only.messages_before(only.bounds))


def test_bytes_of_pairs_are_independent_of_method() -> None:
    few = build({"kind": "alltoall", "ranks": 6, "size": "1 KiB"}, None, 1)
    many = repeat(few, 9)
    pairs, more = few.traffic_matrix(), many.traffic_matrix()
    for side, other in zip(pairs[:2], more[:2], strict=True):
        assert np.array_equal(side, other)
    assert np.array_equal(9 * pairs[2], more[2])
    assert many.n_ranks**2 <= 4 * many.sends.sum()
    ring = build({"kind": "ring", "ranks": 40, "size": "2 KiB"}, None, 1)
    assert ring.n_ranks**2 > 4 * ring.sends.sum()
    assert [column.tolist() for column in repeat(ring, 100).traffic_matrix()] == [
        ring.traffic_matrix()[0].tolist(),
        ring.traffic_matrix()[1].tolist(),
        (100 * ring.traffic_matrix()[2]).tolist(),
    ]
