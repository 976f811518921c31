"""The version of Tailback, and what tells two builds of one version apart."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path


@cache
def version() -> str:
    """The version of the installed package, from the name of the folder of its metadata.

    ``importlib.metadata`` takes as long to load as the rest of ``tailback --version``.
    """
    for folder in sys.path:
        for metadata in Path(folder).glob("tailback-*.dist-info"):
            return metadata.name.removeprefix("tailback-").removesuffix(".dist-info")
    from importlib import metadata as installed

    return installed.version("tailback")


@cache
def program_sha256() -> str:
    """SHA-256 of all files of the installed package: sources, extension, viewer (9 MB)."""
    root, digest = Path(__file__).parent, hashlib.sha256()
    for file in sorted(root.rglob("*")):
        if "__pycache__" not in file.parts and file.is_file():
            digest.update(f"{file.relative_to(root)}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
