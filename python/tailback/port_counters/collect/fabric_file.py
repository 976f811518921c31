"""The ports to read, from an earlier output of ``ibnetdiscover``, without a discovery."""

from __future__ import annotations

from pathlib import Path

from tailback.errors import TailbackError
from tailback.fabric.ibnetdiscover import Discovery, Kind, clip, join_cables
from tailback.fabric.readers import read_discovery
from tailback.port_counters.collect.mad import HIGHEST_UNICAST_LID
from tailback.port_counters.collect.subnet import PortTarget, Subnet
from tailback.port_counters.schema import CounterError


def read_targets(path: Path, *, hosts: bool = True, tick_ns: float | None = None) -> Subnet:
    """Return the ports of a discovery file.

    Args:
        path: Output of ``ibnetdiscover``.
        hosts: Include the ports of adapters.
        tick_ns: Length of a tick for all ports, nanoseconds; None takes that of ``ticks``.

    Raises:
        CounterError: The file has no local identifiers.
        FabricError: The file, or a line of it, cannot be read.
    """
    discovery, notes = read_discovery(path)
    try:
        cables = join_cables(discovery, notes)
    except TailbackError as error:
        raise error.located(path) from None
    subnet = Subnet(problems=[(path.name, note) for note in notes])
    for cable in cables:
        for here, there in ((cable.a, cable.b), (cable.b, cable.a)):
            target = _target(discovery, here, there, cable.gbps, hosts, tick_ns)
            if isinstance(target, str):
                subnet.problems.append((discovery.devices[here[0]].name, target))
            elif target is not None:
                subnet.targets.append(target)
    if not subnet.targets:
        raise CounterError(
            "has no local identifiers (lid) by which to query ports",
            file=path,
            remedy="make it again with: ibnetdiscover > FILE, or leave --fabric out",
        )
    subnet.targets.sort(key=lambda target: (target.guid, target.port))
    return subnet


def _target(
    discovery: Discovery,
    here: tuple[str, int],
    there: tuple[str, int],
    gbps: float,
    hosts: bool,
    tick_ns: float | None,
) -> PortTarget | str | None:
    """The port ``here``, cabled to ``there``; a problem in words; None for one not asked for."""
    (key, port), (peer_key, peer_port) = here, there
    device, peer = discovery.devices[key], discovery.devices[peer_key]
    switch = device.kind is Kind.SWITCH
    if not switch and not hosts:
        return None
    lid = discovery.lid_of(key, port)
    if lid is None:
        return f"port {port}: the file has no LID for it"
    if not 1 <= lid <= HIGHEST_UNICAST_LID:
        return f"port {port}: lid {lid} is outside 1 to {HIGHEST_UNICAST_LID}"
    try:
        guid = int(device.guid, 16)
    except ValueError:
        return f"port {port}: {clip(device.guid, 40)} is not a GUID"
    speed = discovery.speed.get(here)
    return PortTarget(
        guid=guid,
        node_name=device.name or device.guid,
        switch=switch,
        port=port,
        lid=lid,
        gbps=gbps,
        peer_name=peer.name or peer.guid,
        peer_port=peer_port,
        device_id=device.device_id or 0,
        lanes=0 if speed is None else speed.lanes,
    ).with_tick(tick_ns)
