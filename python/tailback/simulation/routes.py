"""Routing of a scenario: up/down, forwarding tables, or the rule of its topology."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from tailback import _core
from tailback.arrays import Ints
from tailback.errors import FabricError, ScenarioError
from tailback.fabric.builders import forwarding_network, network_of, require_deadlock_free
from tailback.fabric.lft import FabricForwarding, ForwardingTables, forwarding, read_lfts
from tailback.fabric.model import Fabric
from tailback.fabric.topologies import parse as parse_topology
from tailback.fluid import paths_between
from tailback.io.input_files import record_files
from tailback.scenario.model import Scenario
from tailback.stages import stage

_ROUTED: deque[_core.Network] = deque(maxlen=1)
"""The network that forwarding tables routed last: one diagnosis routes hundreds of networks by the
same tables, with other rates, and their virtual lanes are the same."""

_FORWARDED: deque[tuple[tuple[object, ...], FabricForwarding]] = deque(maxlen=1)
"""The tables converted last, with their sources, which all those networks share."""


@dataclass(frozen=True)
class Routes:
    """A network and the rule that routes on it.

    Attributes:
        network: The fabric in the engine's form.
        rule: The rule; None for the network's own routes.
        detour: Whether packets may take non-minimal paths.
        by_tables: Whether forwarding tables fix every path.
        notes: Notes on tolerated irregularities and on assumptions.
    """

    network: _core.Network
    rule: _core.NetworkRouting | None = None
    detour: Literal["never", "valiant", "ugal"] = "never"
    by_tables: bool = False
    notes: tuple[str, ...] = ()

    @property
    def lanes(self) -> int:
        """Number of virtual lanes that the routes need."""
        return (self.rule or self.network).lanes


@stage("routes")
def routes_for(
    scenario: Scenario, fabric: Fabric, nodes: Sequence[int], *, spread: bool = False
) -> Routes:
    """The routes that a scenario states.

    Args:
        scenario: The scenario.
        fabric: Its fabric, links in port order.
        nodes: Nodes that will communicate.
        spread: Use all up/down paths instead of those of forwarding tables.

    Raises:
        FabricError: There is no such rule, or it may deadlock: buffers wait for each other in a
            cycle.
        ScenarioError: The rule takes detours, which the engine's routing does not support.
    """
    section = scenario.fabric
    if section.forwarding is not None and spread:
        return Routes(network_of(fabric, nodes))
    forwarded = tables_of(scenario, fabric)
    if section.forwarding is not None and forwarded is not None:
        try:
            network = forwarding_network(fabric, forwarded.link, next(iter(_ROUTED), None))
            _ROUTED.append(network)
        except FabricError as error:
            error.located(section.forwarding)
            raise
        notes = (*forwarded.notes, *_lane_notes(network.lanes))
        return Routes(network, by_tables=True, notes=notes)
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


def _lane_notes(lanes: int) -> list[str]:
    """Says that the paths of forwarding tables were given several virtual lanes."""
    if lanes == 1:
        return []
    return [
        f"forwarding tables name no virtual lanes: paths were spread over {lanes} lanes so that "
        "the routes cannot deadlock; the subnet manager may have chosen others"
    ]


def tables_of(scenario: Scenario, fabric: Fabric) -> FabricForwarding | None:
    """The forwarding tables of a scenario, by link numbers of its fabric; None if it has none."""
    path = scenario.fabric.forwarding
    if path is None:
        return None
    record_files(path.iterdir() if path.is_dir() else [path])
    tables = _tables(path, _changed_ns(path))
    # Rates of links do not matter.
    cables = (fabric.link_src, fabric.link_src_port, fabric.link_dst)
    names = (fabric.node_name, fabric.switch_name)
    asked = (tables, *cables, *names)
    for previous, forwarded in _FORWARDED:
        if all(
            previous_object is other for previous_object, other in zip(previous, asked, strict=True)
        ):
            return forwarded
    forwarded = forwarding(fabric, tables)
    _FORWARDED.append((asked, forwarded))
    return forwarded


@lru_cache(maxsize=2)
def _tables(path: Path, _changed: int) -> ForwardingTables:
    """Cached forwarding tables, as one diagnosis routes many networks by the same tables."""
    return read_lfts(path)


def _changed_ns(path: Path) -> int:
    """Modification time of a file, or the latest in a folder; 0 if unknown."""
    try:
        files = [path, *path.iterdir()] if path.is_dir() else [path]
        return max(file.stat().st_mtime_ns for file in files)
    except OSError:
        return 0


def forwarded_links(
    scenario: Scenario, fabric: Fabric
) -> Callable[[Ints, Ints], tuple[Ints, Ints]] | None:
    """The links that packets between pairs of nodes take according to forwarding tables.

    Returns:
        A function of sources and destinations, shape (F,) each. It returns the indices of pair and
        link, one element for every link of every path. None if there are no tables.
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
    """Other routing rules of a scenario's topology than the one in use, except up/down.

    Empty if routes are up/down or come from forwarding tables: adaptive routing is then the only
    alternative.
    """
    section = scenario.fabric
    if section.topology is None:
        return []
    names = list(parse_topology(section.topology).routes())
    now = section.routes or names[0]
    return [name for name in names if name not in ("up-down", now)]
