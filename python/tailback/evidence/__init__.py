"""Measured runs: the times in a trace on a common clock, and where the time went."""

from __future__ import annotations

from tailback.evidence.culprits import explain_stalls, host_course
from tailback.evidence.jobs import JOBS, JobList
from tailback.evidence.measure import MeasuredRun, has_times, measure
from tailback.evidence.model import Measured

__all__ = [
    "JOBS",
    "JobList",
    "Measured",
    "MeasuredRun",
    "explain_stalls",
    "has_times",
    "host_course",
    "measure",
]
