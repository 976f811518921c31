"""One-sided operations of OTF2 traces: messages, and when their ends take part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailback.errors import TraceError
from tailback.traffic.program import Program
from tailback.traffic.readers import read_trace
from tests.factories.otf2_traces import Build, assert_completes, call, ops, writing

WORLD, WINDOW = "MPI_COMM_WORLD", "window"


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return writing(tmp_path)


def read(build: Build, scripts: list[list[tuple[Any, ...]]], **options: Any) -> Program:
    path = build(scripts, windows={WINDOW: WORLD}, creator="Score-P 8.0", **options)
    program = read_trace(path)
    assert_completes(program)
    return program


def names(program: Program, rank: int) -> list[tuple[str, int, int]]:
    """Operations of a rank without computation."""
    return [operation for operation in ops(program, rank) if operation[0] != "COMPUTE"]


def fence(start: int) -> list[tuple[Any, ...]]:
    return call("MPI_Win_fence", start)


def put(start: int, target: int, size: int, number: int = 1) -> list[tuple[Any, ...]]:
    return call("MPI_Put", start, ("rma_put", WINDOW, target, size, number))


def test_a_put_completes_at_the_second_fence(build: Build) -> None:
    program = read(
        build,
        [
            fence(1) + put(10, 1, 800) + call("MPI_Comm_rank", 15) + fence(20),
            fence(1) + call("MPI_Comm_rank", 10) + fence(20),
        ],
    )
    # The target posts right after its first fence, before the computation that follows.
    assert [name for name, _, _ in ops(program, 0)] == [
        "COMPUTE",
        "ISEND",
        "COMPUTE",
        "COMPUTE",
        "WAIT",
    ]
    assert [name for name, _, _ in ops(program, 1)] == ["IRECV", "COMPUTE", "COMPUTE", "WAIT"]
    assert names(program, 0)[0] == ("ISEND", 1, 800)
    assert program.labels[0].call == "MPI_Put" and program.labels[0].communicator == WORLD


def test_a_get_moves_bytes_from_the_target(build: Build) -> None:
    program = read(
        build,
        [
            fence(1) + call("MPI_Get", 10, ("rma_get", WINDOW, 1, 500, 1)) + fence(20),
            fence(1) + fence(20),
        ],
    )
    assert names(program, 0) == [("IRECV", 1, 500), ("WAIT", 0, 0)]
    assert names(program, 1) == [("ISEND", 0, 500), ("WAIT", 0, 0)]


def test_an_operation_that_fetches_is_two_messages(build: Build) -> None:
    from otf2.enums import RmaAtomicType

    fetch = ("rma_atomic", WINDOW, 1, RmaAtomicType.FETCH_AND_ADD, 8, 8, 1)
    program = read(
        build,
        [fence(1) + call("MPI_Fetch_and_op", 10, fetch) + fence(20), fence(1) + fence(20)],
    )
    assert names(program, 0)[:2] == [("ISEND", 1, 8), ("IRECV", 1, 8)]
    assert names(program, 1)[:2] == [("IRECV", 0, 8), ("ISEND", 0, 8)]


def test_an_exposed_target_waits_where_stated(build: Build) -> None:
    program = read(
        build,
        [
            call("MPI_Win_start", 4) + put(10, 1, 800) + call("MPI_Win_complete", 20),
            call("MPI_Comm_rank", 1)
            + call("MPI_Win_post", 5)
            + call("MPI_Comm_rank", 15)
            + call("MPI_Win_wait", 20),
        ],
    )
    assert [name for name, _, _ in ops(program, 1)] == [
        "COMPUTE",
        "IRECV",
        "COMPUTE",
        "COMPUTE",
        "WAIT",
    ]
    assert names(program, 0) == [("ISEND", 1, 800), ("WAIT", 0, 0)]


def test_a_locked_target_is_always_ready(build: Build) -> None:
    lock, unlock = call("MPI_Win_lock", 2), call("MPI_Win_unlock", 20)
    program = read(
        build,
        [lock + put(10, 1, 800) + unlock, call("MPI_Comm_rank", 1) + call("MPI_Comm_rank", 30)],
    )
    assert [name for name, _, _ in ops(program, 1)] == ["IRECV", "COMPUTE", "WAIT"]
    assert names(program, 0) == [("ISEND", 1, 800), ("WAIT", 0, 0)]
    assert program.notes == []


def test_a_recorded_completion_precedes_the_epochs_end(build: Build) -> None:
    done = call("MPI_Win_flush_local", 14, ("rma_op_complete_blocking", WINDOW, 1))
    program = read(
        build,
        [
            fence(1) + put(10, 1, 800) + done + call("MPI_Comm_rank", 17) + fence(20),
            fence(1) + fence(20),
        ],
    )
    assert [name for name, _, _ in ops(program, 0)][2:5] == ["COMPUTE", "WAIT", "COMPUTE"]


@pytest.mark.parametrize(
    ("script", "other"),
    [
        # No fence before the put.
        (put(10, 1, 8) + fence(20), fence(20)),
        # Ranks with different numbers of fences.
        (fence(1) + put(10, 1, 8) + fence(20), fence(20)),
        # By its clock the target has left its last fence before the put.
        (fence(100) + put(110, 1, 8) + fence(120), fence(1) + fence(10)),
        # Two accesses of the origin, one exposure of the target.
        (
            put(1, 1, 8) + call("MPI_Win_complete", 8) + call("MPI_Win_complete", 20),
            call("MPI_Win_post", 1) + call("MPI_Win_wait", 20),
        ),
    ],
    ids=["unopened", "numbers", "clocks", "exposures"],
)
def test_an_unknown_epoch_counts_as_lock(build: Build, script: Any, other: Any) -> None:
    program = read(build, [script, other])
    assert names(program, 1) == [("IRECV", 0, 8), ("WAIT", 0, 0)]
    assert any("no epoch of their target" in note for note in program.notes)


def test_epochs_of_many_rounds_stay_apart(build: Build) -> None:
    def rank(me: int) -> list[tuple[Any, ...]]:
        script = fence(1)
        for turn in range(1, 6):
            script += put(20 * turn, (me + turn) % 3, 100 * turn, turn) + fence(20 * turn + 10)
        return script

    program = read(build, [rank(me) for me in range(3)])
    sizes = [size for name, _, size in names(program, 0) if name == "ISEND"]
    assert sizes == [100, 200, 300, 400, 500]


def test_a_target_outside_the_group_is_an_error(build: Build) -> None:
    with pytest.raises(TraceError, match="rank 9 of"):
        read(build, [fence(1) + put(10, 9, 8) + fence(20), fence(1) + fence(20)])


def synchronised(name: str, start: int, window: str) -> list[tuple[Any, ...]]:
    """A call that opens or closes an epoch, with the record of its window as of Score-P."""
    from otf2.enums import CollectiveOp, RmaSyncLevel, RmaSyncType

    if name == "MPI_Win_fence":
        end = ("rma_collective_end", CollectiveOp.BARRIER, RmaSyncLevel.PROCESS, window, 0, 0, 0)
        return call(name, start, ("rma_collective_begin",), end)
    return call(name, start, ("rma_sync", window, 0, RmaSyncType.MEMORY))


def test_fences_count_for_the_operations_on_their_window(build: Build) -> None:
    """The windows of two pairs of ranks, one of them with more fences, beside that of all."""
    pair, other = {"pair": [0, 1]}, {"pair window": "pair", WINDOW: WORLD}
    inner = [synchronised("MPI_Win_fence", at, "pair window") for at in (10, 30)]
    outer = [synchronised("MPI_Win_fence", at, WINDOW) for at in (1, 50)]
    operation = call("MPI_Put", 20, ("rma_put", "pair window", 1, 800, 1))
    scripts = [
        outer[0] + inner[0] + operation + inner[1] + outer[1],
        outer[0] + inner[0] + call("MPI_Comm_rank", 20) + inner[1] + outer[1],
        outer[0] + call("MPI_Put", 20, ("rma_put", WINDOW, 0, 500, 1)) + outer[1],
    ]
    path = build(scripts, comms=pair, windows=other, creator="Score-P 8.0")
    program = read_trace(path)
    assert_completes(program)
    # Without the windows, ranks have different numbers of fences, and none can be matched.
    assert program.notes == []
    labels = {program.labels[at].communicator for at in program.label[program.sends].tolist()}
    assert labels == {"pair", WORLD}
    # The pair waits in its second fence, before the computation; all wait in their last one.
    last = [name for name, _, _ in ops(program, 1)]
    assert last == ["COMPUTE", "IRECV", "COMPUTE", "COMPUTE", "WAIT", "COMPUTE"]
    assert [name for name, _, _ in ops(program, 2)][-1] == "WAIT"


def test_a_lock_closes_only_its_windows_epoch(build: Build) -> None:
    windows = {WINDOW: WORLD, "second": WORLD}
    unlock = [
        synchronised("MPI_Win_unlock", at, name) for at, name in ((20, "second"), (30, WINDOW))
    ]
    script = call("MPI_Win_lock", 2) + put(10, 1, 800) + unlock[0] + unlock[1]
    path = build([script, call("MPI_Comm_rank", 1)], windows=windows, creator="Score-P 8.0")
    names_ = [name for name, _, _ in ops(read_trace(path), 0)]
    # Two computations between the put and its wait: before either of the unlocks.
    assert names_ == ["COMPUTE", "ISEND", "COMPUTE", "COMPUTE", "WAIT"]
