"""Where the repository is, and its Python files as trees."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo"


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a module, which several tests look through."""
    return tuple(ast.walk(ast.parse(source)))
