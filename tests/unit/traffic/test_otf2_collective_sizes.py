"""Collectives with vectors of counts in OTF2: bytes of each pair, from texts and from totals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tailback.errors import TraceError
from tailback.recorder.collective_sizes import ATTRIBUTE
from tailback.traffic.program import Program
from tailback.traffic.readers.otf2.collective_sizes import parse_sizes
from tailback.traffic.readers.otf2.reader import read
from tests.factories.otf2_traces import assert_completes, call, writing

ROOT = 2**32 - 1


def trace_of(
    folder: Path,
    operation: str,
    rows: list[tuple[int, int, str | None]],
    times: int = 1,
    creator: str = "Another",
    attribute: str = "",
) -> Program:
    """The program of a trace of one collective: bytes sent and received, and text of each rank."""
    write = writing(folder / str(len(list(folder.iterdir()))))
    from otf2.enums import CollectiveOp

    scripts = []
    for sent, received, text in rows:
        end: tuple[Any, ...] = (
            "mpi_collective_end",
            getattr(CollectiveOp, operation),
            "MPI_COMM_WORLD",
            ROOT,
            sent,
            received,
        )
        if text is not None:
            end += ({"text": text},)
        name = f"MPI_{operation.capitalize()}"
        script: list[tuple[Any, ...]] = []
        for turn in range(times):
            script += call(name, 100 * turn, ("mpi_collective_begin",), end)
        scripts.append(script)
    program = read(write(scripts, creator=creator, attribute=attribute) / "traces.otf2")
    assert_completes(program)
    return program


def pairs(program: Program) -> Counter[tuple[int, int, int]]:
    rows = program.sends.nonzero()[0]
    return Counter(
        (int(program.op_rank[row]), int(program.peer[row]), int(program.amount[row]))
        for row in rows
    )


EVEN = "calls of MPI_Alltoallv: only the bytes that each rank moves in total are recorded"


def test_texts_are_the_bytes_of_each_pair(tmp_path: Path) -> None:
    rows = [(9, 15, "1 8 0"), (30, 12, None), (7, 19, "4 3 0")]
    program = trace_of(tmp_path, "ALLTOALLV", rows, times=2, attribute=ATTRIBUTE)
    assert pairs(program) == {
        (0, 1, 8): 2,
        (0, 2, 0): 2,
        (1, 0, 10): 2,
        (1, 2, 10): 2,
        (2, 0, 4): 2,
        (2, 1, 3): 2,
    }
    assert program.notes == []


@pytest.mark.parametrize("text", [None, "unknown"])
def test_totals_alone_are_taken_as_even_and_said(tmp_path: Path, text: str | None) -> None:
    rows = [(9, 9, text), (9, 9, None), (9, 9, None)]
    attribute = ATTRIBUTE if text else "another"
    program = trace_of(tmp_path, "ALLTOALLV", rows, times=4, attribute=attribute)
    assert set(pairs(program)) == {(a, b, 3) for a in range(3) for b in range(3) if a != b}
    assert len(program.notes) == 1 and program.notes[0].startswith(f"4 {EVEN}")


def test_foreign_attributes_and_empty_exchanges_say_nothing(tmp_path: Path) -> None:
    rows: list[tuple[int, int, str | None]] = [(9, 9, "1 2 6"), (9, 9, None), (9, 9, None)]
    assert trace_of(tmp_path, "ALLTOALLV", rows, attribute="another").notes[0].startswith("1 ")
    empty: list[tuple[int, int, str | None]] = [(0, 0, None)] * 3
    assert trace_of(tmp_path, "ALLTOALLV", empty).notes == []


@pytest.mark.parametrize("times", [1, 3, 2])
@pytest.mark.parametrize("in_place", [False, True])
def test_allgatherv_shares_are_what_ranks_sent(tmp_path: Path, times: int, in_place: bool) -> None:
    """Whether a tracer counts them once, for every rank or for every other rank."""
    shares = [5, 0, 40]
    rows: list[tuple[int, int, str | None]] = [
        (times * share, 45 - in_place * share, None) for share in shares
    ]
    program = trace_of(tmp_path, "ALLGATHERV", rows)
    assert pairs(program) == Counter(
        (rank, (rank + 1) % 3, shares[sender])
        for rank in range(3)
        for sender in range(3)
        if sender != (rank + 1) % 3
    )
    assert program.notes == []


def test_totals_that_do_not_agree_are_said(tmp_path: Path) -> None:
    rows: list[tuple[int, int, str | None]] = [(5, 45, None), (7, 45, None), (40, 45, None)]
    notes = trace_of(tmp_path, "ALLGATHERV", rows).notes
    assert notes[0].startswith("1 calls of MPI_Allgatherv: only the bytes that each rank moves")


def test_reduce_scatter_shares_fit_any_rank_count(tmp_path: Path) -> None:
    for n in (2, 3, 5, 8):
        shares = [4 * rank * rank + 1 for rank in range(n)]
        rows: list[tuple[int, int, str | None]] = [
            (sum(shares), n * share, None) for share in shares
        ]
        program = trace_of(tmp_path, "REDUCE_SCATTER", rows)
        # Both ends of each message are the same, and every rank gets at least its share.
        assert program.notes == []
        received: Counter[int] = Counter()
        for (_, to, size), number in pairs(program).items():
            received[to] += size * number
        assert all(received[rank] >= shares[rank] for rank in range(n))
    assert pairs(trace_of(tmp_path, "REDUCE_SCATTER", [(10, 2, None), (10, 18, None)])) == {
        (0, 1, 9): 1,
        (1, 0, 1): 1,
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 8",
        "1 8 0 0",
        "9*1",
        "2*4 1 0",
        "1  8 0",
        "1 x 8",
        "1 -1 9",
        "1*8 1",
        "*9 0 0",
        "999999999999999999999*1",
        "99999999999999999999 0 0",
        "9223372036854775808 0 0",
        "0 0 0",
    ],
)
def test_damaged_texts_are_refused(tmp_path: Path, text: str) -> None:
    rows = [(9, 9, text), (9, 9, None), (9, 9, None)]
    with pytest.raises(TraceError, match="bytes to each rank"):
        trace_of(tmp_path, "ALLTOALLV", rows, attribute=ATTRIBUTE)


def test_runs_of_equal_numbers() -> None:
    assert parse_sizes("3*0 7 2*12", 6) == (0, 0, 0, 7, 12, 12)
