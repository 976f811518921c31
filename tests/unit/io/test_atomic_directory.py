"""Folders of results: they appear whole or not at all, and replace nothing but such folders."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tailback.errors import RunError
from tailback.run.run import AtomicDirectory, Run, check_writable
from tests.factories.cli import refused, scenario


def results(path: Path, text: str = "old") -> Path:
    """A folder that Tailback wrote."""
    with AtomicDirectory(path) as part:
        (part / "run").mkdir()
        (part / "run" / "run.json").write_text(text)
    return path


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("force", [False, True])
def test_a_path_through_a_missing_folder_is_checked(force: bool, tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "notes.txt").write_text("precious")
    with pytest.raises(RunError, match="notes" if force else "already exists"):
        check_writable(tmp_path / "runs" / ".." / "keep", force=force)
    assert contents(tmp_path) == ["keep", "keep/notes.txt"]


@pytest.mark.parametrize("force", [False, True])
def test_what_appears_meanwhile_stays(force: bool, tmp_path: Path) -> None:
    out = tmp_path / "late"
    expected = "thesis" if force else "already exists"
    with pytest.raises(RunError, match=expected), AtomicDirectory(out, force=force):
        out.mkdir()
        (out / "thesis.txt").write_text("precious")
    assert contents(tmp_path) == ["late", "late/thesis.txt"]


def test_a_replaced_folder_is_fully_in_its_manifest(tmp_path: Path) -> None:
    out = results(tmp_path / "out")
    assert json.loads((out / "manifest.json").read_text())["files"] == contents(out)
    with AtomicDirectory(out, force=True) as part:
        (part / "new").write_text("")
    assert contents(out) == ["manifest.json", "new"]
    (out / "folder").mkdir()
    with pytest.raises(RunError, match="'folder', which Tailback did not write"):
        check_writable(out, force=True)
    (out / "folder").rmdir()
    check_writable(out, force=True)


@pytest.mark.parametrize("file", ["run.json", "manifest.json"])
@pytest.mark.parametrize("text", ['{"exe": "a.out"}', "[1]", '{"files": 3}', "[" * 5000, "\xff"])
def test_files_of_our_names_make_no_result(
    file: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = scenario(tmp_path), tmp_path / "project"
    out.mkdir()
    (out / file).write_text(text, encoding="latin-1")
    refused(capsys, ["simulate", path, "--out", out, "--force"], file, "did not write", "remedy")
    assert contents(out) == [file]


def test_a_result_replaces_no_input_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert tailback(["simulate", str(scenario(tmp_path)), "--out", str(run)]) == 0
    capsys.readouterr()
    for command in ("simulate", "diagnose", "place", "counters"):
        refused(
            capsys,
            [command, run, "--out", run, "--force"],
            "run",
            "an input of this result",
            "choose another folder",
        )
    both = ["compare", tmp_path / "small.toml", run, "--out", run, "--force"]
    refused(capsys, both, "run", "an input of this result", "choose another folder")
    mine = Path(shutil.copy(tmp_path / "small.toml", run))
    refused(capsys, ["simulate", mine, "--out", run, "--force"], "small.toml")
    assert mine.is_file() and Run.read(run).complete


@pytest.mark.parametrize("name", ["a/../../precious", "a\\u0000b"])
def test_the_name_of_a_scenario_leads_nowhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "tailback-a").mkdir(parents=True)
    path = scenario(here)
    path.write_text(path.read_text().replace('"small"', f'"{name}"'))
    monkeypatch.chdir(here)
    assert tailback(["diagnose", str(path), "--seeds", "1", "--method", "block", "--quiet"]) in (
        0,
        3,
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["here"]
    made = here / f"tailback-{name.replace('/', '-')}".replace("\\u0000", "-")
    assert (made / "diagnosis.json").is_file()


@pytest.mark.parametrize("behind", [1, 2])
def test_ctrl_c_between_the_renames_loses_neither_folder(
    behind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = results(tmp_path / "out")
    rename, calls = Path.rename, []

    def interrupted(self: Path, target: Path) -> Path:
        rename(self, target)
        calls.append(target)
        if len(calls) == behind:
            raise KeyboardInterrupt
        return target

    # Where the system cannot exchange two names in one step.
    monkeypatch.setattr("tailback.io.atomic_exchange._exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), AtomicDirectory(out, force=True) as part:
        (part / "new").write_text("")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    left = ["manifest.json", "run", "run/run.json"] if behind == 1 else ["manifest.json", "new"]
    assert contents(out) == left


def test_an_interrupted_replacement_leaves_no_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = results(tmp_path / "out")
    rmtree, calls = shutil.rmtree, []

    def interrupted(path: Path, ignore_errors: bool = False) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        rmtree(path, ignore_errors)

    monkeypatch.setattr("tailback.io.atomic_exchange.shutil.rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), AtomicDirectory(out, force=True) as part:
        (part / "new").write_text("")
    assert contents(tmp_path) == ["out", "out/manifest.json", "out/new"]


def test_an_undeletable_old_folder_keeps_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a file that is open over NFS: unlink leaves another in its place, and rmdir fails.
    out = results(tmp_path / "out")

    def busy(*_: object, **__: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "rmdir", busy)
    with AtomicDirectory(out, force=True) as part:
        (part / "new").write_text("")
    assert contents(out) == ["manifest.json", "new"]


def test_a_path_outside_utf8_is_refused_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, there = scenario(tmp_path), Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    arguments = ["simulate", path, "--out", there / "run"]
    refused(capsys, arguments, "not UTF-8", "remedy")
    there.mkdir()
    monkeypatch.chdir(there)
    refused(capsys, ["simulate", path, "--out", "run"], "not UTF-8", "remedy")
    assert list(there.iterdir()) == []
    results(tmp_path / "run").rename(there / "run")
    refused(capsys, ["report", there / "run"], "not UTF-8", "remedy")
