"""The ports to read, from an earlier output of ``ibnetdiscover``, without a discovery.

The devices and cables are read by :mod:`tailback.fabric.ibnetdiscover`; the local identifiers and
device ids, which a fabric does not contain, are read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tailback.delimited import content
from tailback.errors import TailbackError
from tailback.fabric.ibnetdiscover import BlockFormat, Discovery, Kind, PortEnd, clip, join_cables
from tailback.fabric.ibnetdiscover_ports import PortFormat, port_lids
from tailback.port_counters.collect.mad import HIGHEST_UNICAST_LID
from tailback.port_counters.collect.subnet import PortTarget, Subnet
from tailback.port_counters.schema import CounterError

_DEVICE_ID = re.compile(r"^devid=0x([0-9a-fA-F]{1,8})\s*$")
_HEADER = re.compile(r'^(Switch|Ca|Hca|Rt)\s+\d+\s+"([^"]+)"(.*)$')
_SWITCH_LID = re.compile(r"\bport\s+0\s+lid\s+(\d{1,5})\s+lmc\s+\d+\s*$")
_ADAPTER_LID = re.compile(
    r'^\[(\d{1,3})\]\([0-9a-fA-F]+\)\s*"[^"]+"\[\d+\](?:\([0-9a-fA-F]+\))?\s*#\s*lid\s+(\d{1,5})\s'
)
_WIDTH = re.compile(r"^\[(\d{1,3})\].*\s(\d{1,2})x[A-Z]{3}[A-Z0-9]*\s*$")


@dataclass
class _Addresses:
    """Addresses of agents: switches by key, adapter ports by key and number."""

    switch: dict[str, int] = field(default_factory=dict)
    adapter: dict[tuple[str, int], int] = field(default_factory=dict)
    device_id: dict[str, int] = field(default_factory=dict)
    lanes: dict[tuple[str, int], int] = field(default_factory=dict)


def read_targets(path: Path, *, hosts: bool = True, tick_ns: float | None = None) -> Subnet:
    """Return the ports of a discovery file.

    Args:
        path: Output of ``ibnetdiscover``.
        hosts: Include the ports of adapters.
        tick_ns: Length of a tick for all ports, nanoseconds; None takes that of ``ticks``.

    Raises:
        CounterError: The file cannot be read or has no local identifiers.
        FabricError: A line of it cannot be read; names the line.
    """
    text = content(path, CounterError).decode("utf-8", errors="replace")
    forms: tuple[BlockFormat | PortFormat, ...] = (BlockFormat(), PortFormat())
    form = next((form for form in forms if form.recognises(text)), None)
    if form is None:
        raise CounterError(
            "is not output of ibnetdiscover",
            file=path,
            remedy="make it with: ibnetdiscover > FILE",
        )
    notes: list[str] = []
    try:
        found = form.parse(text)
        cables = join_cables(found, notes)
    except TailbackError as error:
        raise error.located(path) from None
    where = _addresses(text) if isinstance(form, BlockFormat) else _port_addresses(text)
    subnet = Subnet(problems=[(path.name, note) for note in notes])
    for cable in cables:
        for here, there in ((cable.a, cable.b), (cable.b, cable.a)):
            end = PortEnd(*here, *there, cable.gbps, 0)
            target = _target(found, where, end, hosts, tick_ns)
            if isinstance(target, str):
                subnet.problems.append((found.devices[end.key].name, target))
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
    found: Discovery, where: _Addresses, end: PortEnd, hosts: bool, tick_ns: float | None
) -> PortTarget | str | None:
    device, peer = found.devices[end.key], found.devices[end.peer]
    switch = device.kind is Kind.SWITCH
    if not switch and not hosts:
        return None
    lid = where.switch.get(end.key) if switch else where.adapter.get((end.key, end.port))
    if lid is None:
        return f"port {end.port}: the file has no LID for it"
    if not 1 <= lid <= HIGHEST_UNICAST_LID:
        return f"port {end.port}: lid {lid} is outside 1 to {HIGHEST_UNICAST_LID}"
    try:
        guid = int(device.guid, 16)
    except ValueError:
        return f"port {end.port}: {clip(device.guid, 40)} is not a GUID"
    gbps = end.gbps or 0.0
    return PortTarget(
        guid=guid,
        node_name=device.name or device.guid,
        switch=switch,
        port=end.port,
        lid=lid,
        gbps=gbps,
        peer_name=peer.name or peer.guid,
        peer_port=end.peer_port,
        device_id=where.device_id.get(end.key, 0),
        lanes=where.lanes.get((end.key, end.port), 0),
    ).with_tick(tick_ns)


def _port_addresses(text: str) -> _Addresses:
    """Addresses from ``ibnetdiscover -p``: every line has a LID; a switch has only one."""
    where = _Addresses(adapter=port_lids(text))
    where.switch = {key: lid for (key, _), lid in where.adapter.items()}
    return where


def _addresses(text: str) -> _Addresses:
    where = _Addresses()
    key, device_id = "", 0
    for raw in text.split("\n"):
        line = raw.strip()
        if match := _DEVICE_ID.match(line):
            device_id = int(match[1], 16)
        elif match := _HEADER.match(line):
            key = match[2]
            where.device_id[key] = device_id
            device_id = 0
            if match[1] == "Switch" and (lid := _SWITCH_LID.search(match[3])):
                where.switch[key] = int(lid[1])
        elif key and (match := _ADAPTER_LID.match(line)):
            where.adapter[key, int(match[1])] = int(match[2])
        if key and (width := _WIDTH.match(line)):
            where.lanes[key, int(width[1])] = int(width[2])
    return where
