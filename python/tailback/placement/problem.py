"""Input of a placement: the slots of the chosen hosts and the traffic of the job."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError
from tailback.fabric.model import Fabric
from tailback.placement.graph import Graph
from tailback.traffic.program import Program

Traffic: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]
"""``(source, destination, bytes)`` of each pair of ranks that communicate."""


@dataclass(frozen=True)
class PlacementProblem:
    """Slots and traffic. A *slot* holds one rank; slots are in allocation order.

    Attributes:
        n_ranks: Number of ranks R of the job.
        slot_node: Node (adapter) of each slot, shape (K,).
        slot_switch: Leaf switch of each slot's adapter, shape (K,).
        slot_pod: Pod of that switch, -1 where it belongs to none, shape (K,).
        slot_host: Host of each slot, shape (K,).
        host_name: Name of each host of the fabric.
        traffic: Bytes between ranks, as :meth:`Program.traffic_matrix` gives them.
        grid: Extents of the Cartesian grid the ranks form, x fastest; empty when unknown.
        seed: Seed of every random choice.
        congestion: Congested fraction measured at each switch, 0–1, shape (S,); ``None`` if it was
            not measured. See :func:`switch_congestion`.
        spellings: Hosts that a file with the placement names in another way than the fabric, and
            their names there; filled by the placement ``file``.
    """

    n_ranks: int
    slot_node: NDArray[np.int64]
    slot_switch: NDArray[np.int64]
    slot_pod: NDArray[np.int64]
    slot_host: NDArray[np.int64]
    host_name: tuple[str, ...]
    traffic: Traffic
    grid: tuple[int, ...] = ()
    seed: int = 1
    congestion: NDArray[np.float64] | None = None
    spellings: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def n_slots(self) -> int:
        """Number of slots K of the chosen hosts."""
        return len(self.slot_node)

    @cached_property
    def graph(self) -> Graph:
        """The communication graph, weights in bytes (both directions together)."""
        source, destination, size = self.traffic
        # A message without payload still takes a packet, so it stays in the graph.
        weight = np.maximum(size.astype(np.float64), 1.0)
        return Graph.from_edges(self.n_ranks, source, destination, weight)

    @cached_property
    def slot_leaf(self) -> NDArray[np.int64]:
        """Leaf switch of each slot's *host*, shape (K,).

        A host with adapters on several leaves belongs to the leaf of its first slot, so that a
        partition by leaf never splits a host: ranks of one host need no network.
        """
        _, first, index = np.unique(self.slot_host, return_index=True, return_inverse=True)
        return self.slot_switch[first][index]

    def random(self, *stream: str) -> np.random.Generator:
        """A generator that depends only on the seed and the name of the stream."""
        text = "/".join((str(self.seed), "placement", *stream))
        digest = hashlib.sha256(text.encode()).digest()
        return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def first_appearance(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number values in the order they first appear: ``[7, 7, 3, 7]`` gives ``[0, 0, 1, 0]``."""
    _, first, index = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[index]


def problem_for(
    fabric: Fabric,
    program: Program,
    hosts: list[int],
    ranks_per_host: int | Sequence[int],
    seed: int,
    congestion: NDArray[np.float64] | None = None,
) -> PlacementProblem:
    """Slots of ``hosts`` in order, ``ranks_per_host`` on each, adapters used in turn.

    Args:
        fabric: Where the hosts are.
        program: The job's traffic.
        hosts: Host numbers in allocation order, each once.
        ranks_per_host: Slots of each host: one number, or one for each of ``hosts``.
        seed: Seed of every random choice.
        congestion: Congested fraction of each switch, shape (S,), if measured.

    Raises:
        PlacementError: A host does not exist, is named twice or is not connected.
    """
    each = slots_of_each(hosts, ranks_per_host)
    seen: set[int] = set()
    for host in hosts:
        if not 0 <= host < fabric.n_hosts or host in seen:
            what = "is named twice" if host in seen else f"is not one of {fabric.n_hosts} hosts"
            raise PlacementError(f"host {host} {what}", remedy="check the job's hosts")
        seen.add(host)
    switch = fabric.node_switch
    adapters = fabric.host_nodes()
    slots = np.empty(sum(each), np.int64)
    begin = 0
    for host, count in zip(hosts, each, strict=True):
        connected = np.array([node for node in adapters[host] if switch[node] >= 0], np.int64)
        if not len(connected):
            raise PlacementError(
                f"host {fabric.host_name[host]!r} has no adapter that is connected to a switch",
                remedy="leave it out of the job's hosts",
            )
        slots[begin : begin + count] = connected[np.arange(count) % len(connected)]
        begin += count
    if congestion is not None and congestion.shape != (fabric.n_switches,):
        raise PlacementError(
            f"congestion has shape {congestion.shape} for {fabric.n_switches} switches",
            remedy="give one congested fraction per switch",
        )
    leaf = switch[slots]
    return PlacementProblem(
        n_ranks=program.n_ranks,
        slot_node=slots,
        slot_switch=leaf,
        slot_pod=fabric.switch_pod.astype(np.int64)[leaf],
        slot_host=fabric.node_host.astype(np.int64)[slots],
        host_name=tuple(fabric.host_name),
        traffic=program.traffic_matrix(),
        grid=program.grid,
        seed=seed,
        congestion=congestion,
    )


def slots_of_each(hosts: Sequence[int], ranks_per_host: int | Sequence[int]) -> list[int]:
    """Slots of each of ``hosts``: ``ranks_per_host`` if it is a list, else the same for all.

    Raises:
        PlacementError: A number is less than 1, or there are more or fewer than hosts.
    """
    if isinstance(ranks_per_host, Sequence):
        each = [int(count) for count in ranks_per_host]
    else:
        each = [int(ranks_per_host)] * len(hosts)
    if len(each) != len(hosts):
        raise PlacementError(
            f"ranks_per_host has {len(each)} numbers for {len(hosts)} hosts",
            remedy="give one for each host, or one for all",
        )
    if min(each, default=1) < 1:
        raise PlacementError(
            f"ranks_per_host is {min(each)}", remedy="give at least 1 rank per host"
        )
    return each


def switch_congestion(fabric: Fabric, link_fraction: NDArray[np.float64]) -> NDArray[np.float64]:
    """Worst congested fraction of the switch-to-switch links at each switch, shape (S,).

    Args:
        fabric: The fabric.
        link_fraction: Congested fraction of each directed link, 0–1, NaN for no data, shape (L,).
    """
    out = np.zeros(fabric.n_switches)
    between = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    value = np.nan_to_num(np.asarray(link_fraction, np.float64))[between]
    for end in (fabric.link_src, fabric.link_dst):
        np.maximum.at(out, end[between].astype(np.int64) - fabric.n_nodes, value)
    return out
