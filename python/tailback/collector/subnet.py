"""The ports of a subnet to read: those kept by a repeated discovery, and their ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailback.collector import mad as mads
from tailback.collector.exchange import NO_RETRY, MadExchange, Request
from tailback.port_counters.targets import GIVEN, PortTarget, Subnet


def keep_unseen(subnet: Subnet, previous: Sequence[PortTarget]) -> Subnet:
    """Keep the ports that a discovery missed because an answer was lost.

    A port that its device reports as down is removed, and so is a missing device if all others
    answered. A device that did not report its name keeps the earlier
    one.

    Args:
        subnet: The discovery.
        previous: The ports of the one before.
    """
    names = {target.guid: target.node_name for target in previous}
    targets = [
        replace(t, node_name=names.get(t.guid, t.node_name))
        if t.node_name == unnamed(t.guid)
        else t
        for t in subnet.targets
    ]
    if subnet.incomplete:
        # The device at the far end did not answer: as far as is known it is still there.
        ends = {(t.guid, t.port): (t.peer_guid, t.peer_name, t.peer_port) for t in previous}
        for place, t in enumerate(targets):
            guid, name, port = ends.get((t.guid, t.port), (0, "", 0))
            if not t.peer_name and guid not in subnet.devices:
                targets[place] = replace(t, peer_guid=guid, peer_name=name, peer_port=port)
    there = {(target.guid, target.port) for target in targets}
    owner = {target.lid: target.guid for target in targets}
    unseen = [
        target
        for target in previous
        if (target.guid, target.port) not in there
        and owner.get(target.lid, target.guid) == target.guid
        and (
            (target.guid, target.port) in subnet.unanswered
            # The state of port 0 contains the address of all ports of a switch.
            or (target.switch and (target.guid, 0) in subnet.unanswered)
            or (subnet.incomplete and target.guid not in subnet.devices)
        )
    ]
    problems = list(subnet.problems)
    if unseen:
        problems.append(("the subnet", f"kept ports that could not be seen: {len(unseen)}"))
    targets = sorted([*targets, *unseen], key=lambda target: (target.guid, target.port))
    return replace(subnet, targets=targets, problems=problems)


def unnamed(guid: int) -> str:
    """Name for a device that does not report one."""
    return f"0x{guid:016x}"


def survey(exchange: MadExchange, subnet: Subnet, previous: Sequence[PortTarget] = ()) -> Subnet:
    """Query the capabilities and the tick of every performance agent once.

    An agent that reports an error is left out. One that does not answer keeps its earlier
    capabilities, or is assumed to have 32-bit counters only, and is tried in every sweep. Both are
    named in ``problems``.

    Args:
        exchange: Where requests go.
        subnet: The ports.
        previous: The ports of an earlier discovery.
    """
    agents = {target.lid: target for target in subnet.targets}
    for lid in agents:
        request = mads.performance_get(mads.CLASS_PORT_INFO)
        exchange.submit(Request(lid, mads.CLASS_PERFORMANCE, lid, request, lid))
    can: dict[int, mads.Capability | None] = {}
    before = {target.guid: target for target in previous}
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
    return replace(subnet, targets=_stated_ticks(exchange, targets, previous), problems=problems)


def _stated_ticks(
    exchange: MadExchange, targets: list[PortTarget], previous: Sequence[PortTarget]
) -> list[PortTarget]:
    """The ports with the tick that their device states.

    Only devices with a port whose tick does not follow from device, rate and width are asked. The
    attribute is optional, and ibsim 0.12 ends the subnet manager if its own device is asked: it
    forwards the request to opensm, which takes it for an answer (``perfquery -c`` does the same).

    One port of each agent is asked, since a device has one clock for its samples. It is asked only
    once, since a missing attribute does not appear later.
    """
    stated = {target.guid: target.tick_bytes for target in previous}
    asked = {t.lid: t for t in targets if t.tick_high_ns is not None and t.guid not in stated}
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
