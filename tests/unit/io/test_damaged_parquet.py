"""Damaged Parquet files end in an error that names the file, never in the end of the process."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailback.errors import TailbackError
from tailback.io.parquet import read_table

FRAME = pl.DataFrame(
    {"a": [1, 2], "b": ["x", "yy"], "c": [0.5, None]},
    schema={"a": pl.UInt32, "b": pl.String, "c": pl.Float64},
)

READ_DAMAGED = """
import random, sys
from pathlib import Path
from tailback.errors import TailbackError
from tailback.io.parquet import read_table
path, content = Path(sys.argv[1]), Path(sys.argv[1]).read_bytes()
draw = random.Random(int(sys.argv[2]))
for _ in range(2000):
    at = draw.randrange(len(content))
    new = bytes(draw.choice((0, 1, 127, 128, 255, draw.randrange(256))) for _ in range(draw.choice((1, 1, 2, 8))))
    path.with_suffix(".damaged").write_bytes(content[:at] + new + content[at + 1 :])
    try:
        read_table(path.with_suffix(".damaged"))
    except TailbackError as error:
        assert error.file is not None
"""  # noqa: E501


def test_a_page_of_negative_count_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    FRAME.write_parquet(path)
    content = path.read_bytes()
    # The first page header is at 4; its data page header (field 5) begins with num_values = 2.
    at = content.index(bytes((0x2C, 0x15, 0x04))) + 2
    path.write_bytes(content[:at] + b"\x01" + content[at + 1 :])
    with pytest.raises(TailbackError, match="a page header is damaged") as caught:
        read_table(path)
    assert caught.value.file == path


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 8])
def test_no_flipped_byte_ends_the_process(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "a.parquet"
    FRAME.write_parquet(path)
    # In a process of its own: what ends it would end the tests.
    done = subprocess.run(
        [sys.executable, "-c", READ_DAMAGED, str(path), str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data_page_version": "2.0"},
        {"compression": "none"},
        {"use_dictionary": False},
        {"row_group_size": 10},
        {"write_page_index": True},
    ],
)
def test_whole_files_of_other_writers_are_read(tmp_path: Path, options: dict[str, object]) -> None:
    draw = random.Random(1)
    table = pa.table(
        {
            "a": list(range(100)),
            "b": [f"x{k % 5}" for k in range(100)],
            "c": [[draw.random()] * (k % 3) for k in range(100)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", **options)
    assert read_table(tmp_path / "a.parquet").equals(pl.DataFrame(pl.from_arrow(table)))
