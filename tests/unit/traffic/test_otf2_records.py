"""The OTF2 reader: records that belong together, and what it says of those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailback.traffic.readers import read_trace
from tests.factories.otf2_traces import Build, assert_completes, call, ops, writing

WORLD = "MPI_COMM_WORLD"


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return writing(tmp_path)


def sends(*messages: tuple[int, int, int]) -> list[tuple[Any, ...]]:
    """Events of a rank that sends (receiver, tag, bytes) one after the other."""
    events: list[tuple[Any, ...]] = []
    for at, (peer, tag, size) in enumerate(messages):
        events += call("MPI_Send", 1 + 10 * at, ("mpi_send", peer, WORLD, tag, size))
    return events


def moves(script: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    return [step for step in script if step[0] != "COMPUTE"]


# Matched probes ----------------------------------------------------------------------------------


def test_a_probed_message_is_received_from_its_sender(build: Build) -> None:
    """MPI_Mprobe says from whom, MPI_Mrecv how much; MPI_Probe leaves the message where it is."""
    undefined = 2**64 - 1
    path = build(
        [
            call("MPI_Probe", 1, ("mpi_probe", 1, WORLD, 5, undefined))
            + call("MPI_Mprobe", 11, ("mpi_probe", 1, WORLD, 5, 40))
            + call("MPI_Mrecv", 21, ("mpi_mrecv", 40, 300))
            + call("MPI_Improbe", 31, ("mpi_probe", 0, "pair", 6, 40))
            + call("MPI_Imrecv", 41, ("mpi_imrecv_request", 40, 7))
            + call("MPI_Wait", 51, ("mpi_imrecv", 7, 20)),
            sends((0, 5, 300)),
            call("MPI_Send", 1, ("mpi_send", 1, "pair", 6, 20)),
        ],
        comms={"pair": [2, 0]},
    )
    program = read_trace(path)
    assert program.notes == []
    assert moves(ops(program, 0)) == [
        ("IRECV", 1, 300),
        ("WAIT", 0, 0),
        ("IRECV", 2, 20),
        ("WAIT", 1, 0),
    ]
    assert {label.call for label in program.labels} == {"MPI_Send", "MPI_Mrecv", "MPI_Imrecv"}
    assert_completes(program)


def test_the_probe_decides_the_matching_order(build: Build) -> None:
    script = []
    for at, number in enumerate((1, 2)):
        script += call("MPI_Mprobe", 1 + 10 * at, ("mpi_probe", 1, WORLD, 5, number))
    for at, (number, size) in enumerate(((2, 200), (1, 100))):
        script += call("MPI_Mrecv", 41 + 10 * at, ("mpi_mrecv", number, size))
    program = read_trace(build([script, sends((0, 5, 100), (0, 5, 200))]))
    assert program.notes == []
    # The second message is waited for first.
    assert moves(ops(program, 0)) == [
        ("IRECV", 1, 100),
        ("IRECV", 1, 200),
        ("WAIT", 1, 0),
        ("WAIT", 0, 0),
    ]
    assert_completes(program)


def test_a_matched_receive_without_its_probe_is_counted(build: Build) -> None:
    script = call("MPI_Mrecv", 1, ("mpi_mrecv", 40, 300))
    script += call("MPI_Imrecv", 10, ("mpi_imrecv_request", 41, 7))
    script += call("MPI_Wait", 20, ("mpi_imrecv", 7, 20))
    program = read_trace(build([script, sends((0, 5, 300))]))
    assert program.notes == [
        "2 receives of MPI_Mrecv and MPI_Imrecv have no record of their probe and are left out",
        "1 sends without a matching receive are left out",
    ]


# Threads -----------------------------------------------------------------------------------------


def test_a_request_may_complete_on_another_thread(build: Build) -> None:
    """The number of the request is used again, so that a thread by itself would pair it wrongly."""
    path = build(
        [
            # Rank 0: the first thread posts 9 and later completes what the second one posted as 9.
            call("MPI_Irecv", 1, ("mpi_irecv_request", 9))
            + call("MPI_Wait", 60, ("mpi_irecv", 1, WORLD, 5, 200, 9)),
            call("MPI_Wait", 20, ("mpi_irecv", 1, WORLD, 5, 100, 9))
            + call("MPI_Irecv", 40, ("mpi_irecv_request", 9)),
            sends((0, 5, 100), (0, 5, 200)),
            [],
        ],
        threads=2,
    )
    program = read_trace(path)
    assert program.notes == []
    assert moves(ops(program, 0)) == [
        ("IRECV", 1, 100),
        ("WAIT", 0, 0),
        ("IRECV", 1, 200),
        ("WAIT", 1, 0),
    ]
    assert_completes(program)


def test_one_thread_may_receive_what_another_probed(build: Build) -> None:
    path = build(
        [
            call("MPI_Mprobe", 1, ("mpi_probe", 1, WORLD, 5, 40)),
            call("MPI_Imrecv", 20, ("mpi_imrecv_request", 40, 3)),
            call("MPI_Wait", 40, ("mpi_imrecv", 3, 70)),
            sends((0, 5, 70)),
            [],
            [],
        ],
        threads=3,
    )
    program = read_trace(path)
    assert program.notes == []
    assert moves(ops(program, 0)) == [("IRECV", 1, 70), ("WAIT", 0, 0)]


def during(name: str, start: int, record: tuple[Any, ...], end: int) -> list[tuple[Any, ...]]:
    """Events of a call that lasts and is recorded when it is over."""
    return [(start, "enter", name), (end - 1, *record), (end, "leave", name)]


def test_a_receive_is_posted_before_another_thread_waits(build: Build) -> None:
    """Large messages need their receive: here the second one is sent after the first is through."""
    path = build(
        [
            call("MPI_Barrier", 1) + during("MPI_Recv", 10, ("mpi_recv", 1, WORLD, 1, 2**20), 60),
            during("MPI_Recv", 11, ("mpi_recv", 1, WORLD, 2, 8), 55),
            sends((0, 1, 2**20), (0, 2, 8)),
            [],
        ],
        threads=2,
    )
    program = read_trace(path)
    assert [(name, size) for name, _, size in ops(program, 0)] == [
        ("COMPUTE", 8_000),
        ("IRECV", 2**20),
        ("IRECV", 8),
        ("WAIT", 0),
        ("WAIT", 0),
    ]
    assert_completes(program)


def test_a_collective_is_entered_before_another_thread_waits(build: Build) -> None:
    from otf2.enums import CollectiveOp

    end = ("mpi_collective_end", CollectiveOp.BARRIER, WORLD, 2**32 - 1, 0, 0)
    barrier = during("MPI_Barrier", 10, end, 60)
    path = build(
        [
            call("MPI_Wtime", 1) + barrier,
            during("MPI_Recv", 20, ("mpi_recv", 1, WORLD, 2, 8), 55),
            during("MPI_Barrier", 10, end, 50) + call("MPI_Send", 51, ("mpi_send", 0, WORLD, 2, 8)),
            [],
            barrier,
            [],
        ],
        threads=2,
    )
    program = read_trace(path)
    assert program.notes == []
    kinds = [name for name, _, _ in ops(program, 0)]
    assert kinds == ["COMPUTE", "IRECV", "ISEND", "IRECV", "ISEND", "IRECV", *["WAIT"] * 5]
    assert_completes(program)


def test_a_wait_is_for_its_threads_requests(build: Build) -> None:
    """As EZTrace writes it: what the first thread awaits is sent after what the second one does."""
    path = build(
        [
            call("MPI_Irecv", 1, ("mpi_irecv_request", 1)) + call("MPI_Wait", 60),
            call("MPI_Isend", 5, ("mpi_isend", 1, WORLD, 1, 10, 2))
            + call("MPI_Waitall", 10)
            + call("MPI_Isend", 20, ("mpi_isend", 1, WORLD, 2, 20, 2))
            + call("MPI_Wait", 30),
            call("MPI_Recv", 1, ("mpi_recv", 0, WORLD, 1, 10))
            + call("MPI_Recv", 30, ("mpi_recv", 0, WORLD, 2, 20))
            + call("MPI_Send", 40, ("mpi_send", 0, WORLD, 3, 30)),
            [],
        ],
        threads=2,
    )
    program = read_trace(path)
    assert moves(ops(program, 0)) == [
        ("IRECV", 1, 30),
        ("ISEND", 1, 10),
        ("WAIT", 1, 0),
        ("ISEND", 1, 20),
        ("WAIT", 2, 0),
        ("WAIT", 0, 0),
    ]
    assert_completes(program)


# What does not fit -------------------------------------------------------------------------------


def test_two_sizes_are_counted_and_senders_believed(build: Build) -> None:
    receives = []
    for at, size in enumerate((10, 30, 20)):
        receives += call("MPI_Recv", 1 + 10 * at, ("mpi_recv", 0, WORLD, 4, size))
    program = read_trace(build([sends((1, 4, 10), (1, 4, 20), (1, 4, 30)), receives]))
    (note,) = program.notes
    assert note.startswith(
        "2 messages differ in size between sender and receiver (the first: "
        "20 B from rank 0 with tag 4, received by rank 1 as 30 B)"
    )
    assert [size for name, _, size in ops(program, 1) if name == "IRECV"] == [10, 20, 30]


def test_a_guessed_receive_has_no_second_size(build: Build) -> None:
    """A stream of which one receive says its size and one, as EZTrace writes it, does not."""
    receives = call("MPI_Irecv", 1, ("mpi_irecv_request", 1)) + call("MPI_Wait", 5)
    receives += call("MPI_Recv", 11, ("mpi_recv", 0, WORLD, 4, 20))
    program = read_trace(build([sends((1, 4, 10), (1, 4, 20)), receives]))
    assert not any("another size" in note for note in program.notes)
    assert [size for name, _, size in ops(program, 1) if name == "IRECV"] == [10, 20]


def test_what_is_left_out_leaves_no_label(build: Build) -> None:
    receives = call("MPI_Recv", 1, ("mpi_recv", 0, WORLD, 4, 10))
    receives += call("MPI_Irecv", 11, ("mpi_irecv_request", 1))
    program = read_trace(build([sends((1, 4, 10)), receives]))
    assert "1 receives without a matching send are left out" in program.notes
    assert {label.tag for label in program.labels} == {4}
    assert program.label.max() < len(program.labels)


def test_ambiguous_inter_communicators_are_named(build: Build) -> None:
    script = call("MPI_Intercomm_create", 1) + call("MPI_Comm_dup", 10)
    (note,) = read_trace(build([script, script])).notes
    assert note.startswith(
        "2 calls of MPI_Intercomm_create: the trace does not distinguish inter-communicators"
    )
    assert "record with Score-P" in note
    # Score-P defines them as what they are.
    (note,) = read_trace(build([script, script], creator="Score-P 8.4")).notes
    assert "Intercomm" not in note


def test_a_trace_without_any_message_says_so(build: Build) -> None:
    """As EZTrace writes a program that only calls MPI_Neighbor_alltoall, which it does not see."""
    script = call("MPI_Cart_create", 1) + call("MPI_Wait", 10)
    (note,) = read_trace(build([script, script])).notes
    assert note.startswith("the trace has 4 MPI calls of 2 ranks and no message")
    assert "pml-monitoring" in note
    # One rank has nobody to send to.
    assert read_trace(build([script])).notes == []


# Collectives with a vector of counts -------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("operation", ["SCATTERV", "GATHERV"])
@pytest.mark.parametrize("creator", ["", "Score-P 8.4"])
def test_unequal_blocks_are_those_recorded(
    build: Build, creator: str, operation: str, in_place: bool
) -> None:
    from otf2.enums import CollectiveOp

    root, blocks = 1, [100, 40, 300, 7]
    scripts = []
    for rank, block in enumerate(blocks):
        own_bytes = 0 if in_place and rank == root else block
        total = sum(blocks) - (blocks[root] if in_place and creator else 0)
        # EZTrace writes the arguments of the call, which all ranks may have given.
        total = total if rank == root or not creator else 0
        sizes = (total, own_bytes) if operation == "SCATTERV" else (own_bytes, total)
        end = ("mpi_collective_end", getattr(CollectiveOp, operation), WORLD, root, *sizes)
        name = f"MPI_{operation.capitalize()}"
        scripts.append(call(name, 1, ("mpi_collective_begin",), end))
    program = read_trace(build(scripts, creator=creator))
    assert program.notes == []
    others = [(0, 100), (2, 300), (3, 7)]
    outwards, inwards = ("ISEND", "IRECV") if operation == "SCATTERV" else ("IRECV", "ISEND")
    at_root = [(name, peer, size) for name, peer, size in ops(program, root) if name != "WAIT"]
    assert sorted(at_root) == [(outwards, peer, size) for peer, size in others]
    for peer, size in others:
        assert ops(program, peer)[0] == (inwards, root, size)
    assert_completes(program)
