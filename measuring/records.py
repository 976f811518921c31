"""Records of generated tables: the command, the inputs, and a digest of what was written.

``measuring.put`` records the tables that it writes in ``measuring/tables.json``, by their command.
Inputs are the modules of studies and benchmarks that the command imported and the files of the
repository that it read; each has a digest. Of Python the digest is that of its syntax tree without
docstrings, so that comments and layout do not count. The product has a digest for each package that
was imported and one for the Rust crates that it calls, without their tests and comments.

A table is *current* while its inputs are as recorded, else it carries a mark on its page.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import hashlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
RECORDS: Final = ROOT / "measuring" / "tables.json"

CODE: Final = ("studies", "bench", "measuring")
DATA: Final = frozenset({".toml", ".csv", ".hosts", ".json", ".txt"})
FOLDERS: Final = frozenset((name,) for name in (*CODE, "examples", "hardware"))
"""Folders of the repository in which inputs are, as first parts of paths."""
WRITERS: Final = frozenset({"measuring/__init__.py", "measuring/records.py"})
"""What only writes tables, and changes none of their numbers."""

UNCALLED: Final = frozenset({"tests", "benches", "examples", "capi"})
"""Folders of the crates that no study calls."""

MARK: Final = re.compile(r"\n\n\*Made at [^\n]*; inputs changed since\.\*$")


@dataclass(frozen=True)
class Record:
    """How tables were made.

    Attributes:
        command: What makes them again, from the root of the repository.
        commit: Commit on which they were made; what was changed on top of it is not named.
        seconds: Processor time of the command.
        tables: Digest of each table, by page (relative to the root) and name: ``page#name``.
        inputs: Digest of each file of studies, benchmarks and data, by its path.
        product: Digest of each imported package of the product, by its path.
    """

    command: str
    commit: str
    seconds: float
    tables: Mapping[str, str]
    inputs: Mapping[str, str]
    product: Mapping[str, str]

    def changed_inputs(self, root: Path = ROOT) -> list[str]:
        """Inputs that differ from the recorded ones; ``["unrecorded"]`` where none was recorded."""
        if not self.inputs:
            return ["unrecorded"]
        return [path for path, was in self.inputs.items() if digest_file(root / path) != was]

    def changed_product(self, root: Path = ROOT) -> list[str]:
        """Packages of the product that differ from the recorded ones."""
        return [path for path, was in self.product.items() if digest_folder(root / path) != was]


def short_digest(text: bytes) -> str:
    """Twelve hexadecimal digits of SHA-256."""
    return hashlib.sha256(text).hexdigest()[:12]


def _outline(node: Any) -> Iterator[str]:
    """Nodes and constants of a syntax tree, without docstrings and empty fields."""
    if isinstance(node, list):
        for child in node:
            yield from _outline(child)
    elif not isinstance(node, ast.AST):
        yield repr(node)
    else:
        yield type(node).__name__
        body = getattr(node, "body", None)
        for name, value in ast.iter_fields(node):
            if value is None or value == []:
                continue
            if name == "body" and isinstance(body, list) and _is_docstring(body[0]):
                value = body[1:]
            yield name
            yield from _outline(value)
        yield "."


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def digest_python(text: str) -> str:
    """Digest of a module's syntax tree without docstrings."""
    return short_digest("\n".join(_outline(ast.parse(text))).encode())


@cache
def _digest_content(path: Path, _stamp: tuple[int, int]) -> str:
    content = path.read_bytes()
    return digest_python(content.decode()) if path.suffix == ".py" else short_digest(content)


def digest_file(path: Path) -> str:
    """Digest of one input; empty if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return _digest_content(path, (status.st_mtime_ns, status.st_size))


def digest_rust(text: str) -> str:
    """Digest of a source file without lines that are blank or comments."""
    lines = (line.strip() for line in text.splitlines())
    return short_digest("\n".join(line for line in lines if line and line[:2] != "//").encode())


@cache
def digest_folder(folder: Path) -> str:
    """Digest of the Python sources of a package, or of the Rust sources of the crates."""
    parts = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix == ".py":
            parts.append(f"{name} {digest_file(path)}")
        elif path.suffix == ".rs" and not UNCALLED & set(name.parts):
            parts.append(f"{name} {digest_rust(path.read_text(encoding='utf-8'))}")
    return short_digest("\n".join(parts).encode())


_read: set[str] = set()
_read_elsewhere: set[str] = set()


def watch_reads() -> None:
    """Note every data file of the repository that this process opens from now on."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | Path):
            _read.add(str(arguments[0]))

    sys.addaudithook(note)


def note_read(paths: Iterable[Path]) -> None:
    """Note files of any kind that another program reads for this process."""
    _read_elsewhere.update(map(str, paths))


def _sources(paths: Iterable[str], root: Path) -> Iterator[Path]:
    for text in paths:
        with contextlib.suppress(OSError, ValueError):
            path = Path(text).resolve()
            if path.is_relative_to(root) and path.relative_to(root).parts[:1] in FOLDERS:
                yield path


def _data_files(root: Path) -> set[Path]:
    """Data that was read, here or elsewhere, and the files beside a scenario that it names."""
    files = {path for path in _sources(set(_read), root) if path.suffix in DATA and path.is_file()}
    files |= set(_sources(_read_elsewhere, root))
    for path in [path for path in files if path.suffix == ".toml"]:
        for name in re.findall(r'"([^"\n]+\.\w+)"', path.read_text(encoding="utf-8")):
            files |= {named for named in (path.parent / name,) if named.is_file()}
    return files - {RECORDS}


def gather_inputs(root: Path = ROOT) -> dict[str, str]:
    """Digest of every loaded module of studies and benchmarks, and of the data that was read."""
    loaded = [str(getattr(module, "__file__", None) or "") for module in sys.modules.values()]
    modules = {path for path in _sources(loaded, root) if path.suffix == ".py"}
    names = {str(path.relative_to(root)): path for path in modules | _data_files(root)}
    out = {name: digest_file(path) for name, path in sorted(names.items()) if name not in WRITERS}
    # Packages without code would only be noise.
    return {name: digest for name, digest in out.items() if not name.endswith("__init__.py")}


def gather_product(root: Path = ROOT) -> dict[str, str]:
    """Digest of every package of the product that is loaded, and of the crates."""
    packages = {name.split(".")[1] for name in sys.modules if name.startswith("tailback.")}
    folders = [root / "python" / "tailback" / package for package in sorted(packages)]
    if "tailback" in sys.modules:
        folders.append(root / "crates")
    return {str(path.relative_to(root)): digest_folder(path) for path in folders if path.is_dir()}


def running_command(arguments: str | None = None) -> str:
    """The command line of this process, with ``arguments`` instead of its own.

    Programs of other projects are named without their folder.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None:
        script = Path(sys.argv[0]).resolve()
        name = str(script.relative_to(ROOT)) if script.is_relative_to(ROOT) else script.name
    else:
        name = "-m " + str(spec.name).removesuffix(".__main__")
    if arguments is None:
        words = (Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])
        arguments = shlex.join(words)
    return f"python {name} {arguments}".strip()


def current_commit() -> str:
    """Short name of the commit that is checked out; empty outside a repository."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def read_records(path: Path = RECORDS) -> dict[str, Record]:
    """Every record, by its command."""
    if not path.is_file():
        return {}
    records = json.loads(path.read_text(encoding="utf-8"))
    return {command: Record(command, **fields) for command, fields in records.items()}


def write_records(records: Mapping[str, Record], path: Path = RECORDS) -> None:
    """Write records in the order of their commands."""
    fields = {command: asdict(record) for command, record in sorted(records.items())}
    for entry in fields.values():
        del entry["command"]
    text = json.dumps(fields, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def with_record(records: Mapping[str, Record], added: Record) -> dict[str, Record]:
    """Records with one more, whose tables no other record keeps."""
    out = {}
    for command, record in records.items():
        tables = {name: text for name, text in record.tables.items() if name not in added.tables}
        if tables:
            out[command] = replace(record, tables=tables)
    earlier = out.get(added.command)
    if earlier is not None:
        added = replace(added, tables={**earlier.tables, **added.tables})
    return {**out, added.command: added}


@contextlib.contextmanager
def exclusive_pages() -> Iterator[None]:
    """Lets one process at a time change pages and records."""
    lock = ROOT / "target" / "tables.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def table_text(page_text: str, name: str) -> str | None:
    """A generated part of a page without its mark; None where the page has no such part."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end {name} -->"
    _, opened, body = page_text.partition(begin)
    part, closed, _ = body.partition(end)
    return MARK.sub("", part) if opened and closed else None


def record_tables(
    page: Path, parts: Mapping[str, str], arguments: str | None, seconds: float
) -> None:
    """Record that this process wrote these parts of a page."""
    if not page.is_relative_to(ROOT):
        return
    name = page.relative_to(ROOT)
    record = Record(
        running_command(arguments),
        current_commit(),
        round(seconds, 1),
        {f"{name}#{part}": short_digest(text.encode()) for part, text in parts.items()},
        gather_inputs(),
        gather_product(),
    )
    write_records(with_record(read_records(), record))


def recorded_tables(records: Mapping[str, Record]) -> dict[tuple[Path, str], Record]:
    """The record of each table, by its page and name."""
    return {
        (ROOT / place.partition("#")[0], place.partition("#")[2]): record
        for record in records.values()
        for place in record.tables
    }


def mark_tables(records: Mapping[str, Record]) -> list[tuple[Path, str]]:
    """Set or remove the mark of every recorded table; those that have one."""
    marked = []
    for (page, name), record in recorded_tables(records).items():
        text = page.read_text(encoding="utf-8")
        part = table_text(text, name)
        if part is None:
            continue
        mark = ""
        if record.changed_inputs():
            mark = f"\n\n*Made at {record.commit}; inputs changed since.*"
            marked.append((page, name))
        head, begin, body = text.partition(f"<!-- {name} -->\n")
        _, end, tail = body.partition(f"\n<!-- end {name} -->")
        page.write_text(head + begin + part + mark + end + tail, encoding="utf-8")
    return marked
