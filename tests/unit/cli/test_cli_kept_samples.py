"""Commands that read the samples of a kept run, whatever scheme carried them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest

from tailback.cli import run as tailback
from tailback.cli.result import EXIT_UNDETERMINED
from tailback.run.run import Run
from tests.factories.cli import refused, simulated
from tests.factories.repository import ROOT
from tests.factories.unchecked_runs import without_manifest

PROBES = ROOT / "examples" / "probes" / "probes.toml"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose packets carried ``coordinated`` hashes: its table ``samples`` is empty."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    assert tailback(["simulate", str(PROBES), "--out", str(folder), "--quiet"]) == 0
    assert not Run.read(folder).tables["samples"].height
    return folder


def test_compare_decodes_hashed_samples(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert tailback(["compare", str(kept), str(kept), "--format", "json"]) == EXIT_UNDETERMINED
    facts = json.loads(capsys.readouterr().out)
    assert facts["tiers"] and facts["phases"] and facts["lines"]
    assert all(None not in tier["congested_fraction"] for tier in facts["tiers"])


def test_attribution_decodes_hashed_samples(kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "lines.parquet"
    assert tailback(["export", "attribution", str(kept), str(out)]) == 0
    shares = pl.read_parquet(out).group_by("place").agg(pl.col("share").sum())["share"]
    assert len(shares) and shares.to_list() == pytest.approx([1.0] * len(shares))


def test_nothing_counted_is_not_none_congested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``scheme = "off"`` nobody looks: no number, and an empty table says why it is empty."""
    path = simulated(tmp_path, 'scheme = "off"').parent / "small.toml"
    capsys.readouterr()
    out = tmp_path / "d"
    words = ["--quiet", "--verbose", "--seeds", "1", "--method", "tile"]
    assert tailback(["diagnose", str(path), "--out", str(out), *words]) in (0, 3)
    screen = capsys.readouterr().out
    row = next(line for line in screen.split("\n") if line.startswith("  tile "))
    assert row.endswith(" —")
    rule = next(line for line in screen.split("\n") if line.startswith("  TB005 "))
    assert rule.split()[1] == "—"
    assert "of congested packets</span>" not in (out / "report.html").read_text(encoding="utf-8")
    remedy = json.loads((out / "diagnosis.json").read_text())["remedy"]
    assert {c["congested_fraction"] for c in remedy["candidates"] if c["status"] == "proved"} == {
        None
    }
    table = tmp_path / "lines.parquet"
    assert tailback(["export", "attribution", str(out), str(table)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("0 rows") and 'scheme = "off"' in captured.err
    assert pl.read_parquet(table).height == 0


def test_report_decodes_hashed_samples(kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert tailback(["report", str(kept), "--out", str(out)]) == 0
    # Only with samples has the report lines of the program to show.
    assert re.search(r"MPI_Isend in (phase )?uniform", out.read_text(encoding="utf-8"))


def test_headers_that_cannot_be_decoded_say_why(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    without_manifest(shutil.copytree(kept, folder))
    packets = pl.read_parquet(folder / "packets.parquet")
    # As of packets that may have gone round.
    packets.with_columns(hops=pl.lit(None, pl.UInt8)).write_parquet(folder / "packets.parquet")
    assert tailback(["compare", str(folder), str(folder)]) == EXIT_UNDETERMINED
    assert "cannot be decoded" in capsys.readouterr().err


def test_undecodable_headers_are_not_called_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Telemetry is on: to say "switch it on" would send the reader the wrong way."""
    path = tmp_path / "detours.toml"
    path.write_text(
        '[fabric]\nroutes = "valiant"\n[fabric.topology]\nkind = "dragonfly"\ngroups = 9\n'
        "routers = 4\nnodes_per_router = 2\nglobal_ports = 2\n"
        '[[job]]\npattern = { kind = "permutation", ranks = 64, size = "256 KiB" }\n'
        '[telemetry]\nscheme = "coordinated"\n'
    )
    out = [
        "--out",
        str(tmp_path / "d"),
        "--seeds",
        "1",
        "--method",
        "metis",
        "--remedy",
        "placement",
        "--verbose",
    ]
    assert tailback(["diagnose", str(path), *out]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "Too few samples: those that arrived cannot be decoded" in screen
    assert "headers cannot be decoded, so they do not show where" in screen
    assert "use compact or full, which count hops" in screen
    assert "Switch telemetry on" not in screen and "no packet carried" not in screen


@pytest.mark.parametrize(
    "name", ["diagnosis.json", pytest.param("rankfile.openmpi", marks=pytest.mark.slow)]
)
def test_report_names_the_damaged_file_of_a_result(
    name: str, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "result"
    arguments = ["--out", str(result), "--quiet", "--seeds", "1", "--method", "metis"]
    assert tailback(["diagnose", str(PROBES), *arguments]) == 0
    (result / name).write_bytes(b"\xff\xfe{")
    capsys.readouterr()
    refused(
        capsys, ["report", result, "--out", tmp_path / "page.html"], name, "create the result again"
    )


def test_data_nobody_looked_at_is_not_called_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without telemetry nobody knows how long queues were."""
    path = tmp_path / "off.toml"
    path.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 4\nleaves = 4\naggregation = 4\n"
        '[[job]]\npattern = { kind = "uniform", ranks = 16, messages = 20, size = "200 KiB" }\n'
        '[telemetry]\nscheme = "off"\n'
    )
    out = ["--out", str(tmp_path / "d"), "--seeds", "1", "--remedy", "routing"]
    assert tailback(["diagnose", str(path), *out]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "Re-simulation points to" in screen and "no packet carried a sample" in screen
    assert "queues too short" not in screen
