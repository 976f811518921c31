"""The one place that opens files of users: kinds of file, pipes, sizes."""

from __future__ import annotations

import gzip
import os
import subprocess
import time
from pathlib import Path

import pytest

from tailback.available import MEMORY_VARIABLE
from tailback.errors import TailbackError
from tailback.io.input_files import TEXT_MEMORY, content, head, is_input_file, opened, regular_file


def write(pipe: Path, text: bytes) -> int:
    """Write to a pipe and close it; returns a descriptor that keeps the bytes in it."""
    writer = os.open(pipe, os.O_RDWR)  # Opened to write alone, it would wait for a reader.
    try:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        assert os.write(writer, text) == len(text)
    finally:
        os.close(writer)
    return reader


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_pipe_is_recognised_and_read(pipe: Path) -> None:
    reader = write(pipe, b"abc" * 1000)
    assert is_input_file(pipe)
    assert head(pipe, 3) == "abc"
    assert content(pipe) == b"abc" * 1000
    os.close(reader)


def test_pipe_that_is_written_again_is_read_again(pipe: Path) -> None:
    for text in (b"first", b"second"):
        reader = write(pipe, text)
        assert content(pipe) == text
        os.close(reader)
        time.sleep(0.02)  # The kernel stamps files a few times in 10 ms.


def test_pipe_is_read_to_a_slow_writers_end(pipe: Path) -> None:
    command = f"exec > {pipe}; echo one; sleep 0.3; echo two"
    with subprocess.Popen(["sh", "-c", command]):
        assert content(pipe) == b"one\ntwo\n"


def test_compressed_pipe_is_decompressed(pipe: Path) -> None:
    reader = write(pipe, gzip.compress(b"text"))
    assert content(pipe) == b"text"
    os.close(reader)


def test_pipe_is_refused_where_libraries_open_paths(pipe: Path) -> None:
    with pytest.raises(TailbackError, match="is a pipe"):
        regular_file(pipe)


def test_plain_file_may_take_half_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"x" * 1000)
    for memory, fits in ((2000 * TEXT_MEMORY, True), (2000 * TEXT_MEMORY - 2, False)):
        monkeypatch.setenv(MEMORY_VARIABLE, f"{int(memory)} B")
        if fits:
            assert content(file) == b"x" * 1000
        else:
            with pytest.raises(TailbackError, match=r"needs about .* of memory"):
                content(file)


@pytest.mark.parametrize("length", [1, 5, 20, 60, 79])
def test_truncated_gzip_file_is_damaged(length: int, tmp_path: Path) -> None:
    file = tmp_path / "text.gz"
    file.write_bytes(gzip.compress(os.urandom(60))[: max(2, length)])
    with pytest.raises(TailbackError, match="damaged gzip file"):
        content(file)


def test_lines_of_compressed_files_are_streamed(tmp_path: Path) -> None:
    file = tmp_path / "text.gz"
    file.write_bytes(gzip.compress(b"one\ntwo\n"))
    with opened(file) as lines:
        assert list(lines) == [b"one\n", b"two\n"]
