"""Sentences are in the wording modules: the code that decides hands them typed values."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tailback.diagnosis as package

FOLDER = Path(package.__file__).parent
DECIDES = [
    *sorted((FOLDER / "rules").glob("tb*.py")),
    FOLDER / "verdict.py",
    FOLDER / "measured_verdict.py",
    FOLDER / "cause_finding.py",
    FOLDER / "waterfall.py",
    FOLDER.parent / "api" / "explain.py",
    FOLDER.parent / "port_counters" / "analysis" / "verdict.py",
    FOLDER.parent / "evidence" / "port_verdict.py",
]


def sentences(source: str) -> list[str]:
    """Literals of five words and more, apart from docstrings and the messages of errors."""
    tree = ast.parse(source)
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    raised = (node for node in ast.walk(tree) if isinstance(node, ast.Raise))
    described |= {id(part) for node in raised for part in ast.walk(node)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in described
        and len(node.value.split()) >= 5
    ]


@pytest.mark.parametrize("path", DECIDES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_code_that_decides_holds_no_sentences(path: Path) -> None:
    assert sentences(path.read_text(encoding="utf-8")) == []


def test_a_sentence_is_found() -> None:
    assert sentences(
        'def f(n):\n    """Not this one, of six words."""\n    return f"{n} packets '
        'met a queue there"\n'
    ) == [" packets met a queue there"]
