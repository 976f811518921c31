"""Commands with many options list the common ones, and all with ``--help-all``."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from tailback.cli import cli
from tailback.cli import run as tailback
from tailback.cli.grouped_help import GROUPS, GroupedHelp, first_sentence, is_common

COMMANDS = ("collect", "counters", "diagnose", "place", "simulate", "sweep")

LIGHT = (
    *("advise", "calibrate", "compare", "confirm", "counters", "diagnose", "place", "record"),
    *("report", "simulate", "sweep", "verify"),
)
"""Commands whose help loads no library of numbers."""

SHOW_HELP = """
import sys
from tailback.cli import run
for command in sys.argv[1:]:
    assert run([command, "--help"]) == 0
for module in ("numpy", "polars", "pydantic", "scipy", "matplotlib"):
    assert module not in sys.modules, module
"""


def options_of(name: str) -> dict[str, click.Option]:
    """The options of a command by name."""
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, GroupedHelp)
    return {
        option.name: option
        for option in command.params
        if isinstance(option, click.Option) and option.name is not None
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_group(name: str) -> None:
    grouped = [option for names in GROUPS.values() for option in names]
    assert len(grouped) == len(set(grouped))
    assert options_of(name).keys() <= set(grouped)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_common_options_only(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    screens = {}
    for option in ("--help", "--help-all"):
        assert tailback([name, option]) == 0
        screens[option] = capsys.readouterr().out.split()
    for key, option in options_of(name).items():
        assert option.opts[-1] in screens["--help-all"]
        assert (option.opts[-1] in screens["--help"]) == is_common(name, key)
    assert "--help-all" in screens["--help"] and "--help" in screens["--help"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_forty_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tailback([name, "--help"]) == 0
    assert capsys.readouterr().out.count("\n") <= 40
    common = [key for key in options_of(name) if is_common(name, key)]
    assert len(common) <= 10


def test_help_has_first_sentence_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    option = options_of("diagnose")["rankfile"]
    assert option.help is not None and first_sentence(option.help) != option.help
    screens = {}
    for flag in ("--help", "--help-all"):
        assert tailback(["diagnose", flag]) == 0
        screens[flag] = " ".join(capsys.readouterr().out.split())
    assert first_sentence(option.help) in screens["--help"]
    assert option.help in screens["--help-all"] and option.help not in screens["--help"]


def test_help_loads_no_library_of_numbers() -> None:
    subprocess.run([sys.executable, "-c", SHOW_HELP, *LIGHT], check=True, capture_output=True)
