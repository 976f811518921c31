"""Rank files: a placement in the format of a launcher, with the command that uses it.

To add a format, write one file with a callable ``render(assignment, file)`` and add one line below.
"""

from __future__ import annotations

from tailback.placement.writers import cray, mpich, openmpi, sequence, slurm
from tailback.placement.writers.model import (
    WRITERS,
    Binding,
    RankAssignment,
    RankFile,
    assignment_for,
    write,
)

WRITERS.register("openmpi")(openmpi.render)
WRITERS.register("openmpi-seq")(sequence.render)
WRITERS.register("slurm")(slurm.render)
WRITERS.register("mpich")(mpich.render)
WRITERS.register("cray")(cray.render)

__all__ = ["WRITERS", "Binding", "RankAssignment", "RankFile", "assignment_for", "write"]
