"""The fluid model: flow rates instead of packets (Birk and Zdornov, 2009)."""

from tailback.evaluate import Rates
from tailback.fluid.flows import FlowTimes, RateAssignment, assignment, max_min, simulate_flows
from tailback.fluid.paths import Choice, FlowPaths, paths_between
from tailback.fluid.programs import ProgramTimes, RankModel, simulate_program

__all__ = [
    "Choice",
    "FlowPaths",
    "FlowTimes",
    "ProgramTimes",
    "RankModel",
    "RateAssignment",
    "Rates",
    "assignment",
    "max_min",
    "paths_between",
    "simulate_flows",
    "simulate_program",
]
