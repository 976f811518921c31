"""The OTF2 reader, on real traces of Score-P and EZTrace and on small ones written for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.errors import TraceError
from tailback.traffic.program import Op
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.otf2.reader import load
from tests.factories.otf2_traces import (
    EZTRACE16,
    EZTRACE64,
    SCOREP64,
    Build,
    assert_completes,
    barrier,
    call,
    ops,
    writing,
)
from tests.factories.public_data import real


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return writing(tmp_path)


# Real traces -------------------------------------------------------------------------------------

# Records, enters, leaves, Isends or Sends with their bytes, receives posted, collectives: counted
# with otf2-print 3.0.2.
REAL = {
    "eztrace16": (EZTRACE16, 16, (4_928, 1_648, 1_648), (640, 2_621_440), 640, 160),
    "eztrace64": (
        EZTRACE64,
        64,
        (384_512, 128_192, 128_192),
        (51_200, 209_715_200),
        51_200,
        12_800,
    ),
    "scorep64": (SCOREP64, 64, (8_644, 2_499, 2_497), (1_024, 268_435_456), 1_024, 192),
}


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_a_real_trace_has_otf2_prints_counts(name: str) -> None:
    path, ranks, counts, sends, receives, collectives = REAL[name]
    trace = load(real(path))
    kind, size = trace.messages.kind, trace.messages.bytes
    assert trace.n_ranks == ranks
    assert (trace.records, trace.enters, trace.leaves) == counts
    assert (int((kind <= 1).sum()), int(size[kind <= 1].sum())) == sends
    assert int((kind == 3).sum()) == receives
    assert int((kind == 8).sum()) == collectives


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_a_real_trace_compiles_and_completes(name: str) -> None:
    path, ranks, _, sends, _, _ = REAL[name]
    program = read_trace(real(path))
    assert program.n_ranks == ranks
    tags = np.array([label.tag for label in program.labels])[program.label]
    for op in (Op.ISEND, Op.IRECV):
        mine = (program.kind == op) & (tags >= 0)
        assert (int(mine.sum()), int(program.amount[mine].sum())) == sends
    assert_completes(program)


@pytest.mark.data
def test_eztrace_stencil_is_the_stencil_it_was() -> None:
    """4 x 4 periodic, row-major: each rank sends 10 x 4096 B to each of four neighbours."""
    program = read_trace(real(EZTRACE16))
    tags = np.array([label.tag for label in program.labels])[program.label]
    point_to_point = (program.kind == Op.ISEND) & (tags >= 0)
    pairs = Counter(
        zip(
            program.op_rank[point_to_point].tolist(),
            program.peer[point_to_point].tolist(),
            strict=True,
        )
    )
    expected: Counter[tuple[int, int]] = Counter()
    for rank in range(16):
        row, column = divmod(rank, 4)
        for down, right in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            expected[rank, (row + down) % 4 * 4 + (column + right) % 4] += 10
    assert pairs == expected
    assert {label.phase for label in program.labels} >= {"tag 101", "tag 104", "MPI_Allreduce"}
    assert any("640 receives have no record of their source" in note for note in program.notes)
    # In each step the guess gives every rank one message from each neighbour.
    receives = np.flatnonzero((program.kind == Op.IRECV) & (tags >= 0) & (program.op_rank == 5))
    for step in receives.reshape(10, 4):
        assert sorted(program.peer[step].tolist()) == [1, 4, 6, 9]


@pytest.mark.data
def test_score_p_phase_is_the_enclosing_region() -> None:
    program = read_trace(real(SCOREP64))
    # Rank 0 also enters TRACER_WallTime_InLoop, in the loop, and never leaves it.
    messages = (program.kind == Op.ISEND) & (program.op_rank > 0)
    labels = [program.labels[number] for number in np.unique(program.label[messages])]
    assert {label.phase for label in labels if label.tag >= 0} == {"TRACER_Loop"}
    assert program.notes == []


@pytest.mark.data
@pytest.mark.parametrize("path", [EZTRACE16, SCOREP64], ids=["eztrace", "scorep"])
def test_the_number_of_threads_changes_nothing(path: str) -> None:
    single, four = load(real(path), threads=1), load(real(path), threads=4)
    for column in ("position", "kind", "peer", "bytes", "posted", "call"):
        assert np.array_equal(getattr(single.messages, column), getattr(four.messages, column))
    assert np.array_equal(single.calls.enter, four.calls.enter)


# Semantics, on small traces ----------------------------------------------------------------------


def test_blocking_calls_wait_and_gaps_compute(build: Build) -> None:
    world = "MPI_COMM_WORLD"
    path = build(
        [
            call("MPI_Send", 10, ("mpi_send", 1, world, 7, 4096))
            + call("MPI_Send", 112, ("mpi_send", 1, world, 7, 8)),
            call("MPI_Recv", 50, ("mpi_recv", 0, world, 7, 4096))
            + call("MPI_Recv", 60, ("mpi_recv", 0, world, 7, 8)),
        ],
        resolution=2 * 10**9,
    )
    program = read_trace(path)
    # 100 ticks of half a nanosecond between leaving the one call and entering the next.
    assert ops(program, 0) == [
        ("ISEND", 1, 4096),
        ("WAIT", 0, 0),
        ("COMPUTE", -1, 50_000),
        ("ISEND", 1, 8),
        ("WAIT", 1, 0),
    ]
    assert ops(program, 1)[2] == ("COMPUTE", -1, 4_000)
    assert program.labels[int(program.label[0])].phase == "tag 7"
    assert program.labels[int(program.label[0])].call == "MPI_Send"


def test_synchronous_sends_are_complete_when_their_receive_is(build: Build) -> None:
    world = "MPI_COMM_WORLD"
    path = build(
        [
            call("MPI_Ssend", 10, ("mpi_send", 1, world, 7, 4096))
            + call("MPI_Issend", 20, ("mpi_isend", 1, world, 7, 8, 3))
            + call("MPI_Rsend", 30, ("mpi_send", 1, world, 7, 9))
            + call("MPI_Wait", 40, ("mpi_isend_complete", 3)),
            call("MPI_Recv", 50, ("mpi_recv", 0, world, 7, 4096))
            + call("MPI_Recv", 60, ("mpi_recv", 0, world, 7, 8))
            + call("MPI_Recv", 70, ("mpi_recv", 0, world, 7, 9)),
        ],
    )
    program = read_trace(path)
    posts = [op for op in ops(program, 0) if op[0] != "COMPUTE"]
    assert posts == [
        ("ISSEND", 1, 4096),
        ("WAIT", 0, 0),
        ("ISSEND", 1, 8),
        ("ISEND", 1, 9),
        ("WAIT", 2, 0),
        ("WAIT", 1, 0),
    ]
    assert_completes(program)


def test_sub_communicator_ranks_become_world_ranks(build: Build) -> None:
    # "odd" holds world ranks 3 and 1 in this order: its rank 0 is world rank 3.
    path = build(
        [
            [],
            call("MPI_Send", 1, ("mpi_send", 0, "odd", 5, 64)),
            [],
            call("MPI_Recv", 1, ("mpi_recv", 1, "odd", 5, 64)),
        ],
        comms={"odd": [3, 1]},
    )
    program = read_trace(path)
    source, target, size = program.traffic_matrix()
    assert (source.tolist(), target.tolist(), size.tolist()) == ([1], [3], [64])
    assert program.labels[0].communicator == "odd"


def test_equal_tags_of_two_communicators_differ(build: Build) -> None:
    path = build(
        [
            call("MPI_Send", 1, ("mpi_send", 1, "MPI_COMM_WORLD", 5, 64)),
            call("MPI_Recv", 1, ("mpi_recv", 0, "copy", 5, 64)),
        ],
        comms={"copy": [0, 1]},
    )
    program = read_trace(path)
    assert len(program.kind) == 0
    assert "1 sends without a matching receive are left out" in program.notes
    assert "1 receives without a matching send are left out" in program.notes


def test_a_rank_beyond_its_communicator_is_an_error(build: Build) -> None:
    path = build([call("MPI_Send", 1, ("mpi_send", 9, "MPI_COMM_WORLD", 5, 64))])
    with pytest.raises(
        TraceError, match=r"rank 9 of 'MPI_COMM_WORLD', which has 1 members"
    ) as caught:
        read_trace(path)
    assert caught.value.place == "location 0, event 1"
    assert caught.value.remedy


def test_nonblocking_requests_are_waited_for_where_they_complete(build: Build) -> None:
    world = "MPI_COMM_WORLD"
    other = call("MPI_Irecv", 1, ("mpi_irecv_request", 4)) + call(
        "MPI_Isend", 10, ("mpi_isend", 0, world, 3, 100, 9)
    )
    path = build(
        [
            call("MPI_Irecv", 1, ("mpi_irecv_request", 70))
            + call("MPI_Isend", 4, ("mpi_isend", 1, world, 3, 100, 71))
            + call("MPI_Test", 10, ("mpi_request_test", 70))
            + call("MPI_Wait", 20, ("mpi_irecv", 1, world, 3, 100, 70))
            + call("MPI_Wait", 23, ("mpi_isend_complete", 71)),
            other
            + call(
                "MPI_Waitall",
                20,
                ("mpi_irecv", 0, world, 3, 100, 4),
                ("mpi_isend_complete", 9),
            ),
        ]
    )
    program = read_trace(path)
    without_compute = [op[:2] for op in ops(program, 0) if op[0] != "COMPUTE"]
    assert without_compute == [("IRECV", 1), ("ISEND", 1), ("WAIT", 0), ("WAIT", 1)]
    assert_completes(program)


def test_partners_that_are_none_are_left_out(build: Build) -> None:
    """As EZTrace writes MPI_Cart_shift on a grid that does not close, with Open MPI."""
    world, null, steps = "MPI_COMM_WORLD", 2**32 - 2, 5

    def script(rank: int) -> list[tuple[Any, ...]]:
        left, right = (rank - 1 if rank else null), (rank + 1 if rank < 3 else null)
        events: list[tuple[Any, ...]] = []
        for start in range(1, 100 * steps, 100):
            for at in range(2):
                events += call("MPI_Irecv", start + 5 * at, ("mpi_irecv_request", at))
            for at, (peer, tag) in enumerate(((right, 1), (left, 2))):
                record = ("mpi_isend", peer, world, tag, 8 * (start // 100 + 1), 2 + at)
                events += call("MPI_Isend", start + 10 + 5 * at, record)
            events += call("MPI_Waitall", start + 20)
            events += call("MPI_Send", start + 30, ("mpi_send", right, world, 3, 4))
            source = ("mpi_recv", left, world, 3, 0 if left == null else 4)
            events += call("MPI_Recv", start + 40, source)
        return events

    program = read_trace(build([script(rank) for rank in range(4)]))
    # Of each step two messages a link and a blocking one.
    source, target, _ = program.traffic_matrix()
    assert (np.abs(source - target) == 1).all()
    assert int((program.kind == Op.ISEND).sum()) == steps * (6 + 3)
    for rank in (0, 3):
        received = [size for name, _, size in ops(program, rank) if name == "IRECV" and size != 4]
        assert received == [8, 16, 24, 32, 40]
    assert_completes(program)
    assert f"{4 * steps} sends and receives of MPI_PROC_NULL move nothing" in program.notes
    assert f"{2 * steps} receives without a matching send are left out" in program.notes


def test_unrecorded_sources_are_those_of_the_step(build: Build) -> None:
    """Each rank exchanges with one partner after another, the nearest number not always first."""
    world = "MPI_COMM_WORLD"

    def script(rank: int) -> list[tuple[Any, ...]]:
        events: list[tuple[Any, ...]] = []
        for number in range(8):
            start, peer = 1 + 100 * number, rank ^ (1 if number % 2 == 0 else 2)
            events += call("MPI_Irecv", start, ("mpi_irecv_request", 1))
            events += call("MPI_Isend", start + 10, ("mpi_isend", peer, world, 7, 64, 2))
            events += call("MPI_Waitall", start + 20)
        return events

    program = read_trace(build([script(rank) for rank in range(4)]))
    for rank in range(4):
        received = [peer for name, peer, _ in ops(program, rank) if name == "IRECV"]
        assert received == [rank ^ 1, rank ^ 2] * 4
    assert_completes(program)


def test_a_wait_without_completions_waits_for_all(build: Build) -> None:
    """As EZTrace writes: receives do not say from whom; Waitall says nothing at all."""
    world = "MPI_COMM_WORLD"

    def step(rank: int, start: int) -> list[tuple[Any, ...]]:
        events = []
        for at in range(2):
            events += call("MPI_Irecv", start + 3 * at, ("mpi_irecv_request", at))
        for at, peer in enumerate(sorted({0, 1, 2} - {rank})):
            record = ("mpi_isend", peer, world, 4, 10 * rank + 1, 5 + at)
            events += call("MPI_Isend", start + 10 + 3 * at, record)
        return events + call("MPI_Waitall", start + 20)

    # The clocks of the ranks disagree wildly, as EZTrace's do.
    path = build([step(r, 1 + r * 10**6) + step(r, 101 + r * 10**6) for r in range(3)])
    program = read_trace(path)
    kinds = [name for name, _, _ in ops(program, 1) if name != "COMPUTE"]
    assert kinds == ["IRECV", "IRECV", "ISEND", "ISEND", "WAITALL"] * 2
    peers = [peer for name, peer, _ in ops(program, 1) if name == "IRECV"]
    assert [sorted(peers[:2]), sorted(peers[2:])] == [[0, 2], [0, 2]]
    sizes = {peer: size for name, peer, size in ops(program, 1) if name == "IRECV"}
    assert sizes == {0: 1, 2: 21}
    assert_completes(program)


@pytest.mark.parametrize("wait", ["MPI_Wait", "MPI_Waitany", "MPI_Waitsome"])
def test_a_single_wait_without_completions_takes_one(build: Build, wait: str) -> None:
    """The second message is only sent after an answer to the first."""
    world = "MPI_COMM_WORLD"
    asks = [event for at in (1, 4) for event in call("MPI_Irecv", at, ("mpi_irecv_request", at))]
    answer, first, second = (
        call("MPI_Send", start, ("mpi_send", peer, world, 3, size))
        for start, peer, size in ((20, 1, 5), (1, 0, 50), (20, 0, 60))
    )
    path = build(
        [
            # One wait too many, and a request for the wait for all.
            [
                *(*asks, *call(wait, 10), *answer, *call(wait, 30), *call(wait, 33)),
                *call("MPI_Isend", 40, ("mpi_isend", 1, world, 4, 7, 9)),
                *call("MPI_Waitall", 50),
            ],
            first
            + call("MPI_Recv", 10, ("mpi_recv", 0, world, 3, 5))
            + second
            + call("MPI_Recv", 60, ("mpi_recv", 0, world, 4, 7)),
        ]
    )
    program = read_trace(path)
    assert [(name, value) for name, value, _ in ops(program, 0) if name != "COMPUTE"] == [
        ("IRECV", 1),
        ("IRECV", 1),
        ("WAIT", 0),
        ("ISEND", 1),
        ("WAIT", 2),
        ("WAIT", 1),
        ("ISEND", 1),
        ("WAITALL", -1),
    ]
    assert_completes(program)


def test_this_step_awaits_no_receive_of_the_next(build: Build) -> None:
    """Two buffers in turn, as EZTrace writes it; all ranks would block for ever."""
    world, steps = "MPI_COMM_WORLD", 4

    def script(rank: int) -> list[tuple[Any, ...]]:
        events = call("MPI_Irecv", 1, ("mpi_irecv_request", 0))
        for start in range(10, 10 + 20 * steps, 20):
            if start < 10 + 20 * (steps - 1):
                events += call("MPI_Irecv", start, ("mpi_irecv_request", start))
            record = ("mpi_isend", (rank + 1) % 3, world, 1, start, start + 1)
            events += call("MPI_Isend", start + 4, record)
            events += call("MPI_Wait", start + 8) + call("MPI_Wait", start + 12)
        return events

    program = read_trace(build([script(rank) for rank in range(3)]))
    assert int((program.kind == Op.WAIT).sum()) == 3 * 2 * steps
    assert_completes(program)


def test_an_unwaited_request_ends_with_the_program(build: Build) -> None:
    path = build(
        [
            call("MPI_Isend", 1, ("mpi_isend", 1, "MPI_COMM_WORLD", 3, 5, 1)),
            call("MPI_Recv", 1, ("mpi_recv", 0, "MPI_COMM_WORLD", 3, 5)),
        ]
    )
    program = read_trace(path)
    assert [op[0] for op in ops(program, 0)] == ["ISEND", "WAITALL"]


def test_sendrecv_without_records_is_counted_in_the_notes(build: Build) -> None:
    silent = call("MPI_Sendrecv", 1) + call("MPI_Sendrecv", 5)
    program = read_trace(build([silent, silent]))
    assert [
        note for note in program.notes if "4 calls of MPI_Sendrecv left no message record" in note
    ]
    assert "record with Score-P" in program.notes[0]
    # Who has done so gets no such advice.
    (note,) = read_trace(build([silent, silent], creator="Score-P 8.4")).notes
    assert "Score-P" not in note
    assert "pml-monitoring" in note


def test_sendrecv_with_records_posts_both_before_it_waits(build: Build) -> None:
    def exchange(other: int) -> list[tuple[Any, ...]]:
        send = ("mpi_send", other, "MPI_COMM_WORLD", 1, 50)
        return call("MPI_Sendrecv", 1, send, ("mpi_recv", other, "MPI_COMM_WORLD", 1, 50))

    program = read_trace(build([exchange(1), exchange(0)]))
    assert [op[0] for op in ops(program, 0)] == ["ISEND", "IRECV", "WAIT", "WAIT"]
    assert program.notes == []


def test_cancelled_requests_are_left_out(build: Build) -> None:
    script = call("MPI_Irecv", 1, ("mpi_irecv_request", 1))
    program = read_trace(build([script + call("MPI_Wait", 9, ("mpi_request_cancelled", 1))]))
    assert len(program.kind) == 0 or set(program.kind.tolist()) == {Op.COMPUTE}
    assert "1 cancelled requests are left out" in program.notes


@pytest.mark.parametrize("operation", ["ALLREDUCE", "BARRIER", "BCAST"])
def test_collectives_become_messages_among_the_members(build: Build, operation: str) -> None:
    members = [4, 2, 0]
    scripts: list[list[tuple[Any, ...]]] = [[] for _ in range(5)]
    for rank in members:
        scripts[rank] = barrier(1, "evens", operation) + barrier(11, "evens", operation)
    program = read_trace(build(scripts, comms={"evens": members}))
    source, target, _ = program.traffic_matrix()
    assert set(source.tolist()) | set(target.tolist()) == set(members)
    call_name = f"MPI_{operation.capitalize()}"
    assert {(label.call, label.phase, label.tag) for label in program.labels} == {
        (call_name, call_name, -1)
    }
    # The two instances cannot take each other's messages.
    tags_of = defaultdict(set)
    for rank in members:
        sends = [
            op
            for op in range(int(program.rank_start[rank]), int(program.rank_start[rank + 1]))
            if program.kind[op] in (Op.ISEND, Op.IRECV)
        ]
        half = len(sends) // 2
        tags_of["first"] |= {int(program.tag[op]) for op in sends[:half]}
        tags_of["second"] |= {int(program.tag[op]) for op in sends[half:]}
    assert len(tags_of["first"]) == len(tags_of["second"]) == 1
    assert not tags_of["first"] & tags_of["second"]
    assert_completes(program)


def test_nonblocking_collectives_post_where_they_are_called(build: Build) -> None:
    from otf2.enums import CollectiveOp

    world, nobody = "MPI_COMM_WORLD", 2**32 - 1
    scripts = []
    for rank in range(4):
        # 8 bytes, as Score-P sums them over four ranks.
        ended = [
            ("non_blocking_collective_complete", what, world, root, sent, received, request)
            for what, root, sent, received, request in (
                (CollectiveOp.ALLREDUCE, nobody, 32, 32, 7),
                (CollectiveOp.BCAST, 0, 400 if rank == 0 else 0, 100, 8),
            )
        ]
        blocking = ("mpi_collective_end", CollectiveOp.BARRIER, world, nobody, 0, 0)
        scripts.append(
            call("MPI_Iallreduce", 1, ("non_blocking_collective_request", 7))
            + call("MPI_Ibcast", 4, ("non_blocking_collective_request", 8))
            + call("MPI_Barrier", 7, ("mpi_collective_begin",), blocking)
            # They may complete in any order.
            + call("MPI_Waitall", 11, *(reversed(ended) if rank % 2 else ended))
        )
    # A request that nobody waits for before the end of the trace.
    scripts[3] += call("MPI_Iallreduce", 20, ("non_blocking_collective_request", 7))
    program = read_trace(build(scripts, creator="Score-P 8.4"))
    assert program.notes == [
        "1 non-blocking collectives have no record of their completion and are left out"
    ]
    assert {label.call for label in program.labels} == {
        "MPI_Iallreduce",
        "MPI_Ibcast",
        "MPI_Barrier",
    }
    names = [name for name, _, _ in ops(program, 1) if name != "COMPUTE"]
    steps = ["IRECV", "ISEND"] * 2
    assert names[:5] == [*steps, "IRECV"]
    assert names[5:13] == ["IRECV", "ISEND", "WAIT", "WAIT"] * 2
    assert names[13:] == ["WAIT"] * 5
    sent = [size for name, _, size in ops(program, 0) if name == "ISEND"]
    assert sorted(sent) == [0, 0, 8, 8, 100, 100]
    assert_completes(program)


def test_score_p_reductions_are_not_multiplied(
    build: Build,
) -> None:
    from otf2.enums import CollectiveOp

    end = ("mpi_collective_end", CollectiveOp.ALLREDUCE, "MPI_COMM_WORLD", 2**32 - 1, 64, 64)
    script = call("MPI_Allreduce", 1, ("mpi_collective_begin",), end)
    program = read_trace(build([script] * 8, creator="Score-P 8.4"))
    assert set(program.amount[program.kind == Op.ISEND].tolist()) == {8}


def test_a_collective_missing_a_member_is_left_out(build: Build) -> None:
    world = "MPI_COMM_WORLD"
    path = build([barrier(1, world) + barrier(11, world), barrier(1, world)])
    program = read_trace(path)
    assert any(
        note.startswith("1 collectives that were not recorded by all") for note in program.notes
    )
    assert int((program.kind == Op.ISEND).sum()) == 2
    assert_completes(program)


def test_the_phase_is_the_nearest_region_below_main(build: Build) -> None:
    def within(rank: int, record: tuple[Any, ...], name: str) -> list[tuple[Any, ...]]:
        return [
            (1, "enter", "main"),
            (2, "enter", "solve"),
            (3, "enter", "halo"),
            *call(name, 4, record),
            (7, "leave", "halo"),
            *barrier(8, "MPI_COMM_WORLD"),
            (12, "leave", "solve"),
            *call(name, 13, record),
            (16, "leave", "main"),
        ]

    world = "MPI_COMM_WORLD"
    program = read_trace(
        build(
            [
                within(0, ("mpi_send", 1, world, 2, 5), "MPI_Send"),
                within(1, ("mpi_recv", 0, world, 2, 5), "MPI_Recv"),
            ]
        )
    )
    sends = program.kind == Op.ISEND
    phases = [
        program.labels[label].phase for label in program.label[sends & (program.op_rank == 0)]
    ]
    assert phases == ["halo", "solve", "tag 2"]


def test_a_pause_of_the_recording_is_not_compute(build: Build) -> None:
    from otf2.enums import MeasurementMode

    script = call("MPI_Init", 1)
    script += [(3, "measurement_on_off", MeasurementMode.OFF)]
    script += [(900, "measurement_on_off", MeasurementMode.ON)]
    script += call("MPI_Wtime", 910) + call("MPI_Finalize", 920)
    assert ops(read_trace(build([script])), 0) == [("COMPUTE", -1, 9_000)]


def test_threads_of_a_rank_are_merged_by_time(build: Build) -> None:
    world = "MPI_COMM_WORLD"
    path = build(
        [
            call("MPI_Send", 50, ("mpi_send", 1, world, 1, 50)),
            call("MPI_Send", 10, ("mpi_send", 1, world, 1, 10)),
            call("MPI_Recv", 5, ("mpi_recv", 0, world, 1, 10))
            + call("MPI_Recv", 90, ("mpi_recv", 0, world, 1, 50)),
            [],
        ],
        threads=2,
    )
    program = read_trace(path)
    assert program.n_ranks == 2
    assert [size for name, _, size in ops(program, 0) if name == "ISEND"] == [10, 50]
    assert_completes(program)


def test_the_cartesian_grid_has_x_fastest(build: Build) -> None:
    script = call("MPI_Barrier", 1)
    assert read_trace(build([script] * 6, grid=(2, 3))).grid == (3, 2)
    # A topology over fewer ranks says nothing about all of them.
    assert read_trace(build([script] * 6, grid=(2, 2))).grid == ()


def test_a_trace_without_mpi_is_an_error(build: Build) -> None:
    with pytest.raises(TraceError, match="no MPI call"):
        read_trace(build([[(1, "enter", "work"), (2, "leave", "work")]]))


def test_messages_carry_their_call_path(build: Build) -> None:
    """The regions around the call, outermost first; equal paths of two ranks are one label."""

    def around(*events: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        opened = [(0, "enter", "solve"), (1, "enter", "exchange")]
        return [*opened, *events, (80, "leave", "exchange"), (90, "leave", "solve")]

    send = call("MPI_Send", 10, ("mpi_send", 1, "MPI_COMM_WORLD", 7, 64))
    receive = call("MPI_Recv", 10, ("mpi_recv", 0, "MPI_COMM_WORLD", 7, 64))
    later = [(100 + time, what, *values) for time, what, *values in send]
    answer = [(100 + time, what, *values) for time, what, *values in receive]
    path = build([around(*send) + later, around(*receive) + answer])
    program = read_trace(path)
    sends = [program.labels[at] for at in program.label[program.kind == Op.ISEND]]
    assert [label.path for label in sends] == ["solve > exchange", ""]
    assert [label.phase for label in sends] == ["exchange", "tag 7"]
