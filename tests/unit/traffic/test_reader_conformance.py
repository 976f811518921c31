"""Every registered reader knows its own files alone, adds up and refuses what is damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailback.errors import TailbackError, TraceError
from tailback.traffic.program import Op
from tailback.traffic.readers import READERS, read_trace
from tests.factories.blocking import run_blocking
from tests.factories.foreign_traces import SAMPLES, Sample

ALL = [pytest.param(name, sample, id=name) for name, sample in SAMPLES.items()]
CUT = [pytest.param(name, sample, id=name) for name, sample in SAMPLES.items() if sample.cut]


def test_every_registered_reader_is_tested_here() -> None:
    assert sorted(SAMPLES) == READERS.names()


@pytest.mark.parametrize(("name", "sample"), ALL)
def test_only_its_own_reader_recognises_a_file(name: str, sample: Sample, tmp_path: Path) -> None:
    path = sample.write(tmp_path)
    assert [entry.name for entry in READERS if entry.part.sniff(path)] == [name]
    if path.is_file():
        assert [entry.name for entry in READERS if entry.part.sniff(path.parent)] in ([name], [])


@pytest.mark.parametrize(("name", "sample"), ALL)
def test_messages_bytes_and_computation_add_up(name: str, sample: Sample, tmp_path: Path) -> None:
    program = read_trace(sample.write(tmp_path))
    sends, receives = (program.kind == op for op in (Op.ISEND, Op.IRECV))
    assert int(sends.sum()) == int(receives.sum()) == sample.messages
    assert int(program.amount[sends].sum()) == sample.bytes
    assert int(program.amount[program.kind == Op.COMPUTE].sum()) == sample.compute_ps
    assert program.label.max(initial=0) < len(program.labels)
    assert np.diff(program.rank_start.astype(int)).min() >= 0
    assert run_blocking(program)


@pytest.mark.parametrize(("name", "sample"), ALL)
def test_a_reader_says_what_its_format_tells(name: str, sample: Sample, tmp_path: Path) -> None:
    assert all(READERS[name].CAPABILITIES)
    assert (tmp_path / "empty").write_bytes(b"") == 0
    assert not READERS[name].sniff(tmp_path / "empty")


@pytest.mark.parametrize(("name", "sample"), CUT)
def test_a_file_cut_anywhere_is_named(name: str, sample: Sample, tmp_path: Path) -> None:
    assert sample.cut
    path = sample.write(tmp_path)
    file = tmp_path / sample.cut
    contents = file.read_bytes()
    for length in range(len(contents) - 2, 0, -1):
        file.write_bytes(contents[:length])
        try:
            program = read_trace(path, format=name)
        except TraceError as error:
            assert error.file in (file, path), length
            assert error.remedy, length
        else:  # The files of other ranks are read.
            assert any(file.name in note for note in program.not_used), length


@pytest.mark.parametrize(("name", "sample"), CUT)
def test_a_damaged_file_gives_no_traceback(name: str, sample: Sample, tmp_path: Path) -> None:
    assert sample.cut
    path = sample.write(tmp_path)
    file = tmp_path / sample.cut
    contents = file.read_bytes()
    generator = np.random.default_rng(7)
    for _ in range(150):
        damaged = bytearray(contents)
        for at in generator.integers(0, len(contents), 3):
            damaged[at] = generator.integers(0, 256)
        file.write_bytes(damaged)
        try:
            read_trace(path, format=name)
        except TailbackError as error:
            assert error.file in (file, path)
