"""``manifest.json``: what Tailback wrote to a folder, with the SHA-256 of every file.

Tailback replaces only what a manifest lists, and does not read a file whose SHA-256 differs: even a
single bit may have been changed or damaged. The manifest includes its own SHA-256. A folder whose
manifest was deleted is read unchecked, with a note.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tailback.errors import RunError
from tailback.io.input_files import content
from tailback.io.progress import report

T = TypeVar("T")

MANIFEST = "manifest.json"

UNCHECKED = f"the folder has no {MANIFEST}, so damage to its files may go unnoticed"
"""Note on a folder whose files cannot be checked."""

_SELF_DIGEST = "manifest_sha256"
_KEYS = {"tailback", "files", "sha256", _SELF_DIGEST}
_MARKS = (b'"tailback"', _SELF_DIGEST.encode(), b'{\n  "files"')
"""Any of these makes a file of this name a manifest of Tailback; damage leaves one of them."""

_REMEDY = (
    "restore the file or create the result again; to use an edited file, copy it to another folder "
    f"and name it there, or delete {MANIFEST}: the folder is then read unchecked, with a note"
)

_SETTLED_NS = 2_000_000_000
"""Age from which a file that keeps its times and size is taken to be unchanged: file systems may
round times to 2 s (FAT), so that two changes in a row look like one."""


@dataclass(frozen=True)
class Manifest:
    """Content of a manifest.

    Attributes:
        folder: The folder it describes.
        files: Relative paths of all files and folders.
        sha256: SHA-256 of each file by its relative path; None where there is no manifest.
        version: Version of Tailback that wrote it.
    """

    folder: Path
    files: frozenset[str]
    sha256: dict[str, str] | None
    version: str = ""

    @property
    def notes(self) -> list[str]:
        """Notes on results read from the folder."""
        return [] if self.sha256 is not None else [UNCHECKED]

    def check(self, name: str) -> None:
        """Check that a file is as it was written.

        Args:
            name: Its path relative to the folder.

        Raises:
            RunError: It is missing, has changed, or is not one of the files that were written.
        """
        fault = self._fault(name)
        if fault:
            raise RunError(fault, file=self.folder / name, remedy=_REMEDY)

    def _fault(self, name: str) -> str:
        """Why a file is not as it was written; empty if it is, or if nothing is known of it."""
        if self.sha256 is None:
            return ""
        path, stated = self.folder / name, self.sha256.get(name)
        if stated is None:
            return f"{MANIFEST} does not list it" if path.exists() else ""
        try:
            digest = sha256_of(path)
        except FileNotFoundError:
            return f"is missing ({MANIFEST} lists it)"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if digest != stated:
            return f"damaged or edited: its SHA-256 is not the one in {MANIFEST}"
        return ""

    def faults(self) -> dict[str, str]:
        """Every file that is not as it was written, and why."""
        names = sorted(self.sha256 or ())
        return {name: fault for name in names if (fault := self._fault(name))}

    def check_all(self, below: str = "") -> None:
        """Check the files whose paths begin with ``below``; raises RunError as :meth:`check`."""
        names = sorted(name for name in self.sha256 or () if name.startswith(below))
        for number, name in enumerate(names):
            report(f"checking the files of {self.folder.name}", number / len(names))
            self.check(name)


def unchecked(folder: Path) -> list[str]:
    """A note on a result folder without a manifest; raises RunError for a damaged manifest."""
    return read_manifest(folder).notes


def require_unchanged(path: str | Path) -> None:
    """Check a file, or all files in a folder, if they are in a folder with a manifest.

    Files that the manifest does not list are not checked: somebody else put them there.

    Raises:
        RunError: A file is missing or has changed, or the manifest is damaged.
    """
    real = Path(os.path.realpath(path))
    for folder in (real, *real.parents):
        try:
            manifest = _manifest_of_tailback(folder / MANIFEST)
        except OSError:
            continue
        if manifest is not None and manifest.sha256 is not None:
            name = "" if folder == real else real.relative_to(folder).as_posix()
            if name in manifest.sha256:
                manifest.check(name)
            elif not name or name in manifest.files:
                manifest.check_all(f"{name}/" if name else "")
            return


class _Remembered(Generic[T]):
    """Results of a function of a file, for as long as the file keeps its size and times.

    Args:
        compute: The function.
    """

    def __init__(self, compute: Callable[[Path], T]) -> None:
        self._compute = compute
        self._known: dict[Path, tuple[tuple[int, ...], T]] = {}

    def __call__(self, path: Path) -> T:
        """The result for a file; raises OSError."""
        facts = os.stat(path)
        state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        cached = self._known.get(path)
        if cached is not None and cached[0] == state:
            return cached[1]
        began_ns = time.time_ns()
        result = self._compute(path)
        if began_ns - max(facts.st_mtime_ns, facts.st_ctime_ns) > _SETTLED_NS:
            self._known[path] = state, result
        return result


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest(path: Path) -> Manifest | None:
    """The manifest in a file; None if another program wrote it."""
    if not any(mark in path.read_bytes() for mark in _MARKS):
        return None
    return read_manifest(path.parent)


_digest_of = _Remembered(_sha256)
_manifest_of_tailback = _Remembered(_manifest)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits; computed once while the file does not change."""
    return _digest_of(path)


def write_manifest(folder: Path, version: str) -> None:
    """Write the manifest of a folder: all files and folders in it."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    listed = {
        "tailback": version,
        "files": sorted({*paths, MANIFEST}),
        "sha256": {
            name: sha256_of(path)
            for name, path in paths.items()
            if path.is_file() and name != MANIFEST
        },
    }
    listed[_SELF_DIGEST] = hashlib.sha256(_text(listed).encode()).hexdigest()
    (folder / MANIFEST).write_text(_text(listed), encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder.

    Returns:
        Its content; no files and no SHA-256 if the folder has none.

    Raises:
        RunError: It is damaged.
    """
    path = folder / MANIFEST
    if not path.exists():
        return Manifest(folder, frozenset(), None)
    data = content(path, RunError)
    try:
        text = data.decode()
        listed = json.loads(text)
        if set(listed) != _KEYS:
            raise ValueError("its keys are not those of a manifest")
        digest = listed.pop(_SELF_DIGEST)
        if hashlib.sha256(_text(listed).encode()).hexdigest() != digest:
            raise ValueError("its SHA-256 is not the one it states")
        if _text({**listed, _SELF_DIGEST: digest}) != text:
            raise ValueError("it has changed since it was written")
        names, digests = frozenset(listed["files"]), dict(listed["sha256"])
        return Manifest(folder, names, digests, str(listed["tailback"]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(path, str(error) or "it is not a manifest") from None


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _damaged(path: Path, what: str) -> RunError:
    return RunError(f"damaged manifest: {what.splitlines()[0][:200]}", file=path, remedy=_REMEDY)
