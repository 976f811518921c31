"""The fluid view: flow rates instead of packets (Birk and Zdornov, 2009)."""

from tailback.evaluate import Rates
from tailback.fluid.flows import FlowTimes, simulate_flows
from tailback.fluid.paths import Choice, FlowPaths, paths_between
from tailback.fluid.permutations import (
    KaryTree,
    PermutationCongestion,
    Routing,
    SuperposedFlows,
    permutations,
    superpose,
)
from tailback.fluid.programs import ProgramTimes, RankModel, simulate_program
from tailback.fluid.protocol import ProtocolRun, run_protocol
from tailback.fluid.rates import RateAssignment, assignment, max_min
from tailback.fluid.rounds import rounds_to_completion

__all__ = [
    "Choice",
    "FlowPaths",
    "FlowTimes",
    "KaryTree",
    "PermutationCongestion",
    "ProgramTimes",
    "ProtocolRun",
    "RankModel",
    "RateAssignment",
    "Rates",
    "Routing",
    "SuperposedFlows",
    "assignment",
    "max_min",
    "paths_between",
    "permutations",
    "rounds_to_completion",
    "run_protocol",
    "simulate_flows",
    "simulate_program",
    "superpose",
]
