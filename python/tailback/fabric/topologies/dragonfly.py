"""Dragonfly and dragonfly+."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from tailback.fabric.builders import core, from_arrays
from tailback.fabric.model import Fabric
from tailback.fabric.topologies.topology import LARGEST, TOPOLOGIES, Topology, built
from tailback.scenario.quantities import LinkGbps, TimePs


class Grouped(Topology):
    """Common options of dragonflies: groups, each pair of which is connected."""

    global_ports: int = Field(
        ge=0, le=LARGEST, description="global ports of a switch that has them"
    )
    groups: int = Field(ge=1, le=LARGEST, description="groups; at most global ports of a group + 1")
    global_cables: Literal["palmtree", "consecutive"] = Field(
        default="palmtree", description="which global port leads to which group"
    )
    local_rate: LinkGbps = Field(default=100.0, description="rate of cables within a group")
    global_rate: LinkGbps = Field(default=100.0, description="rate of cables between groups")
    local_delay: TimePs = Field(default=0, description="delay of cables within a group")
    global_delay: TimePs = Field(default=0, description="delay of cables between groups")

    def _between(self, ports: int) -> int:
        """Global cables: the largest equal number for every pair of groups."""
        if self.groups < 2:
            return 0
        return ports // (self.groups - 1) * self.groups * (self.groups - 1) // 2

    def _rates(self) -> tuple[list[float], list[int]]:
        return (
            [self.host_rate, self.local_rate, self.global_rate],
            [self.host_delay, self.local_delay, self.global_delay],
        )

    def rules(self) -> dict[str, Callable[[core.Network], core.NetworkRouting]]:
        """Minimal, Valiant by groups, and up/down."""

        def by_groups(detour: bool) -> Callable[[core.Network], core.NetworkRouting]:
            return lambda network: core.NetworkRouting.dragonfly(network, detour, True)

        return {"minimal": by_groups(False), "valiant": by_groups(True), **super().rules()}


@TOPOLOGIES.register("dragonfly")
class Dragonfly(Grouped):
    """Dragonfly: groups of fully joined routers (Kim et al., ISCA 2008).

    With p nodes per router, a routers per group and h global ports per router, it is balanced if a
    = 2p = 2h.
    """

    nodes_per_router: int = Field(ge=1, le=LARGEST, description="nodes on each router (p)")
    routers: int = Field(ge=1, le=LARGEST, description="routers in a group (a)")

    def counts(self) -> tuple[int, int, int]:
        """Nodes, switches and cables."""
        switches = self.groups * self.routers
        nodes = switches * self.nodes_per_router
        local = self.groups * self.routers * (self.routers - 1) // 2
        return nodes, switches, nodes + local + self._between(self.routers * self.global_ports)

    def _build(self) -> Fabric:
        """The fabric; all switches are of tier 0, their pod is their group."""
        counts = (self.nodes_per_router, self.routers, self.global_ports, self.groups)
        arrays = built(lambda: core.dragonfly_fabric(counts, self.global_cables, *self._rates()))
        wide, digits = len(str(self.groups - 1)), len(str(self.routers - 1))
        names = [
            f"g{group:0{wide}d}r{router:0{digits}d}"
            for group in range(self.groups)
            for router in range(self.routers)
        ]
        return from_arrays(arrays, self.kind, names)


@TOPOLOGIES.register("dragonfly-plus")
class DragonflyPlus(Grouped):
    """Dragonfly+: groups of leaves and spines (Shpiner et al., HiPINEB 2017)."""

    nodes_per_leaf: int = Field(ge=1, le=LARGEST, description="nodes on each leaf")
    leaves: int = Field(ge=1, le=LARGEST, description="leaves in a group")
    spines: int = Field(ge=1, le=LARGEST, description="spines in a group")

    def counts(self) -> tuple[int, int, int]:
        """Nodes, switches and cables."""
        nodes = self.groups * self.leaves * self.nodes_per_leaf
        local = self.groups * self.leaves * self.spines
        between = self._between(self.spines * self.global_ports)
        return nodes, self.groups * (self.leaves + self.spines), nodes + local + between

    def _build(self) -> Fabric:
        """The fabric; all switches are of tier 0, their pod is their group."""
        counts = (self.nodes_per_leaf, self.leaves, self.spines, self.global_ports, self.groups)
        arrays = built(
            lambda: core.dragonfly_plus_fabric(counts, self.global_cables, *self._rates())
        )
        wide = len(str(self.groups - 1))
        digits = len(str(max(self.leaves, self.spines) - 1))
        names = [
            f"g{group:0{wide}d}{letter}{switch:0{digits}d}"
            for group in range(self.groups)
            for letter, count in (("l", self.leaves), ("s", self.spines))
            for switch in range(count)
        ]
        return from_arrays(arrays, self.kind, names)
