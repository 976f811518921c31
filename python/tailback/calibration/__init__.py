"""Fits the engine's settings to a machine, from its benchmarks and traces."""

from tailback.calibration.estimates import Estimate, Estimates, Placed, estimate
from tailback.calibration.file import Calibration, load
from tailback.calibration.model import BenchmarkData, CalibrationError, Series
from tailback.calibration.readers import BENCHMARKS, read_benchmark

__all__ = [
    "BENCHMARKS",
    "BenchmarkData",
    "Calibration",
    "CalibrationError",
    "Estimate",
    "Estimates",
    "Placed",
    "Series",
    "estimate",
    "load",
    "read_benchmark",
]
