"""Code that fits a head: functions of at most 80 lines without their documentation.

Branches are counted by ruff (C901, at most 15 a function) and, of Rust, by clippy.toml.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.factories.repository import ROOT, nodes

# The formatter gives each argument of a long call a line of its own.
FUNCTION_LINES = 80

PYTHON = ("python", "studies", "bench", "measuring", "scripts", "examples", "hardware")


def long_functions(source: str) -> Iterator[str]:
    """Names of functions that are too long, and their lines without the docstring."""
    for node in nodes(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                text = node.body[0]
                lines -= (text.end_lineno or 0) - text.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{node.name}: {lines} lines"


def files(folders: tuple[str, ...], *suffixes: str) -> list[Path]:
    paths = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in suffixes]
    return [path for path in paths if "node_modules" not in path.parts]


def test_functions_are_short() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}, {text}"
        for path in files(PYTHON, ".py")
        for text in long_functions(path.read_text("utf-8"))
    ]
    assert too_long == [], "name their parts"


def test_a_long_function_is_found() -> None:
    body = "    x = 1\n" * FUNCTION_LINES
    assert list(long_functions(f"def f():\n    '''{'a' * 9}\n    b'''\n{body}")) == ["f: 81 lines"]
    assert list(long_functions(f"def f():\n    '''a\n    b'''\n{body[:-10]}")) == []
