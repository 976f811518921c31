"""Texts that users see keep to the glossary and to the interface that the user works with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tailback.cli import cli
from tests.factories.repository import nodes

ROOT = Path(__file__).resolve().parents[3]
GLOSSARY = ROOT / "docs" / "glossary.md"
FOLDERS = ("python/tailback", "tests", "bench", "studies", "measuring", "scripts", "hardware")
"""Folders in which no filler word names a variable."""

REPLACED = re.compile(
    r"\bcures?\b|\btreatments?\b|\bheeds?\b|\bby heart\b|\btold as\b|\blaid to\b|\btwo looks\b"
    r"|\bput down (?:for|to)\b|\bmakes? (?:it|links) hot\b|\bdocument 0\d\d\b|\btables_002\b"
    r"|\bset to (?:build on|judge by)\b|\bscenarios to build on\b|\bthe screen says\b",
    re.IGNORECASE,
)

PAGES = sorted(p for p in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if p != GLOSSARY)


def prose(page: str) -> str:
    """A page without comments, code and the targets of links."""
    return re.sub(r"<!--.*?-->|`[^`]*`|\]\([^)]*\)", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    replaced = REPLACED.findall(prose(page.read_text(encoding="utf-8")))
    assert not replaced, f"{page.relative_to(ROOT)}: {replaced}; docs/glossary.md has the words"


def test_a_replaced_word_is_found() -> None:
    assert REPLACED.findall("The cure is laid to `cure` and document 004.")


# --- options ----------------------------------------------------------------------------------

PACKAGE = ROOT / "python" / "tailback"
OF_THE_COMMAND_LINE = ("cli", "collector", "lab", "recorder")
"""Packages that no function of the Python interface runs."""
COMMANDS = {
    "inference/next_measurement.py": "commands that measure",
    "api/sweep/__init__.py": "the command of a batch script",
    "placement/writers/openmpi.py": "a command of Open MPI, whose option has the same name",
}
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_COMMAND = re.compile(r"tailback [a-z]+(?: [A-Z]+)? $")


def options_of(command: click.Command) -> set[str]:
    """Long options of a command and the commands under it."""
    names = {o for p in command.params if isinstance(p, click.Option) for o in p.opts}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            names |= options_of(command.get_command(context, name) or click.Command(None))
    return {name for name in names if name.startswith("--")}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string that is no docstring; values of f-strings are left out."""
    inner = {
        id(part)
        for node in nodes(source)
        if isinstance(node, (ast.JoinedStr, ast.Expr))
        for part in (node.values if isinstance(node, ast.JoinedStr) else [node.value])
    }
    for node in nodes(source):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in inner:
            yield node.lineno, str(node.value)


def literal_options(source: str, options: set[str]) -> list[str]:
    """Options of Tailback in texts of a module, other than in a command for a shell."""
    return [
        f"line {line}: {match[0]}"
        for line, text in texts(source)
        for match in _OPTION.finditer(text)
        if match[0] in options and not _COMMAND.search(text[: match.start()])
    ]


def test_messages_below_the_cli_name_no_option() -> None:
    options = options_of(cli)
    assert {"--fabric", "--cable-rate", "--out"} <= options
    offences = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE).as_posix()
        if name.split("/")[0] not in OF_THE_COMMAND_LINE and name not in COMMANDS:
            offences[name] = literal_options(file.read_text("utf-8"), options)
    offences = {name: lines for name, lines in offences.items() if lines}
    assert not offences, f"{offences}: tailback.errors.option names it for either interface"


def test_a_literal_option_in_a_message_is_detected() -> None:
    module = (
        '"""--out of a docstring."""\n'
        "give = f'give {x} with --out'\n"
        "run = 'tailback simulate --out wrote it; nsys export --type=sqlite'\n"
    )
    assert literal_options(module, {"--out"}) == ["line 2: --out"]


def test_python_interface_imports_no_command_line_package() -> None:
    packages = "|".join(OF_THE_COMMAND_LINE)
    imports = re.compile(rf"^from tailback\.(?:{packages})\b.*", re.MULTILINE)
    imported = {
        line
        for file in PACKAGE.rglob("*.py")
        if file.relative_to(PACKAGE).parts[0] not in (*OF_THE_COMMAND_LINE, "__main__.py")
        for line in imports.findall(file.read_text("utf-8"))
    }
    assert imported == {
        "from tailback.collector.following import CollectionFollower",
        "from tailback.collector.running import are_converted, convert_running",
        "from tailback.recorder.job_list import JOBS_FILE",
    }


# --- names of tests ---------------------------------------------------------------------------

NAME_WORDS = 8
"""A name is a statement of what is true: one subject and one verb, as a line of a failed run."""
_TEST = re.compile(r"^\s*def test_(\w+)\(", re.MULTILINE)


def long_names(text: str) -> list[str]:
    """Names of tests in a module that have too many words."""
    return [name for name in _TEST.findall(text) if len(name.split("_")) > NAME_WORDS]


def test_names_of_tests_are_short() -> None:
    files = [*(ROOT / "tests").rglob("test_*.py")]
    offences = [name for file in files for name in long_names(file.read_text("utf-8"))]
    assert files and offences == [], f"say it in {NAME_WORDS} words"


def test_a_long_name_is_detected() -> None:
    text = "def test_a_b_c_d_e_f_g_h():\n    def test_a_b_c_d_e_f_g_h_i():\n"
    assert long_names(text) == ["a_b_c_d_e_f_g_h_i"]


# --- names of variables -----------------------------------------------------------------------

FILLERS = {"found", "one", "known", "own", "whole", "rest", "given", "told", "ways"}
"""Words that do not say what a variable holds."""


def filler_names(source: str) -> list[str]:
    """Variables, parameters and fields of a module that a filler word names."""
    names = [
        (node.lineno, node.arg if isinstance(node, ast.arg) else node.id)
        for node in nodes(source)
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]
    return [f"line {line}: {name}" for line, name in names if name in FILLERS]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_filler_word_names_a_variable(folder: str) -> None:
    offences = {
        str(file.relative_to(ROOT)): names
        for file in sorted((ROOT / folder).rglob("*.py"))
        if (names := filler_names(file.read_text("utf-8")))
    }
    assert not offences, f"{offences}: name each by the noun for what it holds"


def test_a_filler_name_is_detected() -> None:
    module = "def f(own, *, rest=one): return [known for known in own]\n"
    assert filler_names(module) == ["line 1: own", "line 1: rest", "line 1: known"]
