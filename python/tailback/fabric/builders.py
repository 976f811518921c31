"""Computed fabrics, and the interface of the core for topologies and routing rules.

Fat trees of two and three levels and the ideal single switch are here; all other topologies are
in :mod:`tailback.fabric.topologies`, one file each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.available import available_memory, memory_remedy
from tailback.errors import FabricError, option
from tailback.fabric.core_errors import core_message
from tailback.fabric.model import Fabric
from tailback.registry import Registry
from tailback.scenario.model import FatTree
from tailback.units import format_bytes

core = _core
"""The compiled module; topologies use it through this file, which alone imports it."""

PRESETS: Registry[FatTree] = Registry("fabric", "networks by name, for [fabric] preset")

BYTES_PER_CABLE = 240
"""Peak memory per cable while building: list, sorting, arrays of both directions."""
BYTES_PER_VERTEX = 160
"""Peak memory per node or switch, most of it for its name."""

MAX_PORTS = 65_535
"""Maximum number of ports of a switch: the engine numbers them with 16 bits."""

_MAX_WRITTEN = 10**18
"""Larger counts and bytes are not written out in full."""

_TIER_NAMES = ("leaf", "agg", "core")


def _preset(name: str, summary: str, shape: FatTree) -> None:
    shape.__doc__ = summary
    PRESETS.register(name)(shape)


def fat_tree(shape: FatTree, name: str = "fat-tree") -> Fabric:
    """Build a fat tree.

    Switches are numbered leaves first, then aggregation, then cores, and named by that number,
    as in Taffet (2019): leaf 43 and aggregation 175 are in one pod of Tapered.

    Raises:
        FabricError: The shape is impossible; the error names the field.
    """
    arrays = _build(shape)
    tiers = arrays["switch_tier"]
    wide = len(str(len(tiers) - 1))
    names = [f"{_TIER_NAMES[t]}{s:0{wide}d}" for s, t in enumerate(tiers)]
    return from_arrays(arrays, name, names)


def from_arrays(
    arrays: _core.FabricArrays,
    name: str,
    switch_name: list[str],
    node_host: NDArray[np.uint32] | None = None,
    host_name: list[str] | None = None,
    node_name: list[str] | None = None,
) -> Fabric:
    """Make a fabric from the arrays of a builder of the core.

    Args:
        arrays: The arrays by name, as from ``_core.torus_fabric``.
        name: What to call the fabric.
        switch_name: Name of each switch.
        node_host: Host of each node, shape (N,); one host per node if None.
        host_name: Name of each host; ``n0``, ``n1``, … if None.
        node_name: Name of each node; that of its host if None, which then has one node.
    """
    n_nodes = arrays["n_nodes"]
    if node_host is None:
        node_host = np.arange(n_nodes, dtype=np.uint32)
    if host_name is None:
        n_hosts = int(node_host.max(initial=0)) + 1
        digits = len(str(max(n_hosts - 1, 1)))
        host_name = [f"n{host:0{digits}d}" for host in range(n_hosts)]
    fabric = Fabric(
        name=name,
        node_name=node_name if node_name is not None else [host_name[h] for h in node_host],
        node_host=node_host,
        host_name=host_name,
        switch_name=switch_name,
        switch_tier=arrays["switch_tier"],
        switch_pod=arrays["switch_pod"],
        link_src=arrays["link_src"],
        link_dst=arrays["link_dst"],
        link_src_port=arrays["link_src_port"],
        link_dst_port=arrays["link_dst_port"],
        link_gbps=arrays["link_gbps"],
        link_delay_ps=arrays["link_delay_ps"],
        link_reverse=arrays["link_reverse"],
    )
    fabric.check()
    return fabric


def network_of(
    fabric: Fabric, among: Sequence[int] | NDArray[np.uint32] | None = None
) -> _core.Network:
    """The fabric with up/down routes, as ``_core.Network``; links must be in port order.

    Args:
        fabric: The fabric.
        among: Nodes that will communicate; all if None. If empty, no up/down routes are computed,
            as for routing rules without tables.

    Raises:
        FabricError: It cannot be routed.
    """
    nodes = None if among is None else np.ascontiguousarray(among, np.uint32)
    try:
        return _core.Network(
            fabric.n_nodes,
            switch_tier=fabric.switch_tier,
            switch_pod=fabric.switch_pod,
            link_src=fabric.link_src,
            link_dst=fabric.link_dst,
            link_src_port=fabric.link_src_port,
            link_dst_port=fabric.link_dst_port,
            link_gbps=fabric.link_gbps,
            link_delay_ps=fabric.link_delay_ps,
            link_reverse=fabric.link_reverse,
            among=nodes,
        )
    except ValueError as error:
        raise FabricError(
            core_message(error, fabric),
            remedy="correct the cables: each adapter port needs one cable, to a switch"
            if isinstance(error, _core.BadFabricError)
            else "use a smaller fabric",
        ) from None


def forwarding_network(
    fabric: Fabric, forward: NDArray[np.uint32], like: _core.Network | None = None
) -> _core.Network:
    """The fabric with routes from forwarding tables, as ``_core.Network``.

    Tables name no virtual lanes. If routes can deadlock on one lane, each path from a switch to a
    node keeps to the first lane on which it closes no cycle of channel dependencies, as in LASH
    (Skeie, Lysne and Theiss, IPDPS 2002); ``lanes`` of the network is then above 1.

    Args:
        fabric: The fabric, links in port order.
        forward: Link by which each switch sends for each node, ``2**32 - 1`` where it has no
            entry, shape (S, N).
        like: An earlier result, whose lanes are taken if its links and tables are the same: at
            5,000 nodes and 500 switches the search for lanes takes a second.

    Raises:
        FabricError: The tables send packets in loops, name links of other switches, or need more
            virtual lanes than InfiniBand has for data. Or there is not enough memory.
    """
    try:
        flat = np.ascontiguousarray(forward, np.uint32).reshape(-1)
        return _core.with_forwarding(network_of(fabric, []), flat, like)
    except _core.DeadlockError as error:
        raise FabricError(
            core_message(error, fabric),
            remedy="these tables need more lanes than InfiniBand has for data: read them again "
            f"when the subnet manager is idle, or leave {option('forwarding')} out for up/down "
            "routes",
        ) from None
    except _core.BadFabricError as error:
        raise FabricError(
            core_message(error, fabric),
            remedy="read the tables again when the subnet manager is idle",
        ) from None
    except ValueError as error:
        raise FabricError(
            str(error),
            place="[fabric]",
            remedy="use switches with fewer ports: memory grows with the square of their number",
        ) from None


def require_deadlock_free(
    fabric: Fabric, routing: _core.NetworkRouting, *, place: str = "[fabric] routes"
) -> None:
    """Check that ``routing`` has no cyclic channel dependency, so that it cannot deadlock.

    Args:
        fabric: The fabric.
        routing: The rule on it.
        place: The setting that chose the rule.

    Raises:
        FabricError: There is one; the message lists a cycle by link and virtual lane. Or there is
            not enough memory for the check.
    """
    try:
        cycle = routing.cycle()
    except ValueError as error:
        raise FabricError(
            str(error),
            place="[fabric]",
            remedy="use switches with fewer ports: memory grows with the square of their number",
        ) from None
    if cycle:
        names = [f"{fabric.link_name(link)} (lane {lane})" for link, lane in cycle]
        shown = names if len(names) <= 12 else [*names[:12], f"{len(names) - 12} more"]
        raise FabricError(
            f"the routes can deadlock: {' waits for '.join([*shown, names[0]])}",
            place=place,
            remedy="give the routing the virtual lanes it needs, or use up/down routes",
        )


def star(fabric: Fabric) -> Fabric:
    """The same nodes on one ideal switch: only injection and ejection links can be contended.

    Each node keeps the rate and delay of its own link in both directions.
    """
    n = fabric.n_nodes
    out = np.full(n, -1, np.int64)
    links = np.flatnonzero(fabric.link_src < n)
    out[fabric.link_src[links]] = links
    into = fabric.link_reverse[out].astype(np.int64)
    both = np.concatenate([out, into])
    nodes = np.arange(n, dtype=np.uint32)
    centre = np.full(n, n, np.uint32)
    ports = np.arange(1, n + 1, dtype=np.uint32)
    ones = np.ones(n, np.uint32)
    return Fabric(
        name=f"{fabric.name} (one ideal switch)",
        node_name=fabric.node_name,
        node_host=fabric.node_host,
        host_name=fabric.host_name,
        switch_name=["ideal"],
        switch_tier=np.zeros(1, np.int32),
        switch_pod=np.full(1, -1, np.int32),
        link_src=np.concatenate([nodes, centre]),
        link_dst=np.concatenate([centre, nodes]),
        link_src_port=np.concatenate([ones, ports]),
        link_dst_port=np.concatenate([ports, ones]),
        link_gbps=fabric.link_gbps[both],
        link_delay_ps=fabric.link_delay_ps[both],
        link_reverse=np.concatenate([nodes + np.uint32(n), nodes]),
        host_gbps=fabric.host_gbps,
    )


def _build(shape: FatTree) -> _core.FabricArrays:
    pods = max(1, shape.pods)
    nodes = shape.hosts_per_leaf * shape.leaves * pods
    switches = (shape.leaves + shape.aggregation) * pods + shape.cores
    upward = shape.leaves * shape.leaf_cables + shape.aggregation_uplinks
    place = "[fabric.fat_tree]"
    leaf = shape.hosts_per_leaf + shape.aggregation * shape.leaf_cables
    above = shape.leaves * shape.leaf_cables + shape.aggregation_uplinks
    top = -(-pods * shape.aggregation * shape.aggregation_uplinks // max(shape.cores, 1))
    check_memory(
        nodes,
        switches,
        nodes + shape.aggregation * upward * pods,
        place=place,
        max_ports=max(leaf, above, top),
    )
    return built_by_core(
        lambda: _core.fat_tree(
            hosts_per_leaf=shape.hosts_per_leaf,
            leaves=shape.leaves,
            aggregation=shape.aggregation,
            pods=shape.pods,
            cores=shape.cores,
            leaf_cables=shape.leaf_cables,
            aggregation_uplinks=shape.aggregation_uplinks,
            gbps=[shape.host_rate, shape.leaf_rate, shape.core_rate],
            delay_ps=[shape.host_delay, shape.leaf_delay, shape.core_delay],
        ),
        place=place,
        page="docs/reference/scenario.md",
    )


def check_memory(nodes: int, switches: int, cables: int, *, place: str, max_ports: int = 0) -> None:
    """Refuse, before it is built, a fabric too large for this machine's memory or for the engine.

    Raises:
        FabricError: It does not fit; the message states the memory needed.
    """
    if max_ports > MAX_PORTS:
        raise FabricError(
            f"a switch would have {_count_text(max_ports)} ports; the engine's limit is "
            f"{MAX_PORTS:,}",
            place=place,
            remedy="give it fewer hosts or cables: real switches have a few dozen",
        )
    needed = BYTES_PER_CABLE * cables + BYTES_PER_VERTEX * (nodes + switches)
    there = available_memory()
    if there is not None and needed > there:
        bound = "over" if needed > _MAX_WRITTEN else "about"
        taken = f"{bound} {format_bytes(min(needed, _MAX_WRITTEN))}"
        raise FabricError(
            f"{_count_text(nodes)} nodes, {_count_text(switches)} switches and "
            f"{_count_text(cables)} cables need {taken} of memory; "
            f"{format_bytes(there)} is available",
            place=place,
            remedy=f"make it smaller; or {memory_remedy(needed)}"
            if needed <= _MAX_WRITTEN
            else "make it smaller",
        )


def _count_text(count: int) -> str:
    """A count in digits, unless there are too many of them to read, or for Python to write."""
    return f"{count:,}" if count <= _MAX_WRITTEN else f"over {_MAX_WRITTEN:,}"


def built_by_core(
    make: Callable[[], _core.FabricArrays], *, place: str, page: str
) -> _core.FabricArrays:
    """Call a builder of the core; its errors become FabricErrors that refer to ``page``."""
    try:
        return make()
    except (ValueError, OverflowError) as error:
        raise FabricError(
            str(error), place=place, remedy=f"correct that value; {page} describes the shape"
        ) from None


_preset(
    "tapered",
    "4608 nodes, 2:1 tapered three-level fat tree of 48-port switches, 100 Gb/s (Table 3.1).",
    FatTree(hosts_per_leaf=32, leaves=24, aggregation=16, pods=6, cores=48, aggregation_uplinks=24),
)
_preset(
    "full",
    "3564 nodes, full-bisection three-level fat tree of 36-port switches, 100 Gb/s (Table 3.1).",
    FatTree(
        hosts_per_leaf=18, leaves=18, aggregation=18, pods=11, cores=108, aggregation_uplinks=18
    ),
)
