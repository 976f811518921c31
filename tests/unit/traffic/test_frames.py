"""Messages as rows of Caliper's exports and pipit's frames, and rows that are hostile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.errors import TailbackError, TraceError
from tailback.traffic.readers import READERS, read_trace
from tests.factories.foreign_traces import CALIPER, PIPIT


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_both_forms_of_calipers_json_agree(tmp_path: Path) -> None:
    split = (
        '{"columns":["mpi.rank","mpi.msg.dst","mpi.msg.size"],'
        '"data":[[0,1,40],[0,1,40],[0,1,40],[1,0,7]]}'
    )
    first = read_trace(written(tmp_path, "a.json", CALIPER))
    other = read_trace(written(tmp_path, "b.json", split))
    for program in (first, other):
        _, _, nbytes = program.traffic_matrix()
        assert nbytes.tolist() == [120, 7]
    assert any("2 messages on communicators other" in note for note in first.notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"mpi.msg.dst":1', '"mpi.msg.dst":-1', "a message from rank 0 to rank -1"),
        ('"mpi.msg.dst":1', '"mpi.msg.dst":[1]', "is not a whole number"),
        ('"mpi.msg.size":40', '"mpi.msg.size":1e400', "cannot convert|whole number"),
        ('"mpi.msg.size":40', '"mpi.msg.size":NaN', "is not a whole number"),
        ('"mpi.msg.size":40,', "", "is not a whole number"),
        ('"count":3', '"count":99999999999999', "messages makes"),
        ("mpi.msg.dst", "mpi.msg.src", "no destination of a message"),
        ("[\n", "[" * 100_000, "nested too deeply|not an export"),
    ],
)
def test_a_hostile_export_of_caliper_is_refused(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    file = written(tmp_path, "a.json", CALIPER.replace(old, new))
    with pytest.raises(TraceError, match=message) as caught:
        READERS["caliper"].read(file)
    assert caught.value.file == file and caught.value.remedy


def test_a_parquet_frame_equals_its_csv(tmp_path: Path) -> None:
    sends = {"receiver": [1, 0], "communicator": ["Comm 0"] * 2, "msg_length": [64, 8]}
    pl.DataFrame(
        {
            "Timestamp (ns)": [11, 15],
            "Event Type": ["Instant"] * 2,
            "Name": ["MpiSend", "MpiIsend"],
            "Process": [0, 1],
            "Attributes": pl.DataFrame(sends).to_struct(),
        }
    ).write_parquet(tmp_path / "events.parquet")
    (tmp_path / "t").mkdir()
    csv = read_trace(written(tmp_path / "t", "events.csv", PIPIT))
    parquet = read_trace(tmp_path)
    assert [column.tolist() for column in csv.traffic_matrix()] == [
        column.tolist() for column in parquet.traffic_matrix()
    ]
    assert any("1 messages on communicators other than the first" in note for note in csv.notes)
    contents = (tmp_path / "events.parquet").read_bytes()
    for length in range(0, len(contents), 97):
        (tmp_path / "events.parquet").write_bytes(contents[:length])
        with pytest.raises(TraceError):
            READERS["pipit"].read(tmp_path / "events.parquet")


def test_a_frame_of_calls_names_missing_columns(tmp_path: Path) -> None:
    text = (
        "Timestamp (s), Event Type, Name, Process\n3, Enter, MPI_Send, 0\n5, Leave, MPI_Send, 0\n"
    )
    with pytest.raises(TraceError, match="2 events, none of which says who sent to whom"):
        read_trace(written(tmp_path, "a.csv", text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("'receiver': 1", "'receiver': None", "is not a whole number"),
        ("'receiver': 1", "'receiver': __import__('os')", "are no attributes"),
        ("'msg_length': 64}", "'msg_length': -1}", "messages of -1 B"),
        ("{'receiver': 1,", "{'receiver': " + "(" * 3000, "are no attributes"),
        ("{'receiver': 1,", "{'receiver': " + "9" * 5000, "more than 308 digits"),
        ("MPI_Send,0,0,{", "MPI_Send,0,x,{", "could not convert"),
        ("10,Enter", "10,Enter,more", "another number of fields"),
    ],
)
def test_a_hostile_frame_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = written(tmp_path, "a.csv", PIPIT.replace(old, new, 1))
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(file)
    assert caught.value.file == file and caught.value.remedy


def test_a_truncated_frame_is_read_or_refused(tmp_path: Path) -> None:
    contents = PIPIT.encode()
    generator = np.random.default_rng(3)
    for turn in range(200):
        data = bytearray(contents[: len(contents) - turn])
        for at in generator.integers(0, len(data), turn % 3):
            data[at] = generator.integers(0, 256)
        (tmp_path / "a.csv").write_bytes(data)
        try:
            READERS["pipit"].read(tmp_path / "a.csv")
        except TailbackError as error:
            assert error.file == tmp_path / "a.csv" and error.remedy
