"""What `tailback verify` says of a diagnosis, healthy, damaged and forged, and its exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import tailback as tb
from tailback.cli import run as tailback
from tailback.errors import RunError
from tailback.io.manifest import MANIFEST, write_manifest
from tailback.run.run import Run
from tailback.sources.request import REQUEST_FILE, DiagnosisRequest
from tailback.version import version
from tests.factories.recordings import diagnosed, infiniband_recording

RING = {
    "name": "ring",
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    "job": [
        {"pattern": {"kind": "ring", "size": "1 MiB", "ranks": 16}, "placement": "random"},
    ],
}
"""Placement is the cause, and block the remedy."""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `inputs`, a recording with counters, and its `diagnosis`."""
    folder = tmp_path_factory.mktemp("healthy")
    (folder / "inputs").mkdir()
    trace, _ = infiniband_recording(folder / "inputs")
    diagnosed(trace).write(folder / "diagnosis")
    return folder


@pytest.fixture
def folder(healthy: Path, tmp_path: Path) -> Path:
    """A copy of the diagnosis, whose inputs are where they were."""
    return shutil.copytree(healthy / "diagnosis", tmp_path / "elsewhere")


def forge(folder: Path) -> None:
    """Make the manifests again, as an attacker does."""
    (folder / MANIFEST).unlink()
    write_manifest(folder, version())


def screen(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code and text of `tailback verify`."""
    capsys.readouterr()
    code = tailback(["verify", *map(str, arguments), "--quiet"])
    out, err = capsys.readouterr()
    return code, " ".join((out + err).split())


def test_moved_diagnosis_stands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = screen(capsys, folder)
    assert (code, text.split()[0]) == (0, "STANDS"), text
    assert "not compared (wall-clock times, figures, files of others): run/performance" in text


def test_relative_paths_hold_in_other_folders(
    healthy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = next((healthy / "inputs").iterdir())
    monkeypatch.chdir(trace.parent)
    result = diagnosed(Path(trace.name), fabric=f"{trace.name}/fabric.txt")
    folder = result.write(tmp_path / "relative")
    monkeypatch.chdir(tmp_path)
    assert tb.verify(folder).differences == []


def test_forecast_with_remedy_stands(tmp_path: Path) -> None:
    result = tb.diagnose(RING, seeds=1, methods=["block"], remedies=["placement"])
    assert result.after is not None
    checked = tb.verify(result.write(tmp_path / "diagnosis"))
    assert (checked.outcome, checked.differences) == ("stands", [])
    assert checked.remedy == "block"


def test_settings_that_are_not_stated_are_repeated(folder: Path) -> None:
    # As for flows whose paths counters tell: the scenario holds them, no user stated them.
    run = Run.read(folder / "run")
    engine = run.scenario.engine
    values = {name: getattr(engine, name) for name in type(engine).model_fields}
    hashed = type(engine).model_construct(set(), **{**values, "routing": "ecmp"})
    run.scenario = run.scenario.model_copy(update={"engine": hashed})
    DiagnosisRequest.read(folder).at(None).restore(run)
    assert run.scenario.engine.routing == "ecmp"


def test_tampered_table_is_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = folder / "run" / "messages.parquet"
    tampered(table)
    code, text = screen(capsys, folder)
    assert code == 2
    assert "messages.parquet" in text
    assert "SHA-256" in text


def test_every_tampered_file_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "attribution.json").unlink()
    with (folder / "diagnosis.json").open("a") as file:
        file.write(" ")
    assert tailback(["verify", str(folder)]) == 2
    text = capsys.readouterr().err
    assert "attribution.json: is missing" in text and "diagnosis.json: damaged or edited" in text
    assert " 2 of " in text and "delete" not in text


def test_forged_table_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = folder / "run" / "messages.parquet"
    column, row, before, after = tampered(table)
    forge(folder / "run")
    forge(folder)
    code, text = screen(capsys, folder)
    assert code == 1
    assert text.startswith("DIFFERS")
    assert f"run/messages.parquet, {column}, row {row}: {after} → {before}" in text


def tampered(table: Path) -> tuple[str, int, int, int]:
    """Change one number of a table; its column, its row, and the number before and after."""
    frame = pl.read_parquet(table)
    column, row = next(name for name in frame.columns if name.endswith("_ps")), frame.height - 1
    before = frame[column][row]
    frame[row, column] = before + 1
    frame.write_parquet(table)
    return column, row, before, before + 1


def test_forged_verdict_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "diagnosis.json"
    diagnosis = json.loads(file.read_text())
    stated = diagnosis["confidence"]
    diagnosis["confidence"] = 0.5
    file.write_text(json.dumps(diagnosis, indent=2) + "\n")
    forge(folder)
    code, text = screen(capsys, folder)
    assert code == 1
    assert f"diagnosis.json, confidence: 0.5 → {stated}" in text


def test_forged_report_differs(folder: Path) -> None:
    file = folder / "report.html"
    file.write_text(file.read_text().replace("</h1>", " (checked)</h1>", 1))
    forge(folder)
    checked = tb.verify(folder)
    assert checked.outcome == "differs"
    assert [each.file for each in checked.differences] == ["report.html"]
    assert "(checked)" in checked.differences[0].stated


def test_added_file_differs(folder: Path) -> None:
    (folder / "hosts.openmpi-seq").write_text("a\n")
    forge(folder)
    (difference,) = tb.verify(folder).differences
    assert (difference.file, difference.again) == ("hosts.openmpi-seq", "missing")


def test_file_of_others_is_not_compared(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine\n")
    checked = tb.verify(folder)
    assert checked.outcome == "stands"
    assert "notes.txt" in checked.not_compared


@pytest.fixture
def moved(healthy: Path, tmp_path: Path) -> Path:
    """A copy of the inputs."""
    return shutil.copytree(healthy / "inputs", tmp_path / "moved", dirs_exist_ok=True)


def at_old_place(folder: Path, healthy: Path, old: Path) -> None:
    """State in the request that the inputs were in another folder."""
    file = folder / REQUEST_FILE
    file.write_text(file.read_text().replace(str(healthy / "inputs"), str(old)))
    forge(folder)


def test_changed_input_cannot_be_repeated(
    folder: Path, healthy: Path, moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at_old_place(folder, healthy, moved)
    file = next(moved.rglob("infiniband-a-0.csv"))
    file.write_bytes(file.read_bytes().replace(b"5", b"6", 1))
    code, text = screen(capsys, folder)
    assert code == 3
    # A path that is longer than a line is cut.
    said = f"{file.name}' has changed: its SHA-256"
    assert said.replace(" ", "") in text.replace(" ", "")


def test_missing_input_cannot_be_repeated(
    folder: Path, healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at_old_place(folder, healthy, tmp_path / "gone")
    code, text = screen(capsys, folder)
    assert code == 3
    assert text.startswith("NOT REPEATABLE input")
    assert "is gone" in text
    assert "--inputs FOLDER" in text


def test_moved_inputs_are_accepted(healthy: Path, moved: Path) -> None:
    base = next(moved.rglob("recording.json")).parent
    checked = tb.verify(healthy / "diagnosis", inputs=base)
    assert (checked.outcome, checked.differences) == ("stands", [])


def test_diagnosis_within_a_budget_cannot_be_repeated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = json.loads((folder / REQUEST_FILE).read_text())
    request["options"]["budget"] = "60 s"
    (folder / REQUEST_FILE).write_text(json.dumps(request))
    forge(folder)
    code, text = screen(capsys, folder)
    assert code == 3
    assert "it was limited to 60 s" in text


def test_other_version_cannot_repeat(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / MANIFEST).unlink()
    write_manifest(folder, "0.0.1")
    code, text = screen(capsys, folder)
    assert code == 3
    assert "Tailback 0.0.1 made it" in text


def test_diagnosis_without_request_cannot_be_repeated(folder: Path) -> None:
    (folder / REQUEST_FILE).unlink()
    forge(folder)
    checked = tb.verify(folder)
    assert checked.outcome == "not-repeatable"
    assert REQUEST_FILE in checked.reason


def test_other_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = screen(capsys, tmp_path)
    assert code == 2
    assert "is no diagnosis" in text


def test_missing_manifest_is_refused(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    with pytest.raises(RunError, match="is missing"):
        tb.verify(folder)


def test_json_has_digests_of_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert tailback(["verify", str(folder), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["outcome"] == "stands"
    assert any(path.endswith("fabric.txt") for path in facts["inputs"])
    assert any(path.endswith(".evt") for path in facts["inputs"])
