"""``tailback counters``: what has no effect is refused, and so is what cannot be one source."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tailback.port_counters.readers import READERS
from tests.factories import torus_archive
from tests.factories.cli import scenario
from tests.factories.cli_counters import FABRIC, LEAF, plain, print_counters, refused


@pytest.fixture(scope="module")
def diagnosis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diagnosis")
    words = ["diagnose", str(scenario(folder)), "--out", str(folder / "d"), "--quiet"]
    assert tailback([*words, "--seeds", "1", "--method", "block"]) in (0, 3)
    return folder / "d"


def test_a_diagnosis_is_read_as_its_run(
    diagnosis: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = json.loads(print_counters(capsys, diagnosis, "--format", "json"))
    assert verdict == json.loads(print_counters(capsys, diagnosis / "run", "--format", "json"))
    assert verdict["ports"] > 0 and {group["category"] for group in verdict["groups"]} >= {"Leaf"}
    # A diagnosis that has lost its run is no source.
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "diagnosis.json").write_text("{}")
    assert "no reader recognises" in refused(capsys, tmp_path / "empty")


def test_runs_are_not_added_up(diagnosis: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each begins at 0, on a network of its own."""
    for words in ([diagnosis / "run", diagnosis], [LEAF[0], diagnosis]):
        text = refused(capsys, *words)
        assert "cannot be combined with other files" in text and "tailback compare" in text


def test_options_without_effect_are_refused(
    diagnosis: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused(capsys, diagnosis, "--every", "1 s")
    assert f"{diagnosis}: --every: has no effect" in text and "leave it out" in text
    text = refused(capsys, diagnosis, "--tick", "22 ns")
    assert "--tick: has no effect" in text and "as time" in text
    path = torus_archive.write(tmp_path / "a", 2, shape=(2, 2, 2))
    assert "--every" in refused(capsys, path, "--every", "1 s")
    pair = [*LEAF, "--every", "60 s"]
    assert "without --out" in refused(capsys, *pair, "--csv")
    assert "--subsystem has no effect" in refused(capsys, *pair, "--subsystem", "A=^leaf")
    print_counters(capsys, *pair, "--subsystem", "A=^leaf", "--fabric", FABRIC)


@pytest.mark.parametrize("name", READERS.names())
def test_a_named_reader_says_what_it_wants(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it is given: a folder of files, or a file where it wants a folder."""
    (tmp_path / "notes.md").write_text("nothing of the kind\n")
    for path in (tmp_path, tmp_path / "notes.md"):
        assert "remedy: " in refused(capsys, path, "--reader", name)


def tree(folder: Path, count: int) -> Path:
    """A copy of one port's sysfs tree, made long after it was read."""
    counters = folder / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    (counters.parent / "rate").write_text("100 Gb/sec (4X EDR)\n")
    for file in ("port_xmit_data", "port_xmit_packets", "port_xmit_wait"):
        (counters / file).write_text(f"{1000 * count}\n")
        os.utime(counters / file, (1.7e9, 1.7e9))
    return folder


HEADER = "#Time, X+_SAMPLE_GEMINI_LINK_CREDIT_STALL (% x1e6)"


def test_a_header_without_rows_is_no_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.HEADER").write_text(f"{HEADER}\n")
    text = refused(capsys, tmp_path / "a.HEADER")
    assert "a.HEADER: no rows of counters in it" in text and "remedy: " in text
    # Beside a file with rows it is left out, and named.
    (tmp_path / "b.csv").write_text(f"{HEADER}\n60, 5000000\n")
    text = print_counters(capsys, tmp_path / "a.HEADER", tmp_path / "b.csv")
    assert "1 interval" in text and "a.HEADER: no row under its header" in text


def test_files_the_wrong_way_round_get_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a speed it cannot be told whether a counter that fell was set back."""
    files = [
        plain(tmp_path / f"{n}.txt", 9, {1: (1000 * n, 10 * n), 2: (2000 * n, 20 * n)})
        for n in (1, 2, 3)
    ]
    hint = "most counters fell"
    assert hint not in print_counters(capsys, *files, "--every", "60 s", code=3)
    text = print_counters(capsys, *reversed(files), "--every", "60 s", code=3)
    assert f"in 2 of 2 steps from one file to the next {hint}" in text
    assert "in the order in which they were read" in " ".join(text.split())
    text = print_counters(capsys, files[0], files[2], files[1], "--every", "60 s", code=3)
    assert f"in 1 of 2 steps from one file to the next {hint}" in text
    # One port of two that was set back is no sign of the order.
    plain(files[1], 9, {1: (900, 9), 2: (4000, 40)})
    assert hint not in print_counters(capsys, *files[:2], "--every", "60 s", code=3)


def test_sysfs_copies_with_one_time_are_distinguished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not taken for one look, of which nothing could be said."""
    trees = [tree(tmp_path / str(n), n) for n in (1, 2)]
    text = refused(capsys, *trees)
    assert "written at the same instant" in text and "--every" in text
    assert "1 interval over 1 s" in print_counters(capsys, *trees, "--every", "1 s")
