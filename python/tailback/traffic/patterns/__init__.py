"""Synthetic traffic: one pattern per file, discovered automatically, compiled to a rank program.

A new pattern is one new file here with a :class:`Pattern` under ``@PATTERNS.register("name")``.
"""

from importlib import import_module
from pkgutil import iter_modules

from tailback.traffic.patterns.pattern import PATTERNS, FreeSizePattern, Pattern, build, parse

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["PATTERNS", "FreeSizePattern", "Pattern", "build", "parse"]
