"""Writing a page: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tailback.errors import RunError


def write_page(path: str | Path, page: str, what: str) -> Path:
    """Write ``page``, which an error calls ``what``; what was there stays until it is complete.

    Raises:
        RunError: The file cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Names of files have a limit of their own.
        handle, part = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(page.encode("utf-8"))
            os.chmod(part, 0o644)
            os.replace(part, path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RunError(
            f"cannot write the {what}: {error.strerror}", file=path,
            remedy="choose a file you may write to",
        ) from None  # fmt: skip
    return path
