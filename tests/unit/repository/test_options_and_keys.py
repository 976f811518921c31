"""Every option and every key of a scenario is shown to users or has a test of what it does."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel

from tailback.cli import COMMANDS, cli
from tailback.scenario.model import Scenario
from tests.factories.repository import ROOT

NAME = re.compile(r"[a-z][a-z0-9_]*")
ASSIGNED = re.compile(r"\b([a-z][a-z0-9_]*)\s*=")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    for part in command.commands.values() if isinstance(command, click.Group) else ():
        yield from commands(part)


def every_command() -> Iterator[click.Command]:
    top = click.Context(cli, info_name="tailback")
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        yield from commands(command)


def options() -> set[str]:
    return {
        max(parameter.opts, key=len)
        for command in every_command()
        for parameter in command.params
        if isinstance(parameter, click.Option)
    }


def keys(model: type[BaseModel], section: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        parts = list(models(field.annotation))
        for part in parts:
            yield from keys(part, f"{section}{name}.")
        if not parts:
            yield f"{section}{name}"


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


@cache
def pages() -> str:
    """How-to pages, tutorial, front page and pages of examples."""
    paths = [ROOT / "README.md", *(ROOT / "examples").rglob("*.md")]
    paths += (ROOT / "docs" / "how-to").glob("*.md")
    paths += (ROOT / "docs" / "tutorial").glob("*.md")
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def assigned(table: dict[str, Any], section: str = "") -> Iterator[str]:
    """The keys of a table with those of the tables in it, each with its section."""
    for name, value in table.items():
        yield f"{section}{name}"
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from assigned(part, f"{section}{name}.")


@cache
def words_of_tests() -> tuple[frozenset[str], frozenset[str]]:
    """Options in strings of tests, and names that tests give values."""
    used: set[str] = set()
    arguments: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        if path == Path(__file__).resolve():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Dict(keys=names):
                    arguments |= {
                        name.value
                        for name in names
                        if isinstance(name, ast.Constant) and isinstance(name.value, str)
                    }
                case ast.keyword(arg=str(name)) | ast.Attribute(attr=name, ctx=ast.Store()):
                    arguments.add(name)
                case ast.Constant(value=str(text)):
                    used.update(OPTION.findall(text))
                    arguments.update(ASSIGNED.findall(text))
    return frozenset(used), frozenset(arguments)


def test_every_option_is_shown_or_tested() -> None:
    examples = [line for c in every_command() for line in (c.help or "").splitlines()]
    shown = {
        *OPTION.findall(pages()),
        *(name for line in examples if "tailback " in line for name in OPTION.findall(line)),
    }
    used, _ = words_of_tests()
    missing = sorted(options() - shown - used)
    assert missing == [], "show these options in docs/how-to, or remove them"


def test_every_key_is_shown_or_tested() -> None:
    tables = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.toml")]
    tables += re.findall(r"```toml\n(.*?)```", pages(), re.DOTALL)
    shown = {name for text in tables for name in assigned(tomllib.loads(text))}
    spans = {name for span in re.findall(r"`([^`\n]+)`", pages()) for name in NAME.findall(span)}
    _, arguments = words_of_tests()
    missing = [
        name
        for name in keys(Scenario)
        if name not in shown and not {name.rpartition(".")[2]} & (spans | arguments)
    ]
    assert missing == [], "show these keys in docs/how-to or examples, or make them constants"
