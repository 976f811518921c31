"""The product runs no code that comes out of a file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.factories.repository import nodes

PRODUCT = Path(__file__).resolve().parents[3] / "python" / "tailback"

FORBIDDEN = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
"""Modules whose files are code. Dask itself uses pickle: docs/how-to/parallel.md says so."""

CALLS = {"eval", "exec", "compile", "read_pickle", "to_pickle"}


def unsafe(source: str) -> list[str]:
    """Places in a module where code may come out of a file."""
    places = []
    for node in nodes(source):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call):
            names = [node.args[0].value] if _imports_by_name(node) else []
            places += [f"line {node.lineno}: {ast.unparse(node)}" for _ in [0] if _is_unsafe(node)]
        places += [
            f"line {node.lineno}: {name}" for name in names if name.split(".")[0] in FORBIDDEN
        ]
    return places


def _imports_by_name(call: ast.Call) -> bool:
    return (
        _name(call) in ("import_module", "__import__")
        and bool(call.args)
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    )


def _name(call: ast.Call) -> str:
    return getattr(call.func, "id", None) or getattr(call.func, "attr", "")


def _is_unsafe(call: ast.Call) -> bool:
    keywords = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
    loads = _name(call) in ("load", "save", "savez")
    if loads and ast.unparse(call.func).split(".")[0] in ("np", "numpy"):
        # The default of np.load has been False since NumPy 1.16.3, which is older than ours.
        return keywords.get("allow_pickle", False) is not False
    if keywords.get("shell", False) is not False:
        return True
    return (isinstance(call.func, ast.Name) and call.func.id in CALLS) or (
        isinstance(call.func, ast.Attribute) and call.func.attr in ("read_pickle", "to_pickle")
    )


def test_product_loads_no_code_from_files() -> None:
    modules = sorted(PRODUCT.rglob("*.py"))
    places = {str(module): unsafe(module.read_text(encoding="utf-8")) for module in modules}
    assert modules and not {module: unsafe for module, unsafe in places.items() if unsafe}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import os, marshal",
        "from joblib.a import b",
        "import_module('dill')",
        "__import__('shelve')",
        "np.load(f, allow_pickle=True)",
        "np.load(f, allow_pickle=flag)",
        "run(x, shell=True)",
        "eval(text)",
        "pd.read_pickle(f)",
    ],
)
def test_unsafe_module_is_recognised(source: str) -> None:
    assert unsafe(source)
