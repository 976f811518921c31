"""A fabric as flat arrays: nodes, switches and directed links.

A *vertex* is a node (``0 .. n_nodes-1``) or a switch (``n_nodes .. n_nodes+n_switches-1``). A cable
is two directed links; ``link_reverse`` pairs them. A *node* is one network adapter port; a *host*
is the machine that holds one or more of them (multi-rail).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tailback.errors import FabricError
from tailback.fabric.rates import LinkSpeed
from tailback.names.ports import link_name, port_name

T = TypeVar("T")


@dataclass
class Fabric:
    """Nodes, switches and directed links.

    Attributes:
        name: Name for reports.
        node_name: Name of each node (adapter), length N.
        node_host: Host index of each node, shape (N,).
        host_name: Name of each host, length H.
        switch_name: Name of each switch, length S.
        switch_tier: Tier of each switch, 0 = leaf (hosts attach), shape (S,).
        switch_pod: Pod of each switch, -1 where it belongs to none, shape (S,).
        link_src: Source vertex of each directed link, shape (L,).
        link_dst: Destination vertex, shape (L,).
        link_src_port: Port number at the source, as printed on the switch, shape (L,).
        link_dst_port: Port number at the destination, shape (L,).
        link_gbps: Data rate in gigabits per second (after line encoding), shape (L,).
        link_delay_ps: Cable delay in picoseconds, shape (L,).
        link_reverse: Index of the opposite link of the same cable, shape (L,).
        notes: Notes of the reader on irregularities that it tolerated; shown to the user.
        nominal_gbps: Nominal rates of the links, shape (L,), if some are slower; else None.
        link_interface: Name of the interface that each link leaves, as used by operating systems
            and counters, length L, empty where unknown; None if ports have only numbers.
        link_id: Identifier of each link in the file, length L, empty where it has none; None if no
            link has one.
        link_speed: Active width and speed of each InfiniBand link, length L, None where unknown;
            None if no link has them.
        host_gbps: Rate between the ranks of each host, such as that of its NVLink ports, Gb/s,
            shape (H,), NaN where unknown; None if no host has one.
    """

    name: str
    node_name: list[str]
    node_host: NDArray[np.uint32]
    host_name: list[str]
    switch_name: list[str]
    switch_tier: NDArray[np.int32]
    switch_pod: NDArray[np.int32]
    link_src: NDArray[np.uint32]
    link_dst: NDArray[np.uint32]
    link_src_port: NDArray[np.uint32]
    link_dst_port: NDArray[np.uint32]
    link_gbps: NDArray[np.float64]
    link_delay_ps: NDArray[np.uint64]
    link_reverse: NDArray[np.uint32]
    notes: list[str] = field(default_factory=list)
    nominal_gbps: NDArray[np.float64] | None = None
    link_interface: list[str] | None = None
    link_id: list[str] | None = None
    link_speed: list[LinkSpeed | None] | None = None
    host_gbps: NDArray[np.float64] | None = None

    @property
    def n_nodes(self) -> int:
        """Number of nodes (adapters)."""
        return len(self.node_name)

    @property
    def n_switches(self) -> int:
        """Number of switches."""
        return len(self.switch_name)

    @property
    def n_hosts(self) -> int:
        """Number of hosts."""
        return len(self.host_name)

    @property
    def n_links(self) -> int:
        """Number of directed links (twice the number of cables)."""
        return len(self.link_src)

    @property
    def vertex_tier(self) -> NDArray[np.int32]:
        """Tier of every vertex, -1 for nodes, shape (N + S,)."""
        return np.concatenate([np.full(self.n_nodes, -1, np.int32), self.switch_tier])

    @property
    def link_tier(self) -> NDArray[np.int32]:
        """Tier of each link: 0 node-leaf, 1 leaf-aggregation, 2 aggregation-core, shape (L,).

        That of a flat link, between switches of one tier, is theirs plus 1.
        """
        tier = self.vertex_tier
        return np.asarray(
            np.maximum(np.minimum(tier[self.link_src], tier[self.link_dst]) + 1, 0), np.int32
        )

    @property
    def link_up(self) -> NDArray[np.int8]:
        """Direction of each link: 1 up, -1 down, 0 between switches of one tier, shape (L,)."""
        tier = self.vertex_tier
        return np.asarray(np.sign(tier[self.link_dst] - tier[self.link_src]), np.int8)

    @property
    def node_switch(self) -> NDArray[np.int64]:
        """Switch index each node attaches to (its first link), -1 if none, shape (N,)."""
        out = np.full(self.n_nodes, -1, np.int64)
        for link in np.flatnonzero(self.link_src < self.n_nodes)[::-1]:
            out[self.link_src[link]] = int(self.link_dst[link]) - self.n_nodes
        return out

    def vertex_name(self, vertex: int) -> str:
        """Name of a node or switch by its vertex number."""
        if vertex < self.n_nodes:
            return self.node_name[vertex]
        return self.switch_name[vertex - self.n_nodes]

    def link_name(self, link: int) -> str:
        """Name of a directed link, ``l2[swp5] → s1[2]``; see :mod:`tailback.names.ports`."""
        return link_name(self.port_name(link), self.port_name(int(self.link_reverse[link])))

    def port_name(self, link: int) -> str:
        """Name of the port that a link leaves, ``l2[swp5]``."""
        device = self.vertex_name(int(self.link_src[link]))
        return port_name(device, int(self.link_src_port[link]), self._interface(link))

    def interface(self, link: int) -> str:
        """Name of the interface that a link leaves, else the number of its port."""
        return self._interface(link) or str(self.link_src_port[link])

    def _interface(self, link: int) -> str | None:
        return None if self.link_interface is None else self.link_interface[link]

    def host_nodes(self) -> list[list[int]]:
        """The nodes (adapters) of each host, in node order."""
        out: list[list[int]] = [[] for _ in range(self.n_hosts)]
        for node, host in enumerate(self.node_host):
            out[int(host)].append(node)
        return out

    def check(self) -> None:
        """Check that the arrays are consistent; raises FabricError on the first that is not."""
        vertices, links = self.n_nodes + self.n_switches, self.n_links
        lengths = {
            name: len(getattr(self, name))
            for name in (
                "link_dst",
                "link_src_port",
                "link_dst_port",
                "link_gbps",
                "link_delay_ps",
                "link_reverse",
            )
        }
        for name, length in lengths.items():
            if length != links:
                raise FabricError(f"{name} has {length} entries for {links} links")
        if links and int(max(self.link_src.max(), self.link_dst.max())) >= vertices:
            raise FabricError("a link names a vertex that does not exist")
        rev = self.link_reverse
        if not (
            np.array_equal(self.link_src, self.link_dst[rev])
            and np.array_equal(self.link_dst, self.link_src[rev])
            and np.array_equal(rev[rev], np.arange(links))
        ):
            raise FabricError("links do not pair up into cables")
        if links and not (self.link_gbps > 0).all():
            bad = int(np.flatnonzero(self.link_gbps <= 0)[0])
            raise FabricError(f"link {self.link_name(bad)} has rate {self.link_gbps[bad]} Gb/s")


def chosen(facts: list[T] | None, links: NDArray[np.integer[Any]]) -> list[T] | None:
    """The facts of the given links, in their order."""
    return None if facts is None else [facts[int(link)] for link in links]


def in_port_order(fabric: Fabric) -> Fabric:
    """The same fabric with its links sorted by source vertex and port, as the engine requires."""
    order = np.lexsort((fabric.link_src_port, fabric.link_src))
    if np.array_equal(order, np.arange(len(order))):
        return fabric
    position = np.empty(len(order), np.uint32)
    position[order] = np.arange(len(order), dtype=np.uint32)
    return replace(
        fabric,
        link_src=fabric.link_src[order],
        link_dst=fabric.link_dst[order],
        link_src_port=fabric.link_src_port[order],
        link_dst_port=fabric.link_dst_port[order],
        link_gbps=fabric.link_gbps[order],
        link_delay_ps=fabric.link_delay_ps[order],
        link_reverse=position[fabric.link_reverse[order]],
        nominal_gbps=None if fabric.nominal_gbps is None else fabric.nominal_gbps[order],
        link_interface=chosen(fabric.link_interface, order),
        link_id=chosen(fabric.link_id, order),
        link_speed=chosen(fabric.link_speed, order),
    )
