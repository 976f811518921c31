"""Fits the engine's settings to a machine, from its benchmarks and traces."""

from tailback.calibration.estimates import Estimates, FittedValue, estimate
from tailback.calibration.file import Calibration, load
from tailback.calibration.fitted_series import Placed
from tailback.calibration.model import BenchmarkData, CalibrationError, Series
from tailback.calibration.readers import BENCHMARKS, read_benchmark

__all__ = [
    "BENCHMARKS",
    "BenchmarkData",
    "Calibration",
    "CalibrationError",
    "Estimates",
    "FittedValue",
    "Placed",
    "Series",
    "estimate",
    "load",
    "read_benchmark",
]
