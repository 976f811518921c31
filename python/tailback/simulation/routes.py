"""Routing of a scenario: up/down, forwarding tables, or the rule of its topology."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.errors import FabricError, ScenarioError
from tailback.fabric.builders import forwarding_network, network_of, require_deadlock_free
from tailback.fabric.lft import FabricForwarding, ForwardingTables, forwarding, read_lfts
from tailback.fabric.model import Fabric
from tailback.fabric.topologies import parse as parse_topology
from tailback.fluid import paths_between
from tailback.scenario import Scenario
from tailback.stages import stage

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Routes:
    """A network and the rule that routes on it.

    Attributes:
        network: The fabric as the engine has it.
        rule: The rule; None for the network's own routes.
        detour: Whether packets leave the shortest way.
        notes: What was found odd and tolerated.
    """

    network: _core.Network
    rule: _core.NetworkRouting | None = None
    detour: Literal["never", "valiant", "ugal"] = "never"
    notes: tuple[str, ...] = ()


@stage("routes")
def routes_for(
    scenario: Scenario, fabric: Fabric, nodes: Sequence[int], *, spread: bool = False
) -> Routes:
    """The routes a scenario asks for.

    Args:
        scenario: The scenario.
        fabric: Its fabric, links in port order.
        nodes: Nodes that will communicate.
        spread: Take every up/down path in place of those of forwarding tables.

    Raises:
        FabricError: There is no such rule, or buffers could wait for each other in a cycle.
        ScenarioError: The engine's routing takes no detours, and the rule makes some.
    """
    section = scenario.fabric
    if section.forwarding is not None and spread:
        return Routes(network_of(fabric, nodes))
    found = tables_of(scenario, fabric)
    if section.forwarding is not None and found is not None:
        try:
            network = forwarding_network(fabric, found.link)
            rule = _core.NetworkRouting.of_network(network)
            require_deadlock_free(fabric, rule, place="[fabric] forwarding")
        except FabricError as error:
            error.located(section.forwarding)
            raise
        return Routes(network, notes=tuple(found.notes))
    if section.topology is None:
        return Routes(network_of(fabric, nodes))
    topology = parse_topology(section.topology)
    name = section.routes or next(iter(topology.routes()))
    if name == "up-down":
        return Routes(network_of(fabric, nodes))
    network = network_of(fabric, [])
    rule = topology.routing(network, name)
    if rule.detours and scenario.engine.routing == "vc":
        raise ScenarioError(
            f"{name!r} makes detours, but routing vc takes only shortest paths",
            place="[fabric] routes",
            remedy="take other routes, or another [engine] routing",
        )
    require_deadlock_free(fabric, rule)
    if name == "valiant":
        return Routes(network, rule, "valiant")
    return Routes(network, rule, "ugal" if name == "ugal" else "never")


def tables_of(scenario: Scenario, fabric: Fabric) -> FabricForwarding | None:
    """The forwarding tables of a scenario in the numbers of its fabric, None where it has none."""
    path = scenario.fabric.forwarding
    return None if path is None else forwarding(fabric, _tables(path, _changed_ns(path)))


@lru_cache(maxsize=2)
def _tables(path: Path, _changed: int) -> ForwardingTables:
    """Tables as read before: one diagnosis routes many networks by the same."""
    return read_lfts(path)


def _changed_ns(path: Path) -> int:
    """When a file, or the last one of a folder, was written; 0 where that is unknown."""
    try:
        files = [path, *path.iterdir()] if path.is_dir() else [path]
        return max(file.stat().st_mtime_ns for file in files)
    except OSError:
        return 0


def forwarded_links(
    scenario: Scenario, fabric: Fabric
) -> Callable[[Ints, Ints], tuple[Ints, Ints]] | None:
    """The links that packets of pairs of nodes take, where forwarding tables say so.

    Returns:
        A function of sources and destinations, shape (F,) each, to the number of the pair and the
        link for every link that is taken; None where there are no tables.
    """
    if scenario.fabric.forwarding is None:
        return None
    routes = routes_for(scenario, fabric, range(fabric.n_nodes))

    def links(src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        paths = paths_between(routes.network, src, dst, "deterministic")
        hops = np.diff(paths.start).astype(np.int64)
        return np.repeat(np.arange(len(hops)), hops), paths.link.astype(np.int64)

    return links


def other_rules(scenario: Scenario) -> list[str]:
    """Routing rules that spread traffic and that a scenario's topology has besides the one in use.

    None where routes come from tables or are up/down: there adaptive routing is all there is.
    """
    section = scenario.fabric
    if section.topology is None:
        return []
    known = list(parse_topology(section.topology).routes())
    now = section.routes or known[0]
    return [name for name in known if name not in ("up-down", now)]
