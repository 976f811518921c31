"""Discovery by directed routes: every device and cable, with many requests in flight.

The walk starts at the port the collector is attached to and continues through every switch port
that is up. It sends only ``Get`` requests. If a device does not answer, the cables behind it are
not found, and the result names the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tailback.collector import mad as mads
from tailback.collector.exchange import MadExchange, Reply, Request
from tailback.collector.subnet import unnamed
from tailback.port_counters.schema import CounterError
from tailback.port_counters.targets import HIGHEST_UNICAST_LID, PortTarget, Subnet

PortKey = tuple[int, int]
"""A port as (GUID of the device, port number)."""


@dataclass
class _Device:
    """A device during discovery."""

    info: mads.NodeInfo
    path: bytes
    name: str = ""
    lid: int = 0
    ports: dict[int, mads.PortInfo] = field(default_factory=dict)


@dataclass
class _Walk:
    """State of one discovery."""

    exchange: MadExchange
    devices: dict[int, _Device] = field(default_factory=dict)
    peer: dict[PortKey, PortKey] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    unanswered: set[PortKey] = field(default_factory=set)
    incomplete: bool = False

    def ask(self, path: bytes, attribute: int, modifier: int, tag: tuple[str, PortKey]) -> None:
        # The limit of requests in flight applies per device, and a path leads to one device only.
        datagram = mads.directed_get(path, attribute, modifier)
        self.exchange.submit(
            Request(("path", path), mads.CLASS_DIRECTED, mads.PERMISSIVE_LID, datagram, tag)
        )

    def take(self, reply: Reply) -> None:
        what, place = reply.request.tag
        if reply.mad is None:
            self.problems.append(self._lost(what, place, reply.problem))
            self.incomplete |= what == "node"
            if what == "port":
                self.unanswered.add(place)
        elif what == "node":
            self._node(mads.node_info(reply.mad), place, reply)
        elif what == "name":
            self.devices[place[0]].name = mads.node_description(reply.mad)
        else:
            self._port(mads.port_info(reply.mad), place)

    def _lost(self, what: str, place: PortKey, problem: str) -> tuple[str, str]:
        guid, port = place
        near = self.devices.get(guid)
        where = (near.name or f"0x{guid:016x}") if near else "this machine"
        asked = {"node": "the device behind it", "name": "its name", "port": "its state"}[what]
        return where, f"port {port}: {asked} is not known: {problem}"

    def _node(self, info: mads.NodeInfo, came_from: PortKey, reply: Reply) -> None:
        guid, here = info.guid, (info.guid, info.local_port)
        if came_from[1]:
            self.peer[came_from] = here
            self.peer[here] = came_from
        hops = reply.request.mad[7]
        path = bytes(reply.request.mad[129 : 129 + hops])
        is_visited = guid in self.devices
        if not is_visited:
            self.devices[guid] = _Device(info, path)
            self.ask(path, mads.NODE_DESCRIPTION, 0, ("name", (guid, 0)))
        if info.kind != mads.NodeType.SWITCH:
            # Each port of an adapter is reached through its own cable.
            self.ask(path, mads.PORT_INFO, info.local_port, ("port", here))
        elif not is_visited:
            for port in range(info.ports + 1):
                self.ask(path, mads.PORT_INFO, port, ("port", (guid, port)))

    def _port(self, info: mads.PortInfo, place: PortKey) -> None:
        guid, port = place
        device = self.devices[guid]
        device.ports[port] = info
        switch = device.info.kind == mads.NodeType.SWITCH
        if not switch or port == 0:
            device.lid = info.lid
        first = not device.path and not switch
        if not info.up or port == 0 or place in self.peer or not (switch or first):
            return
        if len(device.path) >= mads.MAX_HOPS:
            self.problems.append((device.name, f"port {port}: more than 63 switches away"))
            return
        self.ask(device.path + bytes([port]), mads.NODE_INFO, 0, ("node", place))


def discover(exchange: MadExchange, *, hosts: bool = True, tick_ns: float | None = None) -> Subnet:
    """Find every port that is up.

    Args:
        exchange: Where requests go.
        hosts: Include the ports of adapters, not only those of switches.
        tick_ns: Length of a tick for all ports, nanoseconds; None takes that of ``ticks``.

    Returns:
        The ports, by device and number; capabilities are not known yet (see ``survey``).

    Raises:
        CounterError: The local port does not answer either.
    """
    walk = _Walk(exchange)
    walk.ask(b"", mads.NODE_INFO, 0, ("node", (0, 0)))
    for reply in exchange.results():
        walk.take(reply)
    if not walk.devices:
        raise CounterError(
            "the subnet management agent of this machine's port does not answer",
            remedy="check 'ibstat', or give a discovery file with --fabric FILE",
        )
    subnet = Subnet(
        problems=walk.problems,
        devices=set(walk.devices),
        unanswered=walk.unanswered,
        incomplete=walk.incomplete,
        switch_ports={
            guid: device.info.ports
            for guid, device in walk.devices.items()
            if device.info.kind == mads.NodeType.SWITCH
        },
        active={
            (guid, port): (info.lanes, info.gbps or 0.0)
            for guid, device in walk.devices.items()
            if device.info.kind == mads.NodeType.SWITCH
            for port, info in device.ports.items()
            if port and info.active
        },
    )
    for guid in sorted(walk.devices):
        subnet.targets.extend(_targets(walk, walk.devices[guid], hosts, tick_ns))
    return subnet


def _targets(walk: _Walk, device: _Device, hosts: bool, tick_ns: float | None) -> list[PortTarget]:
    switch = device.info.kind == mads.NodeType.SWITCH
    if not switch and not hosts:
        return []
    targets = []
    for port, info in sorted(device.ports.items()):
        if port == 0 or not info.active:
            continue
        place = (device.info.guid, port)
        peer_guid, peer_port = walk.peer.get(place, (0, 0))
        peer = walk.devices.get(peer_guid)
        lid = device.lid if switch else info.lid
        if not 1 <= lid <= HIGHEST_UNICAST_LID:
            walk.problems.append((device.name, f"port {port}: it has no usable lid ({lid})"))
            continue
        gbps = info.gbps or 0.0
        if not gbps:
            walk.problems.append((device.name, f"port {port}: its data rate is not known"))
        targets.append(
            PortTarget(
                guid=device.info.guid,
                node_name=device.name or unnamed(device.info.guid),
                switch=switch,
                port=port,
                lid=lid,
                gbps=gbps,
                peer_name=peer.name if peer else "",
                peer_port=peer_port if peer else 0,
                peer_guid=peer_guid if peer else 0,
                device_id=device.info.device_id,
                lanes=info.lanes,
            ).with_tick(tick_ns)
        )
    return targets
