"""The parts of a lab: nodes, addresses and links, and the commands that make them.

Nothing here touches the machine.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tailback.lab.datapath.sampling import FIRST_INDEX
from tailback.lab.spec import LabSpec

SYSCTLS = {
    4: (
        ("net/ipv6/conf/all/disable_ipv6", "1"),
        ("net/ipv6/conf/default/disable_ipv6", "1"),
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/default/rp_filter", "0"),
        # Paths are chosen by addresses and ports, as switches do.
        ("net/ipv4/fib_multipath_hash_policy", "1"),
        ("net/ipv4/tcp_no_metrics_save", "1"),
    ),
    6: (
        ("net/ipv6/conf/all/forwarding", "1"),
        ("net/ipv6/conf/default/forwarding", "1"),
        ("net/ipv6/fib_multipath_hash_policy", "1"),
        ("net/ipv4/tcp_no_metrics_save", "1"),
    ),
}
"""Settings of every namespace, by version of IP: file below ``/proc/sys`` and value."""

HASH_SEED = "net/ipv4/fib_multipath_hash_seed"
"""Seed of the ECMP hash of both versions of IP; Linux 6.11 and later have it."""

_TRANSPORT = "congctl cubic rto_min 5ms"
"""Set per route: setting them per namespace would require changing the machine's own settings."""


@dataclass(frozen=True)
class Link:
    """One direction of a cable.

    Attributes:
        number: From 1, in the order of ``links.csv``. The two directions of a cable follow each
            other.
        source: Node that sends.
        target: Node that receives.
        interface: Interface of ``source`` that it leaves by.
        address: Address of that interface, in a network of 24 bits (IPv4) or 64.
        rate_bps: Nominal rate, bits per second.
    """

    number: int
    source: str
    target: str
    interface: str
    address: str
    rate_bps: int

    @property
    def mbit(self) -> float:
        """Nominal rate in Mb/s."""
        return self.rate_bps / 1e6


@dataclass(frozen=True)
class Command:
    """A program to run: its arguments and its standard input."""

    arguments: tuple[str, ...]
    text: str = ""


class Plan:
    """Nodes, links and commands of a specification."""

    def __init__(self, spec: LabSpec) -> None:
        self.spec = spec
        shape = spec.fabric
        self.ip = shape.ip
        self.hosts = spec.host_names()
        self.leaves = [f"l{leaf}" for leaf in range(shape.leaves)]
        self.spines = [f"s{spine}" for spine in range(shape.spines)]
        self.nodes = [*self.spines, *self.leaves, *self.hosts]

    @cached_property
    def links(self) -> list[Link]:
        """All links: those of hosts first, then those between leaves and spines."""
        shape, links = self.spec.fabric, list[Link]()

        def cable(
            low: str,
            high: str,
            interfaces: tuple[str, str],
            network: tuple[int, int],
            gbps: float,
            last: tuple[int, int],
        ) -> None:
            ends = ((low, high, interfaces[0], last[0]), (high, low, interfaces[1], last[1]))
            for source, target, interface, end in ends:
                links.append(
                    Link(
                        len(links) + 1,
                        source,
                        target,
                        interface,
                        self._address(network, end),
                        round(gbps * 1e9),
                    )
                )

        for host in self.hosts:
            cable(
                host,
                f"l{host[1]}",
                ("e0", host),
                (int(host[1]), int(host[2])),
                shape.host_rate,
                (2, 1),
            )
        for leaf in self.leaves:
            for spine in self.spines:
                cable(
                    leaf,
                    spine,
                    (spine, leaf),
                    (100 + int(leaf[1]), int(spine[1])),
                    shape.spine_rate,
                    (2, 1),
                )
        return links

    def _address(self, network: tuple[int, int], end: int) -> str:
        """Address in the network of a cable. The last three bytes are the same in both versions."""
        first, second = network
        if self.ip == 4:
            return f"10.{first}.{second}.{end}"
        return f"fd10:{first}:{second}::{first:x}:{second:x}{end:02x}"

    def _host_network(self, host: str) -> str:
        """The cable of a host."""
        if self.ip == 4:
            return f"10.{host[1]}.{host[2]}.0/24"
        return f"fd10:{host[1]}:{host[2]}::/64"

    def _leaf_network(self, leaf: str) -> str:
        """All hosts of a leaf."""
        return f"10.{leaf[1]}.0.0/16" if self.ip == 4 else f"fd10:{leaf[1]}::/32"

    def namespace(self, node: str) -> str:
        """Name of a node's network namespace."""
        return f"{self.spec.name}-{node}"

    def address(self, host: str) -> str:
        """IP address of a host."""
        return self._address((int(host[1]), int(host[2])), 2)

    def address_end(self, host: str) -> int:
        """The last three bytes of a host's address, which packet ids are made of."""
        return int.from_bytes(ipaddress.ip_address(self.address(host)).packed[-3:])

    def cable(self, node: str, other: str) -> tuple[Link, Link] | None:
        """Both directions of the cable between two nodes; None if there is none."""
        links = [link for link in self.links if {link.source, link.target} == {node, other}]
        return (links[0], links[1]) if links else None

    def create(self) -> Command:
        """The command that makes the namespaces and cables."""
        lines = [f"netns add {self.namespace(node)}" for node in self.nodes]
        for there, back in zip(self.links[::2], self.links[1::2], strict=True):
            lines.append(
                f"link add {there.interface} index {FIRST_INDEX + there.number} "
                f"netns {self.namespace(there.source)} type veth "
                f"peer name {back.interface} index {FIRST_INDEX + back.number} "
                f"netns {self.namespace(back.source)}"
            )
        return Command(("ip", "-batch", "-"), "\n".join(lines) + "\n")

    def configure(self) -> list[Command]:
        """Commands that give namespaces their addresses, and the routes that never change."""
        commands = []
        for node in self.nodes:
            lines = ["link set dev lo up"]
            for link in (link for link in self.links if link.source == node):
                lines += [
                    # One segment per packet, so queues and counters see the packets of a real wire.
                    f"link set dev {link.interface} gso_max_segs 1",
                    # No other node can have the address.
                    f"addr add {link.address}/24 dev {link.interface}"
                    if self.ip == 4
                    else f"addr add {link.address}/64 dev {link.interface} nodad",
                    f"link set dev {link.interface} up",
                ]
            if node in self.hosts:
                gateway = self._address((int(node[1]), int(node[2])), 1)
                ecn = " features ecn" if self.spec.fabric.rule == "ecn" else ""
                lines.append(f"route add default via {gateway} {_TRANSPORT}{ecn}")
            elif node in self.spines:
                lines += [
                    f"route add {self._leaf_network(leaf)} "
                    f"via {self._address((100 + int(leaf[1]), int(node[1])), 2)}"
                    for leaf in self.leaves
                ]
            commands.append(self._batch("ip", node, lines))
        return commands

    def settle(
        self, rates_bps: dict[int, int], spines: list[str], *, static: bool = False
    ) -> list[Command]:
        """Commands that set rates and the spines in use. They can be repeated.

        Args:
            rates_bps: Rates of links that differ from the nominal one, by number of the link.
            spines: Spines that leaves send to.
            static: Send all packets for a host by one spine (D-mod-k; Zahavi, 2010), instead of
                those of a connection by a hash.
        """
        shape, commands = self.spec.fabric, []
        for node in self.nodes:
            outgoing = [link for link in self.links if link.source == node]
            commands.append(
                self._batch(
                    "tc",
                    node,
                    [
                        f"qdisc replace dev {link.interface} root tbf "
                        f"rate {rates_bps.get(link.number, link.rate_bps)}bit "
                        f"burst {shape.burst} limit {shape.queue}"
                        for link in outgoing
                    ],
                )
            )
        for leaf in self.leaves:
            hops = [
                f"nexthop via {self._address((100 + int(leaf[1]), int(spine[1])), 1)}"
                for spine in spines
            ]
            others = [
                f"route replace {self._host_network(host)} "
                + (hops[number % len(hops)] if static else " ".join(hops))
                for number, host in enumerate(self.hosts)
                if host[1] != leaf[1]
            ]
            if others:
                commands.append(self._batch("ip", leaf, others))
        return commands

    def attach(self, programs: Path) -> list[Command]:
        """Commands that attach the programs of the data path to all ports, and to all hosts.

        Args:
            programs: Where they are pinned.
        """
        commands = []
        for node in self.nodes:
            lines = []
            for link in (link for link in self.links if link.source == node):
                lines.append(f"qdisc add dev {link.interface} clsact")
                directions = ("egress", "ingress") if node in self.hosts else ("egress",)
                lines += [
                    f"filter add dev {link.interface} {way} bpf direct-action "
                    f"object-pinned {programs}/tailback_{way}"
                    for way in directions
                ]
            commands.append(self._batch("tc", node, lines))
        return commands

    def show_route(self, leaf: str, other: str) -> Command:
        """The command that shows how a leaf reaches the hosts of another one, as JSON."""
        version = ("-6",) if self.ip == 6 else ()
        network = self._leaf_network(other)
        return Command(
            ("ip", "-n", self.namespace(leaf), *version, "-j", "route", "show", "root", network)
        )

    def _batch(self, program: str, node: str, lines: list[str]) -> Command:
        version = ("-6",) if program == "ip" and self.ip == 6 else ()
        arguments = (program, "-n", self.namespace(node), *version, "-batch", "-")
        return Command(arguments, "\n".join(lines) + "\n")
