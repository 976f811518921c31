"""What a change makes of a prepared scenario: the same for packets and for the fluid model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.evaluate import Change
from tailback.fabric.builders import network_of, star
from tailback.fabric.degraded import nominal, with_cable_rates
from tailback.fabric.model import Fabric
from tailback.simulate.prepare import PreparedScenario
from tailback.simulate.routes import Routes, routes_for


def apply_change(prepared: PreparedScenario, change: Change) -> PreparedScenario:
    """The scenario with the program and the routing rule of a change."""
    if change.rule is not None:
        prepared = prepared.with_rule(change.rule)
    return prepared if change.program is None else prepared.with_program(change.program)


def rank_nodes(prepared: PreparedScenario, change: Change) -> list[NDArray[np.uint32]]:
    """Node of each rank of every job.

    Raises:
        PlacementError: A placement does not keep the hosts, or the ranks a host, of the job
            (:class:`tailback.placement.Footprint`). Nothing is simulated without this check.
    """
    nodes = [job.node for job in prepared.jobs]
    if change.placement is not None:
        name = change.placement_name or "as changed"
        prepared.observed.footprint.check(prepared.fabric, name, change.placement)
        nodes[prepared.observed_index] = change.placement
    return nodes


class NetworkCache:
    """The networks that changes ask for, each with its routes, computed once."""

    def __init__(self, prepared: PreparedScenario) -> None:
        self.prepared = prepared
        self._known: dict[tuple[str, str | None], tuple[Fabric, Routes]] = {}

    def of(self, change: Change) -> tuple[Fabric, Routes]:
        """Fabric and routes of a change."""
        kind = "healthy" if change.network == "no-contention" else change.network
        fabric, routes = self._network(kind, None if kind == "star" else change.rule)
        if change.slow:
            fabric = with_cable_rates(fabric, change.slow)
            routes = self._routes(fabric, change.rule)
        return fabric, routes

    def _network(self, kind: str, rule: str | None) -> tuple[Fabric, Routes]:
        if (kind, rule) not in self._known:
            as_is = self.prepared.fabric
            fabric = as_is if kind == "as-is" else nominal(as_is)
            if kind == "star":
                fabric = star(fabric)
                network = network_of(fabric, self.prepared.slots().tolist())
                self._known[kind, rule] = (fabric, Routes(network))
            elif kind != "as-is" and fabric is as_is:
                self._known[kind, rule] = self._network("as-is", rule)
            else:
                self._known[kind, rule] = (fabric, self._routes(fabric, rule))
        return self._known[kind, rule]

    def _routes(self, fabric: Fabric, rule: str | None) -> Routes:
        prepared = self.prepared if rule is None else self.prepared.with_rule(rule)
        return routes_for(prepared.scenario, fabric, self.prepared.slots().tolist())
