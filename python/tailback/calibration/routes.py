"""Paths between hosts: number of switches, cable delay and slowest link."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tailback.fabric.model import Fabric
from tailback.placement.metrics import switches_visited

_HOP_WEIGHT = float(1 << 50)
"""More than the delay of any cable, so that the path with the fewest hops is the shortest."""


@dataclass(frozen=True)
class Route:
    """The path between two hosts.

    Attributes:
        switches: Switches on it, the mean if there are several paths; 0 within a host.
        cable_ps: Total delay of its cables.
        line_gbps: Rate of its slowest link; infinite within a host.
    """

    switches: float
    cable_ps: float
    line_gbps: float


LOCAL = Route(0, 0.0, float("inf"))
"""Within a host."""


class Machine:
    """Paths between the hosts of a fabric.

    Args:
        fabric: The fabric.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._known_routes: dict[tuple[int, int], Route] = {}
        host_nodes = fabric.host_nodes()
        self._node = np.array([nodes[0] if nodes else -1 for nodes in host_nodes], np.int64)

    @property
    def adapter_gbps(self) -> float | None:
        """Rate of most adapters' links; None where there is no adapter."""
        rates = self.fabric.link_gbps[self.fabric.link_src < self.fabric.n_nodes]
        return float(np.median(rates)) if len(rates) else None

    def switches(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
        """Switches between pairs of hosts, shape (M,); raises FabricError without a path."""
        return switches_visited(self.fabric, self._node[first], self._node[second])

    def route(self, first: int, second: int) -> Route:
        """The path between two hosts by number; raises FabricError if there is none."""
        if first == second:
            return LOCAL
        ends = (int(self._node[first]), int(self._node[second]))
        if ends not in self._known_routes:
            switches = int(self.switches(np.array([first]), np.array([second]))[0])
            self._known_routes[ends] = Route(switches, *self._on_path(*ends))
        return self._known_routes[ends]

    @cached_property
    def _graph(self) -> csr_array:
        """Links as edges; of parallel ones the shortest."""
        f = self.fabric
        vertices = f.n_nodes + f.n_switches
        order = np.lexsort((f.link_delay_ps, f.link_dst, f.link_src))
        key = f.link_src[order].astype(np.int64) * vertices + f.link_dst[order]
        _, first = np.unique(key, return_index=True)
        self._link_of = {int(key[at]): int(order[at]) for at in first}
        kept = order[first]
        weight = _HOP_WEIGHT + f.link_delay_ps[kept].astype(np.float64)
        ends = (f.link_src[kept].astype(np.int64), f.link_dst[kept].astype(np.int64))
        return csr_array((weight, ends), shape=(vertices, vertices))

    def _on_path(self, source: int, target: int) -> tuple[float, float]:
        """Delay of the cables and rate of the slowest link on the shortest path."""
        _, predecessors = dijkstra(self._graph, indices=[source], return_predecessors=True)
        before = predecessors[0]
        vertices, delay, rate = self.fabric.n_nodes + self.fabric.n_switches, 0.0, np.inf
        at = target
        while at != source and before[at] >= 0:
            link = self._link_of[int(before[at]) * vertices + at]
            delay += float(self.fabric.link_delay_ps[link])
            rate = min(rate, float(self.fabric.link_gbps[link]))
            at = int(before[at])
        return delay, rate
