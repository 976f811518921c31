"""Synthetic traffic: one pattern per file, discovered automatically, compiled to a rank program.

A new pattern is one new file here with a :class:`Pattern` under ``@PATTERNS.register("name")``.
"""

from tailback.registry import import_parts
from tailback.traffic.patterns.pattern import PATTERNS, FreeSizePattern, Pattern, build, parse

import_parts(__name__, __path__)

__all__ = ["PATTERNS", "FreeSizePattern", "Pattern", "build", "parse"]
