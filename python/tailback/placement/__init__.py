"""Placements of ranks on nodes, their metrics, and the rank files that launchers read.

A placement is a callable ``place(problem, options)`` that gives the *slot* of each rank. A new one
is one new file here with a function under ``@PLACEMENTS.register("name")``; the conformance tests
include it automatically.
"""

from __future__ import annotations

from tailback.placement.assign import (
    PLACEMENTS,
    Placement,
    assign_slots,
    place,
    require_slots,
)
from tailback.placement.compute_hosts import ComputeHosts, compute_hosts
from tailback.placement.footprint import (
    Footprint,
    fewest_neighbours,
    fewest_switches,
    footprint,
    leaf_of_hosts,
    restrict_to_used,
)
from tailback.placement.grid import infer_grid
from tailback.placement.hosts import hosts_from_spec, left_out, other_spellings, slots_from_spec
from tailback.placement.metrics import edge_cut, path_length, switches_visited
from tailback.placement.options import Options
from tailback.placement.problem import PlacementProblem, problem_for, switch_congestion
from tailback.placement.writers import (
    WRITERS,
    Binding,
    RankAssignment,
    RankFile,
    assignment_for,
    write,
)
from tailback.registry import import_parts

import_parts(__name__, __path__)

__all__ = [
    "PLACEMENTS",
    "WRITERS",
    "Binding",
    "ComputeHosts",
    "Footprint",
    "Options",
    "Placement",
    "PlacementProblem",
    "RankAssignment",
    "RankFile",
    "assign_slots",
    "assignment_for",
    "compute_hosts",
    "edge_cut",
    "fewest_neighbours",
    "fewest_switches",
    "footprint",
    "hosts_from_spec",
    "infer_grid",
    "leaf_of_hosts",
    "left_out",
    "other_spellings",
    "path_length",
    "place",
    "problem_for",
    "require_slots",
    "restrict_to_used",
    "slots_from_spec",
    "switch_congestion",
    "switches_visited",
    "write",
]
