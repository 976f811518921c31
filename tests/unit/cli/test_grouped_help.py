"""Commands with many options list the common ones, and all with ``--help-all``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from tailback.cli import cli
from tailback.cli import run as tailback
from tailback.cli.grouped_help import GROUPS, GroupedHelp, first_sentence, is_common


def commands_below(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """Names of a command and, for a group, of all commands in it."""
    if not isinstance(command, click.Group):
        yield names
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from commands_below(below, *names, name)


COMMANDS = [" ".join(names) for names in commands_below(cli)]

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


def command_of(name: str) -> GroupedHelp:
    """A command by its words."""
    command: click.Command = cli
    for word in name.split():
        assert isinstance(command, click.Group)
        below = command.get_command(click.Context(command), word)
        assert below is not None
        command = below
    assert isinstance(command, GroupedHelp)
    return command


def options_of(name: str) -> dict[str, click.Option]:
    """The options of a command by name."""
    return {
        option.name: option
        for option in command_of(name).params
        if isinstance(option, click.Option) and option.name is not None
    }


def common_of(name: str) -> list[str]:
    """Names of the options that ``--help`` lists."""
    return [key for key in options_of(name) if is_common(command_of(name).name, key)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_group(name: str) -> None:
    grouped = [option for names in GROUPS.values() for option in names]
    assert len(grouped) == len(set(grouped))
    assert options_of(name).keys() <= set(grouped)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_common_options_only(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    screens = {}
    for flag in ("--help", "--help-all"):
        assert tailback([*name.split(), flag]) == 0
        screens[flag] = capsys.readouterr().out.split()
    brief, full = screens["--help"], screens["--help-all"]
    for key, option in options_of(name).items():
        assert option.opts[-1] in full
        assert (option.opts[-1] in brief) == (key in common_of(name))
    assert "--help" in brief
    assert ("--help-all" in brief) == (brief != full)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_forty_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tailback([*name.split(), "--help"]) == 0
    assert capsys.readouterr().out.count("\n") <= 40
    assert len(common_of(name)) <= 10


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
