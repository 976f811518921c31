"""Changes of a program's communication: one rewrite per file, discovered automatically.

A new rewrite is one new file here with a function under ``@REWRITES.register("name")``.
"""

from tailback.registry import import_parts
from tailback.traffic.rewrites.rewrite import (
    REWRITES,
    DoesNotApplyError,
    Rewrite,
    Rewritten,
    labels_of_phases,
)

import_parts(__name__, __path__)

__all__ = ["REWRITES", "DoesNotApplyError", "Rewrite", "Rewritten", "labels_of_phases"]
