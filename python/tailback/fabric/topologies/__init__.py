"""Computed topologies: one per file, discovered automatically, built from options.

A new topology is one new file here with a :class:`Topology` under ``@TOPOLOGIES.register("name")``.
"""

from tailback.fabric.topologies.topology import TOPOLOGIES, Topology, build, parse
from tailback.registry import import_parts

import_parts(__name__, __path__)

__all__ = ["TOPOLOGIES", "Topology", "build", "parse"]
