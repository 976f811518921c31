"""Fits the engine's settings to a machine, from its benchmarks and traces."""

from tailback.calibrate.estimates import Estimate, Estimates, Placed, estimate
from tailback.calibrate.file import Calibration, load
from tailback.calibrate.model import BenchmarkData, CalibrationError, Series
from tailback.calibrate.readers import BENCHMARKS, read_benchmark

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
