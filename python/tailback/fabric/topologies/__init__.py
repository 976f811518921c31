"""Computed topologies: one per file, discovered automatically, built from options.

A new topology is one new file here with a :class:`Topology` under ``@TOPOLOGIES.register("name")``.
"""

from importlib import import_module
from pkgutil import iter_modules

from tailback.fabric.topologies.topology import TOPOLOGIES, Topology, build, parse

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["TOPOLOGIES", "Topology", "build", "parse"]
