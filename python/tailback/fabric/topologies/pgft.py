"""Generalised fat trees, including the k-ary n-tree, with several rails and planes."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tailback.errors import FabricError, InvalidValueError
from tailback.fabric.builders import core, from_arrays
from tailback.fabric.model import Fabric
from tailback.fabric.topologies.topology import (
    LARGEST,
    PLACE,
    TOPOLOGIES,
    Topology,
    built,
    one_or_each,
)
from tailback.scenario.quantities import LinkGbps, TimePs

Count = Annotated[int, Field(ge=1, le=LARGEST)]


class Tree(Topology):
    """Common options of generalised fat trees: rails, planes and their construction.

    A *rail* is one of several adapters of a host: on one leaf (``rail_leaf = "same"``) or each on
    a separate leaf (``"own"``). A *plane* is a separate copy of the tree in which every host has
    its adapters again; planes have no cable between them.
    """

    rails: int = Field(default=1, ge=1, le=65535, description="adapters of a host in each plane")
    rail_leaf: Literal["same", "own"] = Field(
        default="same", description="a host's adapters are on the same leaf, or each on its own"
    )
    planes: int = Field(default=1, ge=1, le=LARGEST, description="separate copies of the tree")

    @abstractmethod
    def levels(self) -> tuple[list[int], list[int], list[int]]:
        """Children, parents and cables of each level, as in PGFT(h; m; w; p)."""

    @abstractmethod
    def cable_rates(self) -> list[float]:
        """Rate of the cables below each level, in Gb/s."""

    @abstractmethod
    def cable_delays(self) -> list[int]:
        """Delay of the cables below each level, in picoseconds."""

    def counts(self) -> tuple[int, int, int]:
        """Nodes, switches and cables: Πw below · Πm above switches on a level."""
        m, w, p = self.levels()
        below, switches, cables = prod(m), 0, 0
        for children, parents, parallel in zip(m, w, p, strict=True):
            cables += below * parents * parallel
            below = below // children * parents
            switches += below
        return self.planes * prod(m), self.planes * switches, self.planes * cables

    def max_ports(self) -> int:
        """Ports of a switch of the level with most: down to its children and up to its parents."""
        m, w, p = self.levels()
        up = [*(w[level] * p[level] for level in range(1, len(m))), 0]
        return max(m[level] * p[level] + up[level] for level in range(len(m)))

    def hosts(self) -> NDArray[np.uint32]:
        """Host of each node, shape (N,)."""
        per_leaf, nodes = self.levels()[0][0], prod(self.levels()[0])
        node = np.arange(nodes)
        if self.rail_leaf == "same":
            host = node // self.rails
            if per_leaf % self.rails:
                raise FabricError(
                    f"rails = {self.rails} do not divide the {per_leaf} nodes of a leaf",
                    place=PLACE,
                    remedy='choose another number, or rail_leaf = "own"',
                )
        else:
            leaf = node // per_leaf
            host = leaf // self.rails * per_leaf + node % per_leaf
            if (nodes // per_leaf) % self.rails:
                raise FabricError(
                    f"rails = {self.rails} do not divide the {nodes // per_leaf} leaves",
                    place=PLACE,
                    remedy="each rail of a host needs a separate leaf",
                )
        return np.tile(host, self.planes).astype(np.uint32)

    def _build(self) -> Fabric:
        """The fabric; nodes and switches plane by plane."""
        host = self.hosts()
        arrays = built(
            lambda: core.pgft_fabric(
                *self.levels(), self.cable_rates(), self.cable_delays(), self.planes
            )
        )
        n_hosts = int(host.max()) + 1
        digits = len(str(max(n_hosts - 1, 1)))
        host_name = [f"n{h:0{digits}d}" for h in range(n_hosts)]
        node_name = None
        if self.rails * self.planes > 1:
            seen = np.zeros(n_hosts, np.int64)
            node_name = []
            for h in host:
                node_name.append(f"{host_name[h]}/a{seen[h]}")
                seen[h] += 1
        tiers = arrays["switch_tier"]
        wide = len(str(len(tiers) - 1))
        names = [f"t{tier}-{switch:0{wide}d}" for switch, tier in enumerate(tiers)]
        return from_arrays(arrays, self.kind, names, host, host_name, node_name)


@TOPOLOGIES.register("k-ary-n-tree")
class KaryNTree(Tree):
    """k-ary n-tree: n levels of switches with k links down and k up (Petrini, Vanneschi, 1997)."""

    k: int = Field(ge=1, le=LARGEST, description="links down and up of a switch")
    n: int = Field(ge=1, le=16, description="levels of switches")
    rate: LinkGbps = Field(default=100.0, description="rate of cables between switches")
    delay: TimePs = Field(default=0, description="delay of cables between switches")

    def levels(self) -> tuple[list[int], list[int], list[int]]:
        """PGFT(n; k, …, k; 1, k, …, k; 1, …, 1)."""
        return [self.k] * self.n, [1] + [self.k] * (self.n - 1), [1] * self.n

    def cable_rates(self) -> list[float]:
        """The host rate, then the rate."""
        return [self.host_rate] + [self.rate] * (self.n - 1)

    def cable_delays(self) -> list[int]:
        """The host delay, then the delay."""
        return [self.host_delay] + [self.delay] * (self.n - 1)


@TOPOLOGIES.register("pgft")
class Pgft(Tree):
    """Generalised fat tree PGFT(h; m; w; p) of any height and taper; XGFT with all p = 1.

    Zahavi, 2010: a switch of level l has ``children[l]`` children and each of these
    ``parents[l]`` parents with ``cables[l]`` cables to each, counted from the hosts up; a host
    cable is one, so ``parents`` and ``cables`` begin with 1.
    """

    children: list[Count] = Field(
        min_length=1, max_length=16, description="m, hosts per leaf first"
    )
    parents: list[Count] = Field(min_length=1, description="w, begins with 1")
    cables: list[Count] | None = Field(
        default=None, description="p, begins with 1; all 1 if absent"
    )
    rates: list[LinkGbps] = Field(
        default=[100.0], min_length=1, description="rate above the leaves, one or per level"
    )
    delays: list[TimePs] = Field(
        default=[0], min_length=1, description="delay above the leaves, one or per level"
    )

    @model_validator(mode="after")
    def _per_level(self) -> Pgft:
        h = len(self.children)
        for name, counts in (("parents", self.parents), ("cables", self.cables)):
            if counts is None:
                continue
            if len(counts) != h:
                raise InvalidValueError(
                    f"{name} has {len(counts)} entries for {h} levels", "give one for each level"
                )
            if counts[0] != 1:
                raise InvalidValueError(
                    f"{name} begins with {counts[0]}", "a node has one cable, so begin with 1"
                )
        for name, count in (("rates", len(self.rates)), ("delays", len(self.delays))):
            one_or_each(name, count, h - 1, "levels above the leaves")
        return self

    def levels(self) -> tuple[list[int], list[int], list[int]]:
        """The options themselves."""
        h = len(self.children)
        return list(self.children), list(self.parents), list(self.cables or [1] * h)

    def cable_rates(self) -> list[float]:
        """The host rate, then those above."""
        above = len(self.children) - 1
        return [self.host_rate, *(self.rates * above if len(self.rates) == 1 else self.rates)]

    def cable_delays(self) -> list[int]:
        """The host delay, then those above."""
        above = len(self.children) - 1
        return [self.host_delay, *(self.delays * above if len(self.delays) == 1 else self.delays)]
