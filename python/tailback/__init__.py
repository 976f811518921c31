"""Tailback finds where traffic backs up in a network, says why, and proves the fix."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """``__version__``, as Cargo.toml states it; looked up when asked for, as that takes a while."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tailback")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
