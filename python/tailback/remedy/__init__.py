"""What to change, proved by re-simulation before anyone changes it.

A new kind of cure is one file here with a function under ``@CURES.register("kind")``.
"""

from importlib import import_module
from pkgutil import iter_modules

from tailback.remedy.advice import recommend
from tailback.remedy.idea import CURES, Idea, Means
from tailback.remedy.placements import try_placements
from tailback.remedy.proof import MIN_GAIN
from tailback.remedy.treatment import Treatment, treat

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "CURES",
    "MIN_GAIN",
    "Idea",
    "Means",
    "Treatment",
    "recommend",
    "treat",
    "try_placements",
]
