"""Remedies, proved by re-simulation.

A kind of remedy is one file here with a function registered by ``@REMEDIES.register("kind")``.
"""

from importlib import import_module
from pkgutil import iter_modules

from tailback.remedy.advice import recommend
from tailback.remedy.full_diagnosis import diagnose
from tailback.remedy.proof import MIN_GAIN, congested_hops
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.remedy.search import RemedySearch, find_remedy

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "MIN_GAIN",
    "REMEDIES",
    "Proposal",
    "RemedyContext",
    "RemedySearch",
    "congested_hops",
    "diagnose",
    "find_remedy",
    "recommend",
]
