"""Traces of SST DUMPI, binary and as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.errors import TraceError
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import read_trace
from tests.factories.blocking import run_blocking
from tests.factories.dumpi_traces import (
    INT,
    WORLD,
    Script,
    binary,
    everything,
    text,
    write,
)
from tests.factories.public_data import real

SAMPLE = "dumpi-testtrace/tests/traces"


def message(peer: int, count: int, tag: int = 0, comm: int = WORLD, **more: Any) -> dict[str, Any]:
    return {
        "count": count,
        "datatype": INT,
        "dest": peer,
        "source": peer,
        "tag": tag,
        "comm": comm,
        **more,
    }


def operations(program: Program, rank: int) -> list[tuple[str, int, int]]:
    low, high = (int(program.rank_start[rank + k]) for k in (0, 1))
    return [
        (
            Op(int(program.kind[at])).name,
            int(program.peer[at]),
            int(program.amount[at] if program.kind[at] != Op.WAIT else program.request[at]),
        )
        for at in range(low, high)
    ]


@pytest.mark.data
def test_the_test_trace_of_dumpi_adds_up() -> None:
    """A barrier (8 messages), a ring of 4 B and a sum of 4 B in two rounds (8 messages)."""
    program = read_trace(real(SAMPLE))
    sends = program.kind == Op.ISEND
    assert (program.n_ranks, int(sends.sum())) == (4, 8 + 4 + 8)
    assert int(program.amount[sends].sum()) == 4 * 4 + 8 * 4
    assert {label.phase for label in program.labels} == {
        "MPI_Barrier",
        "tag 1337",
        "MPI_Allreduce",
    }
    assert run_blocking(program)
    # Rank 0 computes 24 us after MPI_Init and 6 us before MPI_Comm_size, as the text says.
    assert operations(program, 0)[:2] == [("COMPUTE", -1, 24_000_000), ("COMPUTE", -1, 6_000_000)]
    assert program.recording is not None and program.recording.calls_ps > 0
    for name in ("testtrace.meta", "testtrace-0002.bin"):
        assert np.array_equal(read_trace(real(f"{SAMPLE}/{name}")).amount, program.amount)


@pytest.mark.data
def test_binary_and_text_say_the_same() -> None:
    """dumpi2ascii made the text of the binary file."""
    of_binary, of_text = (
        everything([real(f"{SAMPLE}/testtrace-0000.{kind}")] * 4) for kind in ("bin", "txt")
    )
    for table in ("posts", "computes", "collectives"):
        assert len(of_binary[table]["rank"]) > 0
        for name, column in of_binary[table].items():
            assert np.array_equal(column, of_text[table][name]), name
    assert of_binary["labels"] == of_text["labels"]
    assert of_binary["inside_ns"] == of_text["inside_ns"]


@pytest.mark.data
def test_one_rank_of_four_is_refused() -> None:
    with pytest.raises(TraceError, match="numprocs=4, and there are files of 1"):
        read_trace(real(f"{SAMPLE}/testtrace-0000.txt"))


def test_rank_counts_are_compared_with_recorded_ones(tmp_path: Path) -> None:
    write(tmp_path, [(20, 21, "MPI_Comm_size", {"comm": WORLD, "size": 4})])
    (tmp_path / "run.meta").unlink()
    with pytest.raises(TraceError, match="the run had 4 ranks, but there are files of 1") as caught:
        read_trace(tmp_path / "run-0000.bin")
    assert caught.value.file == tmp_path / "run-0000.bin"


EXCHANGE: list[Script] = [
    [
        (20, 25, "MPI_Isend", message(1, 5, 7, request=4)),
        (25, 30, "MPI_Irecv", message(-1, 9, -1, request=5)),
        (90, 95, "MPI_Waitall", {"count": 2, "requests": [4, 5], "statuses": [(0, 0), (1, 3)]}),
        (
            95,
            99,
            "MPI_Gather",
            {
                "commrank": 0,
                "sendcount": 2,
                "sendtype": INT,
                "root": 0,
                "comm": WORLD,
                "recvcount": 2,
                "recvtype": INT,
            },
        ),
    ],
    [
        (20, 40, "MPI_Recv", message(0, 5, 7)),
        (50, 60, "MPI_Send", message(0, 6, 3)),
        (
            60,
            99,
            "MPI_Gather",
            {"commrank": 1, "sendcount": 2, "sendtype": INT, "root": 0, "comm": WORLD},
        ),
    ],
]


def test_text_and_binary_compile_to_the_same_program(tmp_path: Path) -> None:
    for kind in ("binary", "words"):
        (tmp_path / kind).mkdir()
    of_binary = read_trace(write(tmp_path / "binary", *EXCHANGE))
    write(tmp_path / "words", *EXCHANGE, as_text=True)
    of_text = read_trace(tmp_path / "words")
    assert operations(of_binary, 0) == [
        ("COMPUTE", -1, 10_000),
        ("ISEND", 1, 20),
        ("IRECV", 1, 24),
        ("COMPUTE", -1, 60_000),
        ("WAIT", -1, 0),
        ("WAIT", -1, 1),
        ("IRECV", 1, 8),
        ("WAIT", -1, 2),
    ]
    for rank in (0, 1):
        assert operations(of_binary, rank) == operations(of_text, rank)
    assert [label.call for label in of_binary.labels] == [label.call for label in of_text.labels]


def test_ranks_of_a_split_communicator_are_translated(tmp_path: Path) -> None:
    """Even ranks in reverse, odd ranks as they are: local rank 0 is 2 and 1."""

    def script(rank: int) -> Script:
        split = {
            "oldcomm": WORLD,
            "color": rank % 2,
            "key": -rank if rank % 2 == 0 else rank,
            "newcomm": 4,
        }
        local = {0: 1, 2: 0, 1: 0, 3: 1}[rank]
        call = "MPI_Send" if local == 0 else "MPI_Recv"
        return [
            (20, 21, "MPI_Comm_split", split),
            (30, 31, call, message(1 - local, rank + 1, comm=4)),
            (40, 41, "MPI_Barrier", {"comm": 4}),
        ]

    program = read_trace(write(tmp_path, *(script(rank) for rank in range(4))))
    sends = (program.kind == Op.ISEND) & (program.amount > 0)
    pairs = zip(program.op_rank[sends].tolist(), program.peer[sends].tolist(), strict=True)
    assert sorted(pairs) == [(1, 3), (2, 0)]
    assert len({label.communicator for label in program.labels}) == 2
    assert not any("left out" in note for note in program.notes)
    assert run_blocking(program)


def test_persistent_requests_send_at_every_start(tmp_path: Path) -> None:
    def script(call: str) -> Script:
        first = (20, 21, call, message(1 if call == "MPI_Send_init" else 0, 3, request=8))
        steps = ((30, "MPI_Start"), (31, "MPI_Wait"), (40, "MPI_Start"), (41, "MPI_Wait"))
        return [first, *((now, now + 1, name, {"request": 8}) for now, name in steps)]

    program = read_trace(write(tmp_path, script("MPI_Send_init"), script("MPI_Recv_init")))
    assert [operation[0] for operation in operations(program, 0) if operation[0] != "COMPUTE"] == [
        "ISEND",
        "WAIT",
        "ISEND",
        "WAIT",
    ]


def test_counts_of_alltoallv_are_those_of_each_pair(tmp_path: Path) -> None:
    def script(rank: int) -> Script:
        arguments = {
            "commsize": 2,
            "sendcounts": [1, 2 + rank],
            "senddispls": [0, 0],
            "sendtype": INT,
            "recvcounts": [1 + rank, 3] if rank else [1, 1],
            "recvdispls": [0, 0],
            "recvtype": INT,
            "comm": WORLD,
        }
        return [(20, 30, "MPI_Alltoallv", arguments)]

    program = read_trace(write(tmp_path, script(0), script(1)))
    sends = program.kind == Op.ISEND
    assert program.amount[sends].tolist() == [2 * 4, 1 * 4]


def test_an_unknown_communicator_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, [(20, 21, "MPI_Send", message(1, 1, comm=77))], [])
    with pytest.raises(TraceError, match="communicator 77 is used before it is created") as caught:
        read_trace(path)
    assert caught.value.file == path / "run-0000.bin"
    assert (caught.value.place or "").startswith("byte ")


def test_missing_ranks_and_old_versions_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [], [], [])
    (path / "run-0002.bin").write_bytes(binary([], (0, 6, 1)))
    with pytest.raises(TraceError, match=r"version 0\.6\.1, older than") as caught:
        read_trace(path)
    assert "dumpi2ascii" in (caught.value.remedy or "")
    (path / "run-0002.bin").unlink()
    with pytest.raises(TraceError, match="numprocs=3, and there are files of 2"):
        read_trace(path)
    (path / "run-0000.bin").unlink()
    with pytest.raises(TraceError, match="file of rank 0 is missing"):
        read_trace(path)


@pytest.mark.parametrize(
    ("before", "after", "message_"),
    [
        (
            "MPI_Send returning",
            "MPI_Recv returning",
            "MPI_Recv returns without having been entered",
        ),
        ("int count=6\n", "", "no valid argument"),
        ("int count=6", "int count=-6", "-6 elements"),
        ("int count=6", "int count=999999999999999999", "elements of 4 B"),
        ("MPI_Finalize", "MPI_Wtime", "does not end with MPI_Finalize"),
        ("walltime 1000.000000050", "walltime 10.0", "begins or ends before"),
        ("walltime 1000.000000060, ", "walltime 999999999999.0, ", "begins or ends before|later"),
    ],
)
def test_text_that_does_not_fit_is_refused(
    tmp_path: Path, before: str, after: str, message_: str
) -> None:
    for rank, script in enumerate(([], EXCHANGE[1][1:2])):
        lines = text(script)
        (tmp_path / f"run-{rank}.txt").write_text(lines.replace(before, after))
    with pytest.raises(TraceError, match=message_) as caught:
        read_trace(tmp_path)
    assert caught.value.file in (tmp_path / "run-1.txt", tmp_path / "run-0.txt")
    assert caught.value.remedy


def test_text_cut_within_the_calls_is_refused(tmp_path: Path) -> None:
    contents = text([(20, 30, "MPI_Barrier", {"comm": WORLD})])
    file = tmp_path / "run-0.txt"
    for length in range(contents.index("Total keyvals"), 0, -1):
        file.write_text(contents[: length - 1])
        with pytest.raises(TraceError) as caught:
            read_trace(file, format="dumpi")
        assert caught.value.remedy
