"""The version of Tailback."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The version, from the metadata of the installed package, which are slow to look up."""
    return metadata.version("tailback")
