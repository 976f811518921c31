"""Projections logs of Charm++: messages between processors, and logs that are hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.errors import TraceError
from tailback.traffic.readers import read_trace
from tests.factories.foreign_traces import PROJECTIONS_LOGS, PROJECTIONS_STS
from tests.factories.public_data import real


def written(folder: Path, sts: str = PROJECTIONS_STS, log: str = PROJECTIONS_LOGS[1]) -> Path:
    (folder / "a.sts").write_text(sts)
    (folder / "a.0.log").write_text(PROJECTIONS_LOGS[0])
    (folder / "a.1.log").write_text(log)
    return folder


def test_messages_bear_their_entry_methods_name(tmp_path: Path) -> None:
    program = read_trace(written(tmp_path))
    assert [label.phase for label in program.labels] == ["Ping::recv"]
    notes = " ".join(program.notes)
    # The first entry method has event 0, which no processor created.
    assert "2 messages of processors to themselves" in notes
    assert program.recording is not None
    assert program.recording.calls_ps == (20 + 30) * 1_000_000 // 2


def test_a_message_of_unknown_creation_is_counted(tmp_path: Path) -> None:
    log = PROJECTIONS_LOGS[1].replace("2 5 9 132 1 0", "2 5 9 132 77 0")
    program = read_trace(written(tmp_path, log=log))
    assert int(program.sends.sum()) == 1
    assert any("1 entry methods were started by messages that" in note for note in program.notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2 5 9 132 1 0 80", "2 5 9 132 1 0 -80", "cannot parse"),
        ("2 5 9 132 1 0 80 0 1 1", "2 5 9 132 1 0", "cannot parse"),
        ("2 5 9 132 1", "2 5 9 1e300 1", "cannot parse"),
        ("14 101", "14 99999999999999999999", "cannot parse"),
        ("PROJECTIONS-RECORD", "PROJECTIONS-X", "does not begin"),
        ("7 160", "8 160", "cut short"),
    ],
)
def test_a_hostile_log_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    folder = written(tmp_path, log=PROJECTIONS_LOGS[1].replace(old, new))
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(folder)
    assert caught.value.file == tmp_path / "a.1.log" and caught.value.remedy


def test_all_logs_are_required(tmp_path: Path) -> None:
    (written(tmp_path) / "a.1.log").unlink()
    with pytest.raises(TraceError, match="processor 1 of 2 is missing"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="cut short"):
        read_trace(written(tmp_path, sts=PROJECTIONS_STS.replace("END\n", "")))


@pytest.mark.data
def test_every_entry_method_is_accounted_for() -> None:
    program = read_trace(real("pingpong-projections"))
    sends = program.sends
    source, target, _ = program.traffic_matrix()
    assert (source.tolist(), target.tolist()) == ([0, 1], [1, 0])
    numbers = [int(note.split()[0]) for note in program.notes[1:]]
    # 161 and 146 lines of begun entry methods.
    assert int(sends.sum()) + sum(numbers) == 161 + 146
    assert "Ping1::recv" in {label.phase for label in program.labels}
