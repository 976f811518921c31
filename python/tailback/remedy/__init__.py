"""Remedies, proved by re-simulation.

A kind of remedy is one file here with a function registered by ``@REMEDIES.register("kind")``.
"""

from tailback.diagnosis.model import MIN_GAIN
from tailback.registry import import_parts
from tailback.remedy.advice import recommend, usable_kinds
from tailback.remedy.full_diagnosis import diagnose
from tailback.remedy.proof import congested_hops, improvements
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.remedy.search import (
    RemedySearch,
    diagnose_and_cure,
    find_remedy,
    recommend_surely,
)

import_parts(__name__, __path__)

__all__ = [
    "MIN_GAIN",
    "REMEDIES",
    "Proposal",
    "RemedyContext",
    "RemedySearch",
    "congested_hops",
    "diagnose",
    "diagnose_and_cure",
    "find_remedy",
    "improvements",
    "recommend",
    "recommend_surely",
    "usable_kinds",
]
