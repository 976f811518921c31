"""Damage to results is found by SHA-256: a flipped bit is reported by file, and never read."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.cli import run as tailback
from tailback.collector.store import Clock, Collection
from tailback.errors import RunError, TailbackError
from tailback.io import atomic_exchange
from tailback.io.atomic_exchange import hidden_name, recover
from tailback.io.folders import AtomicDirectory, atomic_file
from tailback.io.manifest import UNCHECKED, read_manifest, write_manifest
from tailback.io.parquet import read_table, scan_tables
from tailback.port_counters.analysis.sources import load
from tailback.port_counters.readers import collection, read_counters
from tailback.port_counters.schema import CounterError
from tailback.run.run import Run
from tests.factories.cli import refused, scenario, simulated
from tests.factories.counter_collection import TARGETS, block
from tests.factories.public_data import real
from tests.factories.unchecked_runs import without_manifest

FLIPS = 320


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("whole"), "packets = 1000")


def flips(files: list[Path]) -> list[tuple[Path, int]]:
    """A bit of every file at least, and a sample of all bits, as (file, number of the bit)."""
    draw = random.Random(7)
    each = [(file, draw.randrange(8 * file.stat().st_size)) for file in files]
    bits = [
        (file, draw.randrange(8 * file.stat().st_size)) for file in draw.choices(files, k=FLIPS)
    ]
    return each + bits


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def same(run: Run, other: Run) -> bool:
    """Whether two runs hold the same: tables, summary, scenario."""
    return all(run.tables[name].equals(table) for name, table in other.tables.items()) and (
        run.summary,
        run.scenario,
        run.notes,
        run.performance,
    ) == (other.summary, other.scenario, other.notes, other.performance)


@pytest.mark.slow
def test_every_flipped_bit_of_a_run_is_reported(complete_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(complete_run, tmp_path / "run"))
    good = Run.read(run)
    reported = 0
    for file, bit in flips(sorted(run.iterdir())):
        flip(file, bit)
        try:
            assert same(Run.read(run), good), f"bit {bit} of {file.name} is read as something else"
        except RunError as error:
            named = {file} if file.name != "manifest.json" else set(run.iterdir()) | {run}
            assert error.file in named and error.remedy, f"bit {bit} of {file.name}: {error}"
            reported += 1
        flip(file, bit)
    assert reported >= FLIPS
    assert same(Run.read(run), good)


def test_a_missing_probe_table_is_reported(complete_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(complete_run, tmp_path / "run"))
    (run / "queues.parquet").unlink()
    with pytest.raises(RunError, match=r"queues\.parquet: is missing"):
        Run.read(run)


def test_a_diagnosis_and_its_rank_files_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["diagnose", str(scenario(tmp_path)), "--out", str(out), "--quiet", "--seeds", "1"]
    assert tailback(words) in (0, 3)
    capsys.readouterr()
    listed = json.loads((out / "manifest.json").read_text())["sha256"]
    assert {"diagnosis.json", "report.html", "run/run.json", "run/manifest.json"} <= set(listed)
    text = (out / "diagnosis.json").read_text()
    digit = re.search(r"\d", text)
    assert digit is not None
    flip(out / "diagnosis.json", 8 * len(text[: digit.start()].encode()))
    refused(capsys, ["report", out], "diagnosis.json", "SHA-256", "remedy")


def test_run_without_manifest_is_read_with_a_note(complete_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(complete_run, tmp_path / "run"))
    assert UNCHECKED not in Run.read(run).notes
    assert UNCHECKED in Run.read(without_manifest(run)).notes


# --- Parquet ----------------------------------------------------------------------------------


@pytest.mark.data
def test_a_table_whose_decoding_panics_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # The levels of a page that say nothing: polars panics in its Rust code, on standard error too.
    damaged = shutil.copytree(real("repro/damaged-parquet"), tmp_path / "damaged")
    without_manifest(damaged)
    refused(capfd, ["report", damaged, "--out", tmp_path / "x.html"], "switches.parquet", "remedy")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    pl.DataFrame({"a": range(1000), "b": ["x"] * 1000}).write_parquet(path)
    return path


def test_whatever_decoding_ends_in_names_the_file(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = (
        pl.exceptions.PanicException("left: 0"),
        pl.exceptions.ComputeError("x"),
        OSError(5, "y"),
    )
    for end in ends:

        def broken(*_: object, end: BaseException = end, **__: object) -> None:
            raise end

        monkeypatch.setattr(pl, "read_parquet", broken)
        with pytest.raises(RunError, match=r"table\.parquet") as caught:
            read_table(table, error=RunError)
        assert caught.value.remedy


def test_every_damaged_parquet_file_is_refused_or_decoded(table: Path) -> None:
    content = table.read_bytes()
    draw = random.Random(3)
    for _ in range(150):
        cut = content[: draw.randrange(len(content))]
        table.write_bytes(cut)
        with pytest.raises(TailbackError, match=r"table\.parquet"):
            read_table(table)
    for _ in range(150):
        table.write_bytes(content)
        flip(table, draw.randrange(8 * len(content)))
        try:
            read_table(table)
        except TailbackError as error:
            assert error.file == table and error.remedy


def test_one_module_alone_opens_parquet() -> None:
    root = Path(atomic_exchange.__file__).parent
    opened = re.compile(r"\b(?:read|scan)_parquet\(")
    modules = [
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if opened.search(file.read_text(encoding="utf-8"))
    ]
    assert modules == ["parquet.py"]


def test_an_oversized_table_is_refused_before_allocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.parquet"
    pl.DataFrame({"a": pl.zeros(4_000_000, dtype=pl.Int64, eager=True)}).write_parquet(
        path, row_group_size=1_000_000
    )
    assert path.stat().st_size < 50_000
    monkeypatch.setenv("TAILBACK_MEMORY", "40 MiB")
    for name in ("read_parquet", "scan_parquet"):
        monkeypatch.setattr(pl, name, pytest.fail)
    with pytest.raises(
        TailbackError, match=r"about 6\d.* MiB.*limit for one file is 40 MiB"
    ) as caught:
        read_table(path)
    assert "TAILBACK_MEMORY='1 GiB'" in str(caught.value)
    monkeypatch.setenv("TAILBACK_MEMORY", "5 MiB")
    with pytest.raises(TailbackError, match="limit for one file is 5 MiB"):
        scan_tables(path)
    monkeypatch.undo()
    monkeypatch.setenv("TAILBACK_MEMORY", "1 GiB")
    assert read_table(path).height == 4_000_000


# --- replacing a folder -----------------------------------------------------------------------


def result(path: Path, text: str, *, force: bool = False) -> None:
    with AtomicDirectory(path, force=force) as part:
        (part / "inner").mkdir()
        (part / "inner" / "file").write_text(text)
        (part / "other").write_text(text)


def held(path: Path) -> str:
    """What :func:`result` wrote there, if it is whole."""
    texts = {(path / name).read_text() for name in ("inner/file", "other")}
    assert len(texts) == 1 and (path / "manifest.json").is_file()
    return texts.pop()


def killed_at(step: int, work: Callable[[], None]) -> bool:
    """Do some work in a process that is killed before its n-th change to the file system.

    Returns:
        Whether it was killed; False when it made fewer changes.
    """
    child = os.fork()
    if child == 0:  # pragma: no cover - ends by a signal
        try:
            left = [step]

            def strike(*_: Any) -> None:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            for module, name in (
                (os, "mkdir"),
                (os, "rename"),
                (os, "unlink"),
                (os, "rmdir"),
                (os, "chmod"),
                (atomic_exchange, "_exchange"),
            ):
                real = getattr(module, name)

                def struck(*arguments: Any, real: Any = real, **options: Any) -> Any:
                    strike()
                    out = real(*arguments, **options)
                    strike()
                    return out

                setattr(module, name, struck)
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("at_once", [True, False])
def test_a_kill_leaves_an_old_or_new_result(
    at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:  # NFS, say
        monkeypatch.setattr(atomic_exchange, "_exchange", lambda *_: False)
    out, seen, step = tmp_path / "run", set(), 0
    result(out, "old")
    while killed_at(step, lambda: result(out, "new", force=True)):
        recover(out)
        assert [path.name for path in tmp_path.iterdir()] == ["run"], f"step {step}"
        seen.add(held(out))
        if held(out) == "new":
            result(out, "old", force=True)
        step += 1
    assert seen == {"old", "new"} and step > 10


@pytest.mark.slow
def test_the_next_start_and_the_next_reader_recover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_exchange, "_exchange", lambda *_: False)
    scenario(tmp_path)
    words = ["simulate", str(tmp_path / "small.toml"), "--out", str(tmp_path / "run"), "--quiet"]
    assert tailback(words) == 0
    gap = 0
    for step in range(60):
        killed_at(step, lambda: result(tmp_path / "run", "new", force=True))
        if not (tmp_path / "run").exists():
            gap += 1
            # Between the two renames: the new one is whole and takes the place.
            with pytest.raises(RunError, match=r"no run\.json"):
                Run.read(tmp_path / "run")
            assert held(tmp_path / "run") == "new"
            assert tailback([*words, "--force"]) == 0
    assert gap > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "small.toml"]


def test_foreign_and_unfinished_files_stay(tmp_path: Path) -> None:
    out = tmp_path / "run"
    alive = hidden_name(out)
    mine = tmp_path / ".run.notes"
    elsewhere = Path(re.sub(r"tailback-[0-9a-f]{8}", "tailback-00000000", str(hidden_name(out))))
    other = hidden_name(tmp_path / "run2")
    for folder in (alive, mine, elsewhere, other):
        folder.mkdir()
    began = atomic_exchange._start_time(os.getpid())
    gone = Path(str(hidden_name(out)).replace(f"-{began}-", f"-{began + 1}-"))
    gone.mkdir()
    result(out, "new")
    remaining = {path for path in tmp_path.iterdir() if path != out}
    assert remaining == {alive, mine, elsewhere, other}


def test_a_file_that_was_not_finished_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "x.csv"

    def killed() -> None:
        with atomic_file(out) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    assert killed_at(10**6, killed)
    assert len(list(tmp_path.iterdir())) == 1
    with atomic_file(out) as file:
        file.write(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


# --- collections ------------------------------------------------------------------------------


@pytest.fixture
def collected(tmp_path: Path) -> Path:
    """A collection of a finished segment, with an event."""
    out = tmp_path / "collection"
    store = Collection(out)
    writer = store.begin(TARGETS, {})
    writer.append(block(0, 8))
    writer.event({"time_ns": 1, "what": "reads failed"})
    writer.close()
    assert store.compact() == []
    store.close()
    return out


def read_all(out: Path) -> list[pl.DataFrame]:
    """Everything that is read of a collection, also by a collector that continues it."""
    store = Collection(out)
    try:
        store.last_readings(TARGETS, Clock())
    finally:
        store.close()
    return [
        read_counters(out).all_intervals(),
        collection.scan(out)[0][0][1].collect(),
    ]


@pytest.mark.slow
def test_every_flipped_bit_of_a_collection_is_reported(collected: Path) -> None:
    """But in the SHA-256 of the table of readings, which Tailback does not read back."""
    good = read_all(collected)
    (digests,) = collected.glob("sha256/*")
    parts = [collected / name / "000001.parquet" for name in ("intervals", "errors", "ports")]
    files = [*parts, *collected.glob("events/*"), *collected.glob("carry-*"), digests]
    assert len(files) == 6
    text = digests.read_bytes()
    unread = text.index(b"readings/"), text.rindex(b'"')
    for file, bit in flips(files):
        flip(file, bit)
        try:
            tables = read_all(collected)
        except CounterError as error:
            assert error.file == file or file == digests, f"bit {bit} of {file}: {error}"
            assert error.remedy
        else:
            assert all(a.equals(b) for a, b in zip(tables, good, strict=True)), (file, bit)
            # Stalls are known without the tables that are then left out.
            named = any(file.stem in note for note in load([collected]).notes)
            is_unread = file == digests and unread[0] <= bit // 8 < unread[1]
            assert named != is_unread, f"bit {bit} of {file}"
        flip(file, bit)


def test_damaged_ports_of_a_collection_are_left_out(collected: Path) -> None:
    flip(collected / "ports" / "000001.parquet", 100)
    (note,) = load([collected]).notes
    assert "left out: ports/000001.parquet: damaged" in note
    with closing(Collection(collected)) as store:
        assert store.last_targets() == (None, None)


def test_a_collection_without_manifest_is_noted_and_continued(collected: Path) -> None:
    shutil.rmtree(collected / "sha256")
    counters = read_counters(collected)
    assert counters.all_intervals().height == 7
    assert any("1 of 1 segment have no SHA-256" in note for note in counters.notes)
    store = Collection(collected)
    writer = store.begin(TARGETS, {})
    writer.append(block(8, 4))
    writer.close()
    store.compact()
    store.close()
    assert any("1 of 2 segments" in note for note in read_counters(collected).notes)
    flip(collected / "intervals" / "000002.parquet", 100)
    counters = read_counters(collected)
    assert counters.notes[0].startswith("left out: 000002.parquet: damaged or edited")
    assert counters.all_intervals().height == 7


def test_manifest_lists_itself_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    for _ in range(2):
        write_manifest(tmp_path, "1")
        listed = json.loads((tmp_path / "manifest.json").read_text())["files"]
        assert listed == ["a.txt", "manifest.json"]
        assert read_manifest(tmp_path).files == set(listed)
