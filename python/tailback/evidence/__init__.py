"""Measured runs: the times in a trace on a common clock, and where the time went."""

from __future__ import annotations

from tailback.evidence.measure import MeasuredRun, has_times, measure
from tailback.evidence.model import Measured

__all__ = ["Measured", "MeasuredRun", "has_times", "measure"]
