"""What the two measurement studies computed from port counters, and the figures they drew."""

from tailback.port_counters.analysis import classes, links, study
from tailback.port_counters.analysis.classes import CLASSES
from tailback.port_counters.analysis.evolution_run import torus_coordinates, torus_rows
from tailback.port_counters.analysis.evolution_tiers import tier_stalls
from tailback.port_counters.analysis.rounds import FDR_TICK_NS
from tailback.port_counters.analysis.study import Study

__all__ = [
    "CLASSES",
    "FDR_TICK_NS",
    "Study",
    "classes",
    "links",
    "study",
    "tier_stalls",
    "torus_coordinates",
    "torus_rows",
]
