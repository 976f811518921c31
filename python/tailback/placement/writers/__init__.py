"""Rank files: a placement in the format of a launcher, with the command that uses it.

A new format is one new file here with a function under ``@WRITERS.register("name")``.
"""

from __future__ import annotations

from tailback.placement.writers.model import (
    WRITERS,
    Binding,
    RankAssignment,
    RankFile,
    assignment_for,
    write,
)
from tailback.registry import import_parts

import_parts(__name__, __path__)

__all__ = ["WRITERS", "Binding", "RankAssignment", "RankFile", "assignment_for", "write"]
