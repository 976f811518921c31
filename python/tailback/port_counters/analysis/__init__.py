"""Findings from port counters: where ports stall, and how congestion evolves."""

from tailback.port_counters.analysis import classes
from tailback.port_counters.analysis.evolution import (
    BANDS,
    Evolution,
    colour,
    columns_of,
    from_torus,
    time_unit,
)
from tailback.port_counters.analysis.evolution_run import torus_coordinates, torus_rows
from tailback.port_counters.analysis.evolution_tiers import tier_panels

__all__ = [
    "BANDS",
    "Evolution",
    "classes",
    "colour",
    "columns_of",
    "from_torus",
    "tier_panels",
    "time_unit",
    "torus_coordinates",
    "torus_rows",
]
