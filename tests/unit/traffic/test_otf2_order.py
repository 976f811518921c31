"""The OTF2 reader: whose time, order, root and size it is, on traces worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailback.traffic.program import Op
from tailback.traffic.readers import read_trace
from tests.factories.otf2_traces import Build, assert_completes, call, ops, writing

WORLD = "MPI_COMM_WORLD"
NOBODY = 2**32 - 1


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return writing(tmp_path)


def collective(what: str, root: int, sent: int, received: int) -> list[tuple[Any, ...]]:
    """Events of one blocking collective call."""
    from otf2.enums import CollectiveOp

    end = ("mpi_collective_end", getattr(CollectiveOp, what), WORLD, root, sent, received)
    return call(f"MPI_{what.capitalize()}", 1, ("mpi_collective_begin",), end)


def test_time_before_the_first_call_is_separate(
    build: Build,
) -> None:
    """Rank 1 calls MPI for the first time long after rank 0 is through."""
    program = read_trace(
        build(
            [
                call("MPI_Send", 1, ("mpi_send", 1, WORLD, 5, 8)),
                call("MPI_Recv", 1000, ("mpi_recv", 0, WORLD, 5, 8)),
            ]
        )
    )
    assert ops(program, 1) == [("IRECV", 0, 8), ("WAIT", 0, 0)]


def test_streams_of_other_lengths_are_interleaved_evenly(build: Build) -> None:
    """Of three messages the n-th stands 1/6, 3/6 and 5/6 of the way, of one message it is 1/2."""
    requests = range(1, 5)
    posts = [call("MPI_Irecv", 10 * n, ("mpi_irecv_request", n)) for n in requests]
    program = read_trace(
        build(
            [
                call("MPI_Send", 1, ("mpi_send", 2, WORLD, 5, 100)),
                [
                    event
                    for n in (1, 2, 3)
                    for event in call("MPI_Send", 10 * n, ("mpi_send", 2, WORLD, 5, n))
                ],
                [event for post in posts for event in post] + call("MPI_Waitall", 60),
            ]
        )
    )
    receives = [(peer, size) for name, peer, size in ops(program, 2) if name == "IRECV"]
    assert receives == [(1, 1), (0, 100), (1, 2), (1, 3)]
    assert_completes(program)


@pytest.mark.parametrize(
    "scripts",
    [
        # Every rank names itself as the root.
        lambda: [collective("BCAST", rank, 8, 8) for rank in (0, 1)],
        # One broadcasts, the other gathers.
        lambda: [collective("BCAST", 0, 8, 8), collective("GATHER", 0, 8, 8)],
    ],
    ids=["root", "operation"],
)
def test_a_collective_in_disagreement_is_left_out(build: Build, scripts: Any) -> None:
    program = read_trace(build(scripts()))
    assert not (program.kind == Op.ISEND).any()
    assert any(note.startswith("1 collectives that were not recorded") for note in program.notes)


@pytest.mark.parametrize("blocking", [True, False])
def test_scatterv_gives_each_rank_its_block(build: Build, blocking: bool) -> None:
    """The root records the total alone, and each rank what it receives: 10, 20 and 30 octets."""
    from otf2.enums import CollectiveOp

    scripts = []
    for rank, block in enumerate((10, 20, 30)):
        facts = (CollectiveOp.SCATTERV, WORLD, 0, 60 if rank == 0 else 0, block)
        if blocking:
            end = ("mpi_collective_end", *facts)
            scripts.append(call("MPI_Scatterv", 1, ("mpi_collective_begin",), end))
        else:
            end = ("non_blocking_collective_complete", *facts, 7)
            begin = ("non_blocking_collective_request", 7)
            scripts.append(call("MPI_Iscatterv", 1, begin) + call("MPI_Wait", 9, end))
    program = read_trace(build(scripts, creator="Score-P 8.4"))
    assert program.notes == []
    sends = sorted((peer, size) for name, peer, size in ops(program, 0) if name == "ISEND")
    assert sends == [(1, 20), (2, 30)]
    for rank, block in ((1, 20), (2, 30)):
        assert ("IRECV", 0, block) in ops(program, rank)
    assert_completes(program)
