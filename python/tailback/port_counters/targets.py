"""Ports whose counters are read, and their list in an output of ``ibnetdiscover``."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from tailback.errors import TailbackError, option
from tailback.fabric.ibnetdiscover import Discovery, Kind, clip, join_cables
from tailback.fabric.readers import read_discovery
from tailback.names.ports import port_name
from tailback.port_counters.schema import CounterError
from tailback.port_counters.ticks import tick_of
from tailback.run.schema import Column, Table

HIGHEST_UNICAST_LID: Final = 0xBFFF

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
        peer_guid: GUID of the device there, 0 when not known.
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
    peer_guid: int = 0

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


PORTS: Final = Table(
    "fabric_ports",
    "a port that was read, with the far end of its link",
    (
        Column("node_guid", pl.UInt64, "GUID of the device"),
        Column("node_name", pl.String, "name of the device"),
        Column("switch", pl.Boolean, "the device is a switch"),
        Column("port", pl.UInt16, "port number"),
        Column("lid", pl.UInt32, "local identifier of the port, or of the switch"),
        Column("peer_guid", pl.UInt64, "GUID of the device at the other end, 0 unknown"),
        Column("peer_name", pl.String, "name of the device at the other end, null unknown"),
        Column("peer_port", pl.UInt16, "port number there, 0 unknown"),
        Column("capacity_gbps", pl.Float64, "data rate, Gb/s, null unknown"),
        Column("lanes", pl.UInt16, "active lanes, 0 unknown"),
    ),
)


def ports_frame(targets: Iterable[PortTarget]) -> pl.DataFrame:
    """Ports as rows of :data:`PORTS`."""
    rows = [
        (
            t.guid,
            t.node_name,
            t.switch,
            t.port,
            t.lid,
            t.peer_guid,
            t.peer_name or None,
            t.peer_port,
            t.gbps or None,
            t.lanes,
        )
        for t in targets
    ]
    return pl.DataFrame(rows, schema=PORTS.polars_schema, orient="row")


def targets_of(ports: pl.DataFrame) -> list[PortTarget]:
    """The ports of rows of :data:`PORTS`; their ticks are unknown."""
    return [
        PortTarget(
            row["node_guid"],
            row["node_name"],
            row["switch"],
            row["port"],
            row["lid"],
            row["capacity_gbps"] or 0.0,
            peer_name=row["peer_name"] or "",
            peer_port=row["peer_port"],
            lanes=row["lanes"],
            peer_guid=row["peer_guid"],
        )
        for row in ports.select(list(PORTS.polars_schema)).iter_rows(named=True)
    ]


@dataclass
class Subnet:
    """The ports to read and the problems of their discovery.

    Attributes:
        targets: The ports.
        problems: Name of a device, and its problem.
        devices: GUIDs of all devices that answered.
        unanswered: Device and port number whose state was requested and not reported.
        switch_ports: Number of ports of each switch, by GUID, where known.
        active: Lanes and rate in Gb/s of each switch port whose link is in use, by GUID and port
            number, whether it is a target or not.
        incomplete: A device did not answer, so devices behind it may be missing.
    """

    targets: list[PortTarget] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)
    unanswered: set[tuple[int, int]] = field(default_factory=set)
    incomplete: bool = False
    switch_ports: dict[int, int] = field(default_factory=dict)
    active: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """A note on ports whose tick is not known exactly, if there are any."""
        vague = sum(target.tick_high_ns is not None for target in self.targets)
        if not vague:
            return []
        return [
            f"ports whose tick is known within bounds only: {vague}; neither their device nor its "
            f"id, rate and width tell it ({option('tick_ns')} sets it)"
        ]

    @property
    def nodes(self) -> int:
        """Number of devices with a target."""
        return len({target.guid for target in self.targets})


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
            remedy=f"make it again with: ibnetdiscover > FILE, or leave {option('fabric')} out",
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
    """The port ``here``, cabled to ``there``, or a problem in words.

    None for a port not asked for.
    """
    (key, port), (peer_key, peer_port) = here, there
    device, peer = discovery.devices[key], discovery.devices[peer_key]
    switch = device.kind is Kind.SWITCH
    peer_guid = 0
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
    with suppress(ValueError):
        peer_guid = int(peer.guid, 16)
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
        peer_guid=peer_guid,
        device_id=device.device_id or 0,
        lanes=0 if speed is None else speed.lanes,
    ).with_tick(tick_ns)
