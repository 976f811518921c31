"""The 3-D stencil."""

from __future__ import annotations

from tailback.traffic.patterns.halo import Halo
from tailback.traffic.patterns.pattern import PATTERNS


@PATTERNS.register("stencil3d")
class Stencil3d(Halo):
    """Exchange with the six face neighbours of a 3-D grid, x fastest, one after the other.

    The communication of a 7-point stencil; ``sizes`` makes faces of different area.
    """

    N_AXES = 3
