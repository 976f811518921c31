"""Binary GOAL schedules: the same programs as their text, and damaged files."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tailback.errors import TraceError
from tailback.traffic.program import Program
from tailback.traffic.readers import read_trace
from tests.factories.goal_binaries import COMPUTE, RECEIVE, SEND, Operation, schedule
from tests.factories.public_data import real

TEXT = """num_ranks 2
rank 0 {
a: calc 7 cpu 1
b: send 64b to 1 tag 3
b requires a
c: recv 32b from 1 tag 4
d: calc 9
d requires c
e: send 1b to 1 tag 5
e irequires d
}
rank 1 {
a: recv 64b from 0 tag 3
b: send 32b to 0 tag 4
b requires a
c: recv 1b from 0 tag 5
}
"""
RANKS = (
    [
        Operation(COMPUTE, 7, core=1),
        Operation(SEND, 64, peer=1, tag=3, ended=(0,)),
        Operation(RECEIVE, 32, peer=1, tag=4),
        Operation(COMPUTE, 9, ended=(2,)),
        Operation(SEND, 1, peer=1, tag=5, begun=(3,)),
    ],
    [
        Operation(RECEIVE, 64, peer=0, tag=3),
        Operation(SEND, 32, peer=0, tag=4, ended=(0,)),
        Operation(RECEIVE, 1, peer=0, tag=5),
    ],
)
BINARY = schedule(*RANKS)


def columns(program: Program) -> list[object]:
    names = ("rank_start", "kind", "peer", "amount", "tag", "request", "label")
    arrays = [getattr(program, name).tolist() for name in names]
    return [*arrays, program.labels, program.notes]


def written(folder: Path, data: bytes) -> Path:
    path = folder / "run.bin"
    path.write_bytes(data)
    return path


def test_the_binary_form_gives_the_texts_program(tmp_path: Path) -> None:
    text = tmp_path / "run.goal"
    text.write_text(TEXT)
    assert columns(read_trace(written(tmp_path, BINARY))) == columns(read_trace(text))


@pytest.mark.data
def test_txt2bin_output_gives_its_inputs_program(tmp_path: Path) -> None:
    tool = shutil.which("txt2bin")
    if tool is None:
        pytest.skip(
            "LogGOPSim's txt2bin is not on PATH: build it from src/LogGOPSim, which needs "
            "re2c and gengetopt"
        )
    minimal = tmp_path / "own.goal"
    minimal.write_text(TEXT)
    for text in (minimal, real("loggopsim-goal/src/LogGOPSim/binary_tree_32.goal")):
        binary = tmp_path / "out.bin"
        subprocess.run([tool, "-i", text, "-o", binary], check=True)
        assert columns(read_trace(binary)) == columns(read_trace(text))
        if text == minimal:
            assert binary.read_bytes() == BINARY


def test_receives_of_any_message_match_the_text(tmp_path: Path) -> None:
    text = tmp_path / "run.goal"
    text.write_text(
        "num_ranks 2\nrank 0 {\na: recv 9b from -1 tag -1\nb: recv 9b from -1 tag 4\n"
        "b requires a\n}\nrank 1 {\nsend 8b to 0 tag 3\nsend 7b to 0 tag 4\n}\n"
    )
    wild = 2**32 - 1
    binary = schedule(
        [
            Operation(RECEIVE, 9, peer=wild, tag=wild),
            Operation(RECEIVE, 9, peer=wild, tag=4, ended=(0,)),
        ],
        [Operation(SEND, 8, peer=0, tag=3), Operation(SEND, 7, peer=0, tag=4)],
    )
    program = read_trace(written(tmp_path, binary))
    assert columns(program) == columns(read_trace(text))
    assert "2 receives from any source or with any tag are matched" in program.notes[0]


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    for length in range(8, len(BINARY)):
        with pytest.raises(TraceError) as caught:
            read_trace(written(tmp_path, BINARY[:length]))
        assert "cut short" in str(caught.value)
        assert caught.value.place == f"byte {length}"
        assert caught.value.remedy


@pytest.mark.parametrize("ranks", [RANKS, ([], *RANKS), RANKS[1:], ([Operation(COMPUTE, 7)] * 2,)])
def test_schedule_of_loggopsim_2_is_named(ranks: Sequence[list[Operation]], tmp_path: Path) -> None:
    for fields, is_named in ((bytes(65), True), (b"\x07" * 65, True), (bytes(64), False)):
        with pytest.raises(TraceError) as caught:
            read_trace(written(tmp_path, schedule(*ranks, more=fields)))
        assert ("LogGOPSim 2" in caught.value.message) == is_named
        expected = "txt2bin of LogGOPSim or ATLAHS" if is_named else "the file is damaged"
        assert caught.value.remedy is not None and expected in caught.value.remedy


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([Operation(9, 1)], "an operation of unknown type 9"),
        ([Operation(SEND, 1, peer=5)], "rank 5 of 1 ranks"),
        ([Operation(SEND, 2**60)], "a size or time of"),
        ([Operation(COMPUTE, 2**63)], "a size or time of"),
        ([Operation(SEND, 8, peer=2**32 - 1)], "rank 4294967295 of 1 ranks"),
    ],
)
def test_an_operation_that_does_not_fit_is_named(
    tmp_path: Path, operations: list[Operation], message: str
) -> None:
    path = written(tmp_path, schedule(operations))
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.file == path
    assert str(caught.value.place).startswith("byte ")


def test_a_cycle_names_its_operation(tmp_path: Path) -> None:
    cycle = [Operation(COMPUTE, 5, ended=(1,)), Operation(COMPUTE, 6, ended=(0,))]
    with pytest.raises(TraceError, match="waits for itself") as caught:
        read_trace(written(tmp_path, schedule(cycle)))
    assert caught.value.place in ("operation 0", "operation 1")


def test_damaged_bytes_give_errors_or_programs(tmp_path: Path) -> None:
    draw = random.Random(4)
    refused = 0
    for _ in range(400):
        data = bytearray(BINARY)
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(8, len(data))] = draw.choice((0, 1, 127, 128, 255))
        try:
            read_trace(written(tmp_path, bytes(data)))
        except TraceError as error:
            refused += 1
            assert error.remedy
    assert refused > 100
