"""Traces of other tools through the commands: simulated, and diagnosed as a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tests.factories.foreign_traces import SAMPLES

FABRIC = "\n[fabric.fat_tree]\nhosts_per_leaf = 2\nleaves = 2\naggregation = 1\n[[job]]\n"


def scenario(folder: Path, name: str) -> Path:
    (folder / "trace").mkdir()
    trace = SAMPLES[name].write(folder / "trace")
    path = folder / "plan.toml"
    path.write_text(f'name = "plan"{FABRIC}trace = "{trace.relative_to(folder)}"\n')
    return path


@pytest.mark.parametrize("name", ["goal", "chakra", "simgrid-ti", "dumpi"])
def test_a_trace_of_every_format_is_simulated(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tailback(["simulate", str(scenario(tmp_path, name))]) == 0
    assert f"messages             {SAMPLES[name].messages}\n" in capsys.readouterr().out


def test_a_trace_without_times_is_called_unmeasured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario(tmp_path, "goal")
    assert tailback(["diagnose", str(path), "-v", "--out", str(tmp_path / "out")]) == 0
    assert "no recorded times were used" in capsys.readouterr().out


def test_the_list_says_what_readers_can_tell(capsys: pytest.CaptureFixture[str]) -> None:
    assert tailback(["list", "reader"]) == 0
    out = capsys.readouterr().out
    for what in ("times", "sources", "completion", "call site", "compute"):
        assert out.count(f" {what} ") >= len(SAMPLES)
