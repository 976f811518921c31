"""One concept, one name: types that share a name share a meaning."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

from tests.factories.repository import ROOT, nodes

RUST = re.compile(r"^\s*(?:pub(?:\([\w ]+\))? )?(?:struct|enum|trait) (\w+)", re.MULTILINE)

# The same concept in several modules, each of which is read on its own.
SHARED = {
    "Shape": "what a topology's builder takes; written with its module, torus::Shape",
    "Dimension": "of a torus and of a HyperX, part of their shapes",
    "Run": "tailback.Run is tailback.run.run.Run with figures, its subclass",
    "_Block": "a block of a benchmark's output, in the readers that find blocks",
}


def repeated(names_in: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Names that more than one file or line defines, with the files."""
    where: dict[str, list[str]] = defaultdict(list)
    for file, names in names_in.items():
        for name in names:
            where[name].append(file)
    return {name: files for name, files in where.items() if len(files) > 1 and name not in SHARED}


def rust_types(text: str) -> list[str]:
    return RUST.findall(text)


def python_classes(text: str) -> list[str]:
    return [node.name for node in nodes(text) if isinstance(node, ast.ClassDef)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("crates/*/src/**/*.rs", rust_types), ("python/tailback/**/*.py", python_classes)],
    ids=["rust", "python"],
)
def test_a_type_is_defined_once(pattern: str, names) -> None:  # type: ignore[no-untyped-def]
    types_of_files = {
        str(p.relative_to(ROOT)): names(p.read_text("utf-8")) for p in ROOT.glob(pattern)
    }
    assert sum(map(len, types_of_files.values())) > 200, "the files were not found"
    assert repeated(types_of_files) == {}, "rename one with the field's term (docs/glossary.md)"


def test_a_second_type_of_a_name_is_found() -> None:
    crates = {"a.rs": "pub(crate) struct Link {}\nenum Port {}", "b.rs": "pub trait Port {}"}
    assert repeated({file: rust_types(text) for file, text in crates.items()}) == {
        "Port": ["a.rs", "b.rs"]
    }
    module = "class Port: ...\ndef f():\n    class Port: ..."
    assert list(repeated({"x.py": python_classes(module)})) == ["Port"]
