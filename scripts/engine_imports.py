"""Which file of the engine uses which, from the paths in its Rust sources.

    python scripts/engine_imports.py            # figures of crates/engine
    python scripts/engine_imports.py FOLDER     # those of another folder of sources

A file uses another if a path in it, outside tests and comments, names an item that the other
defines. A re-export counts as a use of the file that defines the item; a `mod.rs` that only
re-exports is no part of the graph. Method calls are not detected: `impl Shard` extends over several
files, which `shard/mod.rs` calls without naming them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ENGINE = Path(__file__).resolve().parent.parent / "crates" / "engine" / "src"

_COMMENT = re.compile(r"//[^\n]*")
_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ (?=\{)", re.MULTILINE)
_USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_PATH = re.compile(r"\b((?:crate|super|self)(?:::\w+)+)")
_MODULE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod (\w+);", re.MULTILINE)

Graph = dict[str, set[str]]


class _Crate:
    """Modules of a crate, the file of each, and what each re-exports."""

    def __init__(self, folder: Path) -> None:
        self.files = {_module(path, folder): path for path in sorted(folder.rglob("*.rs"))}
        self.names = {m: str(path.relative_to(folder)) for m, path in self.files.items()}
        self.source = {
            m: _plain(path.read_text(encoding="utf-8")) for m, path in self.files.items()
        }
        self.exports: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {
            m: {} for m in self.files
        }
        for module, text in self.source.items():
            for public, tree in _USE.findall(text):
                if public:
                    for path, alias in _leaves(tree):
                        self.exports[module][alias] = path

    def defining(self, module: tuple[str, ...], path: tuple[str, ...]) -> tuple[str, ...] | None:
        """The module of the crate that defines what `path` names, seen from `module`."""
        here: tuple[str, ...] = module
        if path[0] == "crate":
            here, path = (), path[1:]
        elif path[0] in ("self", "super"):
            while path and path[0] in ("self", "super"):
                here = here[:-1] if path[0] == "super" else here
                path = path[1:]
        elif (*module, path[0]) not in self.files:
            return None
        for at, name in enumerate(path):
            if (*here, name) in self.files:
                here = (*here, name)
            elif name in self.exports[here]:
                return self.defining(here, (*self.exports[here][name], *path[at + 1 :]))
            else:
                break
        return here

    def uses(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Every use of one module by another."""
        for module, text in self.source.items():
            paths = [
                path
                for public, tree in _USE.findall(text)
                if not public
                for path, _ in _leaves(tree)
            ]
            rest = _USE.sub("", text)
            paths += [tuple(path.split("::")) for path in _PATH.findall(rest)]
            for path in paths:
                target = self.defining(module, path)
                if target is not None and target != module:
                    yield module, target


def _module(path: Path, folder: Path) -> tuple[str, ...]:
    parts = path.relative_to(folder).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def _plain(source: str) -> str:
    """Sources without comments and without their modules of tests, which end a file."""
    source = _COMMENT.sub("", source)
    tests = _TESTS.search(source)
    return source[: tests.start()] if tests else source


def _leaves(tree: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Paths of a `use` tree, each with the name under which it is imported."""
    tree = tree.strip()
    prefix, brace, rest = tree.partition("{")
    if not brace:
        path, _, alias = tree.partition(" as ")
        parts = tuple(part.strip() for part in path.split("::"))
        yield parts, alias.strip() or parts[-1]
        return
    head = tuple(part.strip() for part in prefix.split("::") if part.strip())
    for branch in _branches(rest.rpartition("}")[0]):
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


def graph(folder: Path = ENGINE) -> Graph:
    """The files that each file of the crate uses."""
    crate = _Crate(folder)
    arrows: Graph = {name: set() for name in crate.names.values()}
    for module, target in crate.uses():
        arrows[crate.names[module]].add(crate.names[target])
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


def upward(arrows: Graph) -> int:
    """Arrows that point up in the order of files for which they are fewest."""
    return sum(_upward(arrows, circle) for circle in circles(arrows))


def _upward(arrows: Graph, files: list[str]) -> int:
    """The same for one cycle, over all orders: the fewest for each set of files at the bottom."""
    inside = [sum(1 << files.index(to) for to in arrows[name] if to in files) for name in files]
    fewest = [0] * (1 << len(files))
    for below in range(1, len(fewest)):
        fewest[below] = min(
            fewest[below & ~(1 << top)] + (uses & ~below).bit_count()
            for top, uses in enumerate(inside)
            if below >> top & 1
        )
    return fewest[-1]


def main() -> None:
    """Print the figures of a folder of sources."""
    arrows = graph(Path(sys.argv[1]) if len(sys.argv) > 1 else ENGINE)
    found = circles(arrows)
    print(f"{len(arrows)} files, {sum(map(len, arrows.values()))} arrows")
    print(f"{upward(arrows)} arrows upward, {sum(map(len, found))} files in {len(found)} circles")
    for files in found:
        print("   ", ", ".join(files))


if __name__ == "__main__":
    main()
