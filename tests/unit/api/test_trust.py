"""Folders, names and modules of other users give them no way in."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.api.diagnose import diagnose
from tailback.api.sweep import continue_sweep, plan_sweep
from tailback.cli import run as cli
from tailback.collector.store import Collection
from tailback.errors import RunError, TailbackError
from tailback.evaluate import Change, EngineVariation
from tailback.fabric.degraded import SlowLink
from tailback.io.atomic_exchange import OLD, hidden_name, recover
from tailback.io.folders import PrivateFolder, shell_path
from tailback.recorder.build import _trusted_cache
from tailback.recorder.rank_files import RecordError
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare
from tailback.simulation.parallel.spread import SCRIPT, serve, spread
from tailback.simulation.parallel.task_folder import (
    SCENARIO,
    TaskDataError,
    TaskFolder,
    TaskResult,
    decode,
    encode,
)
from tailback.simulation.prepare import PreparedScenario
from tailback.workers import batch_script

SCENARIO_TEXT = (
    'name = "tiny"\n[fabric]\ntopology = {kind = "k-ary-n-tree", k = 2, n = 2}\n'
    '[[job]]\npattern = {kind = "ring", ranks = 4, size = "4 KiB"}\n'
)
TINY: dict[str, Any] = {
    "name": "tiny",
    "fabric": {"topology": {"kind": "k-ary-n-tree", "k": 2, "n": 2}},
    "job": [{"pattern": {"kind": "ring", "ranks": 4, "size": "4 KiB"}}],
}
OTHER_UID = 65534
"""The user nobody."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files of other users")

HOSTILE_NAMES = [
    "a b",
    "-x",
    "--version",
    "$(touch marker)",
    "`touch marker`",
    "'; touch marker; '",
    '"; touch marker; "',
    "a\\b",
    "a;touch marker",
    "a\\\\'b",
    "%j",
    "#x",
    "*",
    "naïve",
    "~root",
]
BROKEN_NAMES = ["a\nb", "a\n#SBATCH --uid=0", "\r", "\x1b[2J", "a\x00b"[:1] + "\x01", "a\u2028b"]


@pytest.fixture(scope="module")
def prepared() -> PreparedScenario:
    return prepare(parse(TINY))


@pytest.fixture(scope="module")
def run(prepared: PreparedScenario) -> Run:
    return make_evaluate(prepared)(Change(measure=True, computations=True))


def assert_same(value: Any, other: Any) -> None:
    """Equal in type and content, field by field."""
    assert type(value) is type(other)
    if isinstance(value, np.ndarray):
        assert value.dtype == other.dtype
        np.testing.assert_array_equal(value, other)
    elif isinstance(value, pl.DataFrame):
        assert value.schema == other.schema and value.equals(other)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            assert_same(getattr(value, field.name), getattr(other, field.name))
    elif isinstance(value, list | tuple):
        assert len(value) == len(other)
        for pair in zip(value, other, strict=True):
            assert_same(*pair)
    elif isinstance(value, dict):
        assert list(value) == list(other)
        for key in value:
            assert_same(value[key], other[key])
    else:
        assert value == other


# --- tasks are data ---------------------------------------------------------------------------


def test_tasks_keep_their_content(prepared: PreparedScenario, run: Run) -> None:
    changes = [
        Change(placement=np.arange(4, dtype=np.uint32)[::-1].copy(), placement_name="x"),
        Change(slow=(SlowLink(3, 1.5, both=False),), limits=((2, 0.25),), seed_offset=2),
        Change(variation=EngineVariation(delays=0.5), program=prepared.program, routing="random"),
    ]
    for value in (prepared, run, TaskResult(run, 0.5), TaskResult(None, 0.0), *changes):
        assert_same(decode(encode(value), type(value)), value)


def test_shared_parts_stay_shared(prepared: PreparedScenario) -> None:
    decoded = decode(encode(prepared), PreparedScenario)
    shared = prepared.program is prepared.jobs[0].program
    assert (decoded.program is decoded.jobs[0].program) == shared
    assert decoded.program.kind is decoded.jobs[0].program.kind


def test_expected_type_decides_what_is_built(prepared: PreparedScenario, run: Run) -> None:
    for value, other in ((prepared, Change), (Change(), Run), (run, PreparedScenario)):
        with pytest.raises(TaskDataError):
            decode(encode(value), other)  # type: ignore[arg-type]


def test_damaged_tasks_are_errors(run: Run) -> None:
    data = encode(run)
    draw = np.random.default_rng(5)
    for position in draw.integers(0, len(data), 200).tolist():
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(draw.integers(8))
        # Members of the archive have a CRC-32; a bit of its directory may have no meaning.
        try:
            assert_same(decode(bytes(damaged), Run), run)
        except TaskDataError:
            continue
    for cut in (0, 1, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(TaskDataError):
            decode(data[:cut], Run)


@dataclasses.dataclass
class _Holder:
    content: Any


@pytest.mark.parametrize("content", [object(), np.array([object()]), {1, 2}, b"bytes", print])
def test_objects_that_are_no_data_are_not_stored(content: object) -> None:
    with pytest.raises(TypeError):
        encode(_Holder(content))


def test_worker_of_another_version_says_so(
    tmp_path: Path, prepared: PreparedScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = TaskFolder.create(tmp_path / "tasks")
    tasks.open(prepared)
    monkeypatch.setattr("tailback.simulation.parallel.task_folder.version", lambda: "0.0.0")
    with pytest.raises(RunError, match=r"(?s)written by version .*same version"):
        serve(tmp_path / "tasks")


# --- folders of other users -------------------------------------------------------------------


def open_to_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)


def owned_by_other(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, OTHER_UID, OTHER_UID)


def link_to_own(path: Path) -> None:
    (path.parent / "target").mkdir(mode=0o700)
    path.symlink_to(path.parent / "target")


MADE_BY_OTHERS = [
    open_to_others,
    link_to_own,
    pytest.param(owned_by_other, marks=as_root),
]


@pytest.mark.parametrize("make", MADE_BY_OTHERS)
def test_worker_refuses_folder_that_others_made(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "tasks")
    with pytest.raises(RunError, match=r"is not a folder|another user|open to other users"):
        serve(tmp_path / "tasks", idle_s=5.0)


@pytest.mark.parametrize("make", MADE_BY_OTHERS)
@pytest.mark.parametrize("script", [None, "file", "link"])
def test_diagnosis_refuses_folder_that_exists(
    tmp_path: Path, make: Callable[[Path], None], script: str | None
) -> None:
    folder, victim = tmp_path / "out.tasks", tmp_path / "victim"
    victim.write_text("precious")
    make(folder)
    if script == "file":
        (folder / SCRIPT).write_text("#!/bin/bash\n")
    elif script == "link":
        (folder / SCRIPT).symlink_to(victim)
    with pytest.raises(RunError, match="exists already"):
        diagnose(TINY, tasks=folder)
    (tmp_path / "tiny.toml").write_text(SCENARIO_TEXT)
    arguments = ["diagnose", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "out")]
    assert cli([*arguments, "--slurm", "1", "--quiet"]) == 2
    assert victim.read_text() == "precious" and not (tmp_path / "out").exists()


@as_root
def test_worker_of_another_user_is_refused(tmp_path: Path) -> None:
    """The user nobody cannot enter the folder of a diagnosis of root."""
    tasks = TaskFolder.create(tmp_path / "tasks")
    code = "import os, sys; os.setuid(int(sys.argv[1])); print(os.listdir(sys.argv[2]))"
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    command = [sys.executable, "-c", code, str(OTHER_UID), str(tasks.folder.path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "PermissionError" in refused.stderr


@pytest.fixture
def private(tmp_path: Path) -> Iterator[PrivateFolder]:
    folder = PrivateFolder.create(tmp_path / "private")
    yield folder
    folder.delete()


def test_folder_has_mode_0700(private: PrivateFolder) -> None:
    assert private.path.stat().st_mode & 0o777 == 0o700
    private.write("file", b"x")
    assert (private.path / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", [SCRIPT, SCENARIO, "closed", "000000.open", "000000.done"])
def test_links_in_the_folder_are_not_followed(
    tmp_path: Path, private: PrivateFolder, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (private.path / name).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        private.read(name)
    private.write(name, b"new")
    assert private.read(name) == b"new" and victim.read_text() == "precious"


def test_fifo_in_the_folder_is_not_read(private: PrivateFolder) -> None:
    os.mkfifo(private.path / "000000.done")
    holder = os.open(private.path / "000000.done", os.O_RDWR)
    with pytest.raises(OSError, match="regular file"):
        private.read("000000.done")
    os.close(holder)


def test_another_folder_under_the_name_is_not_used(tmp_path: Path, private: PrivateFolder) -> None:
    private.write("file", b"own")
    private.path.rename(tmp_path / "moved")
    private.path.mkdir(mode=0o700)
    (private.path / "file").write_bytes(b"foreign")
    assert private.read("file") == b"own" and not private.exists()
    (private.path / "file").unlink()


@as_root
def test_writers_refuse_folders_of_other_users(tmp_path: Path) -> None:
    plan_sweep(TINY, {"seed": [1, 2]}, tmp_path / "study")
    os.chown(tmp_path / "study", OTHER_UID, OTHER_UID)
    owned_by_other(tmp_path / "collection")
    attempts: list[Callable[[], object]] = [
        lambda: continue_sweep(tmp_path / "study", workers=1),
        lambda: plan_sweep(TINY, {"seed": [1, 2]}, tmp_path / "study"),
        lambda: Collection(tmp_path / "collection"),
    ]
    for attempt in attempts:
        with pytest.raises(TailbackError, match="belongs to another user"):
            attempt()
    assert cli(["sweep", str(tmp_path / "study"), "--slurm", "2"]) == 2
    assert not (tmp_path / "study" / "sweep.sbatch").exists()


@as_root
def test_unfinished_results_of_other_users_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "result"
    part = hidden_name(target)
    names = [part.with_name(part.name.replace(f"-{os.getpid()}-", "-99999999-"))]
    names.append(names[0].with_name(names[0].name + OLD))
    for name in names:
        name.mkdir()
        os.chown(name, OTHER_UID, OTHER_UID)
    recover(target)
    assert not target.exists() and all(name.exists() for name in names)
    for name in names:
        os.chown(name, os.geteuid(), -1)
    recover(target)
    assert target.exists() and not any(name.exists() for name in names)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.chmod(0o777),
        pytest.param(lambda path: os.chown(path, OTHER_UID, OTHER_UID), marks=as_root),
    ],
)
def test_recorder_of_other_users_is_not_loaded(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = _trusted_cache()
    assert cache.stat().st_mode & 0o777 == 0o700
    make(cache)
    with pytest.raises(RecordError, match="not trusted"):
        _trusted_cache()


def test_modules_in_the_current_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("numpy", "json", "polars", "tailback"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    with spread(1, None, tmp_path / "tasks") as tasks:
        assert tasks is not None
        evaluate = make_evaluate(prepare(parse(TINY)), tasks=tasks)
        monkeypatch.setattr("tailback.simulation.parallel.task_folder.PATIENCE_S", float("inf"))
        evaluate.announce([Change(seed_offset=1)])  # type: ignore[attr-defined]
        assert evaluate(Change(seed_offset=1)).elapsed_ps > 0
    plan_sweep(TINY, {"seed": [1]}, tmp_path / "study")
    assert continue_sweep(tmp_path / "study", workers=1).frame.height == 1
    assert not (tmp_path / "marker").exists()


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_path_is_one_word_that_is_no_option(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(name)
    printed = subprocess.run(
        ["bash", "-c", f"cat {shell_path(name)}"], capture_output=True, text=True, cwd=tmp_path
    )
    assert printed.stdout == name
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("name", HOSTILE_NAMES + BROKEN_NAMES)
def test_name_adds_nothing_to_a_batch_script(name: str) -> None:
    lines = batch_script(name, 2, "true").splitlines()
    plain = batch_script("plain", 2, "true").splitlines()
    assert len(lines) == len(plain)
    assert [a for a, b in zip(lines, plain, strict=True) if a != b] == [lines[1]]
    assert len(lines[1].split()) == 2


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_sweep_script_runs_in_any_folder(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tailback.api.sweep.PYTHON", ("echo",))
    (tmp_path / "tiny.toml").write_text(SCENARIO_TEXT)
    options = [f"--out={name}", "--over", "seed=1..2", "--slurm", "2"]
    assert cli(["sweep", "tiny.toml", *options]) == 0
    submit = capsys.readouterr().out.strip().replace("sbatch", "bash", 1)
    variables = {**os.environ, "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    subprocess.run(["bash", "-c", submit], check=True, env=variables)
    output = (tmp_path / name / "slurm-7_1.out").read_text()
    assert output.endswith(f"--part 1/2 {tmp_path / name}\n")
    assert not list(tmp_path.rglob("marker"))


@pytest.mark.parametrize("name", BROKEN_NAMES)
@pytest.mark.parametrize(
    "command",
    [
        ["diagnose", "tiny.toml", "--slurm", "1"],
        ["diagnose", "tiny.toml"],
        ["simulate", "tiny.toml"],
        ["sweep", "tiny.toml", "--over", "seed=1..2", "--slurm", "1"],
        ["place", "tiny.toml"],
        ["record"],
    ],
    ids=lambda command: "-".join(command[::2]),
)
def test_control_characters_in_out_are_refused(
    tmp_path: Path,
    name: str,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(SCENARIO_TEXT)
    program = ["--", "true"] if command == ["record"] else []
    assert cli([*command, f"--out={name}", *program]) in (2, 125)
    assert "control character" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["tiny.toml"]


@pytest.mark.parametrize("script", ["-x.tasks/workers.sbatch"])
def test_printed_command_names_no_option(script: str) -> None:
    assert shell_path(script) == f"./{script}"
