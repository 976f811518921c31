"""GOAL schedules, and the order that operations with dependencies get."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.errors import TraceError
from tailback.traffic.program import Op, Program
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.goal import _without_comments
from tailback.traffic.readers.text_lines import pieces
from tests.factories.blocking import run_blocking
from tests.factories.public_data import real


def schedule(folder: Path, *ranks: str) -> Path:
    """A schedule with these operations of each rank, separated by semicolons."""
    blocks = [
        f"rank {rank} {{\n" + ops.replace("; ", "\n") + "\n}\n" for rank, ops in enumerate(ranks)
    ]
    path = folder / "test.goal"
    path.write_text(f"num_ranks {len(ranks)}\n\n" + "\n".join(blocks))
    return path


def operations(program: Program, rank: int) -> list[str]:
    low, high = (int(program.rank_start[rank + k]) for k in (0, 1))
    out = []
    for at in range(low, high):
        op, request = Op(int(program.kind[at])), int(program.request[at])
        message = f"{int(program.amount[at])}>{int(program.peer[at])}"
        detail = {Op.WAIT: str(request), Op.COMPUTE: str(program.amount[at] // 1000)}
        out.append(f"{op.name} {detail.get(op, message if request >= 0 else 'all')}")
    return out


@pytest.mark.data
def test_the_binary_tree_reaches_every_rank() -> None:
    program = read_trace(real("loggopsim-goal/src/LogGOPSim/binary_tree_32.goal"))
    sends = program.kind == Op.ISEND
    assert program.n_ranks == 32
    assert sorted(program.peer[sends].tolist()) == list(range(1, 32))
    assert int(program.amount[sends].sum()) == 31
    # Rank 2 receives before it sends to 6, 10 and 18.
    assert operations(program, 2) == [
        "IRECV 1>0",
        "WAIT 0",
        "ISEND 1>6",
        "ISEND 1>10",
        "ISEND 1>18",
        "WAITALL all",
    ]
    assert run_blocking(program)


def test_what_is_required_is_waited_for_right_before(tmp_path: Path) -> None:
    program = read_trace(
        schedule(
            tmp_path,
            "a: recv 8b from 1 tag 1; b: recv 9b from 1 tag 2; c: calc 5; c requires b; d: calc 6; "
            "d requires a; d requires c",
            "x: send 8b to 0 tag 1; y: send 9b to 0 tag 2",
        )
    )
    assert operations(program, 0) == [
        "IRECV 8>1",
        "IRECV 9>1",
        "WAIT 1",
        "COMPUTE 5",
        "WAIT 0",
        "COMPUTE 6",
    ]


def test_dependencies_decide_the_order(tmp_path: Path) -> None:
    """In the order of the file each rank would wait for a message the other sends later."""
    rank = "w: calc 1; w requires r; r: recv 4b from {0} tag 0; s: send 4b to {0} tag 0"
    program = read_trace(schedule(tmp_path, rank.format(1), rank.format(0)))
    assert operations(program, 0) == [
        "IRECV 4>1",
        "ISEND 4>1",
        "WAIT 0",
        "COMPUTE 1",
        "WAITALL all",
    ]
    assert run_blocking(program)


def test_messages_of_one_tag_meet_in_sending_order(tmp_path: Path) -> None:
    program = read_trace(
        schedule(
            tmp_path,
            "late: send 20b to 1 tag 0; late requires c; c: calc 9; first: send 10b to 1 tag 0",
            "r: recv 10b from 0 tag 0; s: recv 20b from 0 tag 0; s requires r",
        )
    )
    assert operations(program, 1) == ["IRECV 10>0", "WAIT 0", "IRECV 20>0", "WAITALL all"]
    assert not program.notes
    assert run_blocking(program)


def test_what_begins_with_computing_is_posted_first(tmp_path: Path) -> None:
    program = read_trace(
        schedule(
            tmp_path,
            "r: recv 1b from 1 tag 0; c: calc 9; c requires r; "
            "s: send 2b to 1 tag 0; s irequires c",
            "x: send 1b to 0 tag 0; y: recv 2b from 0 tag 0",
        )
    )
    assert operations(program, 0) == [
        "IRECV 1>1",
        "WAIT 0",
        "ISEND 2>1",
        "COMPUTE 9",
        "WAITALL all",
    ]


def test_a_chain_across_ranks_does_not_block(tmp_path: Path) -> None:
    """Rank 0 can only receive from 2 what follows from its own, later written, send to 1."""
    program = read_trace(
        schedule(
            tmp_path,
            "a: recv 1b from 2 tag 0; b: calc 1; b requires a; c: calc 3; d: send 1b to 1 tag 0; "
            "d requires c",
            "a: recv 1b from 0 tag 0; b: send 1b to 2 tag 0; b requires a",
            "a: recv 1b from 1 tag 0; b: send 1b to 0 tag 0; b requires a",
        )
    )
    assert run_blocking(program)


def test_several_cores_and_lonely_messages_are_noted(tmp_path: Path) -> None:
    path = schedule(tmp_path, "calc 5 cpu 0; calc 5 cpu 1; send 4b to 1 tag 3", "calc 1")
    program = read_trace(path)
    assert operations(program, 0) == ["COMPUTE 5", "COMPUTE 5"]
    assert any("up to 2 cores" in note for note in program.notes)
    assert "1 sends without a matching receive are left out" in program.notes


def test_any_source_receives_take_the_first_arrival(tmp_path: Path) -> None:
    program = read_trace(
        schedule(
            tmp_path,
            "a: recv 9b from -1 tag 5; b: recv 9b from -1 tag -1; b requires a; c: calc 2; "
            "c requires b",
            "w: calc 30; x: send 8b to 0 tag 6; x requires w; y: send 7b to 0 tag 5; y requires x",
            "v: calc 20; x: send 3b to 0 tag 5; x requires v; y: send 4b to 0 tag 7; y requires x",
        )
    )
    # At 20 ns rank 2 sends with tags 5 and 7; rank 1 sends at 30 ns, too late for both.
    assert operations(program, 0) == [
        "IRECV 3>2",
        "WAIT 0",
        "IRECV 4>2",
        "WAIT 1",
        "COMPUTE 2",
    ]
    assert "2 sends without a matching receive are left out" in program.notes
    assert any("2 receives from any source" in note for note in program.notes)
    assert run_blocking(program)


def test_any_source_replies_do_not_block(tmp_path: Path) -> None:
    """A server answers each client where its request came from, by its tag."""
    clients = 6
    before = ["s", *(f"r{k}" for k in range(clients))]
    server = "; ".join(
        f"r{k}: recv 8b from -1 tag -1; r{k} requires {before[k]}" for k in range(clients)
    )
    answers = "; ".join(
        f"a{k}: send 16b to {k + 1} tag 9; a{k} requires r{clients - 1}" for k in range(clients)
    )
    client = (
        "c: calc {0}; q: send 8b to 0 tag {0}; q requires c; p: recv 16b from 0 tag 9; p requires q"
    )
    program = read_trace(
        schedule(
            tmp_path,
            f"s: calc 1; {server}; {answers}",
            *(client.format(9 - k) for k in range(clients)),
        )
    )
    received = program.peer[: int(program.rank_start[1])][
        program.kind[: int(program.rank_start[1])] == Op.IRECV
    ]
    # The last client computes least.
    assert received.tolist() == [6, 5, 4, 3, 2, 1]
    assert run_blocking(program)


def test_an_unmatched_any_source_receive_blocks_nothing(
    tmp_path: Path,
) -> None:
    program = read_trace(
        schedule(
            tmp_path,
            "a: recv 9b from -1 tag 1; b: send 5b to 1 tag 2; b requires a",
            "c: recv 5b from -1 tag 2; d: send 6b to 0 tag 3; d requires c",
        )
    )
    assert operations(program, 0) == ["ISEND 5>1", "WAITALL all"]
    assert operations(program, 1) == ["IRECV 5>0", "WAIT 0"]
    assert "1 receives without a matching send are left out" in program.notes
    assert run_blocking(program)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_text_in_pieces_reads_as_one(tmp_path: Path, size: int) -> None:
    path = tmp_path / "text"
    for text in (b"", b"a", b"\n", b"ab\n\ncde\nf", b"ab\n"):
        path.write_bytes(text)
        parts = list(pieces(path, size))
        assert b"".join(parts) == text
        assert all(piece.endswith(b"\n") for piece in parts[:-1])


def test_comments_may_span_the_pieces_of_a_text() -> None:
    data = [b"a // x /* y\n", b"b /* c\n", b"d\n", b"e */ f\n/* g */ h\n", b"i // j"]
    assert b"".join(_without_comments(iter(data))) == b"a \nb \n\n f\n h\ni "
    assert b"".join(_without_comments(iter([b"a\n", b"b /* c\n", b"d"]))) == b"a\nb /* c\nd"


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ("a: send 4b to -1 tag 0", "size, time or tag out of range"),
        ("a: send 4b to 1 tag -1", "size, time or tag out of range"),
        ("a: recv 4b from -2", "cannot parse"),
        ("a: recv 4b from -12", "cannot parse"),
        ("a: calc 4 cpu -1", "cannot parse"),
        ("a: send 4b from 1 tag 0", "size, time or tag out of range"),
        ("a: send 4b tag 0", "size, time or tag out of range"),
        ("a: send 4b to 7 tag 0", "num_ranks is 2"),
        ("a: send 99999999999999999999b to 1", "size, time or tag out of range"),
        ("a: calc 99999999999999999", "size, time or tag out of range"),
        ("a: calc -5", "cannot parse"),
        ("a: shout 5", "cannot parse"),
        ("a: calc 5; b requires a", "the label 'b' is not defined"),
        ("a: calc 5; a: calc 6", "the label 'a' is used twice"),
        ("num_ranks 2", "cannot parse"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path: Path, ops: str, message: str) -> None:
    path = schedule(tmp_path, ops, "calc 1")
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.file == path
    assert caught.value.place == f"line {4 + ops.count('; ')}"
    assert caught.value.remedy


@pytest.mark.parametrize(
    "ranks",
    [
        ("a: calc 1; b: calc 2; a requires b; b requires a", "calc 1"),
        (
            "a: recv 1b from 1 tag 0; b: send 1b to 1 tag 0; b requires a",
            "a: recv 1b from 0 tag 0; b: send 1b to 0 tag 0; b requires a",
        ),
    ],
)
def test_operations_that_wait_for_each_other_are_refused(
    tmp_path: Path, ranks: tuple[str, str]
) -> None:
    path = schedule(tmp_path, *ranks)
    with pytest.raises(TraceError, match="waits for itself") as caught:
        read_trace(path)
    assert caught.value.file == path
    assert caught.value.place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_ranks 2\nrank 0 {\ncalc 1\n}\nrank 0 {\n}\n", "a second block of rank 0"),
        ("num_ranks 1\nrank 0 {\n}\nrank 5 {\n}\n", "a block of rank 5, but num_ranks is 1"),
        ("num_ranks 999999999999\nrank 0 {\n}\n", "no block of rank 1 of"),
        (
            "num_ranks 1\nrank 0 {\nrank 0 {\n}\n}\n",
            "is outside a block, or opens a block inside another",
        ),
        (
            "num_ranks 1\ncalc 5\nrank 0 {\n}\n",
            "is outside a block, or opens a block inside another",
        ),
        ("num_ranks 1\n}\n", "is outside a block, or opens a block inside another"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "test.goal"
    path.write_text(text)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.file == path
