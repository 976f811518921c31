"""Tailback finds where traffic backs up in a network, says why, and proves the fix."""

__version__ = "0.1.0"
