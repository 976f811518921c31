"""The fluid model: flow rates instead of packets (Birk and Zdornov, 2009)."""

from tailback.evaluate import Rates
from tailback.fluid.flows import FlowTimes, simulate_flows
from tailback.fluid.kary_trees import (
    KaryTree,
    PermutationCongestion,
    SuperposedFlows,
    TreeRouting,
    permutation_congestion,
    superpose_permutations,
)
from tailback.fluid.paths import Choice, FlowPaths, paths_between
from tailback.fluid.programs import ProgramTimes, RankModel, simulate_program
from tailback.fluid.protocol import NEVER, ProtocolRun, run_protocol
from tailback.fluid.rates import RateAssignment, assignment, max_min
from tailback.fluid.rounds import rounds_to_completion

__all__ = [
    "NEVER",
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
    "SuperposedFlows",
    "TreeRouting",
    "assignment",
    "max_min",
    "paths_between",
    "permutation_congestion",
    "rounds_to_completion",
    "run_protocol",
    "simulate_flows",
    "simulate_program",
    "superpose_permutations",
]
