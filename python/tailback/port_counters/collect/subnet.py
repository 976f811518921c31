"""The ports of a subnet to read, from a discovery or a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from tailback.port_counters.collect import mad as mads
from tailback.port_counters.collect.exchange import NO_RETRY, MadExchange, Request
from tailback.port_counters.ticks import tick_of
from tailback.port_names import port_name

GIVEN: Final = "given"
"""Source of a tick that the user gives."""


@dataclass(frozen=True, slots=True)
class PortTarget:
    """One port whose counters are read.

    Attributes:
        guid: GUID of its device.
        node_name: Name of its device, as configured.
        switch: The device is a switch.
        port: Port number.
        lid: Address of its performance agent.
        gbps: Data rate in gigabits per second.
        tick_ns: Length of a tick of its PortXmitWait, or the least it may be, nanoseconds.
        tick_source: ``device``, ``model``, ``speed``, ``unknown`` (``ticks.Tick``) or ``given``.
        peer_name: Name of the device at the other end, ``""`` when not known.
        peer_port: Port number there, 0 when not known.
        extended: It has 64-bit data and packet counters.
        wait: It announces PortXmitWait.
        extended_wait: It has a 64-bit PortXmitWait.
        tick_high_ns: The longest that a tick may be, nanoseconds; None where it is known.
        device_id: NodeInfo's device id, 0 when not known.
        lanes: Active lanes, 0 when not known.
        tick_bytes: ``Tick`` + 1 that its device states in PortSamplesControl, 0 when it does not.
    """

    guid: int
    node_name: str
    switch: bool
    port: int
    lid: int
    gbps: float
    tick_ns: float = 0.0
    tick_source: str = ""
    peer_name: str = ""
    peer_port: int = 0
    extended: bool = False
    wait: bool = True
    extended_wait: bool = False
    tick_high_ns: float | None = None
    device_id: int = 0
    lanes: int = 0
    tick_bytes: int = 0

    def with_tick(self, tick_ns: float | None = None) -> PortTarget:
        """The port with its tick.

        Args:
            tick_ns: Tick that the user gives, nanoseconds; None takes that of ``ticks``.
        """
        if tick_ns is not None:
            return replace(self, tick_ns=tick_ns, tick_high_ns=None, tick_source=GIVEN)
        tick = tick_of(
            self.gbps,
            device_id=self.device_id,
            lanes=self.lanes,
            switch=self.switch,
            stated_bytes=self.tick_bytes,
        )
        high = None if tick.exact else tick.high_ns
        return replace(self, tick_ns=tick.low_ns, tick_high_ns=high, tick_source=tick.source)

    @property
    def far_port(self) -> str | None:
        """Name of the port at the other end, None when not known."""
        return port_name(self.peer_name, self.peer_port) if self.peer_name else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a segment's header."""
        return asdict(self)


@dataclass
class Subnet:
    """The ports to read and the problems of their discovery.

    Attributes:
        targets: The ports.
        problems: Name of a device, and its problem.
        devices: GUIDs of all devices that answered.
        unanswered: Device and port number whose state was requested and not reported.
        incomplete: A device did not answer, so devices behind it may be missing.
    """

    targets: list[PortTarget] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)
    unanswered: set[tuple[int, int]] = field(default_factory=set)
    incomplete: bool = False

    @property
    def notes(self) -> list[str]:
        """A note on ports whose tick is not known exactly, if there are any."""
        vague = sum(target.tick_high_ns is not None for target in self.targets)
        if not vague:
            return []
        return [
            f"ports whose tick is known within bounds only: {vague}; neither their device nor its "
            "id, rate and width tell it (--tick sets it)"
        ]

    @property
    def nodes(self) -> int:
        """Number of devices with a target."""
        return len({target.guid for target in self.targets})


def keep_unseen(found: Subnet, known: Sequence[PortTarget]) -> Subnet:
    """Keep the ports that a discovery missed because an answer was lost.

    A port that its device reports as down is removed, and so is a missing device if all others
    answered. A device that did not report its name keeps the earlier one.

    Args:
        found: The discovery.
        known: The ports of the one before.
    """
    names = {target.guid: target.node_name for target in known}
    targets = [
        replace(t, node_name=names.get(t.guid, t.node_name))
        if t.node_name == unnamed(t.guid)
        else t
        for t in found.targets
    ]
    there = {(target.guid, target.port) for target in targets}
    owner = {target.lid: target.guid for target in targets}
    unseen = [
        target
        for target in known
        if (target.guid, target.port) not in there
        and owner.get(target.lid, target.guid) == target.guid
        and (
            (target.guid, target.port) in found.unanswered
            # The state of port 0 contains the address of all ports of a switch.
            or (target.switch and (target.guid, 0) in found.unanswered)
            or (found.incomplete and target.guid not in found.devices)
        )
    ]
    problems = list(found.problems)
    if unseen:
        problems.append(("the subnet", f"kept ports that could not be seen: {len(unseen)}"))
    targets = sorted([*targets, *unseen], key=lambda target: (target.guid, target.port))
    return replace(found, targets=targets, problems=problems)


def unnamed(guid: int) -> str:
    """Name for a device that does not report one."""
    return f"0x{guid:016x}"


def survey(exchange: MadExchange, subnet: Subnet, known: Sequence[PortTarget] = ()) -> Subnet:
    """Query the capabilities and the tick of every performance agent once.

    An agent that reports an error is left out. One that does not answer keeps its earlier
    capabilities, or is assumed to have 32-bit counters only, and is tried in every sweep. Both are
    named in ``problems``.

    Args:
        exchange: Where requests go.
        subnet: The ports.
        known: The ports of an earlier discovery.
    """
    agents = {target.lid: target for target in subnet.targets}
    for lid in agents:
        request = mads.performance_get(mads.CLASS_PORT_INFO)
        exchange.submit(Request(lid, mads.CLASS_PERFORMANCE, lid, request, lid))
    can: dict[int, mads.Capability | None] = {}
    before = {target.guid: target for target in known}
    problems = list(subnet.problems)
    for reply in exchange.results():
        lid = reply.request.tag
        if reply.mad is not None:
            can[lid] = mads.capability(reply.mad)
            continue
        target = agents[lid]
        problems.append((target.node_name, f"no performance agent: {reply.problem}"))
        if reply.status:
            # A busy agent has status 0 here: it will answer another time.
            can[lid] = None
        elif earlier := before.get(target.guid):
            can[lid] = mads.Capability(earlier.extended, earlier.wait, earlier.extended_wait)
        else:
            can[lid] = mads.Capability(False, True, False)
    targets = [
        replace(
            target,
            extended=ability.extended,
            wait=ability.xmit_wait,
            extended_wait=ability.extended_wait,
        )
        for target in subnet.targets
        if (ability := can[target.lid]) is not None
    ]
    return Subnet(_stated_ticks(exchange, targets, known), problems)


def _stated_ticks(
    exchange: MadExchange, targets: list[PortTarget], known: Sequence[PortTarget]
) -> list[PortTarget]:
    """The ports with the tick that their device states.

    One port of each agent is asked, as a device has one clock for its samples, and only once: an
    attribute that a device lacks does not appear later.
    """
    stated = {target.guid: target.tick_bytes for target in known}
    asked = {t.lid: t for t in targets if t.tick_source != GIVEN and t.guid not in stated}
    for lid, target in asked.items():
        request = mads.performance_get(mads.PORT_SAMPLES_CONTROL, target.port)
        # Not repeated, and under a key of its own: an agent that ignores an optional attribute is
        # not one that does not answer.
        once = Request(("tick", lid), mads.CLASS_PERFORMANCE, lid, request, lid, NO_RETRY)
        exchange.submit(once)
    for reply in exchange.results():
        if reply.mad is not None:
            stated[asked[reply.request.tag].guid] = mads.tick_bytes(reply.mad)
    return [
        target
        if target.tick_source == GIVEN
        else replace(target, tick_bytes=stated.get(target.guid, 0)).with_tick()
        for target in targets
    ]
