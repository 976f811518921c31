"""Whatever a user's file is or holds, it is read or refused by name, within a limit of memory.

Every registered reader goes through the same table of kinds of file and of impossible numbers.
"""

from __future__ import annotations

import gzip
import os
import re
import socket
from pathlib import Path

import pytest

from tailback.available import MEMORY_VARIABLE
from tailback.errors import TailbackError
from tailback.io import input_files
from tests.factories.user_inputs import INPUTS, NOT_ALONE, REGISTRIES

ALL = [pytest.param(name, id=name.replace(" ", "-")) for name in INPUTS]
TEXT = [
    pytest.param(name, id=name.replace(" ", "-"))
    for name, user_input in INPUTS.items()
    if user_input.text
]

NUMBERS = (
    "NaN",
    "nan",
    "inf",
    "-inf",
    "Infinity",
    "1e308",
    "-1e308",
    "1e-320",
    "1e400",
    "-1",
    "9" * 20,
    "9" * 308,
    "9" * 309,
    "9" * 4400,
)
"""Numbers that floats and integers of 64 bits do not hold, or only just; more digits than Python
converts."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")


def test_every_registered_reader_is_tested_here() -> None:
    registered = {f"{kind} {name}" for kind, some in REGISTRIES.items() for name in some.names()}
    assert registered - NOT_ALONE <= set(INPUTS)


@pytest.mark.parametrize("name", ALL)
def test_input_is_read_while_it_is_whole(name: str, tmp_path: Path) -> None:
    INPUTS[name].read(INPUTS[name].write(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXT)
def test_impossible_number_is_read_or_refused_by_file(name: str, tmp_path: Path) -> None:
    user_input = INPUTS[name]
    assert user_input.text is not None
    path = user_input.write(tmp_path)
    file = tmp_path / user_input.text
    text = file.read_text()
    places = list(_NUMBER.finditer(text))
    places = places[:: max(1, len(places) // 12)]
    for at in places:
        for number in NUMBERS:
            file.write_text(text[: at.start()] + number + text[at.end() :])
            try:
                user_input.read(path)
            except TailbackError as error:
                assert error.remedy, (at, number[:8])
            except Exception as error:
                raise AssertionError(f"{number[:8]} for {at.group()} at {at.start()}") from error


def _peak_bytes() -> int:
    """Largest resident size of this process since the last call."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


@pytest.mark.parametrize("name", TEXT)
def test_expanding_file_stays_within_its_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_input = INPUTS[name]
    assert user_input.text is not None
    path = user_input.write(tmp_path)
    file = tmp_path / user_input.text
    text = file.read_bytes()
    line = text.split(b"\n")[-2] + b"\n" if text.count(b"\n") > 1 else b" "
    # A file of compressed blocks is the file of what is in them: one of 1 MiB, a hundred times.
    block = gzip.compress(line * (1 + (1 << 20) // len(line)))
    file.write_bytes(gzip.compress(text) + 100 * block)
    monkeypatch.setenv(MEMORY_VARIABLE, "64 MiB")
    _peak_bytes()
    before = _peak_bytes()
    try:
        unused = user_input.read(path).not_used
    except TailbackError as error:
        assert error.file == file and MEMORY_VARIABLE in str(error.remedy)
        unused = [f"{file.name} {error.message}"]
    assert _peak_bytes() - before < 64 << 20
    # Of several files, one of each rank, the others are read.
    assert any(file.name in note and "of memory to read" in note for note in unused)


@pytest.mark.parametrize("kind", ["device", "socket", "silent pipe", "folder"])
@pytest.mark.parametrize("name", ALL)
def test_path_that_is_no_file_is_refused(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "PIPE_SILENCE_S", 0.05)
    path = tmp_path / "given"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "silent pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as listening:
            monkeypatch.chdir(tmp_path)
            listening.bind("given")
    with pytest.raises(TailbackError) as refused:
        INPUTS[name].read(path)
    assert refused.value.remedy


@pytest.mark.parametrize("name", TEXT)
def test_pipe_is_read_like_its_file(name: str, tmp_path: Path) -> None:
    user_input = INPUTS[name]
    path = user_input.write(tmp_path)
    if path.is_dir() or path.name != user_input.text:
        pytest.skip("a folder of files")
    text = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)  # A writer without a reader would wait.
    try:
        assert os.write(descriptor, text) == len(text)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(descriptor)
    try:
        user_input.read(path)
    finally:
        os.close(reading)
