"""Mistakes of a first hour: each error names file, place, value and remedy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tests.factories.cli import refused
from tests.factories.cli_counters import FABRIC, LEAF
from tests.factories.repository import ROOT

TRACE = ROOT / "examples" / "demo" / "trace"
CASE = ROOT / "examples" / "lab" / "slow-cable"
CUT_JSON = '{"a": 1,\n'
NAMES_OF_ANOTHER_MACHINE = "rank 0=foo slot=0\nrank 1=bar slot=0\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--jobs", "empty.txt"], ["empty.txt: the file is empty", "make it again"]),
        (["--samples", "empty.txt"], ["empty.txt: the file is empty"]),
        (["--rankfile", "empty.txt"], ["empty.txt: the file is empty"]),
        (["--counters", "empty.txt"], ["empty.txt: the file is empty"]),
        (["--rankfile", "other.txt"], ["other.txt: rank 0: host 'foo' is not in the fabric"]),
        (["--rankfile", "other.txt"], ["'node001' to 'node128'", "--fabric"]),
        (["--rankfile", "gone.txt"], ["gone.txt: cannot be read", "check the path"]),
        (["--placement", "gone.txt"], ["gone.txt", "no such file", "tailback list placement"]),
        (["--placement", "blok"], ["unknown placement 'blok'", "did you mean 'block'?"]),
        (["--hosts", "node[1-x]"], ["node[1-x]", "is not a number or a range", "write hosts"]),
        (["--hosts", "kin3"], ["there is no host 'kin3'", "'node001' to 'node128'"]),
        (["--hosts", "nope[1-4]"], ["there is no host 'nope1'", "'node001' to 'node128'"]),
        (["--hosts", "0-3"], ["128 ranks", "hold 4 slots", "add --ranks-per-host 32"]),
        (["--hosts", "0-3"], ["tell where the ranks ran (--rankfile)"]),
        (["--jobs", "zeros"], ["zeros: is not text", "tailback list job-list"]),
        (["--rankfile", "zeros"], ["zeros: is not text", "tailback list rank-map"]),
        (["--fabric", "zeros"], ["zeros: line 1: this is a binary file", "tailback list fabric"]),
        (["--cable-rate", "100 Gbs"], ["'100 Gbs'", "did you mean '100 Gb/s' or '100 GB/s'?"]),
        (["--cable-rate", "-100 Gb/s"], ["'-100 Gb/s' is below 0", "'100 Gb/s'"]),
        (["--coarse", "16 Kin"], ["--coarse: '16 Kin'", "did you mean '16 KiB'?"]),
        (["--ranks", "-4"], ["'-4' is not a number or grid of ranks", "512 or 8x8x8"]),
        (["--budget", "60"], ["--budget: '60' is not a time", "'60 s', '10 min'"]),
        (["--compute-scale", "-1"], ["--compute-scale: -1.0", "tailback diagnose --help"]),
        (["--fabrc", "x"], ["'--fabrc'", "--fabric", "remedy: tailback diagnose --help"]),
        (["--fabric", "gone.txt"], ["'gone.txt' is neither a file nor a preset", "preset"]),
        (["--fabric", "."], ["this is a directory", "name a file in it"]),
    ],
)
def test_option_error_names_value_and_remedy(
    arguments: list[str],
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "zeros").write_bytes(bytes(64))
    (tmp_path / "other.txt").write_text(NAMES_OF_ANOTHER_MACHINE)
    fabric = [] if "--fabric" in arguments else ["--fabric", FABRIC]
    refused(capsys, ["diagnose", TRACE, *fabric, *arguments], *expected, "remedy: ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["diagnose", "cut.json", "--fabric", FABRIC], ["cut.json: is damaged JSON: line 2"]),
        (["sweep", "empty", "--over", "seed=1..2", "--out", "x"], ["empty: the folder is empty"]),
        (["verify", "empty"], ["empty: is no diagnosis", "tailback diagnose SOURCE --out"]),
        (["report", "empty"], ["empty: not a run directory", "tailback diagnose"]),
        (["export", "otf", "empty"], ["there is no command 'otf'", "otf2"]),
        (["export", "perfetto", "empty"], ["Missing argument 'OUT'", "export perfetto --help"]),
        (["lab", "rn"], ["there is no command 'rn'", "did you mean 'run'?"]),
        (["counters", "cut.json"], ["cut.json: no reader recognises", "perfquery"]),
        (["counters", "gone.txt"], ["gone.txt: no such file", "tailback collect --out"]),
        (["counters", "empty"], ["empty: no reader recognises", "tailback list counter-source"]),
        (["diagnose", "gone", "--fabric", FABRIC], ["gone: does not exist", "tailback record"]),
        (["diagnose", TRACE], ["needs a network to run on", "scenario with [fabric]", "tapered"]),
    ],
)
def test_command_error_names_file_and_remedy(
    arguments: list[str | Path],
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.json").write_text(CUT_JSON)
    refused(capsys, arguments, *expected, "remedy: ")


def test_unknown_host_of_recorded_run_is_located(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = tmp_path / "case"
    shutil.copytree(CASE, case)
    (case / "manifest.json").unlink()
    ranks = (case / "rank_host.csv").read_text().splitlines()
    ranks[4] = "3,nodeX,10.1.0.2"
    (case / "rank_host.csv").write_text("\n".join(ranks))
    expected = "rank_host.csv: rank 3: host 'nodeX' is not in the fabric"
    refused(capsys, ["diagnose", case, "--out", tmp_path / "out"], expected, "'h00' to 'h32'")


def test_group_without_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert tailback(["export"]) == 2
    assert "Usage: tailback export" in capsys.readouterr().err


def test_minutes_are_a_time_between_files(capsys: pytest.CaptureFixture[str]) -> None:
    fabric = ["--fabric", str(FABRIC)]
    assert tailback(["counters", *map(str, LEAF), *fabric, "--every", "1 min"]) == 0
    assert "20 intervals over 60 s" in capsys.readouterr().out
