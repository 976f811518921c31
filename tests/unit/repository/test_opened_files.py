"""Files of users are opened in ``tailback.io.input_files`` alone, which limits what they are."""

from __future__ import annotations

import ast

import pytest

from tests.factories.repository import ROOT, nodes

PACKAGE = ROOT / "python" / "tailback"

OWN = {
    "io/input_files.py": "opens them",
    "io/parquet.py": "reads footers, after regular_file",
    "io/manifest.py": "digests of a result's files, which its readers check",
    "io/atomic_exchange.py": "/proc",
    "available.py": "/proc and /sys",
    "version.py": "the package's own files",
    "io/folders.py": "writes",
    "report/page.py": "the package's templates",
    "cli/__init__.py": "/dev/null",
    "simulation/parallel/spread.py": "tasks that another process of the same user wrote",
    "simulation/parallel/task_folder.py": "tasks that another process of the same user wrote",
    "collector/segments.py": "the collector's records, with checksums",
    "collector/session.py": "/proc",
    "collector/store.py": "the collector's lock and tables",
    "lab/datapath/": "the receiver's own files",
    "lab/": "files that the lab's processes write as it runs",
    "recorder/": "files that the recorder's processes write as it runs",
}
"""Modules and packages that open other files, and which."""

LIBRARIES = ("read_csv", "scan_csv", "read_parquet", "scan_parquet", "fromfile")
"""Functions of libraries that open a path: they get bytes, or follow ``regular_file``."""


def openings(text: str) -> list[int]:
    """Lines of a module that open a file to read it."""
    checked = "regular_file(" in text
    calls = [node for node in nodes(text) if isinstance(node, ast.Call)]
    return sorted(call.lineno for call in calls if _opens(call, checked))


def _opens(call: ast.Call, checked: bool) -> bool:
    """Whether a call opens a path, in a module that has ``checked`` its paths or has not."""
    if isinstance(call.func, ast.Name):
        name, owner = call.func.id, None
    else:
        name, owner = getattr(call.func, "attr", ""), getattr(call.func, "value", None)
    if name in ("read_text", "read_bytes"):
        return owner is not None
    if name == "open":
        modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
        writes = any(isinstance(mode, str) and set(mode) & set("wax") for mode in modes)
        # Methods of this name that open no file themselves.
        others = isinstance(owner, ast.Name) and owner.id in ("ParameterStudy", "tasks", "otf2")
        return not writes and not others
    library = name in LIBRARIES or (name, getattr(owner, "id", "")) == ("connect", "sqlite3")
    return library and not checked and not isinstance(call.args[0], ast.Call)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("path.open()", [1]),
        ("\nopen(path)", [2]),
        ("gzip.open(path, 'rt')", [1]),
        ("path.read_text(encoding='utf-8')", [1]),
        ("os.open(path, flags)", [1]),
        ("pl.scan_csv(path)", [1]),
        ("sqlite3.connect(uri)", [1]),
        ("path.open('w')", []),
        ("content(path)", []),
        ("pl.read_csv(io.BytesIO(data))", []),
    ],
)
def test_opening_is_found(text: str, lines: list[int]) -> None:
    assert openings(text) == lines


def test_files_of_users_are_opened_in_one_place() -> None:
    outside = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE).as_posix()
        if not name.startswith(tuple(OWN)) and (lines := openings(file.read_text("utf-8"))):
            outside[name] = lines
    assert not outside, "use tailback.io.input_files"
