"""Answers "what if": the engine behind :data:`tailback.evaluate.Evaluate`."""

from __future__ import annotations

from typing import Any

from tailback import _core
from tailback.evaluate import Change, Evaluate
from tailback.fabric.builders import star
from tailback.fabric.model import Fabric
from tailback.run import Run
from tailback.simulate.execute import Watch, execute, network_of
from tailback.simulate.prepare import Prepared


def make_evaluate(prepared: Prepared, watch: Watch | None = None) -> Evaluate:
    """A function that re-simulates ``prepared`` with one thing changed.

    Routes are computed once for the fabric and once for the ideal switch, however often asked.
    """
    networks: dict[str, tuple[Fabric, _core.Network]] = {}

    def network(kind: str) -> tuple[Fabric, _core.Network]:
        if kind not in networks:
            fabric = star(prepared.fabric) if kind == "star" else prepared.fabric
            networks[kind] = (fabric, network_of(fabric))
        return networks[kind]

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
            network=routes,
            fabric=fabric,
            nodes=nodes,
            only_observed=not change.background,
            watch=watch,
            **changes,
        )

    return evaluate
