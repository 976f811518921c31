"""The commands of rank files as they can be pasted, and the forms that cannot say a placement."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tailback.placement import RankFile
from tests.factories.repository import DEMO


def test_commands_of_place_can_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "my ranks"
    words = ["place", str(DEMO / "demo.toml"), "--method", "block", "--out", str(out), "--quiet"]
    assert tailback(words) == 0
    screen = capsys.readouterr().out
    assert "no file for" not in screen
    assert tailback([*words, "--force", "--format", "json"]) == 0
    commands = json.loads(capsys.readouterr().out)["commands"]
    assert len(commands) == 5
    for command in commands.values():
        # The word after the last "=", as in SLURM_HOSTFILE=…, or the whole word, is the file.
        named = [Path(word.rpartition("=")[2]) for word in shlex.split(command)]
        there = [path for path in named if path.parent == out]
        assert len(there) == 1 and there[0].is_file(), command
        assert command in screen
    assert commands["cray"].startswith(
        f"cp '{out / 'MPICH_RANK_ORDER'}' MPICH_RANK_ORDER && MPICH_"
    )


def test_command_names_the_folder_of_its_file() -> None:
    after = " srun --ntasks=4 --distribution=arbitrary ./app"
    file = RankFile("slurm", "hosts.slurm", "", "SLURM_HOSTFILE=", after)
    assert file.command == f"SLURM_HOSTFILE=hosts.slurm{after}"
    assert file.command_from(Path("d")) == f"SLURM_HOSTFILE=d/hosts.slurm{after}"


def test_place_says_which_form_cannot_say_the_placement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cray's rank order takes as many ranks on every node, and this job has 7 on one of them."""
    hosts = ["--hosts", "node001:7,node[002-020]:8", "--method", "block"]
    out = tmp_path / "ranks"
    words = ["place", str(DEMO / "demo.toml"), *hosts, "--out", str(out), "--quiet"]
    assert tailback(words) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert (
        "no file for cray: a Cray rank order needs the same number of ranks on every node" in screen
    )
    assert not (out / "MPICH_RANK_ORDER").exists()
    assert tailback([*words, "--force", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts["no_rank_file"]) == ["cray"] and "cray" not in facts["commands"]
