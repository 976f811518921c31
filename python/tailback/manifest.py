"""``manifest.json``: what Tailback wrote to a folder, with the SHA-256 of every file.

Tailback replaces only what a manifest lists, and does not read a file whose SHA-256 differs: even a
single bit may have been changed or damaged. The manifest includes its own SHA-256. Folders of
earlier versions, which wrote no SHA-256, are still read, with a note.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailback.errors import RunError
from tailback.input_files import text_content

MANIFEST = "manifest.json"

UNCHECKED = (
    "the files of this folder have no SHA-256 (an earlier version wrote it), so damage to them may "
    "go unnoticed"
)
"""Note on a folder whose files cannot be checked."""

_SELF_DIGEST = "manifest_sha256"
_REMEDY = "restore the file from a copy, or create the result again"


@dataclass(frozen=True)
class Manifest:
    """Content of a manifest.

    Attributes:
        folder: The folder it describes.
        files: Relative paths of all files and folders.
        sha256: SHA-256 of each file by its relative path; None in the manifest of an earlier
            version, or where there is no manifest.
    """

    folder: Path
    files: frozenset[str]
    sha256: dict[str, str] | None

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
        if self.sha256 is None:
            return
        path, stated = self.folder / name, self.sha256.get(name)
        if stated is None:
            if path.exists():
                raise RunError(f"{MANIFEST} does not list it", file=path, remedy=_REMEDY)
            return
        try:
            found = sha256_of(path)
        except FileNotFoundError:
            raise RunError(f"is missing ({MANIFEST} lists it)", file=path, remedy=_REMEDY) from None
        except OSError as error:
            raise RunError(f"cannot be read: {error.strerror}", file=path, remedy=_REMEDY) from None
        if found != stated:
            raise RunError(
                f"damaged or edited: its SHA-256 is not the one in {MANIFEST}", file=path,
                remedy=_REMEDY,
            )  # fmt: skip


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, version: str) -> None:
    """Write the manifest of a folder: all files and folders in it."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    content = {
        "tailback": version,
        "files": sorted([*found, MANIFEST]),
        "sha256": {
            name: sha256_of(path)
            for name, path in found.items()
            if path.is_file() and name != MANIFEST
        },
    }
    content[_SELF_DIGEST] = hashlib.sha256(_text(content).encode()).hexdigest()
    (folder / MANIFEST).write_text(_text(content), encoding="utf-8")


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
    text = text_content(path, RunError)
    try:
        content = json.loads(text)
        files = content["files"]
        valid = isinstance(files, list) and all(isinstance(name, str) for name in files)
        if not valid or set(content) not in ({"tailback", "files"}, _KEYS):
            raise ValueError("its keys are not those of a manifest")
        if _SELF_DIGEST not in content:
            return Manifest(folder, frozenset(files), None)
        own = content.pop(_SELF_DIGEST)
        if hashlib.sha256(_text(content).encode()).hexdigest() != own:
            raise ValueError("its SHA-256 is not the one it states")
        if _text({**content, _SELF_DIGEST: own}) != text:
            raise ValueError("it has changed since it was written")
        return Manifest(folder, frozenset(files), dict(content["sha256"]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(path, str(error) or "it is not a manifest") from None


_KEYS = {"tailback", "files", "sha256", _SELF_DIGEST}


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _damaged(path: Path, what: str) -> RunError:
    return RunError(f"damaged manifest: {what.splitlines()[0][:200]}", file=path, remedy=_REMEDY)
