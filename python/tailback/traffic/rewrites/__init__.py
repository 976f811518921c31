"""Changes of a program's communication: one rewrite per file, discovered automatically.

A new rewrite is one new file here with a function under ``@REWRITES.register("name")``.
"""

from importlib import import_module
from pkgutil import iter_modules

from tailback.traffic.rewrites.rewrite import (
    REWRITES,
    DoesNotApplyError,
    Rewrite,
    Rewritten,
    labels_of_phases,
)

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["REWRITES", "DoesNotApplyError", "Rewrite", "Rewritten", "labels_of_phases"]
