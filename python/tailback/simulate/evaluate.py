"""Answers "what if": the engine behind :data:`tailback.evaluate.Evaluate`."""

from __future__ import annotations

from typing import Any

from tailback.evaluate import Change, Evaluate
from tailback.fabric.degraded import slowed
from tailback.run import Run
from tailback.simulate.execute import Watch, execute
from tailback.simulate.networks import networks_of
from tailback.simulate.prepare import Prepared
from tailback.simulate.routes import routes_for


def make_evaluate(prepared: Prepared, watch: Watch | None = None) -> Evaluate:
    """A function that re-simulates ``prepared`` with one thing changed."""
    network = networks_of(prepared)

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
