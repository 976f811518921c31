"""The counter figures, one subject per file; importing this package registers them all."""

from tailback.port_counters.analysis.figures import (
    boxes,
    buildup,
    distributions,
    evolution,
    tiers,
    zero_shares,
)
from tailback.port_counters.analysis.figures.style import (
    COUNTER_FIGURES,
    DASHES,
    FAINT,
    GROUPS,
    INK,
    MUTED,
    canvas,
    draw,
    render,
)

__all__ = [
    "COUNTER_FIGURES",
    "DASHES",
    "FAINT",
    "GROUPS",
    "INK",
    "MUTED",
    "boxes",
    "buildup",
    "canvas",
    "distributions",
    "draw",
    "evolution",
    "render",
    "tiers",
    "zero_shares",
]
