"""``--profile``: where the command's own time went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tests.factories.cli import scenario


def test_diagnose_shows_and_keeps_its_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = str(scenario(tmp_path)), tmp_path / "out"
    command = ["diagnose", path, "--out", str(out), "--seeds", "1", "--quiet", "--format", "json"]
    assert tailback([*command, "--profile"]) == 0
    shown = capsys.readouterr()
    json.loads(shown.out)  # nothing but the diagnosis
    stages = {row["stage"]: row for row in json.loads((out / "profile.json").read_text())["stages"]}
    for name in ("read and place", "packet engine", "rules and waterfall", "report"):
        assert stages[name]["calls"] >= 1 and stages[name]["wall_s"] > 0
        assert name in shown.err
    assert "profile.json" in json.loads((out / "manifest.json").read_text())["sha256"]


def test_simulate_shows_its_stages_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(scenario(tmp_path))
    assert tailback(["simulate", path, "--quiet"]) == 0
    assert "PROFILE" not in capsys.readouterr().err
    assert tailback(["simulate", path, "--quiet", "--profile"]) == 0
    assert "PROFILE" in (err := capsys.readouterr().err) and "packet engine" in err
