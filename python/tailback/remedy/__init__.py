"""What to change, proved by re-simulation before anyone changes it."""

from tailback.remedy.placements import MIN_GAIN, recommend, try_placements

__all__ = ["MIN_GAIN", "recommend", "try_placements"]
