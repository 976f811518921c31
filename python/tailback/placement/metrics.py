"""Locality of a placement: switches visited, and the share of traffic that leaves its leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from tailback.errors import FabricError, PlacementError
from tailback.fabric.model import Fabric
from tailback.traffic.program import Program

Weight = Literal["messages", "bytes", "packets"]


def switch_distance(fabric: Fabric, leaves: NDArray[np.int64]) -> NDArray[np.int64]:
    """Switches visited on the shortest valley-free path between leaf switches, ends included.

    Valley-free: up, perhaps along one tier, then down, never up again, as in up/down routing. If no
    such path exists, the shortest path counts.

    Args:
        fabric: The fabric.
        leaves: Switches to go between, shape (F,).

    Returns:
        Shape (F, F); -1 where there is no path.
    """
    n, s = fabric.n_nodes, fabric.n_switches
    between = (fabric.link_src >= n) & (fabric.link_dst >= n)
    src = fabric.link_src[between].astype(np.int64) - n
    dst = fabric.link_dst[between].astype(np.int64) - n
    step = np.sign(fabric.switch_tier[dst] - fabric.switch_tier[src])
    # Two layers: vertex v still may go up, vertex s + v goes down only.
    climb, level, fall = step > 0, step == 0, step < 0
    rows = np.concatenate([src[climb], src[level], src[fall], s + src[level], s + src[fall]])
    cols = np.concatenate([dst[climb], dst[level], s + dst[fall], s + dst[level], s + dst[fall]])
    both = _count_hops(rows, cols, 2 * s, leaves)
    hops = np.minimum(both[:, leaves], both[:, s + leaves])
    if np.isinf(hops).any():
        plain = _count_hops(src, dst, s, leaves)[:, leaves]
        hops = np.where(np.isinf(hops), plain, hops)
    return np.where(np.isinf(hops), -1, np.nan_to_num(hops, posinf=0) + 1).astype(np.int64)


def _count_hops(
    rows: NDArray[np.int64], cols: NDArray[np.int64], n: int, sources: NDArray[np.int64]
) -> NDArray[np.float64]:
    graph = csr_array((np.ones(len(rows)), (rows, cols)), shape=(n, n))
    hops = shortest_path(graph, method="D", unweighted=True, indices=sources)
    return np.asarray(hops, np.float64).reshape(len(sources), n)


def switches_visited(
    fabric: Fabric, source: NDArray[np.int64], destination: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Switches on the path from each source node to its destination node, shape (M,).

    Nodes of one host communicate through memory and visit none.

    Raises:
        FabricError: There is no path between two of them.
    """
    switch = fabric.node_switch
    ends = np.stack([switch[source], switch[destination]])
    local = fabric.node_host[source] == fabric.node_host[destination]
    cabled = (ends >= 0).all(axis=0)  # -1 is a node without a cable
    out = np.where(local, 0, -1)
    remote = ~local & cabled
    if remote.any():
        leaves, index = np.unique(ends[:, remote], return_inverse=True)
        index = index.reshape(2, -1)
        out[remote] = switch_distance(fabric, leaves)[index[0], index[1]]
    bad = np.flatnonzero(out < 0)
    if len(bad):
        a, b = int(source[bad[0]]), int(destination[bad[0]])
        raise FabricError(
            f"there is no path from {fabric.node_name[a]!r} to {fabric.node_name[b]!r}",
            remedy="check the fabric for missing cables",
        )
    return out


def _messages(
    program: Program, weight: Weight, packet_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Source rank, destination rank and weight of every message that is sent."""
    sends = program.sends
    size = program.amount[sends].astype(np.float64)
    value: dict[str, Callable[[], NDArray[np.float64]]] = {
        "messages": lambda: np.ones_like(size),
        "bytes": lambda: size,
        "packets": lambda: np.maximum(np.ceil(size / packet_bytes), 1.0),
    }
    if weight not in value:
        raise PlacementError(
            f"unknown weight {weight!r}", remedy="valid choices: bytes, messages, packets"
        )
    return program.op_rank[sends], program.peer[sends].astype(np.int64), value[weight]()


def _nodes(
    fabric: Fabric, program: Program, node_of_rank: NDArray[np.integer]
) -> NDArray[np.int64]:
    nodes = np.asarray(node_of_rank).astype(np.int64)
    if nodes.shape != (program.n_ranks,):
        raise PlacementError(
            f"placement has {nodes.size} entries for {program.n_ranks} ranks",
            remedy="give the node of each rank",
        )
    if len(nodes) and not 0 <= nodes.min() <= nodes.max() < fabric.n_nodes:
        raise PlacementError(
            f"placement names a node beyond the {fabric.n_nodes} of the fabric",
            remedy="use the fabric the placement was made for",
        )
    return nodes


def path_length(
    fabric: Fabric,
    program: Program,
    node_of_rank: NDArray[np.integer],
    weight: Weight = "messages",
    packet_bytes: int = 4096,
) -> float:
    """Mean number of switches a message visits (thesis §4.2, Table 4.1).

    In a fat tree 1 within a leaf, 3 within a pod, 5 across pods; 0 within a host.

    Args:
        fabric: The fabric.
        program: The job; every send counts once.
        node_of_rank: Node of each rank, shape (R,).
        weight: Weight of a message: one, its bytes, or its packets (at least one).
        packet_bytes: Payload of a packet, for ``"packets"``.

    Returns:
        The mean; 0 when nothing is sent.
    """
    nodes = _nodes(fabric, program, node_of_rank)
    source, destination, value = _messages(program, weight, packet_bytes)
    if not value.sum():
        return 0.0
    visited = switches_visited(fabric, nodes[source], nodes[destination])
    return float((visited * value).sum() / value.sum())


def edge_cut(
    fabric: Fabric,
    program: Program,
    node_of_rank: NDArray[np.integer],
    level: Literal["host", "leaf", "pod"] = "leaf",
    weight: Weight = "messages",
    packet_bytes: int = 4096,
) -> float:
    """Share of the traffic between different hosts, leaves or pods, 0–1 (thesis §4.2.2)."""
    nodes = _nodes(fabric, program, node_of_rank)
    source, destination, value = _messages(program, weight, packet_bytes)
    if not value.sum():
        return 0.0
    switch = fabric.node_switch[nodes]
    host = fabric.node_host.astype(np.int64)[nodes]
    cell = {"host": host, "leaf": switch, "pod": fabric.switch_pod[switch].astype(np.int64)}
    if level not in cell:
        raise PlacementError(f"unknown level {level!r}", remedy="valid choices: host, leaf, pod")
    apart = (cell[level][source] != cell[level][destination]) & (host[source] != host[destination])
    return float(value[apart].sum() / value.sum())
