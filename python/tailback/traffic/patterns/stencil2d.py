"""The 2-D stencil."""

from __future__ import annotations

from tailback.traffic.patterns.halo import Halo
from tailback.traffic.patterns.pattern import PATTERNS


@PATTERNS.register("stencil2d")
class Stencil2d(Halo):
    """Exchange with the four neighbours of a 2-D grid, x fastest, one after the other.

    With 64 x 72 ranks and 128 KiB it is the experiment of Taffet (2019), section 4.2. Ranks at the
    edge wait for the time of one message instead of sending.
    """

    N_AXES = 2
