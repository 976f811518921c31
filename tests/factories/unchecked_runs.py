"""Result folders whose files are not checked, so that edits reach what reads them."""

from __future__ import annotations

from pathlib import Path


def without_manifest(folder: Path) -> Path:
    """Delete the manifest, as a user does who wants edited files to be read."""
    (folder / "manifest.json").unlink()
    return folder
