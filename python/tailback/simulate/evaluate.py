"""Answers "what if": the engine behind :data:`tailback.evaluate.Evaluate`."""

from __future__ import annotations

from typing import Any

from tailback.evaluate import Change, Evaluate
from tailback.fabric.builders import network_of, star
from tailback.fabric.degraded import healthy, slowed
from tailback.fabric.model import Fabric
from tailback.run import Run
from tailback.simulate.execute import Watch, execute
from tailback.simulate.prepare import Prepared
from tailback.simulate.routes import Routes, routes_for


def make_evaluate(prepared: Prepared, watch: Watch | None = None) -> Evaluate:
    """A function that re-simulates ``prepared`` with one thing changed.

    Routes are computed once for each of the networks, however often asked.
    """
    known: dict[str, tuple[Fabric, Routes]] = {}

    def network(kind: str) -> tuple[Fabric, Routes]:
        if kind not in known:
            nodes = prepared.slots().tolist()
            fabric = prepared.fabric if kind == "as-is" else healthy(prepared.fabric)
            if kind == "star":
                fabric = star(fabric)
                known[kind] = (fabric, Routes(network_of(fabric, nodes)))
            elif kind != "as-is" and fabric is prepared.fabric:
                known[kind] = network("as-is")
            else:
                known[kind] = (fabric, routes_for(prepared.scenario, fabric, nodes))
        return known[kind]

    def evaluate(change: Change) -> Run:
        kind = "healthy" if change.network == "no-contention" else change.network
        fabric, routes = network(kind)
        if change.slow:
            fabric = slowed(fabric, change.slow)
            routes = routes_for(prepared.scenario, fabric, prepared.slots().tolist())
        changes: dict[str, Any] = {
            "seed": prepared.scenario.seed + change.seed_offset,
            "contention": change.network != "no-contention",
            # Probes are for the run itself; a what-if is judged by samples and times.
            "probes": {},
        }
        if not change.measure:
            changes["measure"] = False
        if change.routing is not None:
            changes["routing"] = change.routing
        nodes = [job.node for job in prepared.jobs]
        if change.placement is not None:
            nodes[prepared.observed_index] = change.placement
        return execute(
            prepared,
            routes=routes,
            fabric=fabric,
            nodes=nodes,
            only_observed=not change.background,
            watch=watch,
            **changes,
        )

    return evaluate
