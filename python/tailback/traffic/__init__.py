"""What the ranks of an application do: patterns, collectives and readers of real traces."""

from tailback.traffic.program import Label, Op, PlacedProgram, Program, ProgramBuilder
from tailback.traffic.transform import side_by_side

__all__ = [
    "Label",
    "Op",
    "PlacedProgram",
    "Program",
    "ProgramBuilder",
    "side_by_side",
]
