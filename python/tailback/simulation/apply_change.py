"""Applies a change to a prepared scenario, for the packet engine and the fluid model alike."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from tailback.evaluate import Change
from tailback.fabric.builders import network_of, star
from tailback.fabric.degraded import instant, nominal, with_limits, with_slow_links
from tailback.fabric.model import Fabric
from tailback.scenario.engine import PacingSection
from tailback.simulation.in_host import without_in_host_limit
from tailback.simulation.prepare import PreparedScenario
from tailback.simulation.routes import Routes, routes_for
from tailback.traffic.program import without_bytes

UNSHARED = ("no-contention", "instant")
"""Networks on which no message waits for another."""

UP_DOWN = "up-down"
"""The rule of shortest up/down paths, which fabrics with forwarding tables have, too."""


def apply_change(prepared: PreparedScenario, change: Change) -> PreparedScenario:
    """The scenario with the program, the routing and the pacing of a change.

    Its keys are those that give the same run again.
    """
    if change.rule is not None:
        prepared = prepared.with_rule(change.rule)
    if change.rates is not None:
        pacing = PacingSection(kind="elastic", rates=change.rates)
        prepared = prepared.with_engine(injection="per-destination", pacing=pacing)
    if change.routing is not None:
        prepared = prepared.with_engine(routing=change.routing)
    rehashed = (change.routing, change.placement, change.queue_pairs)
    if any(changed is not None for changed in rehashed) and prepared.scenario.engine.flow_seeds:
        # Known are only the paths of these flows between these hosts.
        prepared = prepared.with_engine(flow_seeds=[])
    if change.queue_pairs is not None:
        prepared = prepared.with_engine(queue_pairs=change.queue_pairs)
    if change.others_draw:
        prepared = prepared.with_other_draw(change.others_draw)
    if change.program is not None:
        prepared = prepared.with_program(change.program)
    if change.network == "instant":
        prepared = prepared.with_program(without_bytes(prepared.observed.program))
    return prepared


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
    """Caches the networks of changes together with their routes."""

    def __init__(self, prepared: PreparedScenario) -> None:
        self.prepared = prepared
        self._known: dict[tuple[str, str | None, bool], tuple[Fabric, Routes]] = {}
        self._lock = threading.RLock()

    def of(self, change: Change) -> tuple[Fabric, Routes]:
        """Fabric and routes of a change."""
        kind = "healthy" if change.network in UNSHARED else change.network
        # Forwarding tables fix every path, so adaptive routing and other routes ignore them.
        spread = change.routing == "adaptive" or change.rule == UP_DOWN
        fabric, routes = self._network(kind, None if kind == "star" else change.rule, spread)
        if change.in_host == "free":
            fabric = without_in_host_limit(fabric)
        if change.network == "instant":
            fabric = instant(fabric)
        elif change.slow or change.limits:
            fabric = with_limits(with_slow_links(fabric, change.slow), change.limits)
        else:
            return fabric, routes
        routes = self._routes(fabric, change.rule, spread)
        return fabric, routes

    def _network(self, kind: str, rule: str | None, spread: bool) -> tuple[Fabric, Routes]:
        with self._lock:
            return self._network_once(kind, rule, spread)

    def _network_once(self, kind: str, rule: str | None, spread: bool) -> tuple[Fabric, Routes]:
        key = (kind, rule, spread)
        if key not in self._known:
            as_is = self.prepared.fabric
            fabric = as_is if kind == "as-is" else nominal(as_is)
            if kind == "star":
                fabric = star(fabric)
                network = network_of(fabric, self.prepared.slots().tolist())
                self._known[key] = (fabric, Routes(network))
            elif kind != "as-is" and fabric is as_is:
                self._known[key] = self._network_once("as-is", rule, spread)
            else:
                self._known[key] = (fabric, self._routes(fabric, rule, spread))
        return self._known[key]

    def _routes(self, fabric: Fabric, rule: str | None, spread: bool) -> Routes:
        prepared = self.prepared if rule is None else self.prepared.with_rule(rule)
        nodes = self.prepared.slots().tolist()
        return routes_for(prepared.scenario, fabric, nodes, spread=spread)
