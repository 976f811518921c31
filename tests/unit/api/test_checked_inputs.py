"""No file of a recording, a lab case, a collection or an archive is read once it has changed."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tailback.cli import run as cli
from tailback.errors import RunError, TailbackError
from tailback.evidence import measure
from tailback.evidence.jobs import read_jobs
from tailback.fabric.lft import read_lfts
from tailback.fabric.readers import read_fabric
from tailback.io import manifest
from tailback.io.folders import AtomicDirectory
from tailback.io.manifest import MANIFEST, UNCHECKED, require_unchanged
from tailback.io.parquet import read_table, scan_tables
from tailback.placement.rank_hosts import rank_hosts
from tailback.port_counters.readers import read_counters
from tailback.sources.recording import notes_on_recording
from tailback.sources.source import Source
from tailback.telemetry.samples_csv import read_samples
from tailback.traffic.readers import read_trace, timed_reader
from tests.factories.recordings import diagnosed, infiniband_recording
from tests.factories.repository import ROOT
from tests.factories.unchecked_runs import without_manifest

FLIPS = 150
"""Flipped bits a folder: as many as showed that every tenth was read as another number."""

JOBS = "JobID|Start|End|NodeList\n1|2026-11-22T11:00:00Z|2026-11-22T12:00:00Z|a\n"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    trace, _ = infiniband_recording(folder)
    (trace / "jobs.txt").write_text(JOBS)
    with AtomicDirectory(folder / "recording") as part:
        shutil.copytree(trace, part, dirs_exist_ok=True)
    return folder / "recording"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(
        ROOT / "examples" / "lab" / "slow-cable", tmp_path_factory.mktemp("lab") / "case"
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "archive"
    with AtomicDirectory(path) as part:
        for number in range(3):
            pl.DataFrame({"round": [number] * 100}).write_parquet(
                part / f"part-{number:05d}.parquet"
            )
    return path


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def read_archive(folder: Path) -> None:
    scan_tables(sorted(folder.glob("part-*.parquet")))


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("recording", read_trace),
        ("recording", timed_reader),
        ("recording", measure),
        ("case", Source.of),
        ("archive", read_archive),
    ],
)
def test_every_flipped_bit_is_detected(
    kind: str, read: Callable[[Path], object], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = shutil.copytree(request.getfixturevalue(kind), tmp_path / kind)
    read(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    draw = random.Random(11)
    for file in [*files, *draw.choices(files, k=FLIPS)]:
        bit = draw.randrange(8 * file.stat().st_size)
        flip(file, bit)
        with pytest.raises(RunError) as refusal:
            read(folder)
        assert refusal.value.file == file, f"bit {bit} of {file}"
        assert refusal.value.remedy and MANIFEST in refusal.value.remedy
        flip(file, bit)
    read(folder)


def test_each_file_is_checked_where_it_is_named(
    recording: Path, case: Path, tmp_path: Path
) -> None:
    recorded = shutil.copytree(recording, tmp_path / "recording")
    lab = shutil.copytree(case, tmp_path / "case")
    fabric = read_fabric(lab / "links.csv")
    readers: list[tuple[Path, Callable[[Path], object]]] = [
        (recorded / "fabric.txt", read_fabric),
        (recorded / "lfts.txt", read_lfts),
        (recorded / "jobs.txt", read_jobs),
        (recorded / "rank_host.csv", rank_hosts),
        (recorded / "counters" / "infiniband-a-0.csv", read_counters),
        (lab / "links.csv", read_fabric),
        (lab / "counters.csv.gz", read_counters),
        (lab / "samples.csv.gz", lambda path: read_samples(path, fabric)),
        (lab / "trace" / "eztrace_log.otf2", read_trace),
    ]
    for file, read in readers:
        read(file)
        content = file.read_bytes()
        file.write_bytes(content + b"\n")
        with pytest.raises(RunError, match="damaged or edited"):
            read(file)
        file.write_bytes(content)
        linked = tmp_path / f"linked-{file.name}"
        linked.symlink_to(file)
        if file.suffix != ".otf2":
            file.write_bytes(content + b"\n")
            with pytest.raises(RunError, match="damaged or edited"):
                read(linked)
            file.write_bytes(content)


def test_edited_host_list_is_refused_with_a_remedy(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(recording, tmp_path / "recording")
    (folder / "rank_host.csv").write_text("rank,host,cores\n0,b,0\n1,c,0\n")
    assert cli(["diagnose", str(folder), "--out", str(tmp_path / "out")]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "rank_host.csv" in message and "copy it to another folder" in message
    # What the remedy names works: the folder without its manifest is read, and says so.
    result = diagnosed(without_manifest(folder))
    assert UNCHECKED in result.diagnosis.warnings


def test_missing_file_is_named(recording: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(recording, tmp_path / "recording")
    (folder / "counters" / "infiniband-c-0.csv").unlink()
    with pytest.raises(RunError, match=r"infiniband-c-0\.csv: is missing"):
        read_trace(folder)


def test_case_without_manifest_is_noted(case: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(case, tmp_path / "case")
    assert notes_on_recording(Source.of(folder).scenario) == []
    assert notes_on_recording(Source.of(without_manifest(folder)).scenario) == [UNCHECKED]


@pytest.mark.parametrize(
    "text", ["", "{}", '{"manifest_version": 3, "name": "an extension"}', "no JSON"]
)
def test_manifest_of_another_program_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    (tmp_path / "edges.csv").write_text("src,dst,rate_gbit\na,s,10\nb,s,10\n")
    assert read_fabric(tmp_path / "edges.csv").n_hosts == 2


def test_files_of_others_in_a_result_are_read(recording: Path, tmp_path: Path) -> None:
    """An administrator may add the fabric to a recording."""
    folder = shutil.copytree(recording, tmp_path / "recording")
    (folder / "own.csv").write_text("rank,host\n0,a\n1,c\n")
    assert rank_hosts(folder / "own.csv") == ["a", "c"]
    read_trace(folder)


def test_file_is_hashed_once(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(archive.glob("*.parquet"))
    for file in [*files, archive / MANIFEST]:
        os.utime(file, (1, 1))
    monkeypatch.setattr(manifest, "_SETTLED_NS", -1)
    hashed = list[Path]()

    def counted(path: Path) -> str:
        hashed.append(path)
        return manifest._sha256(path)

    monkeypatch.setattr(manifest, "_digest_of", manifest._Remembered(counted))
    for _ in range(3):
        require_unchanged(archive)
        for file in files:
            read_table(file)
    assert sorted(hashed) == files


def test_change_right_after_reading_is_seen(archive: Path, tmp_path: Path) -> None:
    """Even if size and times stay: a file that has just been written is hashed again."""
    file = shutil.copytree(archive, tmp_path / "archive") / "part-00000.parquet"
    read_table(file)
    facts = file.stat()
    flip(file, 40)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(TailbackError, match="damaged or edited"):
        read_table(file)
