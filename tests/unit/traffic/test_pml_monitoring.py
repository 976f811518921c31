"""Open MPI's monitoring profiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailback.errors import TraceError
from tailback.traffic.program import Op
from tailback.traffic.readers import pml_monitoring, read_trace
from tests.factories.public_data import real


@pytest.fixture
def sample() -> Path:
    return real("ompi-pml-monitoring16")


def write(folder: Path, *profiles: str, stem: str = "prof") -> Path:
    folder.mkdir(exist_ok=True)
    for rank, lines in enumerate(profiles):
        (folder / f"{stem}.{rank}.prof").write_text("# POINT TO POINT\n" + lines)
    return folder


def line(kind: str, source: int, target: int, size: int, messages: int) -> str:
    return f"{kind}\t{source}\t{target}\t{size} bytes\t{messages} msgs sent\t0,0,1\n"


@pytest.mark.data
def test_the_totals_are_those_of_the_files(sample: Path) -> None:
    """Sums of the E and I lines over the 16 files, added up with awk."""
    program = read_trace(sample)
    sends = program.kind == Op.ISEND
    for label, size, messages in ((0, 2_621_440, 640), (1, 5_480, 730)):
        mine = sends & (program.label == label)
        assert (int(program.amount[mine].sum()), int(mine.sum())) == (size, messages)
    receives = program.kind == Op.IRECV
    assert int(receives.sum()) == int(sends.sum())
    source, target, size_of = program.traffic_matrix()
    pairs = {(int(s), int(t)): int(b) for s, t, b in zip(source, target, size_of, strict=True)}
    # Rank 3 to 2: 40,960 B of the application and 92 B of collectives; to 1 collectives alone.
    assert pairs[3, 2] == 40_960 + 92
    assert pairs[3, 1] == 80
    assert program.n_ranks == 16


@pytest.mark.data
def test_one_file_stands_for_its_set(sample: Path) -> None:
    from_file, all_ = read_trace(sample / "prof.3.prof"), read_trace(sample)
    assert np.array_equal(from_file.amount, all_.amount)


@pytest.mark.data
def test_members_of_communicators_are_parsed(sample: Path) -> None:
    communicators = pml_monitoring.read_profile(sample).communicators
    assert ("MPI_COMM_WORLD", tuple(range(16))) in communicators
    assert ("MPI_COMM_SELF", (7,)) in communicators
    assert len(communicators) == 2 + 16


def test_receives_then_sends_round_robin_then_wait(tmp_path: Path) -> None:
    path = write(
        tmp_path / "run",
        line("E", 0, 1, 10, 3) + line("E", 0, 2, 8, 2),
        line("E", 1, 0, 1, 1),
        "",
    )
    program = read_trace(path)
    start = program.rank_start.astype(int)
    ops = [
        (Op(int(k)).name, int(p), int(a))
        for k, p, a in zip(
            program.kind[: start[1]],
            program.peer[: start[1]],
            program.amount[: start[1]],
            strict=True,
        )
    ]
    assert ops == [
        ("IRECV", 1, 1),
        ("ISEND", 1, 3),
        ("ISEND", 2, 4),
        ("ISEND", 1, 3),
        ("ISEND", 2, 4),
        # The remainder is in the last message.
        ("ISEND", 1, 4),
        ("WAITALL", -1, 0),
    ]
    assert program.request[: start[1]].tolist() == [0, 1, 2, 3, 4, 5, -1]


def test_a_rank_that_is_silent_has_no_operations(tmp_path: Path) -> None:
    program = read_trace(write(tmp_path / "run", line("E", 0, 1, 0, 2), "", ""))
    assert np.diff(program.rank_start.astype(int)).tolist() == [3, 3, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense\n", "cannot parse 'nonsense'"),
        ("E\t0\t1\t12 bytes\n", "cannot parse"),
        (line("E", 1, 0, 5, 1), "source 1 in the profile of rank 0"),
        (line("E", 0, 7, 5, 1), "destination 7 of a run of 2 ranks"),
        (line("E", 0, 1, 5, 0), "5 bytes in no message"),
        (line("E", 0, 1, 5, 1) * 2, "a second line for destination 1"),
        ("D\tMPI_COMM_WORLD\tprocs: 0,9\n", "member 9 of a run of 2 ranks"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "run", text, "")
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.file == path / "prof.0.prof"
    assert caught.value.place == f"line {1 + text.count(chr(10))}"


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "run", "", "", "")
    (path / "prof.1.prof").unlink()
    with pytest.raises(TraceError, match="profile of rank 1 is missing"):
        read_trace(path)


def test_missing_profiles_of_last_ranks_are_considered(tmp_path: Path) -> None:
    path = write(tmp_path / "run", line("E", 0, 2, 5, 1), "", "")
    (path / "prof.2.prof").unlink()
    with pytest.raises(TraceError, match="destination 2 of a run of 2 ranks") as caught:
        read_trace(path)
    assert "last ranks are missing" in (caught.value.remedy or "")


def test_a_profile_cut_short_is_refused(tmp_path: Path) -> None:
    world = "D\tMPI_COMM_WORLD\tprocs: 0,1\n"
    contents = line("E", 0, 1, 5, 1) + world
    path = write(tmp_path / "run", contents, world)
    assert read_trace(path).n_ranks == 2
    file = path / "prof.0.prof"
    text = file.read_text()
    for length in range(len(text)):
        file.write_text(text[:length])
        with pytest.raises(TraceError, match="cut short") as caught:
            read_trace(path)
        assert caught.value.file == file


def test_two_runs_in_a_folder_ask_which(tmp_path: Path) -> None:
    path = write(tmp_path / "run", "", "")
    write(path, "", "", stem="again")
    with pytest.raises(TraceError, match="profiles of 2 runs"):
        read_trace(path)
    assert read_trace(path / "again.0.prof").n_ranks == 2


def test_absurd_numbers_of_messages_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "run", line("E", 0, 1, 5, 10**17), "")
    with pytest.raises(TraceError, match="at most 134,217,728 fit in a program"):
        read_trace(path)


def test_a_profile_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "run", "")
    (path / "prof.0.prof").write_bytes(b"# POINT TO POINT\n\xff\xfe")
    with pytest.raises(TraceError, match="not a text file"):
        read_trace(path)


def test_one_sided_traffic_is_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "run", "S\t0\t1\t64 bytes\t2 msgs sent\n", "")
    assert "1 lines about one-sided traffic are left out" in read_trace(path).notes
