"""Nsight Systems exports: requests, communicators, and files that are cut, damaged or hostile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailback.errors import TailbackError, TraceError
from tailback.evidence import measure
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import READERS, read_trace
from tests.factories.blocking import run_blocking
from tests.factories.nsight_exports import WORLD, sample, write_export
from tests.factories.public_data import real


def operations(program: Program, rank: int) -> list[str]:
    low, high = (int(program.rank_start[rank + k]) for k in (0, 1))
    out = []
    for at in range(low, high):
        op = Op(int(program.kind[at]))
        number = program.request[at] if op == Op.WAIT else program.amount[at]
        out.append(f"{op.name} {number}")
    return out


def to(peer: int, size: int, **more: int) -> dict[str, int]:
    return {"commHandle": WORLD, "tag": 1, "remoteRank": peer, "size": size, **more}


def test_requests_are_complete_where_a_wait_names_them(tmp_path: Path) -> None:
    program = read_trace(sample(tmp_path))
    assert operations(program, 0) == [
        "COMPUTE 10000",
        "IRECV 40",
        "COMPUTE 10000",
        "ISEND 50",
        "COMPUTE 10000",
        "WAIT 0",
        "WAIT 1",
        "COMPUTE 5000",
        "ISEND 30",
        "WAIT 2",
    ]
    # 20 + 20 + 30 + 5 ns and 50 + 10 + 30 ns in calls: MPI_Waitall has two rows and counts once.
    assert program.recording is not None
    assert program.recording.calls_ps == (75 + 90) * 1000 // 2
    assert {label.call for label in program.labels} >= {"MPI_Irecv", "MPI_Send", "MPI_Bcast"}


def test_a_reused_handle_is_another_request(tmp_path: Path) -> None:
    write_export(
        tmp_path / "all.sqlite",
        {
            0: [
                (0, 1, "MPI_Isend", to(1, 8, requestHandle=9)),
                (2, 3, "MPI_Wait", {"requestHandle": 9}),
                (4, 5, "MPI_Isend", to(1, 9, requestHandle=9)),
                (6, 7, "MPI_Test", {"requestHandle": 4}),
            ],
            1: [(0, 1, "MPI_Recv", to(-1, 8)), (2, 3, "MPI_Recv", to(0, 9))],
        },
    )
    program = read_trace(tmp_path)
    assert [operation for operation in operations(program, 0) if "COMPUTE" not in operation] == [
        "ISEND 8",
        "WAIT 0",
        "ISEND 9",
        "WAITALL 0",
    ]
    assert any("from any source" in note for note in program.notes)
    assert run_blocking(program)


def test_what_cannot_be_expanded_is_counted(tmp_path: Path) -> None:
    other = {"commHandle": 77, "tag": 1, "remoteRank": 0, "size": 8}
    write_export(
        tmp_path / "all.sqlite",
        {
            0: [
                (0, 1, "MPI_Send", to(1, 8)),
                (2, 3, "MPI_Send", other),
                (4, 5, "MPI_Sendrecv", to(1, 8)),
                (6, 7, "MPI_Send", to(-2, 8)),
                (8, 9, "MPI_Bcast", {"rootRank": 0, "size": 4, "commHandle": WORLD}),
            ],
            1: [(0, 1, "MPI_Recv", to(0, 8))],
        },
    )
    program = read_trace(tmp_path / "all.sqlite")
    assert int(program.sends.sum()) == 1
    notes = " ".join(program.notes)
    assert "1 calls on communicators" in notes and "1 MPI_Sendrecv" in notes
    assert "1 collectives that were not recorded alike" in notes


def test_all_ranks_are_required(tmp_path: Path) -> None:
    sample(tmp_path)
    with pytest.raises(TraceError, match="rank 1 are missing"):
        read_trace(tmp_path / "rank0.sqlite")
    (tmp_path / "copy.sqlite").write_bytes((tmp_path / "rank0.sqlite").read_bytes())
    with pytest.raises(TraceError, match="holds rank 0, and so does"):
        read_trace(tmp_path)


def test_a_cut_export_is_refused(tmp_path: Path) -> None:
    sample(tmp_path)
    file = tmp_path / "rank1.sqlite"
    contents = file.read_bytes()
    for length in [1, 16, 99, 100, *range(512, len(contents), 512), len(contents) - 1]:
        file.write_bytes(contents[:length])
        with pytest.raises(TraceError, match=r"whole SQLite|is damaged") as caught:
            READERS["nsight"].read(file)
        assert caught.value.file == file and caught.value.remedy


@pytest.mark.slow
def test_a_damaged_export_is_read_or_refused(tmp_path: Path) -> None:
    sample(tmp_path)
    file = tmp_path / "rank1.sqlite"
    contents = file.read_bytes()
    generator = np.random.default_rng(11)
    for _ in range(150):
        damaged = bytearray(contents)
        for at in generator.integers(0, len(contents), 6):
            damaged[at] = generator.integers(0, 256)
        file.write_bytes(damaged)
        for reading in (read_trace, measure):
            try:
                reading(tmp_path, format="nsight")
            except TailbackError as error:
                assert error.remedy


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE MPI_P2P_EVENTS SET size = 'much'", "holds something else"),
        ("UPDATE MPI_P2P_EVENTS SET size = x'00'", "holds something else"),
        ("UPDATE MPI_P2P_EVENTS SET size = 9223372036854775807", "impossible size"),
        ("UPDATE MPI_P2P_EVENTS SET end = 0", "impossible times"),
        ("UPDATE MPI_P2P_EVENTS SET remoteRank = 2147483647", "are missing"),
        ("UPDATE MPI_RANKS SET rank = -1", "has rank"),
        ("UPDATE MPI_RANKS SET globalTid = 0", "without a rank"),
        ("DROP TABLE MPI_RANKS", "holds no calls of MPI"),
        ("ALTER TABLE MPI_P2P_EVENTS RENAME COLUMN start TO begun", "is damaged"),
    ],
)
def test_a_hostile_export_is_refused(statement: str, message: str, tmp_path: Path) -> None:
    calls = {0: [(1, 2, "MPI_Send", to(1, 8))], 1: [(1, 2, "MPI_Recv", to(0, 8))]}
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(write_export(tmp_path / "h.sqlite", calls, [statement]))
    assert caught.value.file and caught.value.remedy


def test_a_view_replaces_no_table(tmp_path: Path) -> None:
    endless = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS start, "
        "n AS end, n AS globalTid, n AS textId FROM r"
    )
    path = write_export(
        tmp_path / "v.sqlite",
        {0: []},
        [
            "DROP TABLE MPI_P2P_EVENTS",
            f"CREATE VIEW MPI_P2P_EVENTS AS {endless}",
            "DROP TABLE MPI_COLLECTIVES_EVENTS",
        ],
    )
    with pytest.raises(TraceError, match="holds no calls of MPI"):
        read_trace(path)


@pytest.mark.data
def test_an_export_of_2022_has_names_only() -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(real("nsys"))
    assert "10 MPI_Send, 5 MPI_Recv" in caught.value.message and "--trace=mpi" in str(
        caught.value.remedy
    )
