"""A diagnosis whose inputs, options and program are unchanged is printed, and not made again."""

from __future__ import annotations

import json
import re
import shutil
from itertools import combinations
from pathlib import Path

import pytest

import tailback.sources.request as requests
from tailback.cli import run as tailback
from tailback.io.manifest import MANIFEST
from tests.factories.benchmark_outputs import nccl_text
from tests.factories.recordings import infiniband_recording


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `inputs`, a recording, and its `diagnosis`."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "inputs").mkdir()
    infiniband_recording(folder / "inputs")
    assert diagnose(folder) in (0, 3)
    return folder


@pytest.fixture
def folder(made: Path) -> Path:
    """The same, as it was made: what a test changes is put back."""
    before = made.with_name("before")
    if not before.exists():
        shutil.copytree(made, before)
    shutil.rmtree(made)
    return Path(shutil.copytree(before, made))


def source_in(folder: Path) -> Path:
    return next((folder / "inputs").iterdir())


def diagnose(folder: Path, *options: str) -> int:
    """Exit code of a diagnosis of the recording in a folder."""
    source, out = str(source_in(folder)), str(folder / "diagnosis")
    return tailback(["diagnose", source, "--out", out, "--seeds", "1", "--quiet", *options])


def refusal(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> str:
    """The error of a diagnosis into a folder that is out of date; the folder stays."""
    before = (folder / "diagnosis" / MANIFEST).read_bytes()
    capsys.readouterr()
    assert diagnose(folder, *options) == 2
    assert (folder / "diagnosis" / MANIFEST).read_bytes() == before
    text = " ".join(capsys.readouterr().err.split())
    assert "--force" in text
    return text


@pytest.mark.parametrize("options", [[], ["-v"], ["--evidence"], ["--format", "json"]])
def test_unchanged_diagnosis_is_kept(
    folder: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = diagnose(folder, "--force", *options)
    first = capsys.readouterr().out
    written_ns = (folder / "diagnosis" / MANIFEST).stat().st_mtime_ns
    assert diagnose(folder, *options) == code
    second = capsys.readouterr()
    assert (folder / "diagnosis" / MANIFEST).stat().st_mtime_ns == written_ns
    assert "KEPT" in second.out + second.err and "KEPT" not in first
    assert re.sub(r"KEPT (.|\n)*", "", second.out) == first


def test_changed_input_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = source_in(folder) / "fabric.txt"
    changed.write_text(changed.read_text() + "\n")
    assert f"{str(changed)!r} has changed" in refusal(capsys, folder)


def test_added_file_makes_a_diagnosis_outdated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source_in(folder) / "counters" / "infiniband-new.csv").write_text("time_ns\n")
    assert "files were added" in refusal(capsys, folder)


def test_other_options_make_a_diagnosis_outdated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "other options" in refusal(capsys, folder, "--seed", "5")


def test_other_program_makes_a_diagnosis_outdated(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "program_sha256", lambda: "another")
    assert "another build" in refusal(capsys, folder)
    assert diagnose(folder, "--update") in (0, 3)
    assert "KEPT" not in capsys.readouterr().out
    assert diagnose(folder, "--update") in (0, 3)
    assert "KEPT" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["report.html", "request.json", "run/run.json"])
@pytest.mark.parametrize("damage", ["edited", "missing"])
def test_damaged_diagnosis_is_replaced_on_request(
    name: str, damage: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next((folder / "diagnosis").glob(name), folder / "diagnosis" / "report.html")
    if damage == "missing":
        file.unlink()
    else:
        file.write_text("forged")
    error = refusal(capsys, folder)
    assert file.name in error and ("SHA-256" if damage == "edited" else "is missing") in error
    assert diagnose(folder, "--update") in (0, 3)
    assert diagnose(folder) in (0, 3) and "KEPT" in capsys.readouterr().out


def test_diagnosis_without_manifest_is_not_replaced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "diagnosis" / MANIFEST).unlink()
    assert diagnose(folder) == 2
    assert "remove this one yourself" in " ".join(capsys.readouterr().err.split())
    assert diagnose(folder, "--force") == 2


@pytest.mark.parametrize("how", ["parent", "beside", "link"])
def test_same_source_by_another_path_is_kept(
    how: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_in(folder)
    if how == "parent":
        monkeypatch.chdir(folder / "diagnosis")
        path = f"../inputs/../inputs/{source.name}"
    elif how == "beside":
        # Its name, which names the scenario, is also its path.
        monkeypatch.chdir(folder / "inputs")
        path = source.name
    else:
        (folder / "link").symlink_to(folder / "inputs")
        monkeypatch.chdir(folder)
        path = f"link/{source.name}"
    command = ["diagnose", path, "--out", str(folder / "diagnosis"), "--seeds", "1", "--quiet"]
    assert tailback(command) in (0, 3)
    assert "KEPT" in capsys.readouterr().out


def test_result_below_the_source_is_no_input(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = str(source_in(folder) / "diagnosis")
    command = ["diagnose", str(source_in(folder)), "--out", inside, "--seeds", "1", "--quiet"]
    assert tailback(command) in (0, 3) and tailback(command) in (0, 3)
    assert "KEPT" in capsys.readouterr().out


def test_tests_of_pairs_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairs").mkdir()
    for pair in combinations(("n0", "n1", "n2", "n3"), 2):
        (tmp_path / "pairs" / f"{'-'.join(pair)}.log").write_text(nccl_text(pair))
    out = str(tmp_path / "out")
    assert tailback(["diagnose", str(tmp_path / "pairs"), "--out", out]) == 0
    first = capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert tailback(["diagnose", "pairs/../pairs", "--out", out]) == 0
    second = capsys.readouterr().out
    assert "KEPT" in second and second.startswith(first.rstrip("\n"))
    assert tailback(["diagnose", "pairs", "--out", out, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cause"] == "healthy"
    for command in ("verify", "report"):
        assert tailback([command, out]) == 2
        assert "holds no run" in capsys.readouterr().err
    (tmp_path / "pairs" / "n4-n5.log").write_text(nccl_text(("n4", "n5")))
    assert tailback(["diagnose", "pairs", "--out", out]) == 2
    assert "--force" in capsys.readouterr().err
    assert tailback(["diagnose", "pairs", "--out", out, "--update"]) == 0
    assert "KEPT" not in capsys.readouterr().out
