"""The public data sets beside the checkout, which tests marked ``data`` read."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def real(path: str) -> Path:
    """A file or folder of the data sets; the test skips, saying so, where it is absent."""
    if not (DATA / path).exists():
        pytest.skip(f"the public data set {path} is not beside the checkout")
    return DATA / path
