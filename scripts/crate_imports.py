"""Which file of a crate uses which, from the paths in its Rust sources.

    python scripts/crate_imports.py            # every crate of the workspace
    python scripts/crate_imports.py FOLDER     # the sources in a folder

A file uses another if its code names an item that the other defines, by a path (`crate::x::T`,
`super::T`, `child::f`) or by a name that a `use` brings into scope. A re-export leads to the file
that defines the item: a parent that only declares `mod child;` and re-exports its items does not
use the child, but one that names such an item in its own code does. Tests and comments do not
count. Method calls are not seen, because an `impl` may extend over several files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CRATES = Path(__file__).resolve().parent.parent / "crates"

# Comments, strings and characters: braces and names mean nothing in them. Lifetimes stay.
_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\br(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\[^']+|[^\\'])'""", re.DOTALL
)
_TEST = re.compile(r"#\[cfg\(test\)\]")
_USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_MODULE = re.compile(r"\bmod\s+(\w+)\s*;")
_ITEM = re.compile(r"\b(?:fn|struct|enum|union|trait|type|const|static|macro_rules!)\s+(\w+)")
_SHARED_MACRO = re.compile(r"#\[macro_export\]\s*macro_rules!\s+(\w+)")
# A name or path; names after a single dot are fields and methods.
_PATH = re.compile(r"(?:(?<=\.\.)|(?<![\w.:]))[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*")

Names = tuple[str, ...]
Graph = dict[str, set[str]]


class _Module(NamedTuple):
    """One file: its code without strings, comments, tests and `use`, and what is in its scope."""

    file: str
    code: str
    items: set[str]
    imported: dict[str, Names]
    """The path behind each name that a `use` brings into scope."""
    private: set[str]
    """Those names that are not re-exported, so that this file must use them itself."""
    globs: list[Names]


class _Crate:
    def __init__(self, folder: Path) -> None:
        sources = {
            _name(path, folder): (str(path.relative_to(folder)), _plain(path.read_text("utf-8")))
            for path in sorted(folder.rglob("*.rs"))
        }
        self.modules = {
            name: _module(file, code)
            for name, (file, code) in sources.items()
            if name[:-1] not in sources or not name or _declares(sources[name[:-1]][1], name[-1])
        }
        for name, module in self.modules.items():
            for macro in _SHARED_MACRO.findall(module.code):
                self.modules[()].imported.setdefault(macro, ("crate", *name, macro))

    def definer(
        self, here: Names, path: Names, seen: frozenset[object] = frozenset()
    ) -> Names | None:
        """The module that defines the item at `path`, seen from module `here`.

        Names of modules and items of other crates have none. An item that is in no source is made
        by a macro of the module that the path leads to.
        """
        inside = path[0] in ("crate", "self", "super")
        if path[0] == "crate":
            here, path = (), path[1:]
        while path and path[0] in ("self", "super"):
            here, path = here[:-1] if path[0] == "super" else here, path[1:]
        if not path:
            return None
        name, module = path[0], self.modules[here]
        child = (*here, name) in self.modules
        if child and (len(path) > 1 or name not in module.imported):
            return self.definer((*here, name), ("self", *path[1:]), seen)
        if name in module.imported:
            if (here, name) in seen:  # `use x::x` of another crate
                return None
            return self.definer(here, (*module.imported[name], *path[1:]), seen | {(here, name)})
        if name in module.items:
            return here
        for glob in module.globs:
            if (here, glob) not in seen:
                target = self.definer(here, (*glob, *path), seen | {(here, glob)})
                if target is not None and name in self.modules[target].items:
                    return target
        return here if inside else None

    def uses(self) -> Iterator[tuple[Names, Names]]:
        """Every use of one module by another."""
        for name, module in self.modules.items():
            paths = {tuple(re.split(r"\s*::\s*", path)) for path in _PATH.findall(module.code)}
            paths |= {(imported,) for imported in module.private}
            for path in paths:
                target = self.definer(name, path)
                if target is not None and target != name:
                    yield name, target


def _name(path: Path, folder: Path) -> Names:
    parts = path.relative_to(folder).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def _declares(code: str, module: str) -> bool:
    """Whether a parent declares a module for more than tests."""
    return module in _MODULE.findall(code)


def _plain(source: str) -> str:
    """Source without comments, strings and items that are compiled for tests only."""
    source = _TEXT.sub(" ", source)
    kept, at = [], 0
    for test in _TEST.finditer(source):
        if test.start() >= at:
            kept.append(source[at : test.start()])
            at = _end_of_item(source, test.end())
    return "".join([*kept, source[at:]])


def _end_of_item(source: str, at: int) -> int:
    """Where the item ends: at a semicolon, or at the brace that closes its first brace."""
    depth = 0
    for position in range(at, len(source)):
        letter = source[position]
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter in ";}":
            return position + 1
    return len(source)


def _module(file: str, code: str) -> _Module:
    body = _MODULE.sub("", _USE.sub("", code))
    module = _Module(file, body, set(_ITEM.findall(body)), {}, set(), [])
    for public, tree in _USE.findall(code):
        for path, alias in _leaves(tree):
            if path[-1] == "*":
                module.globs.append(path[:-1])
                continue
            module.imported[alias] = path
            if not public:
                module.private.add(alias)
    return module


def _leaves(tree: str) -> Iterator[tuple[Names, str]]:
    """Paths of a `use` tree, each with the name under which it is imported."""
    prefix, brace, inner = tree.strip().partition("{")
    if not brace:
        path, _, alias = prefix.partition(" as ")
        parts = tuple(part.strip() for part in path.split("::"))
        yield parts, alias.strip() or parts[-1]
        return
    head = tuple(part.strip() for part in prefix.split("::") if part.strip())
    for branch in _branches(inner.rpartition("}")[0]):
        for path, alias in _leaves(branch):
            if path == ("self",):
                yield head, head[-1] if alias == "self" else alias
            else:
                yield (*head, *path), alias


def _branches(text: str) -> Iterator[str]:
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    if text[start:].strip():
        yield text[start:]


def graph(folder: Path) -> Graph:
    """The files that each file of the crate uses."""
    crate = _Crate(folder)
    arrows: Graph = {module.file: set() for module in crate.modules.values()}
    for user, target in crate.uses():
        arrows[crate.modules[user].file].add(crate.modules[target].file)
    return arrows


def circles(arrows: Graph) -> list[list[str]]:
    """Sets of files in which each file uses all others, directly or indirectly."""
    reached = {name: _reached(arrows, name) for name in arrows}
    sets = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in arrows
        if name in reached[name]
    }
    return [list(files) for files in sorted(sets)]


def _reached(arrows: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    pending = [start]
    while pending:
        new = arrows[pending.pop()] - reached
        reached |= new
        pending += new
    return reached


def main() -> None:
    """Print the files, arrows and circles of crates."""
    for folder in [Path(name) for name in sys.argv[1:]] or sorted(CRATES.glob("*/src")):
        arrows = graph(folder)
        print(f"{folder}: {len(arrows)} files, {sum(map(len, arrows.values()))} arrows")
        for circle in circles(arrows):
            print("    circle:", ", ".join(circle))
            for name in circle:
                print(f"        {name} -> {', '.join(sorted(arrows[name] & {*circle}))}")


if __name__ == "__main__":
    main()
