"""The version of Tailback."""

from __future__ import annotations

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
