"""SimGrid's time-independent traces."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tailback.errors import TraceError
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import read_trace
from tests.factories.public_data import real


def totals(program: Program) -> tuple[int, int]:
    sends = program.kind == Op.ISEND
    return int(sends.sum()), int(program.amount[sends].sum())


def operations(program: Program, rank: int) -> list[str]:
    low, high = (int(program.rank_start[rank + k]) for k in (0, 1))
    return [
        f"{Op(int(kind)).name} {request if request >= 0 else amount}"
        for kind, request, amount in zip(
            program.kind[low:high], program.request[low:high], program.amount[low:high], strict=True
        )
    ]


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.txt"
    path.write_text(text)
    return path


def trace_text(*ranks: str) -> str:
    """A trace with these calls of each rank, between init and finalize."""
    return "".join(
        f"{rank} init\n{''.join(f'{rank} {call}' + chr(10) for call in calls.split('; ') if call)}"
        f"{rank} finalize\n"
        for rank, calls in enumerate(ranks)
    )


EXAMPLES = [
    # Messages and bytes by hand, with the types of their lines; without one a byte, or a double
    # where init has an argument.
    ("actions_allgatherv.txt", 4, 12, 3 * 8 * (3 * 275_427 + 204_020)),
    ("actions_allreduce.txt", 3, 12, 200_000),
    ("actions_alltoall.txt", 3, 6, 6 * 500),
    ("actions_alltoallv.txt", 3, 6, 40 + 30 + 80 + 40 + 100 + 30),
    ("actions_barrier.txt", 3, 7, 10_000_000),
    ("actions_bcast.txt", 3, 6, 6 * 50_000),
    ("actions_bcast_reduce_datatypes.txt", 3, 6, 2 * 50_000 * (8 + 2 + 8)),
    ("actions_gather.txt", 4, 3, 3 * 68 * 8),
    ("actions_waitall.txt", 3, 3, 2_000 + 3_000 + 3_000),
    ("actions_with_isend.txt", 3, 3, 3_000_000),
    ("split_traces", 2, 3, 3_000_000),
]


@pytest.mark.data
@pytest.mark.parametrize(("name", "ranks", "messages", "size"), EXAMPLES)
def test_examples_of_simgrid_add_up(name: str, ranks: int, messages: int, size: int) -> None:
    program = read_trace(real(f"simgrid-ti/examples/smpi/replay/{name}"))
    assert program.n_ranks == ranks
    assert totals(program) == (messages, size)


@pytest.mark.data
@pytest.mark.slow
def test_a_stencil_in_1024_files_adds_up() -> None:
    """Ten steps: 4 x 4096 B a rank, and a sum of 8 B by recursive doubling (ten rounds)."""
    program = read_trace(real("smpi-ti-stencil1024"))
    assert program.n_ranks == 1024
    assert totals(program) == (1024 * 10 * (4 + 10), 1024 * 10 * (4 * 4096 + 10 * 8))
    index = read_trace(real("smpi-ti-stencil1024/smpi_simgrid.txt"))
    assert np.array_equal(index.amount, program.amount)


@pytest.mark.slow
@pytest.mark.data
def test_a_stencil_of_27648_ranks_adds_up() -> None:
    """The sum of 8 B folds the 11,264 ranks over 16,384 in, takes 14 rounds, and unfolds."""
    program = read_trace(real("smpi-ti-stencil27648"))
    stencil, folded = 4 * 27_648, 2 * 11_264 + 14 * 16_384
    assert program.n_ranks == 27_648
    assert totals(program) == (stencil + folded, 4096 * stencil + 8 * folded)


@pytest.mark.data
def test_a_folder_without_an_index_is_one_trace() -> None:
    program = read_trace(real("simgrid-ti/examples/smpi/replay_multiple/ti_traces_32_1"))
    calls = Counter(label.call for label in program.labels)
    assert program.n_ranks == 32
    assert set(calls) == {
        "MPI_Bcast",
        "MPI_Alltoall",
        "MPI_Allreduce",
        "MPI_Barrier",
        "MPI_Gather",
        "MPI_Alltoallv",
    }
    assert not any("left out" in note for note in program.notes)
    assert any("1 Gflop/s" in note for note in program.notes)


def test_a_wait_takes_the_oldest_matching_request(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        trace_text(
            "isend 1 7 10; isend 1 7 20; isend 1 8 30; "
            "wait 0 1 8; wait 0 1 7; compute 5; waitall 1",
            "recv 0 7 10; recv 0 7 20; recv 0 8 30",
        ),
    )
    assert operations(read_trace(path), 0) == [
        "ISEND 0",
        "ISEND 1",
        "ISEND 2",
        "WAIT 2",
        "WAIT 0",
        "COMPUTE 5000",
        "WAITALL 0",
    ]


def test_open_requests_are_waited_for_at_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, trace_text("isend 1 7 10; test 0 1 7", "recv 0 7 10"))
    program = read_trace(path)
    assert operations(program, 0) == ["ISEND 0", "WAITALL 0"]
    assert any("1 calls of MPI_Test" in note for note in program.notes)


def test_sendrecv_posts_both_before_it_waits(tmp_path: Path) -> None:
    both = "sendRecv 3 {0} 3 {0} 0 0"
    program = read_trace(write(tmp_path, trace_text(both.format(1), both.format(0))))
    assert operations(program, 0) == ["IRECV 0", "ISEND 1", "WAIT 0", "WAIT 1"]
    assert totals(program) == (2, 48)


def test_an_any_source_receive_gets_leftover_messages(tmp_path: Path) -> None:
    path = write(tmp_path, trace_text("recv -555 3 1; recv 2 3 1", "send 0 3 9", "send 0 3 9"))
    program = read_trace(path)
    assert totals(program) == (2, 18)
    assert program.peer[program.kind == Op.IRECV].tolist() == [1, 2]
    assert any("any source" in note for note in program.notes)


def test_nobody_gets_nothing(tmp_path: Path) -> None:
    program = read_trace(write(tmp_path, trace_text("send -666 1 5; recv -666 1 5", "")))
    assert totals(program) == (0, 0)
    assert "2 sends and receives of MPI_PROC_NULL move nothing" in program.notes


def test_smaller_communicators_collectives_are_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path, trace_text("barrier; allreduce 4 0 0", "barrier; allreduce 4 0 0", "barrier")
    )
    program = read_trace(path)
    assert {label.call for label in program.labels} == {"MPI_Barrier"}
    assert any(note.startswith("1 collectives that differ between ranks") for note in program.notes)


def test_gatherv_and_scatterv_move_each_ranks_counts(tmp_path: Path) -> None:
    calls = "gatherv {0} 1 2 4 0 6 6; scatterv 8 16 32 {1} 0 6 6"
    path = write(tmp_path, trace_text(*(calls.format(1 << rank, 8 << rank) for rank in range(3))))
    program = read_trace(path)
    sends = program.kind == Op.ISEND
    columns = (program.op_rank[sends], program.peer[sends], program.amount[sends])
    messages = sorted(zip(*(column.tolist() for column in columns), strict=True))
    assert messages == [(0, 1, 16), (0, 2, 32), (1, 0, 2), (2, 0, 4)]


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ("send 9 0 5", "names rank 9, but the trace has 2 ranks"),
        ("send 1 0 -5", "size '-5' is not a number"),
        ("send 1 0 nan", "size 'nan' is not a number"),
        ("send 1 0 1e300", "size '1e300' is not a number"),
        ("send 1 zero 5", "tag 'zero' is not a whole number"),
        ("send 1 0", "has no size"),
        ("send 1 0 5 99", "the type '99' is not one of 0 to 59"),
        ("compute fast", "amount 'fast' is not a number"),
        ("compute -1", "amount '-1' is not a number"),
        ("sleep 1e30", "is not a number from 0"),
        ("bcast 5 7", "root 7 of 2 ranks"),
        ("bcast", "an argument is missing"),
        ("allreduce x 5", "'x' is not a number"),
        ("teleport 5", "unknown call"),
        ("isend 1 99999999999 4", "is not a whole number"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path: Path, calls: str, message: str) -> None:
    path = write(tmp_path, trace_text(f"compute 1; {calls}", ""))
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert (caught.value.file, caught.value.place) == (path, "line 3")
    assert caught.value.remedy


def test_a_missing_rank_or_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "0 init\n0 finalize\n2 init\n2 finalize\n")
    with pytest.raises(TraceError, match="none of rank 1"):
        read_trace(path)
    (tmp_path / "index.txt").write_text("trace.txt\nother.txt\n")
    with pytest.raises(TraceError, match=r"names the file 'other.txt', which is not there"):
        read_trace(tmp_path / "index.txt")


def test_absurd_rank_numbers_take_no_memory(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="none of rank 0"):
        read_trace(write(tmp_path, "999999999 init\n999999999 finalize\n"))


def test_two_traces_in_a_folder_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, trace_text("", ""))
    (tmp_path / "again.txt").write_text(trace_text("", ""))
    with pytest.raises(TraceError, match="begins a second time"):
        read_trace(tmp_path)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_bytes(b"0 init\n0 send 1 \xff\xfe 5\n")
    with pytest.raises(TraceError, match="not text") as caught:
        read_trace(path)
    assert caught.value.place == "byte 16"


def test_collectives_beyond_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILBACK_MEMORY", "1 MiB")
    path = write(tmp_path, trace_text(*["alltoall 5000 5000 6 6"] * 80))
    with pytest.raises(TraceError, match="collectives of the trace makes") as caught:
        read_trace(path)
    assert caught.value.file == path
