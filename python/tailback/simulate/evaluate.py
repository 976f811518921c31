"""Answers "what if": the engine behind :data:`tailback.evaluate.Evaluate`."""

from __future__ import annotations

from typing import Any

from tailback.evaluate import Change, Evaluate
from tailback.fabric.builders import network_of, star
from tailback.fabric.model import Fabric
from tailback.run import Run
from tailback.simulate.execute import Watch, execute
from tailback.simulate.prepare import Prepared
from tailback.simulate.routes import Routes, routes_for


def make_evaluate(prepared: Prepared, watch: Watch | None = None) -> Evaluate:
    """A function that re-simulates ``prepared`` with one thing changed.

    Routes are computed once for the fabric and once for the ideal switch, however often asked.
    """
    known: dict[str, tuple[Fabric, Routes]] = {}

    def network(kind: str) -> tuple[Fabric, Routes]:
        if kind not in known:
            nodes = prepared.slots().tolist()
            if kind == "star":
                fabric = star(prepared.fabric)
                known[kind] = (fabric, Routes(network_of(fabric, nodes)))
            else:
                routes = routes_for(prepared.scenario, prepared.fabric, nodes)
                known[kind] = (prepared.fabric, routes)
        return known[kind]

    def evaluate(change: Change) -> Run:
        fabric, routes = network("star" if change.network == "star" else "as-is")
        changes: dict[str, Any] = {
            "seed": prepared.scenario.seed + change.seed_offset,
            "contention": change.network != "no-contention",
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
