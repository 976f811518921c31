"""Counts of links from what the packets of a run carried."""

from __future__ import annotations

import numpy as np

from tailback import _core
from tailback.errors import RunError
from tailback.fabric.degraded import degrade
from tailback.fabric.model import Fabric
from tailback.run import Run
from tailback.simulate.prepare import load_fabric
from tailback.simulate.routes import routes_for
from tailback.telemetry.candidates import Pairs, minimal_choices, pair_candidates, routed_choices
from tailback.telemetry.carried import Carried, count_carried


def link_counts(run: Run, fabric: Fabric | None = None) -> Carried:
    """Decode table ``packets`` of a run.

    Args:
        run: A run that kept packets.
        fabric: Its fabric, read or built from its scenario when None.

    Raises:
        RunError: The run kept no packets, or its scheme cannot be decoded in it.
        FabricError: The fabric cannot be read, or its routing has paths of several lengths.
    """
    if run.tables["packets"].height == 0:
        raise RunError(
            "the run has kept no packets",
            remedy="set [telemetry] packets, or a scheme other than full and off",
        )
    if fabric is None:
        fabric = degrade(load_fabric(run.scenario.fabric), run.scenario.fabric.degraded)
    return count_carried(run, _candidates(run, fabric), _core)


def _candidates(run: Run, fabric: Fabric) -> Pairs:
    """Candidates by the run's routing: minimal paths, or those of tables and discovered fabrics."""
    packets = run.tables["packets"]
    src, dst = packets["src_node"].to_numpy(), packets["dst_node"].to_numpy()
    if run.scenario.fabric.file is None:
        return pair_candidates(fabric, minimal_choices(fabric), src, dst)
    nodes = np.unique(run.tables["ranks"]["node"].to_numpy()).tolist()
    routes = routes_for(run.scenario, fabric, nodes)
    rule = routes.rule or _core.Routing.of_network(routes.network)
    choices = routed_choices(fabric, lambda at, node: rule.next(at, node, 0, 0)[0])
    return pair_candidates(fabric, choices, src, dst)
