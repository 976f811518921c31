"""The networks of a what-if: as it is, without its slow cables, or an ideal switch."""

from __future__ import annotations

from collections.abc import Callable

from tailback.fabric.builders import network_of, star
from tailback.fabric.degraded import healthy
from tailback.fabric.model import Fabric
from tailback.simulate.prepare import Prepared
from tailback.simulate.routes import Routes, routes_for


def networks_of(prepared: Prepared) -> Callable[[str], tuple[Fabric, Routes]]:
    """A function from a network (``as-is``, ``healthy`` or ``star``) to its fabric and routes.

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

    return network
